package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/api"
	"polar/coordinator"
	"polar/llm"
)

// callsOf stands for the log of calls.
func callsOf(_ context.Context, id polar.SessionID, attempt int) ([]polar.Call, error) {
	first := polar.NewPrompt(nil, 0, llm.IDs{1, 2})
	return []polar.Call{
		{ID: "c0", Session: id, Attempt: attempt, Prompt: first},
		{ID: "c1", Session: id, Attempt: attempt, Prompt: polar.NewPrompt(first, 2, llm.IDs{3}), Sampled: []llm.Token{{ID: 9, Logprob: -1}}},
	}, nil
}

// tape is a response that grows while it is read.
type tape struct {
	mu     sync.Mutex
	b      strings.Builder
	header http.Header
}

func (t *tape) Header() http.Header { return t.header }
func (t *tape) WriteHeader(int)     {}
func (t *tape) Flush()              {}

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func TestEventsStreamPingAndResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, t.TempDir(), nil)
		defer s.stop()
		listen := func(after string) (*tape, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			req := httptest.NewRequestWithContext(ctx, "GET", "/events"+after, nil)
			out := &tape{header: http.Header{}}
			done := make(chan struct{})
			go func() { defer close(done); s.ServeHTTP(out, req) }()
			synctest.Wait()
			return out, func() { cancel(); <-done }
		}
		s.submit(task("before", 1))
		live, end := listen("")
		s.submit(task("a", 1))
		time.Sleep(16 * time.Second)
		end()
		got := live.String()
		if strings.Contains(got, `"before"`) || !strings.Contains(got, "id: 2\nevent: task.created\n") || !strings.Contains(got, "event: ping\n") ||
			!strings.HasPrefix(got, "id: 1\nevent: hello\n") {
			t.Errorf("live stream\n%s", got)
		}
		s.runAll()
		resumed, end := listen("?after=2")
		end()
		var kinds []string
		for line := range strings.Lines(resumed.String()) {
			if kind, ok := strings.CutPrefix(line, "event: "); ok {
				kinds = append(kinds, strings.TrimSpace(kind))
			}
		}
		want := []string{"hello", "session.state_changed", "task.completed", "session.state_changed", "task.completed"}
		if d := cmp.Diff(want, kinds); d != "" {
			t.Errorf("%s\n%s", d, resumed)
		}
		// A server that ends lets its listeners go.
		last, end := listen("")
		s.stop()
		end()
		_ = last
	})
}

// serve puts a server on a loopback socket.
func serve(t *testing.T, s http.Handler) *api.Client {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &api.Client{URL: h.URL, HTTP: h.Client()}
}

func TestClient(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), func(c *coordinator.Config) { c.ControlToken, c.Calls = "secret", callsOf })
	c := serve(t, s)
	ctx := t.Context()
	_, err := c.Submit(ctx, []byte(task("a", 2)))
	var refused *api.StatusError
	if !errors.As(err, &refused) || refused.Code != http.StatusUnauthorized {
		t.Fatalf("without a token: %v", err)
	}
	c.Token = "secret"
	if got, err := c.Submit(ctx, []byte(task("a", 2))); err != nil || got.Status != api.TaskRunning {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err = c.Submit(ctx, []byte(task("b", 0))); !errors.As(err, &refused) || refused.Field != "num_samples" || refused.Code != 400 {
		t.Errorf("bad task: %v", err)
	}
	if _, err = c.Submit(ctx, []byte(task("a", 3))); !errors.Is(err, api.ErrConflict) {
		t.Errorf("conflict: %v", err)
	}
	if _, err = c.Task(ctx, "nobody", api.ResultsNone); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	hash, size, err := s.blobs.Put(ctx, strings.NewReader("it went well"))
	if err != nil {
		t.Fatal(err)
	}
	r := result(s.claim("n1", 1, 0).Sessions[0].Session)
	r.Artifacts = []polar.Artifact{{Path: "logs/a b#c.log", Size: size, Blob: hash}}
	s.report(r)
	f, err := c.Artifact(ctx, "a.0", "logs/a b#c.log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if text, err := io.ReadAll(f); err != nil || string(text) != "it went well" {
		t.Errorf("artifact %q, %v", text, err)
	}
	if _, err := c.Artifact(ctx, "a.0", "no"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("no artifact: %v", err)
	}
	if got, err := c.Calls(ctx, "a.0", 0, true); err != nil || len(got.Calls) != 2 {
		t.Errorf("calls %+v, %v", got, err)
	}
	if raw, err := c.Session(ctx, "a.0"); err != nil || !strings.Contains(string(raw), `"COMPLETED"`) {
		t.Errorf("session %s, %v", raw, err)
	}
	if got, err := c.Tasks(ctx, api.TaskFilter{Status: api.TaskRunning, Harness: "shell", Since: time.Now().Add(-time.Hour), Limit: 5}); err != nil || len(got) != 1 {
		t.Errorf("tasks %+v, %v", got, err)
	}
	if got, err := c.Sessions(ctx, "a"); err != nil || len(got) != 2 {
		t.Errorf("sessions %+v, %v", got, err)
	}
	page, err := c.Results(ctx, "c", 0, 10)
	if err != nil || len(page.Results) != 1 {
		t.Fatalf("results %+v, %v", page, err)
	}
	if err := c.Ack(ctx, "c", page.Cursor); err != nil {
		t.Error(err)
	}
	if got, err := c.Cancel(ctx, "a", false); err != nil || got.Status != api.TaskCancelled {
		t.Errorf("cancel %+v, %v", got, err)
	}
	if got, err := c.Cancel(ctx, "z", true); err != nil || got.Status != api.TaskCancelled {
		t.Errorf("cancel of the unknown %+v, %v", got, err)
	}
	if got, err := c.Status(ctx); err != nil || got.Pipeline.Ended != 2 {
		t.Errorf("status %+v, %v", got, err)
	}
	if got, err := c.Health(ctx); err != nil || got.Status != "ok" {
		t.Errorf("health %+v, %v", got, err)
	}
}

func TestClientSaysWhatToDoWithoutAServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	_ = l.Close()
	_, err = (&api.Client{URL: url}).Status(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "no rollout server at "+url+": start one with polar serve") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestLargeBodyIsAnsweredWhileItIsSent(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), func(c *coordinator.Config) { c.MaxBodyBytes = 1 << 20 })
	c := serve(t, s)
	_, err := c.Submit(t.Context(), make([]byte, 8<<20))
	var refused *api.StatusError
	if !errors.As(err, &refused) || refused.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%v", err)
	}
}

func TestClientEventsGoOnAfterACut(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	cut := make(chan struct{}, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		s.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(h.Close)
	c := &api.Client{URL: h.URL, HTTP: h.Client()}
	for i := range 3 {
		s.submit(task(fmt.Sprintf("t%d", i), 1))
	}
	var ids []int64
	for e, err := range c.Events(t.Context(), 0) {
		if err != nil {
			continue // it goes on by itself
		}
		ids = append(ids, e.ID)
		switch len(ids) {
		case 3:
			cut <- struct{}{}
			s.submit(task("later", 1))
		case 4:
			cut <- struct{}{}
			s.submit(task("last", 1))
		}
		if len(ids) == 5 {
			break
		}
	}
	if d := cmp.Diff([]int64{1, 2, 3, 4, 5}, ids); d != "" {
		t.Error(d)
	}
	refused := 0
	for _, err := range (&api.Client{URL: h.URL + "/nothing", HTTP: h.Client()}).Events(t.Context(), 0) {
		if err != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("a refusal was tried %d times", refused)
	}
}
