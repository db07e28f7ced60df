package coordinator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/api"
	"polar/coordinator"
)

func TestWaitingNodeGetsNewWorkAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, t.TempDir(), nil)
		defer s.stop()
		got := make(chan api.ClaimReply)
		began := time.Now()
		go func() { got <- s.claim("n1", 4, time.Minute) }()
		synctest.Wait()
		if n := want[[]api.NodeInfo](s, 200, "GET", "/nodes", ""); len(n) != 1 || !n[0].Healthy {
			t.Errorf("nodes %+v", n)
		}
		s.submit(task("a", 2, `"metadata":{"eval_sampling_seed_base":40}`))
		reply := <-got
		if sessions(reply) != "a.0#1 a.1#1" || time.Since(began) != 0 {
			t.Errorf("claimed %s after %v", sessions(reply), time.Since(began))
		}
		if a, b := *reply.Sessions[0].Task.Sampling.Seed, *reply.Sessions[1].Task.Sampling.Seed; a != 40 || b != 41 {
			t.Errorf("seeds %d, %d", a, b)
		}
		if empty := s.claim("n1", 1, 7*time.Second); len(empty.Sessions) != 0 || time.Since(began) != 7*time.Second {
			t.Errorf("an empty queue gave %s after %v", sessions(empty), time.Since(began))
		}
	})
}

func TestSilentNodeLosesItsSessionsWithinTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, t.TempDir(), nil)
		defer s.stop()
		s.submit(task("a", 1))
		first := s.claim("dead", 1, 0)
		began := time.Now()
		second := s.claim("n1", 1, time.Minute)
		if sessions(second) != "a.0#2" || time.Since(began) > 17*time.Second || time.Since(began) < 15*time.Second {
			t.Fatalf("claimed %s after %v", sessions(second), time.Since(began))
		}
		if err := s.Report(t.Context(), result(first.Sessions[0].Session)); !errors.Is(err, api.ErrStale) {
			t.Errorf("late report: %v", err)
		}
		renewed, err := s.Renew(t.Context(), api.RenewRequest{
			Node:     api.NodeInfo{Node: "dead"},
			Renewals: []api.Renewal{{Session: "a.0", Attempt: 1, Status: polar.Running}},
		})
		if err != nil || len(renewed.Lost) != 1 {
			t.Errorf("late renewal: %+v, %v", renewed, err)
		}
		// Renewals keep a session for as long as they come.
		for range 5 {
			time.Sleep(10 * time.Second)
			renewed, err := s.Renew(t.Context(), api.RenewRequest{
				Node:     api.NodeInfo{Node: "n1", GatewayURL: "http://g"},
				Renewals: []api.Renewal{{Session: "a.0", Attempt: 2, Status: polar.Running}},
			})
			if err != nil || len(renewed.Lost) != 0 {
				t.Fatalf("renewal: %+v, %v", renewed, err)
			}
		}
		list := want[[]api.SessionSummary](s, 200, "GET", "/tasks/a/sessions", "")
		if list[0].Status != polar.Running || list[0].Node != "n1" || list[0].StartedAt.IsZero() || len(list[0].FailedAttempts) != 1 {
			t.Errorf("session %+v", list[0])
		}
		if n := want[[]api.NodeInfo](s, 200, "GET", "/nodes", ""); len(n) != 2 || n[0].Node != "dead" || n[0].Healthy || !n[1].Healthy {
			t.Errorf("nodes %+v", n)
		}
		s.report(result(second.Sessions[0].Session))
	})
}

