package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"polar"
	"polar/llm"
	"polar/node"
	"polar/sandbox"
)

// clockwork is a driver whose sandboxes take time and nothing else. A command
// is a Go duration; it counts who is where.
type clockwork struct {
	start time.Duration

	mu               sync.Mutex
	now, most        map[string]int
	ready, mostReady int
}

func (d *clockwork) Check(sandbox.Spec) error    { return nil }
func (d *clockwork) Sweep(context.Context) error { return nil }
func (d *clockwork) Start(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
	if err := d.spend(ctx, "init", d.start); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.ready++
	d.mostReady = max(d.mostReady, d.ready)
	d.mu.Unlock()
	return &ticking{d}, nil
}

func (d *clockwork) spend(ctx context.Context, what string, long time.Duration) error {
	d.mu.Lock()
	d.now[what]++
	d.most[what] = max(d.most[what], d.now[what])
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.now[what]--
		d.mu.Unlock()
	}()
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type ticking struct{ driver *clockwork }

func (s *ticking) Paths() sandbox.Paths {
	return sandbox.Paths{Home: "/h", Work: "/w", Session: "/s", Tools: "/t"}
}

func (s *ticking) Exec(ctx context.Context, c sandbox.Cmd) (int, error) {
	what, length, _ := strings.Cut(c.Args[len(c.Args)-1], " ")
	if what == "run" {
		s.driver.mu.Lock()
		s.driver.ready--
		s.driver.mu.Unlock()
	}
	long, err := time.ParseDuration(length)
	if err != nil {
		return 0, fmt.Errorf("%v: %w", c.Args, err)
	}
	return 0, s.driver.spend(ctx, what, long)
}

func (s *ticking) Upload(_ context.Context, _ string, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
func (s *ticking) Download(context.Context, string, io.Writer) error { return nil }
func (s *ticking) Close(context.Context) error                       { return nil }

func newClockwork(start time.Duration) *clockwork {
	return &clockwork{start: start, now: map[string]int{}, most: map[string]int{}}
}

func (d *clockwork) use(t *testing.T) func(*node.Config) {
	t.Helper()
	return func(c *node.Config) {
		c.Plugins = plugins(t)
		c.Plugins.Drivers = map[string]sandbox.Driver{"clockwork": d}
		c.Plugins.DefaultRuntime = polar.Runtime{Backend: "clockwork"}
	}
}

func TestStagesHaveTheirSizesAndSandboxesAreWarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newClockwork(10 * time.Second)
		task := shell("run 60s")
		task.NumSamples, task.Timeout = 12, 1000
		task.Evaluator = evaluator("command", `{"command":"judge 90s"}`)
		s := newServer(task)
		begun := time.Now()
		g := start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, func(c *node.Config) {
			d.use(t)(c)
			c.MaxInit, c.MaxRun, c.MaxPostrun, c.ReadyBuffer = 3, 2, 2, 1
		})
		untilDone(t, s, 12)
		took := time.Since(begun)
		g.stop()
		d.mu.Lock()
		defer d.mu.Unlock()
		for what, most := range map[string]int{"init": 3, "run": 2, "judge": 2} {
			if d.most[what] != most {
				t.Errorf("up to %d at once in %s, want %d", d.most[what], what, most)
			}
		}
		if d.mostReady > 3 { // one in the buffer, two with a run slot that are about to start
			t.Errorf("up to %d prepared sandboxes waited", d.mostReady)
		}
		// Twelve judged two at a time take 9 minutes; all else happens meanwhile
		// but the first start and run.
		if want := 10*time.Second + time.Minute + 6*90*time.Second; took > want+30*time.Second {
			t.Errorf("it took %v, want about %v", took, want)
		}
		for _, r := range s.results {
			if r.Status != polar.Completed {
				t.Errorf("%s: %v", r.Session, r.Failure)
			}
		}
	})
}

func TestASandboxIsPreparedWhileAnotherRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newClockwork(30 * time.Second)
		task := shell("run 60s")
		task.NumSamples, task.Timeout = 4, 1000
		s := newServer(task)
		begun := time.Now()
		start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, func(c *node.Config) {
			d.use(t)(c)
			c.MaxInit, c.MaxRun = 1, 1
		})
		untilDone(t, s, 4)
		if took, want := time.Since(begun), 30*time.Second+4*time.Minute; took > want+5*time.Second {
			t.Errorf("it took %v, want about %v: the next sandbox was not warm", took, want)
		}
	})
}

func TestWaitingForASlotTakesNothingOffTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newClockwork(time.Second)
		task := shell("run 60s")
		task.NumSamples, task.Timeout = 5, 100 // the last one waits for four minutes
		task.Evaluator = evaluator("command", `{"command":"judge 30s"}`)
		s := newServer(task)
		start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, func(c *node.Config) {
			d.use(t)(c)
			c.MaxRun, c.MaxPostrun, c.ReadyBuffer = 1, 1, 4
		})
		untilDone(t, s, 5)
		longest := 0.0
		for _, r := range s.results {
			if r.Status != polar.Completed {
				t.Errorf("%s: %v", r.Session, r.Failure)
			}
			longest = max(longest, r.Timing.ReadyQueue)
		}
		if longest < 100_000 {
			t.Errorf("nobody waited longer than its time: %v ms", longest)
		}
	})
}

