package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"polar/backend"
	"polar/llm"
	"polar/rawjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const answer = `data: {"model":"m","choices":[{"index":0,"delta":{"content":"hi"},"token_ids":[1],"logprobs":{"content":[{"logprob":-1}]}}],"prompt_token_ids":[9]}

data: {"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}

data: [DONE]

`

func TestRequestBody(t *testing.T) {
	t.Parallel()
	tool := `{"type":"function","function":{"name":"f","parameters":{"z":1,"a":1.50,"<":"\u003c"}}}`
	number, top := 7, 5
	warm, seed := 0.25, int64(-3)
	tests := map[string]struct {
		req  llm.Request
		want string
	}{
		"the least": {
			llm.Request{Model: "m", Messages: []llm.Message{{Role: "user", Content: json.RawMessage(`"a<b"`)}}},
			`{"model":"m","messages":[{"role":"user","content":"a<b"}],"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":0,"return_token_ids":true}`,
		},
		"everything, as it was written": {
			llm.Request{
				Model: "m",
				Messages: []llm.Message{{
					Role: "assistant", Reasoning: "why",
					ToolCalls: []llm.ToolCall{{ID: "1", Name: "f", Arguments: `{"b": 1.0}`}},
				}},
				Tools: []json.RawMessage{json.RawMessage(tool), json.RawMessage(tool)}, ToolChoice: json.RawMessage(`"auto"`),
				ParallelToolCalls: json.RawMessage(`false`), ResponseFormat: json.RawMessage(`{"type": "text"}`),
				Sampling: llm.Sampling{
					Temperature: &warm, TopP: &warm, TopK: &number, MaxTokens: &number, Seed: &seed, Stop: []string{"a\n", "b"},
					ChatTemplateKwargs: rawjson.Object{{Key: "enable_thinking", Value: json.RawMessage("false")}},
				},
				TopLogprobs: &top,
				Extra: rawjson.Object{
					{Key: "user", Value: json.RawMessage(`"first"`)},
					{Key: "model", Value: json.RawMessage(`"other"`)},
					{Key: "include_reasoning", Value: json.RawMessage(`false`)},
					{Key: "user", Value: json.RawMessage(`"<second>"`)},
				},
			},
			`{"model":"m","messages":[{"role":"assistant","content":null,"reasoning":"why","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\": 1.0}"}}]}],` +
				`"tools":[` + tool + `,` + tool + `],"tool_choice":"auto","parallel_tool_calls":false,"response_format":{"type": "text"},` +
				`"temperature":0.25,"top_p":0.25,"top_k":7,"max_tokens":7,"seed":-3,"stop":["a\n","b"],"chat_template_kwargs":{"enable_thinking":false},` +
				`"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":5,"return_token_ids":true,"include_reasoning":true,"user":"<second>"}`,
		},
		"a tool choice without tools is left out": {
			llm.Request{Model: "m", ToolChoice: json.RawMessage(`"auto"`), ParallelToolCalls: json.RawMessage(`true`)},
			`{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":0,"return_token_ids":true}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []byte
			var header http.Header
			engine, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				header = r.Header
				_, _ = io.WriteString(w, answer)
			}, backend.VLLMConfig{APIKey: "secret"})
			if _, err := llm.Collect(engine.Generate(t.Context(), tc.req)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if header.Get("Authorization") != "Bearer secret" || header.Get("Accept-Encoding") != "" {
				t.Errorf("headers %v", header)
			}
		})
	}
}