func TestServiceFailuresAreRunAgainAndNoted(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 1, `"max_attempts":2`))
	v := s.claim("n1", 1, 0).Sessions[0].Session
	s.report(failed(v))
	v = s.claim("n1", 1, 0).Sessions[0].Session
	if v.Attempt != 2 {
		t.Fatalf("attempt %d", v.Attempt)
	}
	s.report(failed(v))
	status := want[api.TaskStatus](s, 200, "GET", "/rollout/task/a?results=summary", "")
	if status.Status != api.TaskFailed || status.Completed != 1 {
		t.Errorf("task %+v", status)
	}
	list := want[[]api.SessionSummary](s, 200, "GET", "/tasks/a/sessions", "")
	if f := list[0].FailedAttempts; len(f) != 1 || f[0].Failure.Kind != polar.KindEngine || list[0].Outcome.Attempt != 2 {
		t.Errorf("session %+v", list[0])
	}
	// What the agent did wrong is not run again.
	s.submit(task("b", 1))
	r := failed(s.claim("n1", 1, 0).Sessions[0].Session)
	r.Failure.Blame = polar.BlameAgent
	s.report(r)
	if status := want[api.TaskStatus](s, 200, "GET", "/rollout/task/b", ""); status.Status != api.TaskCompleted {
		t.Errorf("task %+v", status)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 3, `"metadata":{"group_id":"g"}`))
	held := s.claim("n1", 2, 0).Sessions
	status := want[api.TaskStatus](s, 200, "DELETE", "/rollout/task/a?results=summary", "")
	if status.Status != api.TaskCancelling || status.Completed != 1 || len(status.Results) != 1 {
		t.Fatalf("after cancel %+v", status)
	}
	reply := s.claim("n1", 0, time.Minute) // a node without room learns of it too
	if len(reply.Cancel) != 2 || reply.Cancel[0].Kind != polar.KindCancelled {
		t.Fatalf("cancels %+v", reply)
	}
	if again := s.claim("n1", 0, 0); len(again.Cancel) != 2 {
		t.Errorf("a cancel must be repeated while its session lives: %+v", again)
	}
	s.report(failed(held[0].Session)) // its sandbox was torn away
	done := result(held[1].Session)   // it was just done
	s.report(done)
	status = want[api.TaskStatus](s, 200, "GET", "/rollout/task/a", "")
	if status.Status != api.TaskCancelled || len(status.Results) != 3 {
		t.Fatalf("in the end %+v", status)
	}
	var got []string
	for _, raw := range status.Results {
		var r polar.Result
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		kind := ""
		if r.Failure != nil {
			kind = r.Failure.Kind
		}
		got = append(got, fmt.Sprintf("%s %s %s %d", r.Session, r.Status, kind, len(r.Trajectory.Traces)))
	}
	if d := cmp.Diff([]string{"a.0 CANCELLED cancelled 0", "a.1 COMPLETED  1", "a.2 CANCELLED cancelled 0"}, got); d != "" {
		t.Error(d)
	}
	if raw := string(status.Results[2]); !strings.Contains(raw, `"traces":[]`) || !strings.Contains(raw, `"group_id":"g"`) {
		t.Errorf("a session that never ran has the result %s", raw)
	}
	if again := want[api.TaskStatus](s, 200, "DELETE", "/rollout/task/a", ""); again.Status != api.TaskCancelled {
		t.Errorf("second cancel %+v", again)
	}
}

func TestCancelWakesTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, t.TempDir(), nil)
		defer s.stop()
		s.submit(task("a", 1))
		s.claim("n1", 1, 0)
		got := make(chan api.ClaimReply)
		go func() { got <- s.claim("n1", 1, time.Minute) }()
		synctest.Wait()
		began := time.Now()
		want[api.TaskStatus](s, 200, "DELETE", "/rollout/task/a", "")
		if reply := <-got; len(reply.Cancel) != 1 || time.Since(began) != 0 {
			t.Errorf("told %+v after %v", reply, time.Since(began))
		}
		// It has been told: now it waits again instead of asking in a circle.
		if s.claim("n1", 1, 3*time.Second); time.Since(began) != 3*time.Second {
			t.Errorf("told again after %v", time.Since(began))
		}
	})
}

func TestCancelBeforeSubmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, t.TempDir(), nil)
		defer s.stop()
		if got := want[api.TaskStatus](s, 200, "DELETE", "/rollout/task/late?register_if_missing=true", ""); got.Status != api.TaskCancelled {
			t.Errorf("%+v", got)
		}
		got := want[api.Error](s, http.StatusConflict, "POST", "/rollout/task/submit", task("late", 1))
		if !strings.Contains(got.Detail, "cancelled before it was submitted") {
			t.Errorf("detail %q", got.Detail)
		}
		time.Sleep(5*time.Minute + time.Second)
		s.submit(task("late", 1))
	})
}

