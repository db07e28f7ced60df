package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"polar"
	"polar/api"
	"polar/coordinator"
	"polar/llm"
	"polar/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a coordinator on a real store.
type server struct {
	*coordinator.Coordinator
	t     testing.TB
	dir   string
	store *store.Store
	blobs *store.Blobs
	log   *bytes.Buffer
	stop  func()
}

// start runs a coordinator on the data folder until the test ends or stop is
// called.
func start(tb testing.TB, dir string, change func(*coordinator.Config)) *server {
	tb.Helper()
	s := &server{t: tb, dir: dir, log: &bytes.Buffer{}}
	var err error
	if s.store, err = store.Open(tb.Context(), store.Config{Path: filepath.Join(dir, "polar.db")}); err != nil {
		tb.Fatal(err)
	}
	if s.blobs, err = store.OpenBlobs(filepath.Join(dir, "blobs")); err != nil {
		tb.Fatal(err)
	}
	cfg := coordinator.Config{Store: s.store, Blobs: s.blobs, Log: slog.New(slog.NewTextHandler(&locked{w: s.log}, nil))}
	if change != nil {
		change(&cfg)
	}
	if s.Coordinator, err = coordinator.New(cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		if err := s.store.Close(); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(s.stop)
	return s
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// do makes a request without a socket.
func (s *server) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	req := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	return rec
}

// want makes a request that must give status and returns its JSON.
func want[T any](s *server, status int, method, path, body string) (v T) {
	s.t.Helper()
	rec := s.do(method, path, body)
	if rec.Code != status {
		s.t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil {
		s.t.Fatalf("%s %s: %v in %s", method, path, err, rec.Body)
	}
	return v
}

// task is a task as JSON; more are further fields.
func task(id string, samples int, more ...string) string {
	return fmt.Sprintf(`{"task_id":%q,"instruction":"do it","num_samples":%d,"agent":{"harness":"shell"}%s}`,
		id, samples, strings.Join(append([]string{""}, more...), ","))
}

func (s *server) submit(body string) {
	s.t.Helper()
	want[api.SubmitReply](s, http.StatusOK, "POST", "/rollout/task/submit", body)
}

func (s *server) claim(node string, room int, wait time.Duration) api.ClaimReply {
	s.t.Helper()
	reply, err := s.Claim(s.t.Context(), api.ClaimRequest{Node: api.NodeInfo{Node: node}, Room: room, Wait: wait})
	if err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// sessions names what was claimed as id#attempt.
func sessions(r api.ClaimReply) string {
	var out []string
	for _, a := range r.Sessions {
		out = append(out, fmt.Sprintf("%s#%d", a.Session.ID, a.Session.Attempt))
	}
	return strings.Join(out, " ")
}

// result is what a node would report of a session that went well.
func result(v polar.Session) polar.Result {
	one := 1.0
	return polar.Result{
		Session: v.ID, Task: v.Task, Status: polar.Completed, Attempt: v.Attempt, Node: "n1",
		Trajectory: polar.Trajectory{Status: polar.Completed, Traces: []polar.Trace{{
			ID: "t0", PromptIDs: llm.IDs{1, 2}, ResponseIDs: llm.IDs{3, 4}, LossMask: polar.Mask{true, true},
			ResponseLogprobs: llm.Logprobs{-0.5, -0.25}, Reward: &one,
		}}},
	}
}

// failed is a result that the service is to blame for.
func failed(v polar.Session) polar.Result {
	return polar.Result{
		Session: v.ID, Task: v.Task, Status: polar.Errored, Attempt: v.Attempt, Node: "n1", Error: "engine down",
		Failure: &polar.Failure{Stage: polar.StageRun, Blame: polar.BlameService, Kind: polar.KindEngine, Message: "engine down"},
	}
}

func (s *server) report(r polar.Result) {
	s.t.Helper()
	if err := s.Report(s.t.Context(), r); err != nil {
		s.t.Fatal(err)
	}
}

// runAll runs every session that waits, as a node would.
func (s *server) runAll() (n int) {
	s.t.Helper()
	for {
		reply := s.claim("n1", 10, 0)
		if len(reply.Sessions) == 0 {
			return n
		}
		for _, a := range reply.Sessions {
			s.report(result(a.Session))
			n++
		}
	}
}

func TestSubmitIsIdempotent(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	for range 2 {
		got := want[api.SubmitReply](s, http.StatusOK, "POST", "/rollout/task/submit", task("a", 2))
		if got.Task != "a" || got.Status != api.TaskRunning {
			t.Errorf("reply %+v", got)
		}
	}
	// The same task, otherwise written.
	s.submit(` { "instruction":"do it", "task_id":"a", "num_samples":2, "timeout_seconds": 600.0, "agent":{"harness":"shell"} } `)
	got := want[api.Error](s, http.StatusConflict, "POST", "/rollout/task/submit", task("a", 3))
	if !strings.Contains(got.Detail, "task a was submitted before with another body") {
		t.Errorf("detail %q", got.Detail)
	}
	if n := s.runAll(); n != 2 {
		t.Errorf("%d sessions ran", n)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), func(c *coordinator.Config) {
		c.MaxBodyBytes = 4096
		c.Check = func(task polar.Task) error {
			_, err := polar.Registry[int]{"shell": nil, "mini": nil}.Open(polar.Spec{Kind: task.Agent.Harness})
			if errors.Is(err, polar.ErrUnknownKind) {
				return polar.Invalid("agent.harness", "%v", err)
			}
			return nil
		}
	})
	submit := "/rollout/task/submit"
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		field, detail      string
	}{
		"not JSON":               {"POST", submit, "hello", 400, "", "not valid JSON"},
		"nothing":                {"POST", submit, "", 400, "", "not valid JSON"},
		"cut off":                {"POST", submit, `{"task_id":"a"`, 400, "", "not valid JSON"},
		"a list":                 {"POST", submit, `[]`, 400, "body", "an object expected"},
		"unknown field":          {"POST", submit, task("a", 1, `"instructions":"x"`), 400, "instructions", "unknown field"},
		"unknown nested field":   {"POST", submit, task("a", 1, `"builder":{"strategie":"x"}`), 400, "builder.strategie", "unknown field"},
		"no samples":             {"POST", submit, task("a", 0), 400, "num_samples", "must be from 1"},
		"wrong type":             {"POST", submit, task("a", 1, `"timeout_seconds":"ten"`), 400, "timeout_seconds", "a number expected"},
		"path as id":             {"POST", submit, task("../../etc/x", 1), 400, "task_id", "letters, digits"},
		"no instruction":         {"POST", submit, `{"task_id":"a","agent":{"harness":"shell"}}`, 400, "instruction", "missing"},
		"unknown plug-in":        {"POST", submit, `{"task_id":"a","instruction":"x","agent":{"harness":"codx"}}`, 400, "agent.harness", "known: mini, shell"},
		"callback without host":  {"POST", submit, task("a", 1, `"callback_url":"file:///etc/passwd"`), 400, "callback_url", "not an http"},
		"callback header":        {"POST", submit, task("a", 1, `"callback":{"url":"http://h/","headers":{"a b":"c"}}`), 400, "callback.headers", "not the name of a header"},
		"callback header value":  {"POST", submit, task("a", 1, `"callback":{"url":"http://h/","headers":{"a":"c\nd"}}`), 400, "callback.headers.a", "control character"},
		"body too large":         {"POST", submit, task("a", 1, `"metadata":{"x":"`+strings.Repeat("y", 9000)+`"}`), 413, "", "larger than 4096 bytes"},
		"unknown task":           {"GET", "/rollout/task/nobody", "", 404, "", "task nobody: not found"},
		"path as task":           {"GET", "/rollout/task/..%2f..%2fetc", "", 404, "", "not found"},
		"unknown results":        {"GET", "/rollout/task/nobody?results=some", "", 400, "results", "known: none, summary, full"},
		"cancel of unknown task": {"DELETE", "/rollout/task/nobody", "", 404, "", "task nobody: not found"},
		"register maybe":         {"DELETE", "/rollout/task/nobody?register_if_missing=maybe", "", 400, "register_if_missing", "not true or false"},
		"unknown session":        {"GET", "/rollout/session/nobody.0", "", 404, "", "session nobody.0: not found"},
		"calls of unknown":       {"GET", "/rollout/session/nobody.0/calls", "", 404, "", "not found"},
		"artifact of unknown":    {"GET", "/rollout/session/nobody.0/artifacts/a/b.log", "", 404, "", "not found"},
		"unknown node":           {"GET", "/nodes/n9", "", 404, "", "node n9: not found"},
		"drain unknown node":     {"DELETE", "/nodes/n9", "", 404, "", "node n9: not found"},
		"sessions of unknown":    {"GET", "/tasks/nobody/sessions", "", 404, "", "task nobody: not found"},
		"list too long":          {"GET", "/tasks?limit=1001", "", 400, "limit", "from 1 to 1000"},
		"list status":            {"GET", "/tasks?status=done", "", 400, "status", "known: running"},
		"list since":             {"GET", "/tasks?since=yesterday", "", 400, "since", "2026-01-02"},
		"no consumer":            {"GET", "/rollout/results", "", 400, "consumer", "not a name"},
		"after a word":           {"GET", "/rollout/results?after=x", "", 400, "after", "not the number of a result"},
		"after with a wait":      {"GET", "/rollout/results?after=0&wait=3s", "", 400, "wait", "answers at once"},
		"after of a bad task":    {"GET", "/rollout/results?after=0&task=..", "", 400, "task", "not the id of a task"},
		"wait for ever":          {"GET", "/rollout/results?consumer=c&wait=9h", "", 400, "wait", "from 0s to 5m0s"},
		"ack of the future":      {"POST", "/rollout/results/ack", `{"consumer":"c","cursor":7}`, 400, "cursor", "at most 0"},
		"event that is no id":    {"GET", "/events?after=x", "", 400, "after", "not the id of an event"},
		"unknown route":          {"GET", "/rollout/tusk", "", 404, "", "no route GET /rollout/tusk"},
		"wrong method":           {"PUT", "/tasks", "", 405, "", "allowed: GET, HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := s.do(c.method, c.path, c.body)
			var got api.Error
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v in %q", err, rec.Body)
			}
			if rec.Code != c.status || got.Field != c.field || !strings.Contains(got.Detail, c.detail) || strings.Contains(got.Detail, "\n") {
				t.Errorf("%d %+v", rec.Code, got)
			}
		})
	}
	if got := want[[]api.TaskSummary](s, http.StatusOK, "GET", "/tasks", ""); len(got) != 0 {
		t.Errorf("bad input left %v", got)
	}
}

