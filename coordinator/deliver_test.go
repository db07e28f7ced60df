package coordinator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

// receiver is a trainer's end of callbacks, without a socket.
type receiver struct {
	mu    sync.Mutex
	tries []try
	// answer gives the status of the nth try at a host, from 0; 0 cuts the connection.
	answer func(r *http.Request, n int) int
}

type try struct {
	at        time.Time
	key, body string
	header    http.Header
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != req.ContentLength {
		return nil, fmt.Errorf("length %d announced, %d sent", req.ContentLength, len(body))
	}
	r.mu.Lock()
	n := len(r.tries)
	r.tries = append(r.tries, try{time.Now(), req.Header.Get("Idempotency-Key"), string(body), req.Header})
	r.mu.Unlock()
	status := r.answer(req, n)
	if status == 0 {
		return nil, errors.New("connection reset")
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Location": {"http://elsewhere/"}}, Body: http.NoBody, Request: req}, nil
}

func (r *receiver) got() []try {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]try{}, r.tries...)
}

func (r *receiver) use(c *coordinator.Config) { c.Callbacks.HTTP = &http.Client{Transport: r} }

func TestCallbackIsTriedUntilItIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(_ *http.Request, n int) int { return []int{0, 500, 302, 404, 200}[n] }}
		s := start(t, t.TempDir(), r.use)
		defer s.stop()
		s.submit(task("a", 2, `"callback":{"url":"http://trainer/done","headers":{"X-Run":"7"}}`))
		s.runAll()
		time.Sleep(2 * time.Minute)
		got := r.got()
		if len(got) != 5 {
			t.Fatalf("%d tries", len(got))
		}
		for i, g := range got {
			if g.key != "task-a" || g.header.Get("X-Run") != "7" || g.body != got[0].body {
				t.Errorf("try %d: %+v", i, g)
			}
			if i == 0 {
				continue
			}
			pause, base := g.at.Sub(got[i-1].at), time.Second<<(i-1)
			if pause < base*8/10 || pause > base*12/10+time.Millisecond {
				t.Errorf("try %d came after %v", i, pause)
			}
		}
		var body api.TaskResult
		if err := json.Unmarshal([]byte(got[0].body), &body); err != nil {
			t.Fatal(err)
		}
		if body.Task != "a" || body.Status != api.TaskCompleted || len(body.Results) != 2 {
			t.Errorf("body %+v", body)
		}
	})
}

func TestCallbackIsGivenUpInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(*http.Request, int) int { return 503 }}
		s := start(t, t.TempDir(), func(c *coordinator.Config) {
			r.use(c)
			c.Callbacks.RetryFor = 5 * time.Minute
		})
		defer s.stop()
		s.submit(task("a", 1, `"callback_url":"http://trainer/"`))
		s.runAll()
		began := time.Now()
		time.Sleep(15 * time.Minute)
		got := r.got()
		if last := got[len(got)-1].at.Sub(began); last > 5*time.Minute || last < 3*time.Minute {
			t.Errorf("the last of %d tries came after %v", len(got), last)
		}
		s.stop()
		if !strings.Contains(s.log.String(), "callback was given up") {
			t.Error("nobody is told")
		}
	})
}

func TestEachSessionIsPushedAsItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(*http.Request, int) int { return 200 }}
		s := start(t, t.TempDir(), r.use)
		defer s.stop()
		s.submit(task("a", 3, `"callback":{"url":"http://trainer/","per_session":true}`))
		s.report(result(s.claim("n1", 1, 0).Sessions[0].Session))
		synctest.Wait()
		if got := r.got(); len(got) != 1 || got[0].key != "session-a.0" {
			t.Fatalf("after one session %+v", got)
		}
		want[api.TaskStatus](s, 200, "DELETE", "/rollout/task/a", "")
		synctest.Wait()
		keys := map[string]string{}
		for _, g := range r.got() {
			keys[g.key] = g.body
		}
		if len(keys) != 4 || len(r.got()) != 4 {
			t.Fatalf("pushed %v", keys)
		}
		var last polar.Result
		if err := json.Unmarshal([]byte(keys["session-a.2"]), &last); err != nil || last.Status != polar.Cancelled {
			t.Errorf("%+v, %v", last, err)
		}
	})
}

func TestOwedCallbackSurvivesARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := &receiver{answer: func(_ *http.Request, n int) int { return []int{500, 200}[n] }}
		s := start(t, dir, r.use)
		s.submit(task("a", 1, `"callback_url":"http://trainer/"`))
		s.runAll()
		synctest.Wait()
		s.stop()
		time.Sleep(time.Minute)
		s = start(t, dir, r.use)
		defer s.stop()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		if got := r.got(); len(got) != 2 || got[0].key != got[1].key {
			t.Errorf("tries %+v", got)
		}
	})
}

func TestSlowReceiverDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &receiver{answer: func(req *http.Request, _ int) int {
			if req.URL.Host == "slow" {
				select {
				case <-release:
				case <-req.Context().Done():
				}
			}
			return 200
		}}
		s := start(t, t.TempDir(), func(c *coordinator.Config) {
			r.use(c)
			c.Callbacks.Workers, c.Callbacks.PerHost = 3, 2
		})
		defer s.stop()
		for i := range 20 {
			s.submit(task(fmt.Sprintf("slow-%d", i), 1, `"callback_url":"http://slow/"`))
		}
		s.submit(task("quick", 1, `"callback_url":"http://quick/"`))
		s.runAll()
		synctest.Wait()
		quick := 0
		for _, g := range r.got() {
			if g.key == "task-quick" {
				quick++
			}
		}
		if n := len(r.got()); quick != 1 || n != 3 {
			t.Errorf("%d under way or done, %d of them quick", n, quick)
		}
		close(release)
		synctest.Wait()
		if n := len(r.got()); n != 21 {
			t.Errorf("%d delivered", n)
		}
	})
}

func TestResultsReachEachConsumerUntilItAcknowledges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir, nil)
	s.submit(task("a", 3))
	s.runAll()
	page := func(query string) (keys string, cursor int64) {
		t.Helper()
		got := want[api.ResultsPage](s, 200, "GET", "/rollout/results?"+query, "")
		for _, raw := range got.Results {
			var r polar.Result
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			keys += string(r.Session) + " "
		}
		return keys, got.Cursor
	}
	keys, cursor := page("consumer=c&limit=2")
	if keys != "a.0 a.1 " {
		t.Fatalf("first page %s", keys)
	}
	if again, _ := page("consumer=c&limit=2"); again != keys {
		t.Errorf("without an ack the next page is %s", again)
	}
	want[api.AckRequest](s, 200, "POST", "/rollout/results/ack", fmt.Sprintf(`{"consumer":"c","cursor":%d}`, cursor))
	s.stop()

	s = start(t, dir, nil)
	if keys, _ := page("consumer=c"); keys != "a.2 " {
		t.Errorf("after the ack and a restart %s", keys)
	}
	if keys, _ := page("consumer=other"); keys != "a.0 a.1 a.2 " {
		t.Errorf("another consumer got %s", keys)
	}
	// An ack that comes late does not take the consumer back.
	want[api.AckRequest](s, 200, "POST", "/rollout/results/ack", `{"consumer":"c","cursor":1}`)
	if keys, _ := page("consumer=c"); keys != "a.2 " {
		t.Errorf("after a late ack %s", keys)
	}
}

