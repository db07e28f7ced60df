package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"polar"
	"polar/gateway"
	"polar/llm"
	"polar/protocol/chat"
)

// stepwise is an engine that goes on when it is told to.
type stepwise struct {
	asked             atomic.Int32
	began, more, gone chan struct{}
}

func newStepwise() *stepwise {
	return &stepwise{began: make(chan struct{}, 8), more: make(chan struct{}), gone: make(chan struct{}, 8)}
}

func (e *stepwise) serve(w http.ResponseWriter, r *http.Request) {
	e.asked.Add(1)
	says(prompt, chunk("Hel", 10))(w, r)
	e.began <- struct{}{}
	select {
	case <-e.more:
		says(chunk("lo", 11), finish, usage(2), done)(w, r)
	case <-r.Context().Done():
		e.gone <- struct{}{}
	}
}

// until reads a stream up to a line with that in it.
func until(tb testing.TB, resp *http.Response, want string) {
	tb.Helper()
	next := lines(resp.Body)
	for line := next(); !strings.Contains(line, want); line = next() {
		if line == "" {
			tb.Fatalf("the stream ended before %s", want)
		}
	}
}

// text is the text of an answer, streamed or not.
func text(tb testing.TB, body string) string {
	tb.Helper()
	var b strings.Builder
	for line := range strings.Lines(body) {
		var part struct {
			Choices []struct{ Delta, Message struct{ Content string } }
		}
		data := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if json.Unmarshal([]byte(data), &part) == nil && len(part.Choices) > 0 {
			b.WriteString(part.Choices[0].Delta.Content + part.Choices[0].Message.Content)
		}
	}
	return b.String()
}

const callPath = "/s/s1/v1/chat/completions"

var marked = []string{"X-Stainless-Retry-Count", "1"}

func TestARetryJoinsTheCallUnderWay(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"streamed": "streamed", "unstreamed": "unstreamed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := newStepwise()
			r := newRig(t, engine.serve, nil)
			r.open(polar.Recording{Budget: polar.Budget{MaxCalls: 1}})
			firstBody := make(chan string, 1)
			go func() {
				body := hello
				if first == "streamed" {
					body = helloStream
				}
				_, got := r.do("POST", callPath, body)
				firstBody <- got
			}()
			<-engine.began
			retry := r.start(t.Context(), "POST", callPath, helloStream, marked...)
			defer func() { _ = retry.Body.Close() }()
			until(t, retry, `"Hel"`)
			close(engine.more)
			rest, err := io.ReadAll(retry.Body)
			if err != nil || !strings.Contains(string(rest), "[DONE]") || text(t, string(rest)) != "lo" {
				t.Errorf("the retry was given %s, %v", rest, err)
			}
			if got := text(t, <-firstBody); got != "Hello" {
				t.Errorf("the first was given %q", got)
			}
			calls := r.calls()
			if len(calls) != 1 || calls[0].Retries != 1 || !calls[0].Delivered || len(calls[0].Sampled) != 2 || calls[0].Error != nil {
				t.Errorf("recorded %+v", calls)
			}
			if n := engine.asked.Load(); n != 1 {
				t.Errorf("the engine was asked %d times", n)
			}
		})
	}
}

func TestTheEngineStopsWhenAllAskersAreGone(t *testing.T) {
	t.Parallel()
	engine := newStepwise()
	r := newRig(t, engine.serve, nil)
	r.open(polar.Recording{})
	ctx, leave := context.WithCancel(t.Context())
	first := r.start(ctx, "POST", callPath, helloStream)
	defer func() { _ = first.Body.Close() }()
	until(t, first, `"Hel"`)
	retryCtx, leaveToo := context.WithCancel(t.Context())
	retry := r.start(retryCtx, "POST", callPath, helloStream, marked...)
	defer func() { _ = retry.Body.Close() }()
	until(t, retry, `"Hel"`)
	leave()
	leaveToo()
	<-engine.gone
	calls := r.calls()
	if len(calls) != 1 || calls[0].Delivered || calls[0].Finish != llm.FinishAbort || calls[0].Error != nil {
		t.Errorf("recorded %+v", calls)
	}
}

