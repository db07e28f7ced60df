package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polar"
	"polar/gateway"
	"polar/llm"
	"polar/protocol/chat"
)

func TestACallIsRecorded(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"streamed": helloStream, "unstreamed": hello} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, says(whole...), nil)
			r.open(polar.Recording{Task: "t", Attempt: 2, Version: "v7"})
			status, reply := r.do("POST", "/v1/chat/completions", body, "Authorization", "Bearer s1",
				"X-Session-Id", "abc", "X-Codex-Window-Id", "w", "Cookie", "secret", "X-Stainless-Retry-Count", "0", "User-Agent", "test")
			if status != 200 || !strings.Contains(reply, `"model":"asked"`) || strings.Contains(reply, "token_ids") || strings.Contains(reply, "logprob\"") {
				t.Errorf("%d %s", status, reply)
			}
			calls := r.calls()
			if len(calls) != 1 {
				t.Fatalf("%d calls", len(calls))
			}
			got := calls[0]
			want := polar.Call{
				ID: "call-000001", Session: "s1", Attempt: 2, Wire: "chat", Stream: name == "streamed",
				ModelAsked: "asked", ModelServed: "asked",
				Messages: asRaw(`{"role":"user","content":"hello"}`),
				Headers:  map[string]string{"x-session-id": "abc", "x-codex-window-id": "w", "x-stainless-retry-count": "0", "user-agent": "test"},
				Sampled:  []llm.Token{{ID: 10, Logprob: -0.5}, {ID: 11, Logprob: -0.5}},
				Reply:    asRaw(`{"role":"assistant","content":"Hello"}`)[0],
				Finish:   "stop", Usage: llm.Usage{PromptTokens: 3, CompletionTokens: 2},
				Engine: llm.Engine{Kind: "vllm", URL: got.Engine.URL, Model: "served"}, Version: "v7", Delivered: true,
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(polar.Call{}, "Start", "FirstToken", "End", "Prompt")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(llm.IDs{1, 2, 3}, got.Prompt.IDs()); diff != "" {
				t.Errorf("prompt (-want +got)\n%s", diff)
			}
			if got.Start.After(got.FirstToken) || got.FirstToken.After(got.End) {
				t.Errorf("times %v %v %v", got.Start, got.FirstToken, got.End)
			}
			if !r.log("s1").closed {
				t.Error("the log is still open")
			}
		})
	}
}

func TestChunksArriveBeforeTheEngineIsDone(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		says(prompt, chunk("a", 10))(w, req)
		<-more
		says(chunk("b", 11), finish, usage(2), done)(w, req)
	}, nil)
	r.open(polar.Recording{})
	resp := r.start(t.Context(), "POST", "/v1/chat/completions", helloStream, "X-Api-Key", "s1")
	defer func() { _ = resp.Body.Close() }()
	next := lines(resp.Body)
	if role, text := next(), next(); !strings.Contains(role, `"role":"assistant"`) || !strings.Contains(text, `"content":"a"`) {
		t.Errorf("got %s, %s", role, text)
	}
	close(more)
	if text, end, last := next(), next(), next(); !strings.Contains(text, `"content":"b"`) || !strings.Contains(end, `"finish_reason":"stop"`) || last != "data: [DONE]" {
		t.Errorf("got %s, %s, %s", text, end, last)
	}
}

func TestACallIsStoredBeforeItsEndIsSeen(t *testing.T) {
	t.Parallel()
	appending, pause := make(chan polar.Call), make(chan struct{})
	r := newRig(t, says(whole...), func(r *rig, _ *gateway.Config) {
		r.newLog = func() *memLog { return &memLog{appending: appending, pause: pause} }
	})
	r.open(polar.Recording{})
	resp := r.start(t.Context(), "POST", "/v1/chat/completions", helloStream, "Authorization", "Bearer s1")
	defer func() { _ = resp.Body.Close() }()
	next := lines(resp.Body)
	for _, want := range []string{"role", "Hel", "lo"} {
		if line := next(); !strings.Contains(line, want) {
			t.Errorf("got %s, want %s", line, want)
		}
	}
	rest := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(resp.Body)
		rest <- next() + string(data)
	}()
	if stored := <-appending; stored.Finish != "stop" || !stored.Delivered {
		t.Errorf("stored %+v", stored)
	}
	select {
	case early := <-rest:
		t.Errorf("seen before it was stored: %s", early)
	default:
	}
	close(pause)
	if end := <-rest; !strings.Contains(end, "[DONE]") {
		t.Errorf("end %q", end)
	}
}