func TestEarlyStop(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 4, `"early_stop_min_usable_sessions":1`))
	held := s.claim("n1", 2, 0).Sessions
	useless := result(held[1].Session)
	useless.Trajectory.Traces = nil // completed, but nothing to learn from
	s.report(useless)
	if status := want[api.TaskStatus](s, 200, "GET", "/rollout/task/a", ""); status.Completed != 1 {
		t.Fatalf("a session without traces stopped the group: %+v", status)
	}
	s.report(result(held[0].Session))
	status := want[api.TaskStatus](s, 200, "GET", "/rollout/task/a?results=summary", "")
	if status.Status != api.TaskCompleted || status.Completed != 4 || !strings.Contains(string(status.Results[3]), `"early_stop"`) {
		t.Errorf("%+v", status)
	}
}

func TestDrainedNodeGetsNoWork(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.claim("n1", 1, 0)
	if n := want[api.NodeInfo](s, 200, "DELETE", "/nodes/n1", ""); !n.Draining {
		t.Errorf("node %+v", n)
	}
	s.submit(task("a", 1))
	if got := s.claim("n1", 1, 0); len(got.Sessions) != 0 {
		t.Errorf("a drained node got %s", sessions(got))
	}
	if got := s.claim("n2", 1, 0); len(got.Sessions) != 1 {
		t.Error("another node got nothing")
	}
	if err := s.Release(t.Context(), "n1"); err != nil { // it was started anew
		t.Fatal(err)
	}
	s.submit(task("b", 1))
	if got := s.claim("n1", 1, 0); len(got.Sessions) != 1 {
		t.Error("a node that was started anew is still drained")
	}
}

func TestRestartGivesBackWhatTheNodeHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir, nil)
	s.submit(task("a", 3))
	held := s.claim("n1", 2, 0).Sessions
	s.report(result(held[0].Session))
	s.stop()

	s = start(t, dir, nil)
	if err := s.Release(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Report(t.Context(), result(held[1].Session)); !errors.Is(err, api.ErrStale) {
		t.Errorf("report of the attempt before: %v", err)
	}
	got := s.claim("n1", 9, 0)
	if sessions(got) != "a.1#2 a.2#1" {
		t.Fatalf("claimed %s", sessions(got))
	}
	for _, a := range got.Sessions {
		s.report(result(a.Session))
	}
	if status := want[api.TaskStatus](s, 200, "GET", "/rollout/task/a", ""); status.Status != api.TaskCompleted || len(status.Results) != 3 {
		t.Errorf("%+v", status)
	}
}

func TestHealthAndStatus(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), nil)
	s.submit(task("a", 3))
	held := s.claim("n1", 2, 0).Sessions
	s.report(result(held[0].Session))
	if h := want[api.Health](s, 200, "GET", "/health", ""); h.Status != "ok" || h.Nodes != 1 {
		t.Errorf("health %+v", h)
	}
	st := want[api.ServerStatus](s, 200, "GET", "/rollout/status", "")
	if p := st.Pipeline; p.Pending != 1 || p.Running != 1 || p.Ended != 1 || len(st.Nodes) != 1 {
		t.Errorf("status %+v", st)
	}
	for query, n := range map[string]int{"": 1, "?status=running": 1, "?status=failed": 0, "?harness=shell": 1, "?harness=mini": 0, "?since=2100-01-01T00:00:00Z": 0, "?since=1": 1, "?limit=1": 1} {
		if got := want[[]api.TaskSummary](s, 200, "GET", "/tasks"+query, ""); len(got) != n {
			t.Errorf("/tasks%s: %+v", query, got)
		}
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	if h := want[api.Health](s, http.StatusServiceUnavailable, "GET", "/health", ""); h.Reason == "" {
		t.Errorf("health without a store %+v", h)
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := coordinator.New(coordinator.Config{}); err == nil {
		t.Error("a coordinator without a store")
	}
}