func TestErrorsOfTheEngine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		body   string
		after  string
		want   llm.Error
		asked  int32
	}{
		"a prompt too long": {
			400, `{"error":{"message":"This model's maximum context length is 8 tokens.","type":"BadRequestError","code":400}}`, "",
			llm.Error{Kind: llm.ContextOverflow, Status: 400, Message: "This model's maximum context length is 8 tokens."},
			1,
		},
		"a prompt too long, as older ones say it": {
			400, `{"object":"error","message":"The prompt (total length 9) is longer than the maximum model length of 8."}`, "",
			llm.Error{Kind: llm.ContextOverflow, Status: 400, Message: "The prompt (total length 9) is longer than the maximum model length of 8."},
			1,
		},
		"a bad request": {
			422, `{"detail":[{"loc":["body"]}]}`, "",
			llm.Error{Kind: llm.BadRequest, Status: 400, Message: `[{"loc":["body"]}]`},
			1,
		},
		"a model that is not there": {
			404, `{"error":{"message":"The model x does not exist."}}`, "",
			llm.Error{Kind: llm.BadRequest, Status: 400, Message: "The model x does not exist."},
			1,
		},
		"a key of ours that is wrong": {
			401, `{"error":"Unauthorized"}`, "",
			llm.Error{Kind: llm.EngineFailed, Status: 503, Message: "engine refused the service's own credential (401): Unauthorized"},
			1,
		},
		"too many requests": {
			429, `busy`, "0",
			llm.Error{Kind: llm.RateLimited, Status: 429, Message: "engine: busy", RetryAfter: "0"},
			3,
		},
		"too many requests for long": {
			429, ``, "60",
			llm.Error{Kind: llm.RateLimited, Status: 429, Message: "engine: Too Many Requests", RetryAfter: "60"},
			1,
		},
		"a broken engine": {
			500, `oops`, "",
			llm.Error{Kind: llm.EngineFailed, Status: 503, Message: "engine answered 500: oops"},
			3,
		},
		"a stream that begins with an error": {
			200, "data: {\"error\":{\"message\":\"context_length_exceeded\",\"code\":400}}\n\n", "",
			llm.Error{Kind: llm.ContextOverflow, Status: 400, Message: "context_length_exceeded"},
			1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			engine, _ := open(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}, backend.VLLMConfig{BackoffSeconds: 0.0001})
			_, err := llm.Collect(engine.Generate(t.Context(), llm.Request{}))
			var got *llm.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if asked.Load() != tc.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), tc.asked)
			}
		})
	}
}

func TestACallIsTriedAgainUntilAnAnswerBegins(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	engine, _ := open(t, func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2: // 200, and then nothing
		default:
			_, _ = io.WriteString(w, answer)
		}
	}, backend.VLLMConfig{BackoffSeconds: 0.0001})
	reply, err := llm.Collect(engine.Generate(t.Context(), llm.Request{}))
	if err != nil || reply.Message.Text() != "hi" || asked.Load() != 3 {
		t.Errorf("got %+v, %v after %d", reply, err, asked.Load())
	}
}

func TestAnAnswerThatBeganIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	engine, _ := open(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		begin, _, _ := strings.Cut(answer, "\n\n")
		_, _ = io.WriteString(w, begin+"\n\n")
	}, backend.VLLMConfig{BackoffSeconds: 0.0001})
	reply, err := llm.Collect(engine.Generate(t.Context(), llm.Request{}))
	var got *llm.Error
	if !errors.As(err, &got) || got.Kind != llm.EngineFailed || len(reply.Tokens) != 1 || asked.Load() != 1 {
		t.Errorf("got %+v, %v after %d", reply, err, asked.Load())
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	_ = l.Close()
	engine, err := backend.NewVLLM(backend.VLLMConfig{URL: url, BackoffSeconds: 0.0001})
	if err != nil {
		t.Fatal(err)
	}
	_, err = llm.Collect(engine.Generate(t.Context(), llm.Request{}))
	var got *llm.Error
	if !errors.As(err, &got) || got.Kind != llm.EngineFailed || got.Status != 503 || !strings.Contains(got.Message, url) {
		t.Errorf("got %v", err)
	}
}

func TestASilentEngineTimesOut(t *testing.T) {
	t.Parallel()
	begin, _, _ := strings.Cut(answer, "\n\n")
	for name, said := range map[string]string{"before it says anything": "", "in the middle": begin + "\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			engine, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, said)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(gone)
			}, backend.VLLMConfig{TimeoutSeconds: 0.05})
			_, err := llm.Collect(engine.Generate(t.Context(), llm.Request{}))
			var got *llm.Error
			if !errors.As(err, &got) || got.Kind != llm.EngineTimeout || got.Status != 504 {
				t.Errorf("got %v", err)
			}
			<-gone
		})
	}
}

func TestLeavingReachesTheEngine(t *testing.T) {
	t.Parallel()
	errLeft := errors.New("left")
	leave := map[string]func(events func(func(llm.Event, error) bool), cancel context.CancelCauseFunc) error{
		"by ending the context": func(events func(func(llm.Event, error) bool), cancel context.CancelCauseFunc) error {
			var last error
			for _, err := range events {
				cancel(errLeft)
				last = err
			}
			return last
		},
		"by ending the range": func(events func(func(llm.Event, error) bool), _ context.CancelCauseFunc) error {
			for range events {
				break
			}
			return errLeft
		},
	}
	for name, how := range leave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			begin, _, _ := strings.Cut(answer, "\n\n")
			engine, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, begin+"\n\n")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(gone)
			}, backend.VLLMConfig{})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if err := how(engine.Generate(ctx, llm.Request{}), cancel); !errors.Is(err, errLeft) {
				t.Errorf("the error is %v", err)
			}
			<-gone
		})
	}
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	remotes := map[string]bool{}
	engine, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		remotes[r.RemoteAddr] = true
		_, _ = io.WriteString(w, answer)
	}, backend.VLLMConfig{})
	for range 5 {
		if _, err := llm.Collect(engine.Generate(t.Context(), llm.Request{})); err != nil {
			t.Fatal(err)
		}
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for 5 calls", len(remotes))
	}
}