func TestResultsAfterAPlaceAreReadWithoutAnAck(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 3, `"labels":{"k":"v"}`))
	s.submit(task("b", 1))
	s.runAll()
	got := want[api.ResultsPage](s, 200, "GET", "/rollout/results?after=1&limit=2", "")
	if len(got.Results) != 2 || len(got.Places) != 2 || got.Places[0].Seq != 2 || got.Cursor != 3 || got.Newest != 4 {
		t.Fatalf("%d results, places %+v, cursor %d of %d", len(got.Results), got.Places, got.Cursor, got.Newest)
	}
	server := httptest.NewServer(s.Coordinator)
	defer server.Close()
	client := &api.Client{URL: server.URL}
	var seen []string
	last, newest, err := client.EachResultAfter(t.Context(), 0, "a", 2, func(p api.ListedResult, raw json.RawMessage) error {
		var r polar.Result
		err := json.Unmarshal(raw, &r)
		seen = append(seen, fmt.Sprintf("%s %d %d %s", r.Session, p.Seq, p.Index, p.Labels["k"]))
		return err
	})
	if got := strings.Join(seen, ", "); err != nil || got != "a.0 1 0 v, a.1 3 1 v" || last != 3 || newest != 4 {
		t.Errorf("%v up to %d of %d, %v", seen, last, newest, err)
	}
	if page := want[api.ResultsPage](s, 200, "GET", "/rollout/results?consumer=c", ""); len(page.Results) != 4 {
		t.Errorf("a consumer gets %d results afterwards", len(page.Results))
	}
}

func TestResultsCanBeWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, t.TempDir(), nil)
		defer s.stop()
		began := time.Now()
		if got := want[api.ResultsPage](s, 200, "GET", "/rollout/results?consumer=c&wait=30s", ""); len(got.Results) != 0 || time.Since(began) != 30*time.Second {
			t.Errorf("%d results after %v", len(got.Results), time.Since(began))
		}
		s.submit(task("a", 1))
		got := make(chan *httptest.ResponseRecorder)
		go func() { got <- s.do("GET", "/rollout/results?consumer=c&wait=30", "") }()
		synctest.Wait()
		began = time.Now()
		s.runAll()
		if rec := <-got; !strings.Contains(rec.Body.String(), `"session_id":"a.0"`) || time.Since(began) != 0 {
			t.Errorf("%s after %v", rec.Body, time.Since(began))
		}
	})
}

func TestSessionArtifactsAndCalls(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), func(c *coordinator.Config) {
		c.Calls = callsOf
	})
	s.submit(task("a", 2))
	if got := want[api.SessionSummary](s, 200, "GET", "/rollout/session/a.0", ""); got.Status != polar.Registered {
		t.Errorf("waiting session %+v", got)
	}
	hash, size, err := s.blobs.Put(t.Context(), strings.NewReader("<html>"))
	if err != nil {
		t.Fatal(err)
	}
	r := result(s.claim("n1", 1, 0).Sessions[0].Session)
	r.Artifacts = []polar.Artifact{{Path: "logs/agent.html", Size: size, Blob: hash}}
	s.report(r)
	whole := want[polar.Result](s, 200, "GET", "/rollout/session/a.0", "")
	if d := cmp.Diff(r.Trajectory.Traces[0].ResponseIDs, whole.Trajectory.Traces[0].ResponseIDs); d != "" {
		t.Error(d)
	}
	rec := s.do("GET", "/rollout/session/a.0/artifacts/logs/agent.html", "")
	if rec.Body.String() != "<html>" || rec.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("artifact %q as %s", rec.Body, rec.Header().Get("Content-Type"))
	}
	for _, path := range []string{"logs/other.log", "../../polar.db", "logs/..%2f..%2fpolar.db"} {
		if rec := s.do("GET", "/rollout/session/a.0/artifacts/"+path, ""); rec.Code == 200 {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	calls := want[api.CallsReply](s, 200, "GET", "/rollout/session/a.0/calls?tokens=true", "")
	if len(calls.Calls) != 2 || calls.Attempt != 1 || len(calls.Calls[1].PromptIDs) != 3 || calls.Calls[1].SampledIDs[0] != 9 {
		t.Errorf("calls %+v", calls)
	}
	if plain := want[api.CallsReply](s, 200, "GET", "/rollout/session/a.0/calls?attempt=1", ""); plain.Calls[0].PromptIDs != nil {
		t.Errorf("tokens that nobody asked for %+v", plain)
	}
	want[api.Error](s, 400, "GET", "/rollout/session/a.0/calls?attempt=2", "")
}
