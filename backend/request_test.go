package backend_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/backend"
	"polar/llm"
	"polar/rawjson"
)

// asked keeps the bodies an engine was asked with.
type asked struct {
	mu     sync.Mutex
	bodies []string
	lens   []int64
}

func (a *asked) keep(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bodies = append(a.bodies, r.URL.Path+" "+string(body))
	a.lens = append(a.lens, r.ContentLength)
}

const wholeAnswer = `{"model":"m","choices":[{"message":{"content":"hi"},"finish_reason":"stop","prompt_token_ids":[9],"response_token_ids":[1],"meta_info":{"output_token_logprobs":[[-1,1,null]]}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`

func TestWhatEachEngineIsAsked(t *testing.T) {
	t.Parallel()
	number, warm, seed := 7, 0.5, int64(3)
	req := llm.Request{
		Model: "m",
		Messages: []llm.Message{
			{Role: "developer", Content: json.RawMessage(`"a<b"`)},
			{Role: "assistant", Reasoning: "why", ToolCalls: []llm.ToolCall{{ID: "1", Name: "f", Arguments: `{"b": 1.0}`}}, Extra: rawjson.Object{{Key: "x", Value: json.RawMessage("1")}}},
		},
		Tools:    []json.RawMessage{},
		Sampling: llm.Sampling{Temperature: &warm, TopK: &number, MaxTokens: &number, Seed: &seed, ChatTemplateKwargs: rawjson.Object{{Key: "k", Value: json.RawMessage("1")}}},
		Extra: rawjson.Object{
			{Key: "return_meta_info", Value: json.RawMessage("false")},
			{Key: "min_p", Value: json.RawMessage("0.1")},
			{Key: "reasoning_effort", Value: json.RawMessage(`"low"`)},
			{Key: "min_tokens", Value: json.RawMessage("2")},
		},
	}
	const messages = `"messages":[{"role":"system","content":"a<b"},{"role":"assistant","content":null,"reasoning_content":"why","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\": 1.0}"}}],"x":1}]`
	const plain = `"messages":[{"role":"system","content":"a<b"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\": 1.0}"}}]}]`
	const sampling = `"temperature":0.5,"top_k":7,"max_tokens":7,"seed":3,"chat_template_kwargs":{"k":1}`
	const extra = `"min_p":0.1,"reasoning_effort":"low","min_tokens":2`
	sglang := func(style string) func(url string) (backend.Engine, error) {
		return func(url string) (backend.Engine, error) {
			e, err := backend.NewSGLang(backend.SGLangConfig{URL: url})
			if err == nil {
				backend.SetStyle(e, style, "", "")
			}
			return e, err
		}
	}
	for name, tc := range map[string]struct {
		open func(url string) (backend.Engine, error)
		want []string
	}{
		"SGLang in one piece": {sglang("chat_whole"), []string{
			`/v1/chat/completions {"model":"m",` + messages + `,` + sampling + `,"stream":false,"logprobs":true,"top_logprobs":0,"return_prompt_token_ids":true,"return_meta_info":true,"return_token_ids":true,` + extra + `}`,
		}},
		"SGLang streamed": {sglang("chat_stream"), []string{
			`/v1/chat/completions {"model":"m",` + messages + `,` + sampling + `,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":0,"return_input_ids":true,"return_output_ids":true,` + extra + `}`,
		}},
		"SGLang without ids": {sglang("chat_no_ids"), []string{
			`/v1/chat/completions {"model":"m",` + messages + `,` + sampling + `,"stream":true,"stream_options":{"include_usage":true},` + extra + `}`,
		}},
		"SGLang over generate": {sglang("generate"), []string{
			`/tokenize {"model":"m",` + messages + `,"chat_template_kwargs":{"k":1},"reasoning_effort":"low"}`,
			`/generate {"input_ids":[1, 2],"return_logprob":true,"stream":true,"sampling_params":{"max_new_tokens":7,"temperature":0.5,"top_k":7,"sampling_seed":3,"min_p":0.1,"min_new_tokens":2}}`,
		}},
		"OpenAI": {
			func(url string) (backend.Engine, error) {
				return backend.NewOpenAI(backend.OpenAIConfig{URL: url + "/v1", MaxTokensField: "max_completion_tokens"})
			},
			[]string{`/v1/chat/completions {"model":"m",` + plain + `,"temperature":0.5,"max_completion_tokens":7,"seed":3,"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low"}`},
		},
		"OpenAI that knows more": {
			func(url string) (backend.Engine, error) {
				return backend.NewOpenAI(backend.OpenAIConfig{URL: url, PassExtra: true})
			},
			[]string{`/v1/chat/completions {"model":"m",` + messages + `,` + sampling + `,"stream":true,"stream_options":{"include_usage":true},` + extra + `}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got asked
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/workers" {
					http.NotFound(w, r)
					return
				}
				got.keep(r)
				switch {
				case r.URL.Path == "/tokenize":
					_, _ = io.WriteString(w, `{"tokens":[1, 2]}`)
				case r.URL.Path == "/generate":
					_, _ = io.WriteString(w, `data: {"text":"hi","output_ids":[1],"meta_info":{"finish_reason":{"type":"stop"},"output_token_logprobs":[[-1,1,null]]}}`+"\n\n")
				case strings.Contains(got.bodies[0], `"stream":false`):
					_, _ = io.WriteString(w, wholeAnswer)
				default:
					_, _ = io.WriteString(w, answer)
				}
			}))
			defer server.Close()
			engine, err := tc.open(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = engine.Close() }()
			reply, err := llm.Collect(engine.Generate(t.Context(), req))
			if err != nil || reply.Message.Text() != "hi" {
				t.Fatal(reply, err)
			}
			if diff := cmp.Diff(tc.want, got.bodies); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() (backend.Engine, error){
		"url": func() (backend.Engine, error) { return backend.NewSGLang(backend.SGLangConfig{}) },
		"mode": func() (backend.Engine, error) {
			return backend.NewSGLang(backend.SGLangConfig{URL: "http://a", Mode: "x"})
		},
		"max_tokens_field": func() (backend.Engine, error) {
			return backend.NewOpenAI(backend.OpenAIConfig{URL: "http://a", MaxTokensField: "x"})
		},
		"timeout_seconds": func() (backend.Engine, error) {
			return backend.NewOpenAI(backend.OpenAIConfig{URL: "http://a", TimeoutSeconds: -1})
		},
	} {
		if _, err := open(); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// imageRequest has an image in it, as the body a harness sent.
func imageRequest(size int) llm.Request {
	content := append([]byte(`[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,`), strings.Repeat("iVBORw0K", size/8)...)
	return llm.Request{Messages: []llm.Message{
		{Role: "user", Content: append(content, `"}}]`...)},
		{Role: "assistant", Content: rawjson.Quote("A picture.")},
		{Role: "user", Content: rawjson.Quote("And now?")},
	}}
}

func TestAnImageIsSentWholeAndAgainOnARetry(t *testing.T) {
	t.Parallel()
	var got asked
	engine, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
		got.keep(r)
		if len(got.bodies) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, answer)
	}, backend.VLLMConfig{BackoffSeconds: 0.0001})
	req := imageRequest(1 << 20)
	if _, err := llm.Collect(engine.Generate(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	if len(got.bodies) != 2 || got.bodies[0] != got.bodies[1] {
		t.Fatalf("%d bodies, the second not as the first", len(got.bodies))
	}
	_, body, _ := strings.Cut(got.bodies[0], " ")
	if err := rawjson.Valid([]byte(body)); err != nil || !strings.Contains(body, string(req.Messages[0].Content)) || got.lens[0] != int64(len(body)) {
		t.Errorf("sent %d bytes of %d announced: %v", len(body), got.lens[0], err)
	}
}

func BenchmarkAnImageOf8MB(b *testing.B) {
	engine, _ := open(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	}, backend.VLLMConfig{})
	req := imageRequest(8 << 20)
	b.SetBytes(8 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := llm.Collect(engine.Generate(b.Context(), req)); err != nil {
			b.Fatal(err)
		}
	}
}