func TestLogprobsArePassedOnOnlyToWhoAsked(t *testing.T) {
	t.Parallel()
	engine, _ := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }, backend.VLLMConfig{})
	for _, asked := range []bool{false, true} {
		var req llm.Request
		if asked {
			req.TopLogprobs = new(int)
		}
		reply, err := llm.Collect(engine.Generate(t.Context(), req))
		if err != nil || (len(reply.Logprobs) == 1) != asked {
			t.Errorf("asked %v: got %s, %v", asked, reply.Logprobs, err)
		}
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer  string
		want    backend.Probe
		missing string
	}{
		"all": {
			answer,
			backend.Probe{Engine: "vllm", Version: "1.2", Model: "m", MaxContext: 64, PromptIDs: true, SampledIDs: true, Logprobs: true, StreamsIDs: backend.StreamsYes, Style: "chat_stream"},
			"",
		},
		"nothing": {
			"data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
			backend.Probe{Engine: "vllm", Version: "1.2", Model: "m", MaxContext: 64, StreamsIDs: backend.StreamsNo, Style: "chat_stream"},
			"prompt ids, sampled ids, logprobs",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, url := open(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/v1/models":
					fmt.Fprint(w, `{"object":"list","data":[{"id":"m","max_model_len":64},{"id":"lora"}]}`)
				case "/version":
					fmt.Fprint(w, `{"version":"1.2"}`)
				case "/v1/chat/completions":
					fmt.Fprint(w, tc.answer)
				case "/health":
				default:
					http.NotFound(w, r)
				}
			}, backend.VLLMConfig{})
			if err := engine.Health(t.Context()); err != nil {
				t.Error(err)
			}
			got, err := engine.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tc.want.URL = url
			if diff := cmp.Diff(tc.want, got); diff != "" || got.Missing() != tc.missing {
				t.Errorf("missing %q, (-want +got)\n%s", got.Missing(), diff)
			}
		})
	}
}

func TestAnUnhealthyEngine(t *testing.T) {
	t.Parallel()
	engine, _ := open(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, backend.VLLMConfig{})
	if err := engine.Health(t.Context()); err == nil {
		t.Error("healthy")
	}
	if _, err := engine.Probe(t.Context()); err == nil {
		t.Error("probed")
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]backend.VLLMConfig{
		"url: missing":     {},
		"not an http":      {URL: "ftp://x"},
		"timeout_seconds":  {URL: "http://x", TimeoutSeconds: -1},
		"max_attempts":     {URL: "http://x", MaxAttempts: -1},
		"backoff_seconds:": {URL: "http://x", BackoffSeconds: -1},
	} {
		if _, err := backend.NewVLLM(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestTheVersionInTheURLIsTakenOff(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
		}
		fmt.Fprint(w, `{"data":[]}`)
	}))
	t.Cleanup(server.Close)
	for _, tail := range []string{"", "/", "/v1", "/v1/"} {
		engine, err := backend.NewVLLM(backend.VLLMConfig{URL: server.URL + tail})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Models(t.Context()); err != nil {
			t.Errorf("%q: %v", tail, err)
		}
		_ = engine.Close()
	}
}

func BenchmarkGenerate(b *testing.B) {
	engine, _ := open(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }, backend.VLLMConfig{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := llm.Collect(engine.Generate(b.Context(), llm.Request{})); err != nil {
			b.Fatal(err)
		}
	}
}

func TestMoreIsSaidOnlyOfWhatIsHereAndNotLast(t *testing.T) {
	t.Parallel()
	text := func(s string) string {
		return `data: {"choices":[{"delta":{"content":"` + s + `"},"token_ids":[1]}]}` + "\n\n"
	}
	const empty = `data: {"choices":[{"delta":{}}]}` + "\n\n"
	const end = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	goOn := make(chan struct{}, 1)
	engine, _ := open(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, together := range []string{text("a") + empty + text("b") + empty, text("c") + end} {
			_, _ = io.WriteString(w, together)
			_ = http.NewResponseController(w).Flush()
			<-goOn
		}
	}, backend.VLLMConfig{})
	var got []string
	for e, err := range engine.Generate(t.Context(), llm.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(e.Text, e.More))
		if e.Text == "b" || e.Text == "c" {
			goOn <- struct{}{}
		}
	}
	if diff := cmp.Diff([]string{"atrue", "bfalse", "cfalse", "false"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