func TestAClientThatLeavesStopsTheEngine(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	appending := make(chan polar.Call, 1)
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		says(prompt, chunk("a", 10), chunk("b", 11))(w, req)
		<-req.Context().Done()
		close(gone)
	}, func(r *rig, _ *gateway.Config) { r.newLog = func() *memLog { return &memLog{appending: appending} } })
	r.open(polar.Recording{})
	ctx, leave := context.WithCancel(t.Context())
	resp := r.start(ctx, "POST", "/v1/chat/completions", helloStream, "Authorization", "Bearer s1")
	next := lines(resp.Body)
	for line := next(); !strings.Contains(line, `"b"`); line = next() {
		if line == "" {
			t.Fatal("the stream ended")
		}
	}
	leave()
	_ = resp.Body.Close()
	<-gone
	<-appending
	calls := r.calls()
	if len(calls) != 1 || calls[0].Finish != llm.FinishAbort || calls[0].Delivered || calls[0].Error != nil || len(calls[0].Sampled) != 2 || calls[0].Prompt.Len() != 3 {
		t.Errorf("calls %+v", calls)
	}
}

func TestModelAndSamplingAreImposed(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 1)
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		bodies <- string(data)
		says(whole...)(w, req)
	}, func(_ *rig, c *gateway.Config) { c.Model = "ours" })
	cold := 0.0
	r.open(polar.Recording{Sampling: llm.Sampling{Temperature: &cold}})
	tool := `{"type":"function","function":{"name":"f","parameters":{"z":1.50,"a":"<\u003c/>"}}}`
	status, reply := r.post(`{"model":"asked","temperature":0.9,"top_p":0.5,"tools":[` + tool + `],"messages":[{"role":"user","content":"é\u00e9<"}],"unknown":{"b":1,"a":2.0}}`)
	if status != 200 || !strings.Contains(reply, `"model":"asked"`) {
		t.Errorf("%d %s", status, reply)
	}
	body := <-bodies
	for _, want := range []string{`"model":"ours"`, `"temperature":0,`, `"top_p":0.5`, `"tools":[` + tool + `]`, `"content":"é\u00e9<"`, `"unknown":{"b":1,"a":2.0}`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	call := r.calls()[0]
	if call.ModelAsked != "asked" || call.ModelServed != "ours" || *call.Sampling.Temperature != 0 || *call.Sampling.TopP != 0.5 || string(call.Tools[0]) != tool {
		t.Errorf("recorded %+v", call)
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.RememberEnded = 2 })
	for _, id := range []polar.SessionID{"old", "older", "oldest"} {
		r.open(polar.Recording{Session: id})
	}
	for _, key := range []string{"oldest", "older", "old"} {
		if _, err := r.gateway.Close(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	r.open(polar.Recording{})
	tests := map[string]struct {
		path    string
		headers []string
		status  int
		code    string
	}{
		"no key":                        {"/v1/chat/completions", nil, 401, "invalid_api_key"},
		"an unknown key":                {"/v1/chat/completions", []string{"Authorization", "Bearer x"}, 401, "invalid_api_key"},
		"an ended session":              {"/v1/chat/completions", []string{"Authorization", "Bearer old"}, 403, "session_ended"},
		"an ended session, by prefix":   {"/s/older/v1/chat/completions", nil, 403, "session_ended"},
		"a session ended long ago":      {"/v1/chat/completions", []string{"Authorization", "Bearer oldest"}, 401, "invalid_api_key"},
		"a header is no identity":       {"/v1/chat/completions", []string{"X-Session-Id", "s1"}, 401, "invalid_api_key"},
		"the prefix counts":             {"/s/s1/v1/chat/completions", []string{"Authorization", "Bearer x"}, 200, ""},
		"a doubled slash":               {"/s/s1/v1//chat/completions", nil, 200, ""},
		"bearer in small letters":       {"/v1/chat/completions", []string{"Authorization", "bearer s1"}, 200, ""},
		"Anthropic's header":            {"/v1/chat/completions", []string{"X-Api-Key", "s1"}, 200, ""},
		"Google's header":               {"/v1/chat/completions", []string{"X-Goog-Api-Key", "s1"}, 200, ""},
		"Google's parameter":            {"/v1/chat/completions?key=s1", nil, 200, ""},
		"control is not below a prefix": {"/s/s1/sessions", nil, 404, ""},
		"another path":                  {"/v1/embeddings", nil, 404, ""},
	}
	for name, tc := range tests {
		status, body := r.do("POST", tc.path, hello, tc.headers...)
		if status != tc.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if tc.code != "" {
			if _, code, _ := errorOf(t, body); code != tc.code {
				t.Errorf("%s: %s", name, body)
			}
		}
	}
	for _, call := range r.calls() {
		if call.Error != nil {
			t.Errorf("recorded %+v", call)
		}
	}
}

func TestBadRequestsAreRecordedAsFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.MaxBodyBytes = 1000 })
	r.open(polar.Recording{})
	tests := []struct {
		body   string
		status int
		kind   llm.ErrorKind
		param  string
	}{
		{`{"model":`, 400, llm.BadRequest, ""},
		{`{"messages":[{"role":"user","content":"a"},{"role":"user","content":7}]}`, 400, llm.BadRequest, "messages[1].content"},
		{`{"messages":[{"role":"user","content":"a"}],"n":3}`, 400, llm.BadRequest, "n"},
		{`{"messages":[{"role":"user","content":"` + strings.Repeat("a", 1000) + `"}]}`, 413, llm.TooLarge, ""},
	}
	for _, tc := range tests {
		status, body := r.post(tc.body)
		if _, _, param := errorOf(t, body); status != tc.status || param != tc.param {
			t.Errorf("%.60s: %d %s", tc.body, status, body)
		}
	}
	// A body of unknown length is bounded too.
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/s/s1/v1/chat/completions", io.MultiReader(strings.NewReader(strings.Repeat(" ", 2000))))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("unknown length: %d", resp.StatusCode)
	}
	calls := r.calls()
	if len(calls) != len(tests)+1 {
		t.Fatalf("%d calls", len(calls))
	}
	for i, tc := range tests {
		if e := calls[i].Error; e == nil || e.Kind != tc.kind || e.Status != tc.status || calls[i].Delivered {
			t.Errorf("%.60s: recorded %+v", tc.body, calls[i])
		}
	}
}