func TestWhatIsARetryAndWhatIsNot(t *testing.T) {
	t.Parallel()
	token := []string{"Idempotency-Key", "k1"}
	type ask struct {
		body    string
		headers []string
	}
	other := strings.Replace(hello, "hello", "other", 1)
	tests := map[string]struct {
		asks []ask
		// lose is how many answers do not reach the harness.
		lose      int
		engine    int32
		retries   []int
		delivered []bool
	}{
		"two samples":                        {[]ask{{hello, nil}, {hello, nil}}, 0, 2, []int{0, 0}, []bool{true, true}},
		"a marked retry of a whole answer":   {[]ask{{hello, nil}, {hello, marked}}, 0, 1, []int{1}, []bool{true}},
		"an answer that did not arrive":      {[]ask{{hello, nil}, {hello, nil}}, 1, 1, []int{1}, []bool{true}},
		"an answer that never arrives":       {[]ask{{hello, nil}, {hello, nil}, {hello, nil}}, 3, 1, []int{2}, []bool{false}},
		"a sample after an answer arrived":   {[]ask{{hello, nil}, {hello, nil}, {hello, nil}}, 1, 2, []int{1, 0}, []bool{true, true}},
		"a broken stream, then unstreamed":   {[]ask{{helloStream, nil}, {hello, nil}}, 1, 1, []int{1}, []bool{true}},
		"an unstreamed call, then streamed":  {[]ask{{hello, nil}, {helloStream, marked}}, 0, 1, []int{1}, []bool{true}},
		"another question":                   {[]ask{{hello, nil}, {other, marked}}, 0, 2, []int{0, 0}, []bool{true, true}},
		"a retry of what never came":         {[]ask{{hello, marked}}, 0, 1, []int{0}, []bool{true}},
		"the caller's own name for the call": {[]ask{{hello, token}, {hello, token}}, 0, 1, []int{1}, []bool{true}},
		"another name for the same question": {[]ask{{hello, token}, {hello, []string{"Idempotency-Key", "k2"}}}, 0, 2, []int{0, 0}, []bool{true, true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, lose atomic.Int32
			lose.Store(int32(tc.lose))
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				asked.Add(1)
				says(whole...)(w, req)
			}, func(_ *rig, c *gateway.Config) { c.Protocols = []gateway.Protocol{lossy{lose: &lose}} })
			r.open(polar.Recording{})
			for i, a := range tc.asks {
				status, body := r.do("POST", callPath, a.body, a.headers...)
				if i >= tc.lose && (status != 200 || text(t, body) != "Hello" || strings.Contains(body, "[DONE]") != (a.body == helloStream)) {
					t.Errorf("call %d: %d %s", i, status, body)
				}
			}
			calls := r.calls()
			if len(calls) != len(tc.retries) {
				t.Fatalf("%d calls recorded", len(calls))
			}
			for i, c := range calls {
				if c.Retries != tc.retries[i] || c.Delivered != tc.delivered[i] {
					t.Errorf("call %d: %d retries, delivered %v", i, c.Retries, c.Delivered)
				}
			}
			if n := asked.Load(); n != tc.engine {
				t.Errorf("the engine was asked %d times", n)
			}
		})
	}
}

// lossy is a protocol that loses its first answers on the way to the harness.
type lossy struct {
	chat.Protocol
	lose *atomic.Int32
}

func (p lossy) Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error {
	if p.lose.Add(-1) < 0 {
		return p.Protocol.Reply(w, req, events)
	}
	for range events {
	}
	return errors.New("connection reset")
}

func TestAFailedCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string][]string{"before its first event": nil, "in the middle": {prompt, chunk("a", 10)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				switch {
				case asked.Add(1) > 1:
					says(whole...)(w, req)
				case broken == nil:
					w.WriteHeader(http.StatusBadRequest)
				default:
					says(broken...)(w, req)
				}
			}, nil)
			r.open(polar.Recording{})
			_, _ = r.do("POST", callPath, helloStream)
			if status, body := r.do("POST", callPath, helloStream, marked...); status != 200 || text(t, body) != "Hello" {
				t.Errorf("%d %s", status, body)
			}
			calls := r.calls()
			if len(calls) != 2 || calls[0].Error == nil || calls[1].Error != nil || calls[1].Retries != 0 || asked.Load() != 2 {
				t.Errorf("recorded %+v", calls)
			}
		})
	}
}

func TestACallLeftInTheMiddleIsAskedAgain(t *testing.T) {
	t.Parallel()
	engine := newStepwise()
	appending := make(chan polar.Call, 2)
	r := newRig(t, engine.serve, func(r *rig, _ *gateway.Config) { r.newLog = func() *memLog { return &memLog{appending: appending} } })
	r.open(polar.Recording{})
	ctx, leave := context.WithCancel(t.Context())
	resp := r.start(ctx, "POST", callPath, helloStream)
	defer func() { _ = resp.Body.Close() }()
	until(t, resp, `"Hel"`)
	leave()
	<-engine.gone
	close(engine.more)
	if status, body := r.do("POST", callPath, hello, marked...); status != 200 || text(t, body) != "Hello" {
		t.Errorf("%d %s", status, body)
	}
	if calls := r.calls(); len(calls) != 2 || engine.asked.Load() != 2 || calls[0].Delivered == calls[1].Delivered {
		t.Errorf("recorded %+v", calls)
	}
}

func TestASessionsAnswersAreItsOwn(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		says(whole...)(w, req)
	}, nil)
	for _, id := range []polar.SessionID{"s1", "s2"} {
		r.open(polar.Recording{Session: id})
		if status, body := r.do("POST", "/s/"+string(id)+"/v1/chat/completions", hello, marked...); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the engine was asked %d times", n)
	}
}

func TestARepeatedAnswerHasAllItsParts(t *testing.T) {
	t.Parallel()
	said := []llm.Event{
		{PromptIDs: llm.IDs{1, 2, 3}, Engine: &llm.Engine{Kind: "fake"}},
		{Reasoning: "why ", Tokens: []llm.Token{{ID: 1}}, Logprobs: json.RawMessage(`{"content":[{"token":"a"}]}`)},
		{Reasoning: "not", Text: "so \"", Logprobs: json.RawMessage(`{"content":[{"token":"b"}]}`)},
		{Text: "é\"", ToolCalls: []llm.ToolCallDelta{{Index: 0, ID: "c0", Name: "f", Arguments: `{"a":`}, {Index: 1, ID: "c1", Name: "g"}}},
		{ToolCalls: []llm.ToolCallDelta{{Index: 0, Arguments: `1}`}}},
		{Text: "!", Tokens: []llm.Token{{ID: 2}}, Finish: "tool_calls", Usage: &llm.Usage{PromptTokens: 3, CompletionTokens: 2}},
	}
	r := newRig(t, says(), func(_ *rig, c *gateway.Config) {
		c.Backend = backendFunc(func(yield func(llm.Event, error) bool) {
			for _, e := range said {
				if !yield(e, nil) {
					return
				}
			}
		})
	})
	r.open(polar.Recording{})
	body := strings.Replace(hello, "{", `{"logprobs":true,`, 1)
	_, first := r.post(body)
	_, again := r.do("POST", callPath, body, marked...)
	if strip(first) != strip(again) || !strings.Contains(again, `{"token":"a"},{"token":"b"}`) || !strings.Contains(again, `"reasoning_content":"why not"`) || !strings.Contains(again, `so \"é\"!`) {
		t.Errorf("first %s\nagain %s", first, again)
	}
}

// strip takes off what differs between two answers.
func strip(body string) string {
	_, rest, _ := strings.Cut(body, `"model"`)
	return rest
}