func TestTheTimeCoversAllFromInitToEvaluation(t *testing.T) {
	t.Parallel()
	good := []polar.Call{goodCall("a", 1)}
	for name, c := range map[string]struct {
		start, prepare, run, judge string
		agent                      string
		calls                      []polar.Call
		status                     polar.Status
		failure                    polar.Failure
		rewarded                   bool
	}{
		"starting the sandbox takes it all": {
			"200s", "1s", "1s", "1s", "", good, polar.TimedOut,
			polar.Failure{Stage: "init", Blame: "service", Kind: "timeout"},
			false,
		},
		"preparing takes it all": {
			"1s", "200s", "1s", "1s", "", good, polar.TimedOut,
			polar.Failure{Stage: "init", Blame: "task", Kind: "timeout"},
			false,
		},
		"the harness takes it all": {
			"1s", "1s", "200s", "1s", "", good, polar.TimedOut,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "timeout"},
			false,
		},
		"the harness takes what the rest has left": {
			"40s", "40s", "40s", "1s", "", good, polar.TimedOut,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "timeout"},
			false,
		},
		"the engine was down until it was over": {
			"1s", "1s", "200s", "1s", "", append(good, badCall("b", 2, llm.EngineFailed)), polar.Errored,
			polar.Failure{Stage: "run", Blame: "service", Kind: "engine"},
			false,
		},
		"evaluating takes what the rest has left": {
			"20s", "10s", "40s", "40s", "", good, polar.TimedOut,
			polar.Failure{Stage: "evaluate", Blame: "task", Kind: "timeout"},
			false,
		},
		"the agent's own time leaves some for evaluating": {
			"30s", "30s", "200s", "15s", "20", good, polar.TimedOut,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "agent_timeout"},
			true,
		},
		"the agent's own time is over when all of it is": {
			"30s", "30s", "200s", "15s", "50", good, polar.TimedOut,
			polar.Failure{Stage: "run", Blame: "agent", Kind: "timeout"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				task := shell("run " + c.run)
				task.Timeout = 100
				task.Runtime = &polar.Runtime{Backend: "clockwork", Prepare: []polar.Prepare{{Type: "exec", Command: "prepare " + c.prepare}}}
				task.Evaluator = evaluator("command", `{"command":"judge `+c.judge+`"}`)
				if c.agent != "" {
					task.Metadata = map[string]json.RawMessage{"agent_timeout": json.RawMessage(c.agent)}
				}
				s := newServer(task)
				begin, err := time.ParseDuration(c.start)
				if err != nil {
					t.Fatal(err)
				}
				start(t, s, &recorder{calls: c.calls}, newClockwork(begin).use(t))
				untilDone(t, s, 1)
				r := s.results[0]
				got := *r.Failure
				got.Message = ""
				if r.Status != c.status || got != c.failure {
					t.Errorf("status %s, failure %+v, want %s, %+v", r.Status, *r.Failure, c.status, c.failure)
				}
				if (r.Trajectory.Reward() != nil) != c.rewarded {
					t.Errorf("reward %v", r.Trajectory.Reward())
				}
				if built := len(r.Trajectory.Traces) > 0; built == (c.failure.Stage == polar.StageInit) {
					t.Errorf("%d traces", len(r.Trajectory.Traces))
				}
			})
		})
	}
}

func TestLeasesAreRenewedAtAThirdOfTheirLength(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := shell("run 60s")
		task.Timeout = 1000
		s := newServer(task)
		s.queue[0].Lease = 6 * time.Second
		g := start(t, s, &recorder{calls: []polar.Call{goodCall("a", 1)}}, newClockwork(time.Second).use(t))
		untilDone(t, s, 1)
		g.stop()
		if s.renewed < 29 || s.renewed > 40 {
			t.Errorf("%d renewals in a minute, want one each 2 s and some for changes", s.renewed)
		}
	})
}

func TestALostLeaseIsNoticedWhenItIsNextRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := shell("run 1000s")
		task.Timeout = 10000
		s := newServer(task)
		rec := &recorder{}
		g := start(t, s, rec, newClockwork(time.Second).use(t))
		s.until(t, "running", s.reached("t-0", polar.Running))
		s.mu.Lock()
		s.lost["t-0"] = true
		s.mu.Unlock()
		begun := time.Now()
		for g.node.Info().Metrics.Run > 0 {
			pass(t, 100*time.Millisecond)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("it went on for %v", took)
		}
		pass(t, time.Minute)
		if len(s.results) != 0 {
			t.Error("it was reported")
		}
	})
}

// pass lets time go by in a bubble.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// untilDone waits for results in a bubble, where time passes by itself.
func untilDone(t *testing.T, s *server, results int) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 5*time.Hour; {
		s.mu.Lock()
		n := len(s.results)
		s.mu.Unlock()
		if n >= results {
			return
		}
		pass(t, time.Second)
	}
	t.Fatal("it never ends")
}
