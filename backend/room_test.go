package backend_test

import (
	"net/http/httptest"
	"testing"

	"polar/backend"
	"polar/llm"
	"polar/rawjson"
	"polar/sim"
)

// TestAnAnswerLongerThanTheRoomForItIsAskedShorter is hazard 7 of the field: a
// harness asks for 64,000 tokens on a model that has fewer.
func TestAnAnswerLongerThanTheRoomForItIsAskedShorter(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"vllm", "sglang"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := sim.Defaults()
			cfg.Engine, cfg.ContextLimit = kind, 2000
			server, err := sim.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			web := httptest.NewServer(server)
			defer web.Close()
			open := map[string]func() (backend.Engine, error){
				"vllm":   func() (backend.Engine, error) { return backend.NewVLLM(backend.VLLMConfig{URL: web.URL}) },
				"sglang": func() (backend.Engine, error) { return backend.NewSGLang(backend.SGLangConfig{URL: web.URL}) },
			}
			engine, err := open[kind]()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = engine.Close() }()
			long := 64_000
			req := llm.Request{
				Model: "sim", Messages: []llm.Message{{Role: "user", Content: rawjson.Quote("hello there")}},
				Sampling: llm.Sampling{MaxTokens: &long},
			}
			reply, err := llm.Collect(engine.Generate(t.Context(), req))
			if err != nil || len(reply.Tokens) == 0 {
				t.Errorf("%d tokens, error %v", len(reply.Tokens), err)
			}
			if *req.Sampling.MaxTokens != 64_000 {
				t.Error("the caller's request was changed")
			}
		})
	}
}
