package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/gateway"
	"polar/llm"
)

func asRaw(texts ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, text := range texts {
		out = append(out, json.RawMessage(text))
	}
	return out
}

func TestCloseDuringACall(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		says(prompt, chunk("a", 10))(w, req)
		<-req.Context().Done()
		close(gone)
	}, nil)
	r.open(polar.Recording{})
	resp := r.start(t.Context(), "POST", "/v1/chat/completions", helloStream, "Authorization", "Bearer s1")
	defer func() { _ = resp.Body.Close() }()
	next := lines(resp.Body)
	next()
	if text := next(); !strings.Contains(text, `"a"`) {
		t.Fatal(text)
	}
	calls := r.calls()
	<-gone
	if len(calls) != 1 || calls[0].Finish != llm.FinishAbort || calls[0].Delivered || len(calls[0].Sampled) != 1 || calls[0].Error.Kind != llm.SessionEnded {
		t.Errorf("recorded %+v", calls)
	}
	if line := next(); !strings.Contains(line, `"code":"session_ended"`) {
		t.Errorf("the harness is told %s", line)
	}
	if status, body := r.post(hello); status != 403 {
		t.Errorf("afterwards %d %s", status, body)
	}
	if _, err := r.gateway.Close(t.Context(), "s1"); !errors.Is(err, gateway.ErrNoSession) {
		t.Errorf("closed twice: %v", err)
	}
}

func TestCloseThatIsCutShortCanBeCalledAgain(t *testing.T) {
	t.Parallel()
	appending, pause := make(chan polar.Call, 1), make(chan struct{})
	r := newRig(t, says(whole...), func(r *rig, _ *gateway.Config) {
		r.newLog = func() *memLog { return &memLog{appending: appending, pause: pause} }
	})
	r.open(polar.Recording{})
	resp := r.start(t.Context(), "POST", "/v1/chat/completions", helloStream, "Authorization", "Bearer s1")
	defer func() { _ = resp.Body.Close() }()
	<-appending
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.gateway.Close(ctx, "s1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if status, _ := r.post(hello); status != 403 {
		t.Errorf("a call after Close: %d", status)
	}
	close(pause)
	if calls := r.calls(); len(calls) != 1 || calls[0].Finish != "stop" {
		t.Errorf("recorded %+v", calls)
	}
}

func TestASessionIsToldItsWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engine      func() int
		bound, want int
	}{
		"nobody knows":                    {nil, 0, 0},
		"an engine that does not say":     {func() int { return 0 }, 0, 0},
		"the engine's":                    {func() int { return 100 }, 0, 100},
		"a budget within it":              {func() int { return 100 }, 60, 60},
		"a budget that is larger":         {func() int { return 100 }, 200, 100},
		"a budget where nothing is known": {nil, 60, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, says(whole...), func(_ *rig, cfg *gateway.Config) { cfg.ContextWindow = c.engine })
			got, err := r.gateway.Open(t.Context(), polar.Recording{Session: "a", Attempt: 1, Budget: polar.Budget{MaxContextTokens: c.bound}})
			if err != nil || got.ContextWindow != c.want {
				t.Errorf("told %d, %v, want %d", got.ContextWindow, err, c.want)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.Model = "ours" })
	ctx := t.Context()
	got, err := r.gateway.Open(ctx, polar.Recording{Session: "a", Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Key) != len("sk-polar-")+32 || !strings.HasPrefix(got.Key, "sk-polar-") {
		t.Errorf("key %q", got.Key)
	}
	if diff := cmp.Diff(polar.Endpoint{URL: "http://gateway.test", Key: got.Key, Model: "ours"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for name, rec := range map[string]polar.Recording{
		"the same attempt":   {Session: "a", Attempt: 1},
		"an earlier attempt": {Session: "a"},
		"the same key":       {Session: "b", Key: got.Key},
	} {
		if _, err := r.gateway.Open(ctx, rec); !errors.Is(err, gateway.ErrSessionExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.gateway.Open(ctx, polar.Recording{Session: "../a"}); err == nil {
		t.Error("a session with a path for its id")
	}
	if _, err := r.gateway.Open(ctx, polar.Recording{Session: "a", Attempt: 2}); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

func TestALogThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) {
		c.OpenLog = func(polar.SessionID, int) (gateway.SessionLog, error) { return nil, broken }
	})
	for range 2 { // the key is free again after the first
		if _, err := r.gateway.Open(t.Context(), polar.Recording{Session: "s1", Key: "k"}); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if n := r.gateway.Stats().Sessions; n != 0 {
		t.Errorf("%d sessions", n)
	}
}

func TestALogWithCallsIsGoneOnWith(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), nil)
	r.logs["s1"] = &memLog{calls: []polar.Call{
		{ID: "call-000001", Engine: llm.Engine{Kind: "vllm"}, Sampled: make([]llm.Token, 3)},
		{ID: "call-000002", Error: &polar.CallError{}},
	}}
	r.open(polar.Recording{Budget: polar.Budget{MaxCalls: 2}})
	if status, body := r.post(hello); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.post(hello); status != 429 {
		t.Errorf("over the budget: %d %s", status, body)
	}
	if calls := r.calls(); len(calls) != 4 || calls[2].ID != "call-000003" {
		t.Errorf("recorded %+v", calls)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := gateway.New(gateway.Config{}); err == nil {
		t.Error("a gateway with nothing")
	}
}
