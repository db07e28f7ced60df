package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/gateway"
	"polar/llm"
	"polar/protocol/chat"
	"polar/rawjson"
)

// goingOn is Chat with the id of an earlier answer to go on from, and with
// routes that count tokens and such that need no session.
type goingOn struct{ chat.Protocol }

func (p goingOn) Decode(r *http.Request, body []byte) (llm.Request, error) {
	req, err := p.Protocol.Decode(r, body)
	if raw := req.Extra.Get("previous_response_id"); err == nil && raw != nil {
		req.Previous, err = rawjson.String(raw)
	}
	req.CountOnly = req.Extra.Get("count") != nil
	return req, err
}

func (goingOn) CountRoutes() []string { return []string{"POST /v1/count"} }

// DecodeCount is Decode: a field marks the calls that only count.
func (p goingOn) DecodeCount(r *http.Request, body []byte) (llm.Request, error) {
	return p.Decode(r, body)
}

func (goingOn) Count(w http.ResponseWriter, req llm.Request, tokens int) {
	_ = json.NewEncoder(w).Encode(map[string]any{"tokens": tokens, "model": req.Model})
}

func (goingOn) Asides() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /v1/responses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUpgradeRequired) },
		"HEAD /{$}":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	}
}

// attentive is an engine that keeps what it was asked and says yes.
type attentive struct {
	asked chan llm.Request
}

func (a attentive) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	a.asked <- req
	return func(yield func(llm.Event, error) bool) {
		yield(llm.Event{
			PromptIDs: llm.IDs{1}, Tokens: []llm.Token{{ID: 2}}, Reasoning: "hm", Text: "yes",
			ToolCalls: []llm.ToolCallDelta{{ID: "c1", Name: "f", Arguments: "{}"}}, Finish: llm.FinishToolCalls,
		}, nil)
	}
}

func attentiveRig(t *testing.T, change func(*gateway.Config)) (*rig, attentive) {
	t.Helper()
	engine := attentive{asked: make(chan llm.Request, 1)}
	r := newRig(t, says(), func(_ *rig, c *gateway.Config) {
		c.Backend, c.Protocols = engine, []gateway.Protocol{goingOn{}}
		if change != nil {
			change(c)
		}
	})
	return r, engine
}

