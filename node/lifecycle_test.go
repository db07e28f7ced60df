package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"polar"
	"polar/api"
	"polar/node"
)

func TestACancelledSessionIsReportedAtAnyStage(t *testing.T) {
	t.Parallel()
	started := filepath.Join(t.TempDir(), "started")
	for name, c := range map[string]struct {
		task   polar.Task
		at     polar.Status
		stage  polar.Stage
		traces int
	}{
		"while it is prepared": {
			func() polar.Task {
				task := shell("true")
				task.Runtime = &polar.Runtime{Backend: "local", Prepare: []polar.Prepare{{Type: "exec", Command: "sleep 1000"}}}
				return task
			}(), polar.Initializing, polar.StageInit, 0,
		},
		"while it runs": {shell("touch " + started + "; sleep 1000"), polar.Running, polar.StageRun, 1},
		"while it is evaluated": {
			func() polar.Task {
				task := shell("true")
				task.Evaluator = evaluator("command", `{"command":"sleep 1000"}`)
				return task
			}(), polar.Evaluating, polar.StageEvaluate, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(c.task)
			rec := &recorder{calls: []polar.Call{goodCall("a", 1)}}
			start(t, s, rec, nil)
			s.until(t, string(c.at), s.reached("t-0", c.at))
			if c.at == polar.Running { // the slot comes before the harness
				awaitFile(t, started)
			}
			s.cancel("t-0", polar.KindCancelled)
			s.until(t, "a result", func() bool { return len(s.results) > 0 })
			r := s.results[0]
			if r.Status != polar.Cancelled || r.Failure.Kind != polar.KindCancelled || r.Failure.Stage != c.stage {
				t.Errorf("status %s, failure %+v", r.Status, r.Failure)
			}
			if len(r.Trajectory.Traces) != c.traces {
				t.Errorf("%d traces, want %d", len(r.Trajectory.Traces), c.traces)
			}
			for _, trace := range r.Trajectory.Traces {
				if trace.Trainable() != 0 || trace.Reward != nil {
					t.Errorf("a cancelled session can be trained on: %+v", trace)
				}
			}
		})
	}
}

// awaitFile returns when a file is there.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s never came", path)
		}
	}
}

func TestASessionCanBeCancelledWhileItWaitsForARunSlot(t *testing.T) {
	t.Parallel()
	task := shell("sleep 1000")
	task.NumSamples = 2
	s := newServer(task)
	start(t, s, &recorder{}, func(c *node.Config) { c.MaxRun = 1 })
	waiting := func() polar.SessionID {
		for id, states := range s.states {
			if states[len(states)-1] == polar.Ready {
				return id
			}
		}
		return ""
	}
	var id polar.SessionID
	s.until(t, "one running and one ready", func() bool {
		id = waiting()
		running := false
		for _, states := range s.states {
			running = running || states[len(states)-1] == polar.Running
		}
		return id != "" && running
	})
	s.cancel(id, polar.KindEarlyStop)
	s.until(t, "a result", func() bool { return len(s.results) > 0 })
	if r := s.results[0]; r.Session != id || r.Status != polar.Cancelled || r.Failure.Kind != polar.KindEarlyStop {
		t.Errorf("result of %s (want %s): %s, %+v", r.Session, id, r.Status, r.Failure)
	}
}

func TestALostLeaseStopsTheSessionUnreported(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "pid")
	s := newServer(shell("echo $$ >" + mark + "; sleep 1000"))
	rec := &recorder{}
	g := start(t, s, rec, nil)
	s.until(t, "running", s.reached("t-0", polar.Running))
	s.mu.Lock()
	s.lost["t-0"] = true
	s.mu.Unlock()
	second := shell("true")
	second.ID = "later"
	s.submit(second) // its changes of state make the node renew at once, with the lost one only when due
	s.until(t, "the other's result", func() bool { return len(s.results) > 0 })
	g.stop()
	for _, r := range s.results {
		if r.Session == "t-0" {
			t.Errorf("it was reported: %s", r.Status)
		}
	}
	if len(rec.opened) != 2 || len(rec.closed) != 2 || rec.opened[0].Key == rec.opened[1].Key {
		t.Errorf("recordings %v, closed %v", rec.opened, rec.closed)
	}
}

