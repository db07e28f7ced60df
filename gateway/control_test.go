package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"polar"
	"polar/gateway"
)

func TestControlRoutesNeedTheToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) { c.ControlToken = "secret" })
	r.open(polar.Recording{})
	for _, tc := range []struct {
		method, path string
		without      int
		with         int
	}{
		{"GET", "/", 200, 200},
		{"GET", "/health", 200, 200},
		{"GET", "/sessions", 401, 200},
		{"GET", "/sessions/s1", 401, 200},
		{"GET", "/sessions/s1/completions", 401, 200},
		{"GET", "/sessions/s1/trajectory", 401, 404},
		{"POST", "/sessions", 401, 201},
		{"DELETE", "/sessions/s1", 401, 200},
	} {
		if status, body := r.do(tc.method, tc.path, ""); status != tc.without {
			t.Errorf("%s %s without: %d %s", tc.method, tc.path, status, body)
		}
		if status, body := r.do(tc.method, tc.path, "", "Authorization", "Bearer secre"); status != tc.without {
			t.Errorf("%s %s with another: %d %s", tc.method, tc.path, status, body)
		}
		if status, body := r.do(tc.method, tc.path, "", "Authorization", "Bearer secret"); status != tc.with {
			t.Errorf("%s %s with: %d %s", tc.method, tc.path, status, body)
		}
	}
	// A control token is no session's key, and a key no control token.
	if status, _ := r.do("POST", "/v1/chat/completions", hello, "Authorization", "Bearer secret"); status != 401 {
		t.Errorf("a model call with the control token: %d", status)
	}
}

func TestASessionByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(whole...), func(_ *rig, c *gateway.Config) {
		c.Build = func(strategy string, config json.RawMessage, calls []polar.Call) (polar.Trajectory, error) {
			switch strategy {
			case "per_request":
				return polar.Trajectory{Error: fmt.Sprintf("%s %d", config, len(calls))}, nil
			case "picky":
				return polar.Trajectory{}, polar.Invalid("drift", "is wrong")
			}
			return polar.Trajectory{}, fmt.Errorf("%q is %w", strategy, polar.ErrUnknownKind)
		}
	})
	status, body := r.do("POST", "/sessions", `{"task_id":"t","session_id":"mine"}`)
	want := `{"api_key":"mine","base_urls":{"anthropic":"http://gateway.test","gemini":"http://gateway.test","openai":"http://gateway.test/v1"},"session_id":"mine"}`
	if status != 201 || strings.TrimSpace(body) != want {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.do("POST", "/v1/chat/completions", hello, "Authorization", "Bearer mine"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	for path, want := range map[string]string{
		"/sessions":                  `"session_id":"mine","task_id":"t","attempt":1,"status":"open"`,
		"/sessions/mine":             `"calls":1,"inflight":0,"completion_tokens":2`,
		"/sessions/mine/completions": `"prompt_ids":[1,2,3],"response_ids":[10,11],"response_logprobs":[-0.5,-0.5]`,
		"/sessions/mine/trajectory":  `"error":" 1"`,
		"/sessions/mine/trajectory?strategy=per_request&drift=split&n=5&roles=a&roles=b": `{\"drift\":\"split\",\"n\":5,\"roles\":[\"a\",\"b\"]} 1`,
	} {
		status, body := r.do("GET", path, "")
		if status != 200 || !strings.Contains(body, want) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		said               string
	}{
		{"GET", "/sessions/mine/trajectory?strategy=x", "", 400, `"field":"strategy"`},
		{"GET", "/sessions/mine/trajectory?strategy=picky", "", 400, `"field":"drift"`},
		{"GET", "/sessions/other", "", 404, "no such session"},
		{"POST", "/sessions", `{"session_id":"mine"}`, 409, "session exists"},
		{"POST", "/sessions", `{"session_id":"../x"}`, 400, `"field":"session_id"`},
		{"POST", "/sessions", `{"task_id":"a b"}`, 400, `"field":"task_id"`},
		{"POST", "/sessions", `{"sesion_id":"x"}`, 400, `sesion_id`},
		{"POST", "/sessions", `{`, 400, `not valid JSON`},
		{"POST", "/sessions", strings.Repeat(" ", 2<<20), 413, ``},
		{"DELETE", "/sessions/mine", "", 200, `"status":"ended"`},
		{"GET", "/sessions/mine", "", 404, "no such session"},
		{"POST", "/s/mine/v1/chat/completions", hello, 403, "session_ended"},
		{"POST", "/sessions", `{"session_id":"mine"}`, 409, "has ended"},
	} {
		if status, body := r.do(tc.method, tc.path, tc.body); status != tc.status || !strings.Contains(body, tc.said) {
			t.Errorf("%s %s %.40s: %d %s", tc.method, tc.path, tc.body, status, body)
		}
	}
	status, body = r.do("POST", "/sessions", "")
	var made struct {
		Session string `json:"session_id"`
		Key     string `json:"api_key"`
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != 201 || made.Session == "" || made.Key == made.Session || !strings.HasPrefix(made.Key, "sk-polar-") {
		t.Errorf("%d %s", status, body)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*rig, *gateway.Config)
		status int
		want   string
	}{
		"the one imposed": {func(_ *rig, c *gateway.Config) { c.Model = "ours" }, 200, `"id":"ours"`},
		"the engine's": {func(_ *rig, c *gateway.Config) {
			c.Models = func(context.Context) ([]string, error) { return []string{"theirs"}, nil }
		}, 200, `"id":"theirs"`},
		"none": {nil, 200, `"data":[]`},
		"an engine that is down": {func(_ *rig, c *gateway.Config) {
			c.Models = func(context.Context) ([]string, error) { return nil, http.ErrServerClosed }
		}, 500, `internal error`},
	} {
		r := newRig(t, says(), tc.change)
		r.open(polar.Recording{})
		for _, path := range []string{"/v1/models", "/s/s1/v1/models"} {
			if status, body := r.do("GET", path, "", "Authorization", "Bearer s1"); status != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %s: %d %s", name, path, status, body)
			}
		}
		if status, _ := r.do("GET", "/v1/models", ""); status != 401 {
			t.Errorf("%s: without a key: %d", name, status)
		}
	}
}

func TestHealthAndRoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, says(), nil)
	r.open(polar.Recording{})
	if status, body := r.do("GET", "/health", ""); status != 200 || strings.TrimSpace(body) != `{"status":"ok","sessions":1,"inflight":0,"calls":0}` {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.do("HEAD", "/", ""); status != 200 || body != "" {
		t.Errorf("%d %s", status, body)
	}
}
