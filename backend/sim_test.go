package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polar/backend"
	"polar/llm"
	"polar/rawjson"
	"polar/sim"
)

// kinds are the calls that every engine is asked, with rules that answer them.
const kindRules = `
noncanonical: 0.4
chunk_tokens: 2
rules:
  - {when: {user: reasoning}, think: "Let me see, é, 漢字 …", say: "A thought-out answer. Ünïcode 🙂"}
  - {when: {user: parallel}, think: Both, say: "Two at once:", call: [{tool: look, arguments: '{"path": "a"}'}, {tool: look, arguments: '{"path": "<b>"}'}]}
  - {when: {user: tool}, call: [{tool: look, arguments: '{"path": "x"}'}]}
  - {say: "Plain words, 漢字 and a smile 🙂 to end."}
`

func conversation(kind string) llm.Request {
	req := llm.Request{
		Model: "sim",
		Messages: []llm.Message{
			{Role: "developer", Content: rawjson.Quote("Be brief.")},
			{Role: "user", Content: rawjson.Quote("Give me " + kind)},
		},
	}
	if strings.Contains(kind, "tool") || kind == "parallel" {
		req.Tools = []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}`)}
	}
	return req
}

// serve runs a simulated engine on a socket.
func serve(tb testing.TB, yaml string) (*sim.Server, string) {
	tb.Helper()
	c, err := sim.Parse([]byte(kindRules + yaml))
	if err != nil {
		tb.Fatal(err)
	}
	s, err := sim.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	return s, server.URL
}

func openSGLang(tb testing.TB, c backend.SGLangConfig) backend.Engine {
	tb.Helper()
	c.BackoffSeconds = 0.0001
	engine, err := backend.NewSGLang(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = engine.Close() })
	return engine
}

// sameAsRecorded compares an answer with the simulator's last record, token for
// token.
func sameAsRecorded(tb testing.TB, s *sim.Server, reply llm.Reply) {
	tb.Helper()
	calls := s.Calls()
	rec := calls[len(calls)-1]
	if rec.Ended != sim.EndFinished {
		tb.Errorf("the call ended %s", rec.Ended)
	}
	got := sim.Recorded{PromptIDs: reply.PromptIDs}
	for _, token := range reply.Tokens {
		got.TokenIDs = append(got.TokenIDs, token.ID)
		got.Logprobs = append(got.Logprobs, token.Logprob)
	}
	want := sim.Recorded{PromptIDs: rec.PromptIDs, TokenIDs: rec.TokenIDs, Logprobs: rec.Logprobs}
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		tb.Errorf("(-recorded +got)\n%s", diff)
	}
	if reply.Usage.PromptTokens != len(rec.PromptIDs) || reply.Usage.CompletionTokens != len(rec.TokenIDs) {
		tb.Errorf("usage %+v for %d and %d tokens", reply.Usage, len(rec.PromptIDs), len(rec.TokenIDs))
	}
}

// said is what the harness sees of an answer.
func said(reply llm.Reply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s | %s | %s", reply.Message.Reasoning, reply.Message.Text(), reply.Finish)
	for _, c := range reply.Message.ToolCalls {
		fmt.Fprintf(&b, " | %s %s", c.Name, c.Arguments)
	}
	return b.String()
}

var wantSaid = map[string]string{
	"text":      " | Plain words, 漢字 and a smile 🙂 to end. | stop",
	"reasoning": "Let me see, é, 漢字 … | A thought-out answer. Ünïcode 🙂 | stop",
	"tool":      ` |  | tool_calls | look {"path": "x"}`,
	"parallel":  `Both | Two at once: | tool_calls | look {"path": "a"} | look {"path": "<b>"}`,
}

func TestEveryStyleGivesWhatTheEngineSampled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sim, mode, style string
		streams          backend.StreamsIDs
	}{
		"v0.5.12 over generate":             {"sglang_style: v0.5.12", "", "generate", backend.StreamsYes},
		"v0.5.12 over incremental generate": {"sglang_style: v0.5.12\nincremental_streaming: true", "", "generate", backend.StreamsYes},
		"v0.5.13":                           {"sglang_style: v0.5.13", "", "chat_whole", backend.StreamsNo},
		"v0.5.17":                           {"sglang_style: v0.5.17", "", "chat_whole", backend.StreamsNo},
		"v0.5.18":                           {"sglang_style: v0.5.18", "", "chat_whole", backend.StreamsNo},
		"v0.5.18 over generate":             {"sglang_style: v0.5.18", "generate", "generate", backend.StreamsYes},
		"v0.5.18, stop token not in ids":    {"sglang_style: v0.5.18\ntrim_stop: ids", "", "chat_whole", backend.StreamsNo},
		"generate, stop token not in ids":   {"sglang_style: v0.5.12\ntrim_stop: ids", "", "generate", backend.StreamsYes},
		"next":                              {"sglang_style: next", "", "chat_stream", backend.StreamsAtEnd},
		"next, chat only":                   {"sglang_style: next", "chat", "chat_stream", backend.StreamsAtEnd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := serve(t, "engine: sglang\n"+tc.sim)
			engine := openSGLang(t, backend.SGLangConfig{URL: url, Mode: tc.mode})
			p, err := engine.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			version, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(tc.sim, "sglang_style: "), "v"), "\n")
			if version == "next" {
				version = "0.5.19.dev0"
			}
			want := backend.Probe{
				Engine: "sglang", URL: url, Version: version + "+polar.sim", Model: "sim", MaxContext: 131072,
				PromptIDs: true, SampledIDs: true, Logprobs: true, StreamsIDs: tc.streams, Tokenizer: true, Style: tc.style,
			}
			if diff := cmp.Diff(want, p); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for kind, want := range wantSaid {
				reply, err := llm.Collect(engine.Generate(t.Context(), conversation(kind)))
				if err != nil {
					t.Fatal(kind, err)
				}
				if got := said(reply); got != want {
					t.Errorf("%s:\n got %s\nwant %s", kind, got, want)
				}
				if reply.Engine.Kind != "sglang" || reply.Engine.Model != "sim" || reply.Engine.URL != url {
					t.Errorf("engine %+v", reply.Engine)
				}
				sameAsRecorded(t, s, reply)
			}
		})
	}
}

func TestVLLMGivesWhatTheEngineSampled(t *testing.T) {
	t.Parallel()
	s, url := serve(t, "cache_report: true")
	engine, err := backend.NewVLLM(backend.VLLMConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	for kind, want := range wantSaid {
		for again := range 2 {
			reply, err := llm.Collect(engine.Generate(t.Context(), conversation(kind)))
			if err != nil {
				t.Fatal(kind, err)
			}
			if got := said(reply); got != want {
				t.Errorf("%s:\n got %s\nwant %s", kind, got, want)
			}
			if again > 0 && reply.Usage.CachedTokens == 0 {
				t.Errorf("%s: usage %+v", kind, reply.Usage)
			}
			sameAsRecorded(t, s, reply)
		}
	}
}

// What no way of asking can mend is not made up: such calls have no logprobs,
// or no ids at all.
func TestWhatIsNotGivenIsNotMadeUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sim   string
		style string
		check func(reply llm.Reply, rec sim.Recorded) bool
	}{
		"no ids to be had": {"engine: sglang\nsglang_style: v0.5.10", "chat_no_ids", func(r llm.Reply, _ sim.Recorded) bool {
			return len(r.Tokens) == 0 && r.PromptIDs == nil && r.Finish == llm.FinishStop
		}},
		"no logprob for the stop token": {"engine: sglang\ntrim_stop: logprobs", "chat_whole", func(r llm.Reply, rec sim.Recorded) bool {
			n := len(rec.TokenIDs)
			return len(r.Tokens) == n && r.Tokens[n-1].ID == sim.EndOfTurn && !r.Tokens[n-1].HasLogprob() && r.Tokens[n-2].HasLogprob()
		}},
		"no logprob for the stop token of a stream": {"engine: sglang\nsglang_style: next\ntrim_stop: logprobs", "chat_stream", func(r llm.Reply, rec sim.Recorded) bool {
			return len(r.Tokens) == len(rec.TokenIDs) && !r.Tokens[0].HasLogprob()
		}},
		"no id for the stop token of a stream": {"engine: sglang\nsglang_style: next\ntrim_stop: ids", "chat_stream", func(r llm.Reply, rec sim.Recorded) bool {
			return len(r.Tokens) == len(rec.TokenIDs)-1 && !r.Tokens[0].HasLogprob()
		}},
		"logprobs that are not known": {"engine: sglang\nmissing_logprobs: 1", "", func(r llm.Reply, rec sim.Recorded) bool {
			return len(r.Tokens) == len(rec.TokenIDs) && !r.Tokens[0].HasLogprob()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := serve(t, tc.sim)
			engine := openSGLang(t, backend.SGLangConfig{URL: url})
			p, err := engine.Probe(t.Context())
			if err != nil || tc.style != "" && p.Style != tc.style {
				t.Fatalf("probed %+v, %v", p, err)
			}
			reply, err := llm.Collect(engine.Generate(t.Context(), conversation("text")))
			if err != nil || !strings.HasPrefix(reply.Message.Text(), "Plain words") {
				t.Fatal(reply.Message.Text(), err)
			}
			calls := s.Calls()
			if !tc.check(reply, calls[len(calls)-1]) {
				t.Errorf("got %+v of %+v", reply.Tokens, calls[len(calls)-1].TokenIDs)
			}
		})
	}
}

func TestAServerWithoutParsersIsNotStreamed(t *testing.T) {
	t.Parallel()
	s, url := serve(t, "engine: sglang\nsglang_style: next\nno_parsers: true")
	engine := openSGLang(t, backend.SGLangConfig{URL: url})
	p, err := engine.Probe(t.Context())
	if err != nil || p.Style != "chat_whole" {
		t.Fatalf("probed %+v, %v", p, err)
	}
	reply, err := llm.Collect(engine.Generate(t.Context(), conversation("text")))
	if err != nil {
		t.Fatal(err)
	}
	sameAsRecorded(t, s, reply)
}

func TestAServerThatNobodyProbed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sim     string
		trained int // the first call with ids
	}{
		"is asked in the safest way":                {"sglang_style: next", 0},
		"is probed once an answer came without ids": {"sglang_style: v0.5.12", 1},
		"and may turn out to have none":             {"sglang_style: v0.5.10", 99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := serve(t, "engine: sglang\n"+tc.sim)
			engine := openSGLang(t, backend.SGLangConfig{URL: url})
			for i := range 3 {
				reply, err := llm.Collect(engine.Generate(t.Context(), conversation("tool")))
				if err != nil || said(reply) != wantSaid["tool"] {
					t.Fatal(said(reply), err)
				}
				if got := len(reply.Tokens) > 0 && reply.PromptIDs != nil; got != (i >= tc.trained) {
					t.Errorf("call %d has ids: %v", i, got)
				}
			}
		})
	}
}

func TestCallsThatGenerateCannotMakeAreChats(t *testing.T) {
	t.Parallel()
	s, url := serve(t, "engine: sglang")
	engine := openSGLang(t, backend.SGLangConfig{URL: url, Mode: "generate"})
	for name, change := range map[string]func(*llm.Request){
		"an image": func(r *llm.Request) {
			r.Messages[1].Content = json.RawMessage(`[{"type":"text","text":"Give me tool"},{"type":"image_url","image_url":{"url":"data:,"}}]`)
		},
		"a forced tool":      func(r *llm.Request) { r.ToolChoice = json.RawMessage(`"required"`) },
		"a named tool":       func(r *llm.Request) { r.ToolChoice = json.RawMessage(`{"type":"function","function":{"name":"look"}}`) },
		"a response format":  func(r *llm.Request) { r.ResponseFormat = json.RawMessage(`{"type":"json_object"}`) },
		"alternatives":       func(r *llm.Request) { r.TopLogprobs = new(int) },
		"one tool at a time": func(r *llm.Request) { r.ParallelToolCalls = json.RawMessage(`false`) },
	} {
		req := conversation("tool")
		change(&req)
		reply, err := llm.Collect(engine.Generate(t.Context(), req))
		if err != nil || len(reply.Message.ToolCalls) != 1 {
			t.Errorf("%s: %s, %v", name, said(reply), err)
		}
		sameAsRecorded(t, s, reply)
		if calls := s.Calls(); !strings.HasPrefix(calls[len(calls)-1].ID, "chatcmpl") {
			t.Errorf("%s: was %s", name, calls[len(calls)-1].ID)
		}
	}
	if _, err := llm.Collect(engine.Generate(t.Context(), conversation("tool"))); err != nil {
		t.Fatal(err)
	}
	if calls := s.Calls(); !strings.HasPrefix(calls[len(calls)-1].ID, "generate") {
		t.Errorf("a plain call was %s", calls[len(calls)-1].ID)
	}
}

func TestTokensAreCountedAsTheyArePrompted(t *testing.T) {
	t.Parallel()
	engines := map[string]func(url string) (backend.Engine, error){
		"vllm":   func(url string) (backend.Engine, error) { return backend.NewVLLM(backend.VLLMConfig{URL: url}) },
		"sglang": func(url string) (backend.Engine, error) { return backend.NewSGLang(backend.SGLangConfig{URL: url}) },
	}
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := serve(t, "engine: "+name)
			engine, err := open(url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = engine.Close() }()
			req := conversation("tool")
			req.Sampling.ChatTemplateKwargs = rawjson.Object{{Key: "enable_thinking", Value: json.RawMessage("false")}}
			n, err := engine.(backend.TokenCounter).CountTokens(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			reply, err := llm.Collect(engine.Generate(t.Context(), req))
			if err != nil || n != len(reply.PromptIDs) {
				t.Errorf("counted %d, prompted %d, %v", n, len(reply.PromptIDs), err)
			}
		})
	}
}

func TestServersThatCannotCount(t *testing.T) {
	t.Parallel()
	_, old := serve(t, "engine: sglang\nsglang_style: v0.5.10")
	probed := openSGLang(t, backend.SGLangConfig{URL: old})
	if _, err := probed.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	plain, err := backend.NewOpenAI(backend.OpenAIConfig{URL: old})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	pooled, err := backend.NewPool([]backend.Weighted{{Engine: plain}})
	if err != nil {
		t.Fatal(err)
	}
	for name, engine := range map[string]backend.Engine{
		"an old SGLang": probed, "one that nobody probed": openSGLang(t, backend.SGLangConfig{URL: old}), "OpenAI": plain, "a pool of such": pooled,
	} {
		if _, err := engine.(backend.TokenCounter).CountTokens(t.Context(), conversation("text")); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnAnswerInOnePieceIsCutOffWhenTheCallerLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	errLeft := errors.New("left")
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		cancel(errLeft)
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	engine := openSGLang(t, backend.SGLangConfig{URL: server.URL})
	if _, err := llm.Collect(engine.Generate(ctx, conversation("text"))); !errors.Is(err, errLeft) {
		t.Errorf("the error is %v", err)
	}
	<-gone
}