func TestAStoppedNodeLeavesNothingBehindAndReportsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	task := shell("echo $$ >>" + pids + "; sleep 1000")
	task.NumSamples = 3
	s := newServer(task)
	rec := &recorder{}
	g := start(t, s, rec, func(c *node.Config) { c.MaxRun = 2 })
	s.until(t, "two running and one ready", func() bool {
		running, ready := 0, 0
		for _, states := range s.states {
			if last := states[len(states)-1]; last == polar.Running {
				running++
			} else if last == polar.Ready {
				ready++
			}
		}
		return running == 2 && ready == 1
	})
	s.until(t, "both harnesses", func() bool {
		raw, err := os.ReadFile(pids)
		return err == nil && strings.Count(string(raw), "\n") == 2
	})
	g.stop()
	if len(s.results) != 0 {
		t.Errorf("%d results", len(s.results))
	}
	raw, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(raw)) {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("a harness still runs: %s", stat)
		}
	}
	if len(rec.opened) != 3 || len(rec.closed) != 3 {
		t.Errorf("%d recordings opened, %d closed", len(rec.opened), len(rec.closed))
	}
}

func TestAResultIsReportedUntilItIsTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reject func(try int64) error
		tries  int64
		taken  bool
	}{
		"a server that is away for a while": {func(try int64) error {
			if try < 3 {
				return errors.New("connection refused")
			}
			return nil
		}, 3, true},
		"a server that has moved on": {func(int64) error { return api.ErrStale }, 1, false},
		"a server that refuses it": {func(try int64) error {
			if try == 1 {
				return polar.Invalid("result", "too large")
			}
			return nil
		}, 2, true},
		"a server that refuses everything": {func(int64) error { return polar.Invalid("result", "too large") }, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(shell("true"))
			var tries atomic.Int64
			s.reject = func(polar.Result) error { return c.reject(tries.Add(1)) }
			g := start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, nil)
			s.until(t, "the reports", func() bool { return tries.Load() >= c.tries })
			g.stop()
			if got := tries.Load(); got != c.tries {
				t.Errorf("%d tries, want %d", got, c.tries)
			}
			if (len(s.results) == 1) != c.taken {
				t.Errorf("%d results", len(s.results))
			}
			if name == "a server that refuses it" {
				if r := s.results[0]; r.Failure == nil || r.Failure.Kind != polar.KindStorage || len(r.Trajectory.Traces) != 0 {
					t.Errorf("result %+v", r)
				}
			}
		})
	}
}

func TestASessionThatIsGivenTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	s := newServer(shell("true"))
	s.queue = append(s.queue, s.queue[0])
	g := start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, nil)
	s.until(t, "a result", func() bool { return len(s.results) > 0 })
	g.stop()
	if len(s.results) != 1 {
		t.Errorf("%d results", len(s.results))
	}
}

type failingWork struct {
	*server
	fails atomic.Int64
}

func (f *failingWork) Claim(ctx context.Context, req api.ClaimRequest) (api.ClaimReply, error) {
	if f.fails.Add(-1) >= 0 {
		return api.ClaimReply{}, errors.New("connection refused")
	}
	return f.server.Claim(ctx, req)
}

func (f *failingWork) Renew(ctx context.Context, req api.RenewRequest) (api.RenewReply, error) {
	if f.fails.Add(-1) >= -3 {
		return api.RenewReply{}, errors.New("connection refused")
	}
	return f.server.Renew(ctx, req)
}

func TestAServerThatIsAwayIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := newServer(shell("true"))
	w := &failingWork{server: s}
	w.fails.Store(2)
	start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, func(c *node.Config) { c.Work = w })
	s.until(t, "a result", func() bool { return len(s.results) > 0 })
}
