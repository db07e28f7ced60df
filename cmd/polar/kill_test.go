package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"polar"
	"polar/calllog"
	"polar/sim"
)

const (
	killedTasks   = 10
	samplesOfEach = 5
	kills         = 20
)

// TestKilledServerLosesNothing kills polar serve with SIGKILL at 20 random
// moments of a 50-session run, and starts it again each time. In the end every
// task is complete, each session has exactly one result, that result is made of
// the calls of its own attempt only, and no process is left.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	cfg := sim.Defaults()
	cfg.SuccessRate = 1
	cfg.TTFT = 20 * time.Millisecond // so that kills meet calls under way
	cfg.TokensPerSecond = 1000
	engine, stop, err := startSim(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s := &server{dataDir: t.TempDir(), engineURL: engine, flags: []string{"--run-workers", "6"}}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	var ids []polar.TaskID
	for i := range killedTasks {
		body, err := readTaskFile("../../examples/hello.yaml")
		if err != nil {
			t.Fatal(err)
		}
		task, err := polar.DecodeTask(body)
		if err != nil {
			t.Fatal(err)
		}
		task.ID, task.NumSamples = polar.TaskID("kill-"+strconv.Itoa(i)), samplesOfEach
		if body, err = json.Marshal(task); err != nil {
			t.Fatal(err)
		}
		if _, err := s.client().Submit(t.Context(), body); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, task.ID)
	}
	moments := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for range kills {
		timer := time.NewTimer(time.Duration(20+moments.IntN(1000)) * time.Millisecond)
		<-timer.C
		s.kill()
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
	}
	states, err := waitForTasks(t.Context(), s.client(), ids, newProgress(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range states {
		if state.Status != "completed" || state.Completed != samplesOfEach || len(state.summaries) != samplesOfEach {
			t.Errorf("task %s is %s with %d of %d sessions and %d results", state.Task, state.Status, state.Completed, samplesOfEach, len(state.summaries))
		}
	}
	attempts := checkResults(t, s)
	t.Logf("50 sessions took %d attempts", attempts)
	if attempts <= killedTasks*samplesOfEach {
		t.Error("no attempt was ever lost: the kills met nothing")
	}
	checkNothingRuns(t, s.dataDir)
}

// checkResults reads every result off the stream of results and returns how
// many attempts there were in all.
func checkResults(t *testing.T, s *server) int {
	t.Helper()
	seen := map[polar.SessionID]bool{}
	attempts := 0
	for {
		page, err := s.client().Results(t.Context(), "test", 0, 20)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Results) == 0 {
			break
		}
		for _, raw := range page.Results {
			var r polar.Result
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			if seen[r.Session] {
				t.Errorf("session %s has two results", r.Session)
			}
			seen[r.Session] = true
			attempts += r.Attempt
			checkResult(t, s, r)
		}
		if err := s.client().Ack(t.Context(), "test", page.Cursor); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != killedTasks*samplesOfEach {
		t.Errorf("%d sessions have results, want %d", len(seen), killedTasks*samplesOfEach)
	}
	return attempts
}

// checkResult compares a result with the call log of its attempt: every sampled
// token of a delivered call is in it once, and nothing else.
func checkResult(t *testing.T, s *server, r polar.Result) {
	t.Helper()
	if r.Status != polar.Completed || r.Trajectory.Reward() == nil || *r.Trajectory.Reward() != 1 {
		t.Errorf("session %s is %s: %s", r.Session, r.Status, r.Error)
	}
	calls, err := calllog.Read(filepath.Join(s.dataDir, "calls"), r.Session, r.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	sampled := map[polar.CallID]int{}
	total := 0
	for _, c := range calls {
		if c.Delivered {
			sampled[c.ID] = len(c.Sampled)
			total += len(c.Sampled)
		}
	}
	trained, fromCalls := 0, 0
	for _, trace := range r.Trajectory.Traces {
		trained += trace.Trainable()
		for _, id := range trace.Calls {
			n, ok := sampled[id]
			if !ok {
				t.Errorf("session %s: call %s is not of attempt %d", r.Session, id, r.Attempt)
			}
			fromCalls += n
		}
	}
	if trained != total || fromCalls != total || total == 0 {
		t.Errorf("session %s attempt %d: %d tokens trained on, %d from its calls, %d sampled", r.Session, r.Attempt, trained, fromCalls, total)
	}
}

// checkNothingRuns looks for processes that work below the data folder.
func checkNothingRuns(t *testing.T, dataDir string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range procs {
		env, err := os.ReadFile(path)
		if err != nil {
			continue // it ended, or is not ours
		}
		if strings.Contains(string(env), fmt.Sprintf("HOME=%s/sandboxes", dataDir)) {
			t.Errorf("process %s of a sandbox is still running", filepath.Base(filepath.Dir(path)))
		}
	}
}