func roles(messages []llm.Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Role + ":" + m.Text() + m.Reasoning)
		for _, call := range m.ToolCalls {
			b.WriteString("+" + call.Name + call.Arguments)
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func TestACallGoesOnFromAnEarlierAnswer(t *testing.T) {
	t.Parallel()
	r, engine := attentiveRig(t, nil)
	r.open(polar.Recording{})
	for i, tc := range []struct{ body, want string }{
		{`{"messages":[{"role":"system","content":"S1"},{"role":"user","content":"U1"}]}`, "system:S1 user:U1"},
		{`{"previous_response_id":"call-000001","messages":[{"role":"tool","tool_call_id":"c1","content":"T1"}]}`, "user:U1 assistant:yeshm+f{} tool:T1"},
		{`{"previous_response_id":"call-000002","messages":[{"role":"system","content":"S3"},{"role":"user","content":"U3"}]}`, "system:S3 user:U1 assistant:yeshm+f{} tool:T1 assistant:yeshm+f{} user:U3"},
		{`{"previous_response_id":"call-000001","messages":[{"role":"developer","content":"D4"},{"role":"user","content":"U4"}]}`, "user:U1 assistant:yeshm+f{} developer:D4 user:U4"},
	} {
		if status, body := r.post(tc.body); status != 200 {
			t.Fatalf("call %d: %d %s", i, status, body)
		}
		req := <-engine.asked
		if diff := cmp.Diff(tc.want, roles(req.Messages)); diff != "" {
			t.Errorf("call %d (-want +got)\n%s", i, diff)
		}
		if req.Affinity != "s1" || req.ID != []string{"call-000001", "call-000002", "call-000003", "call-000004"}[i] {
			t.Errorf("call %d: id %q, affinity %q", i, req.ID, req.Affinity)
		}
	}
	status, body := r.post(`{"previous_response_id":"call-000009","messages":[{"role":"user","content":"U"}]}`)
	if _, _, param := errorOf(t, body); status != 400 || param != "previous_response_id" {
		t.Errorf("%d %s", status, body)
	}
	// An answer that failed is none to go on from, and another session's is unknown.
	status, body = r.post(`{"previous_response_id":"call-000005","messages":[{"role":"user","content":"U"}]}`)
	if _, _, param := errorOf(t, body); status != 400 || param != "previous_response_id" {
		t.Errorf("%d %s", status, body)
	}
	r.open(polar.Recording{Session: "s2"})
	if status, body := r.do("POST", "/s/s2/v1/chat/completions", `{"previous_response_id":"call-000001","messages":[{"role":"user","content":"U"}]}`); status != 400 {
		t.Errorf("%d %s", status, body)
	}
	if calls := r.calls(); len(calls) != 6 || len(calls[2].Messages) != 6 || calls[4].Error.Kind != llm.BadRequest {
		t.Errorf("recorded %+v", calls)
	}
}

func TestLateSystemMessages(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"role":"system","content":"A"},{"role":"developer","content":"B"},{"role":"user","content":"C"},{"role":"system","content":"D","x":1},{"role":"assistant","content":"E"},{"role":"developer","content":"F"}]}`
	for setting, want := range map[string]string{
		"":                     "system:A developer:B user:C system:D assistant:E developer:F",
		gateway.LateSystemKeep: "system:A developer:B user:C system:D assistant:E developer:F",
		gateway.LateSystemUser: "system:A developer:B user:C user:D assistant:E user:F",
	} {
		r, engine := attentiveRig(t, func(c *gateway.Config) { c.LateSystem = setting })
		r.open(polar.Recording{})
		if status, reply := r.post(body); status != 200 {
			t.Errorf("%q: %d %s", setting, status, reply)
		}
		if diff := cmp.Diff(want, roles((<-engine.asked).Messages)); diff != "" {
			t.Errorf("%q (-want +got)\n%s", setting, diff)
		}
		recorded := string(r.calls()[0].Messages[3])
		if asUser := recorded == `{"role":"user","content":"D","x":1}`; asUser != (setting == gateway.LateSystemUser) {
			t.Errorf("%q: recorded %s", setting, recorded)
		}
	}
	if _, err := gateway.New(gateway.Config{
		Protocols: []gateway.Protocol{goingOn{}}, Backend: attentive{}, Log: slogDiscard(), LateSystem: "hoist",
		OpenLog: func(polar.SessionID, int) (gateway.SessionLog, error) { return nil, fs.ErrInvalid },
	}); err == nil || !strings.Contains(err.Error(), `"hoist" is not known; known: keep, user`) {
		t.Errorf("got %v", err)
	}
}

// counting is an engine with a tokenizer.
type counting struct{ attentive }

func (c counting) CountTokens(_ context.Context, req llm.Request) (int, error) {
	if !req.CountOnly || req.Affinity != "s1" {
		return 0, llm.Errorf(llm.EngineFailed, "not a request to count")
	}
	return len(req.Messages), nil
}

// unable is an engine whose tokenizer is not to be had.
type unable struct{ attentive }

func (unable) CountTokens(context.Context, llm.Request) (int, error) {
	return 0, fmt.Errorf("count: %w", errors.ErrUnsupported)
}

func TestTokensAreCountedAndNotRecorded(t *testing.T) {
	t.Parallel()
	r, engine := attentiveRig(t, func(c *gateway.Config) {
		c.Backend, c.Model = counting{c.Backend.(attentive)}, "ours"
	})
	r.open(polar.Recording{Budget: polar.Budget{MaxCalls: 1}})
	_, _ = r.post(hello)
	<-engine.asked
	for _, tc := range []struct {
		path, body string
		status     int
		said       string
	}{
		{"/s/s1/v1/count", hello, 200, `{"model":"ours","tokens":1}`},
		{"/s/s1/v1/count", strings.Replace(hello, "{", `{"previous_response_id":"call-000001",`, 1), 200, `"tokens":3`},
		{callPath, strings.Replace(hello, "{", `{"count":1,`, 1), 200, `"tokens":1`},
		{"/s/s1/v1/count", `{"messages":7}`, 400, `"param":"messages"`},
		{"/s/s2/v1/count", hello, 401, "invalid_api_key"},
		{"/v1/count", hello, 401, "invalid_api_key"},
	} {
		if status, body := r.do("POST", tc.path, tc.body); status != tc.status || !strings.Contains(body, tc.said) {
			t.Errorf("%s: %d %s", tc.path, status, body)
		}
	}
	if calls := r.calls(); len(calls) != 1 {
		t.Errorf("%d calls recorded", len(calls))
	}
	if status, _ := r.do("POST", "/s/s1/v1/count", hello); status != 403 {
		t.Errorf("after the session: %d", status)
	}

	for _, engine := range []gateway.Backend{attentive{}, unable{}} {
		r, _ = attentiveRig(t, func(c *gateway.Config) { c.Backend = engine })
		r.open(polar.Recording{})
		if status, body := r.do("POST", "/s/s1/v1/count", hello); status != 404 || !strings.Contains(body, "the engine does not count tokens") {
			t.Errorf("%T: %d %s", engine, status, body)
		}
		if calls := r.calls(); len(calls) != 0 {
			t.Errorf("%T: recorded %+v", engine, calls)
		}
	}
}

func TestAsidesNeedNoSession(t *testing.T) {
	t.Parallel()
	r, _ := attentiveRig(t, nil)
	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v1/responses", 426}, {"GET", "/s/nobody/v1/responses", 426}, {"HEAD", "/", 204}, {"HEAD", "/s/nobody/", 204}, {"GET", "/", 200},
	} {
		if status, _ := r.do(tc.method, tc.path, ""); status != tc.want {
			t.Errorf("%s %s: %d", tc.method, tc.path, status)
		}
	}
}