func TestEngineErrorsReachTheHarnessAndTheLog(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		engine  http.HandlerFunc
		body    string
		status  int
		kind    llm.ErrorKind
		finish  string
		sampled int
	}{
		"before the answer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, helloStream, 503, llm.EngineFailed, "", 0},
		"a prompt too long": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error":{"message":"maximum context length is 8"}}`)
		}, helloStream, 400, llm.ContextOverflow, "", 0},
		"in the middle of a stream": {says(prompt, chunk("a", 10)), helloStream, 200, llm.EngineFailed, llm.FinishAbort, 1},
		"in the middle, unstreamed": {says(prompt, chunk("a", 10)), hello, 503, llm.EngineFailed, llm.FinishAbort, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.engine, nil)
			r.open(polar.Recording{})
			status, body := r.post(tc.body)
			if status != tc.status || !strings.Contains(body, `"error":{"message"`) || strings.Contains(body, "[DONE]") {
				t.Errorf("%d %s", status, body)
			}
			calls := r.calls()
			if len(calls) != 1 || calls[0].Error == nil || calls[0].Error.Kind != tc.kind || calls[0].Finish != tc.finish || calls[0].Delivered || len(calls[0].Sampled) != tc.sampled {
				t.Errorf("recorded %+v", calls)
			}
		})
	}
}