func TestUnknownFieldsCanBeWarnedOf(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), func(c *coordinator.Config) { c.UnknownFields = "warn" })
	got := want[api.SubmitReply](s, http.StatusOK, "POST", "/rollout/task/submit",
		task("a", 1, `"new.top":1`, `"runtime":{"backend":"local","prepare":[{"type":"exec","command":"true","x":{"y":2}}]}`))
	if len(got.Warnings) != 2 || !strings.Contains(strings.Join(got.Warnings, " "), "runtime.prepare[0].x") {
		t.Errorf("warnings %q", got.Warnings)
	}
	if a := s.claim("n", 1, 0); len(a.Sessions) != 1 || a.Sessions[0].Task.Runtime.Prepare[0].Command != "true" {
		t.Errorf("claimed %+v", a)
	}
	want[api.Error](s, http.StatusBadRequest, "POST", "/rollout/task/submit", task("b", 0, `"new":1`))
}

func TestControlToken(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), func(c *coordinator.Config) { c.ControlToken = "secret" })
	for name, c := range map[string]struct {
		path, auth string
		status     int
	}{
		"health is open":  {"/health", "", 200},
		"none":            {"/tasks", "", 401},
		"wrong":           {"/tasks", "Bearer secre", 401},
		"other scheme":    {"/tasks", "Basic secret", 401},
		"right":           {"/tasks", "Bearer secret", 200},
		"routes are shut": {"/no/such", "", 401},
	} {
		if rec := s.do("GET", c.path, "", "Authorization", c.auth); rec.Code != c.status {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
}

func TestPagesOfOthersMayNotSubmit(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	rec := s.do("POST", "/rollout/task/submit", task("a", 1), "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site")
	if rec.Code != http.StatusForbidden {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