func TestWhatCannotBeTrainedOnIsMarked(t *testing.T) {
	t.Parallel()
	absent := `data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"logprob":-9999.0}]},"token_ids":[10]}]}` + "\n\n"
	text := `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	tests := map[string]struct {
		events []string
		want   string
		usage  llm.Usage
	}{
		"all is there":       {whole, "", llm.Usage{PromptTokens: 3, CompletionTokens: 2}},
		"no prompt ids":      {[]string{chunk("a", 10), finish, usage(1), done}, "no prompt ids", llm.Usage{PromptTokens: 3, CompletionTokens: 1}},
		"no sampled ids":     {[]string{prompt, text, finish, usage(1), done}, "no sampled ids", llm.Usage{PromptTokens: 3, CompletionTokens: 1}},
		"a logprob missing":  {[]string{prompt, absent, chunk("a", 11), finish, usage(2), done}, "", llm.Usage{PromptTokens: 3, CompletionTokens: 2}},
		"another usage":      {[]string{prompt, chunk("a", 11), finish, usage(3), done}, "ids and usage disagree: 1 ids, 3 completion tokens", llm.Usage{PromptTokens: 3, CompletionTokens: 3}},
		"usage counted here": {[]string{prompt, chunk("a", 11), finish, done}, "", llm.Usage{PromptTokens: 3, CompletionTokens: 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, says(tc.events...), nil)
			r.open(polar.Recording{})
			if status, body := r.post(hello); status != 200 || !strings.Contains(body, fmt.Sprintf(`"completion_tokens":%d`, tc.usage.CompletionTokens)) {
				t.Errorf("%d %s", status, body)
			}
			if calls := r.calls(); calls[0].Untrainable != tc.want || calls[0].Usage != tc.usage || !calls[0].Delivered {
				t.Errorf("recorded %+v", calls[0])
			}
		})
	}
}

func TestAFullDiskIsToldAndEndsTheSession(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	for name, tc := range map[string]struct {
		body   string
		status int
	}{"unstreamed": {hello, 503}, "streamed": {helloStream, 200}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, says(whole...), func(r *rig, _ *gateway.Config) { r.newLog = func() *memLog { return &memLog{fail: full} } })
			r.open(polar.Recording{})
			status, body := r.post(tc.body)
			if status != tc.status || !strings.Contains(body, `"code":"storage_failed"`) || strings.Contains(body, "[DONE]") || strings.Contains(body, "no space") {
				t.Errorf("%d %s", status, body)
			}
			if status, body := r.post(hello); status != 503 {
				t.Errorf("the next call: %d %s", status, body)
			}
			if _, err := r.gateway.Close(t.Context(), "s1"); !errors.Is(err, gateway.ErrStorage) || !errors.Is(err, full) {
				t.Errorf("Close says %v", err)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	t.Run("of calls", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, says(whole...), nil)
		r.open(polar.Recording{Budget: polar.Budget{MaxCalls: 2}})
		for i, want := range []int{200, 200, 429, 429} {
			resp := r.start(t.Context(), "POST", "/s/s1/v1/chat/completions", hello)
			_ = resp.Body.Close()
			if resp.StatusCode != want || resp.Header.Get("Retry-After") != "" {
				t.Errorf("call %d: %d %v", i, resp.StatusCode, resp.Header)
			}
		}
		if calls := r.calls(); len(calls) != 4 || calls[3].Error.Kind != llm.OverBudget {
			t.Errorf("recorded %+v", calls)
		}
	})
	t.Run("of completion tokens", func(t *testing.T) {
		t.Parallel()
		bodies := make(chan string, 3)
		r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
			data, _ := io.ReadAll(req.Body)
			bodies <- string(data)
			says(whole...)(w, req)
		}, nil)
		r.open(polar.Recording{Budget: polar.Budget{MaxCompletionTokens: 4}})
		for i, want := range []string{`"max_tokens":3`, `"max_tokens":2`} {
			body := strings.Replace(hello, "{", `{"max_tokens":3,`, 1)
			if status, reply := r.post(body); status != 200 {
				t.Errorf("call %d: %d %s", i, status, reply)
			}
			if sent := <-bodies; !strings.Contains(sent, want) {
				t.Errorf("call %d: no %s in %s", i, want, sent)
			}
		}
		if status, reply := r.post(hello); status != 429 || !strings.Contains(reply, "insufficient_quota") {
			t.Errorf("%d %s", status, reply)
		}
	})
	t.Run("of context", func(t *testing.T) {
		t.Parallel()
		gone := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
			says(prompt)(w, req)
			<-req.Context().Done()
			close(gone)
		}, nil)
		r.open(polar.Recording{Budget: polar.Budget{MaxContextTokens: 2}})
		if status, reply := r.post(helloStream); status != 400 || !strings.Contains(reply, "context_length_exceeded") {
			t.Errorf("%d %s", status, reply)
		}
		<-gone
		if calls := r.calls(); calls[0].Error.Kind != llm.ContextOverflow || calls[0].Prompt.Len() != 3 {
			t.Errorf("recorded %+v", calls)
		}
	})
}

func TestAnAnswerThatIsNotTakenIsMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.Protocols = []gateway.Protocol{deaf{}} })
	r.open(polar.Recording{})
	_, _ = r.post(hello)
	if calls := r.calls(); len(calls) != 1 || calls[0].Delivered || calls[0].Finish != "stop" || len(calls[0].Sampled) != 2 {
		t.Errorf("recorded %+v", calls)
	}
}

// deaf is a protocol whose harness is gone when the answer is written.
type deaf struct{ chat.Protocol }

func (deaf) Reply(_ http.ResponseWriter, _ llm.Request, events iter.Seq2[llm.Event, error]) error {
	for range events {
	}
	return errors.New("connection reset")
}

func TestManySessionsAtOnce(t *testing.T) {
	t.Parallel()
	const sessions, turns = 16, 8
	r := newRig(t, says(whole...), nil)
	var all sync.WaitGroup
	for i := range sessions {
		id := fmt.Sprintf("many-%d", i)
		r.open(polar.Recording{Session: polar.SessionID(id)})
		for range turns {
			all.Go(func() {
				if status, body := r.do("POST", "/s/"+id+"/v1/chat/completions", helloStream); status != 200 || !strings.Contains(body, "[DONE]") {
					t.Errorf("%s: %d %s", id, status, body)
				}
			})
		}
	}
	all.Wait()
	for i := range sessions {
		id := fmt.Sprintf("many-%d", i)
		calls, err := r.gateway.Close(t.Context(), id)
		if err != nil || len(calls) != turns {
			t.Errorf("%s: %d calls, %v", id, len(calls), err)
		}
		seen := map[polar.CallID]bool{}
		for _, c := range calls {
			if c.Session != polar.SessionID(id) || seen[c.ID] || !c.Delivered {
				t.Errorf("%s: %+v", id, c)
			}
			seen[c.ID] = true
		}
	}
}
