package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/api"
	"polar/store"
)

const lease = 15 * time.Second

// clock is a clock that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Unix(1_700_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func open(tb testing.TB, dir string, c *clock) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), store.Config{Path: filepath.Join(dir, "polar.db"), Now: c.now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func newTask(id string, samples int) polar.Task {
	return polar.Task{
		ID: polar.TaskID(id), Instruction: "do it", NumSamples: samples, Timeout: 600, MaxAttempts: 3,
		Agent: polar.Agent{Harness: "shell"}, Builder: polar.Strategy{Strategy: "per_request"},
	}
}

func enqueue(tb testing.TB, s *store.Store, task polar.Task) {
	tb.Helper()
	if _, err := s.Enqueue(tb.Context(), task); err != nil {
		tb.Fatal(err)
	}
}

func claim(tb testing.TB, s *store.Store, node string, room int) []polar.Session {
	tb.Helper()
	got, err := s.Claim(tb.Context(), node, room, lease)
	if err != nil {
		tb.Fatal(err)
	}
	var out []polar.Session
	for _, a := range got {
		out = append(out, a.Session)
	}
	return out
}

func finish(tb testing.TB, s *store.Store, v polar.Session, status polar.Status) api.Finished {
	tb.Helper()
	done, err := s.Finish(tb.Context(), outcome(v, status))
	if err != nil {
		tb.Fatal(err)
	}
	return done
}

func outcome(v polar.Session, status polar.Status) api.Outcome {
	o := api.Outcome{Summary: polar.Summary{Session: v.ID, Task: v.Task, Status: status, Attempt: v.Attempt}, Usable: status == polar.Completed}
	if status == polar.Errored {
		o.Summary.Failure = &polar.Failure{Stage: polar.StageRun, Blame: polar.BlameService, Kind: polar.KindEngine, Message: "engine down"}
		o.Retry = true
	}
	return o
}

func ids(sessions []polar.Session) string {
	var out []string
	for _, v := range sessions {
		out = append(out, fmt.Sprintf("%s#%d", v.ID, v.Attempt))
	}
	return strings.Join(out, " ")
}

func TestEnqueueIsIdempotentByID(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := open(t, t.TempDir(), c)
	for i, want := range []bool{true, false} {
		created, err := s.Enqueue(t.Context(), newTask("a", 2))
		if err != nil || created != want {
			t.Fatalf("time %d: created %v, %v", i, created, err)
		}
	}
	other := newTask("a", 2)
	other.Instruction = "do something else"
	if _, err := s.Enqueue(t.Context(), other); !errors.Is(err, api.ErrConflict) {
		t.Fatalf("another body: %v", err)
	}
	if err := s.Bury(t.Context(), "late", 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), newTask("late", 1)); !errors.Is(err, api.ErrConflict) {
		t.Fatalf("buried: %v", err)
	}
	c.add(6 * time.Minute)
	enqueue(t, s, newTask("late", 1))
}

func TestClaimOrder(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), newClock())
	for id, prio := range map[string]int{"low": 0} {
		task := newTask(id, 4)
		task.Priority = prio
		enqueue(t, s, task)
	}
	enqueue(t, s, newTask("low2", 2))
	high := newTask("high", 1)
	high.Priority = 7
	enqueue(t, s, high)
	got := ids(claim(t, s, "n", 6))
	if want := "high.0#1 low.0#1 low2.0#1 low.1#1 low2.1#1 low.2#1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := ids(claim(t, s, "n", 6)); got != "low.3#1" {
		t.Errorf("the rest is %s", got)
	}
	if got := claim(t, s, "n", 6); got != nil {
		t.Errorf("an empty queue gave %v", got)
	}
}

func TestLeaseMovesAndFenceHolds(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := open(t, t.TempDir(), c)
	enqueue(t, s, newTask("a", 1))
	first := claim(t, s, "n1", 1)[0]
	renew := func(node string, v polar.Session) []polar.SessionID {
		t.Helper()
		lost, err := s.Renew(t.Context(), node, []api.Renewal{{Session: v.ID, Attempt: v.Attempt, Status: polar.Running}}, lease)
		if err != nil {
			t.Fatal(err)
		}
		return lost
	}
	c.add(14 * time.Second)
	if lost := renew("n1", first); lost != nil {
		t.Fatalf("lost %v within the lease", lost)
	}
	c.add(14 * time.Second)
	if got := claim(t, s, "n2", 1); got != nil {
		t.Fatalf("a renewed session was given away: %v", got)
	}
	c.add(time.Second)
	second := claim(t, s, "n2", 1)
	if ids(second) != "a.0#2" {
		t.Fatalf("claimed %s", ids(second))
	}
	if lost := renew("n1", first); len(lost) != 1 {
		t.Fatal("the first node was not told that it lost the session")
	}
	if _, err := s.Finish(t.Context(), outcome(first, polar.Completed)); !errors.Is(err, api.ErrStale) {
		t.Fatalf("stale report: %v", err)
	}
	finish(t, s, second[0], polar.Completed)
	if _, err := s.Finish(t.Context(), outcome(second[0], polar.Completed)); !errors.Is(err, api.ErrStale) {
		t.Fatalf("second report: %v", err)
	}
	rec, err := s.Session(t.Context(), "a.0")
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.FailedAttempts) != 1 || rec.FailedAttempts[0].Node != "n1" || rec.FailedAttempts[0].At != c.now().UTC() {
		t.Errorf("the loss is not on record: %+v", rec.FailedAttempts)
	}
}

func TestServiceFailuresRunAgain(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), newClock())
	enqueue(t, s, newTask("a", 1))
	for attempt := 1; attempt <= 3; attempt++ {
		v := claim(t, s, "n", 1)
		if len(v) != 1 || v[0].Attempt != attempt {
			t.Fatalf("attempt %d: claimed %s", attempt, ids(v))
		}
		if done := finish(t, s, v[0], polar.Errored); done.Requeued != (attempt < 3) {
			t.Fatalf("attempt %d: requeued %v", attempt, done.Requeued)
		}
	}
	sum, results, err := s.TaskResults(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if sum.Status != api.TaskFailed || len(results) != 1 || results[0].Summary.Attempt != 3 {
		t.Errorf("task %+v, results %+v", sum, results)
	}
}

func TestReleaseIsALossAndFiftyAreEnough(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), newClock())
	enqueue(t, s, newTask("a", 1))
	for i := 1; i <= 51; i++ {
		if got := claim(t, s, "n", 1); len(got) != 1 || got[0].Attempt != i {
			t.Fatalf("loss %d: claimed %s", i, ids(got))
		}
		if n, err := s.Release(t.Context(), "n"); n != 1 || err != nil {
			t.Fatalf("released %d, %v", n, err)
		}
	}
	rec, err := s.Session(t.Context(), "a.0")
	if err != nil {
		t.Fatal(err)
	}
	if rec.Status != polar.Errored || rec.Outcome.Failure.Kind != polar.KindAttemptsLost || rec.Outcome.Failure.Blame != polar.BlameService {
		t.Errorf("ended %s, %+v", rec.Status, rec.Outcome)
	}
}

func TestCancelAtEachStage(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := open(t, t.TempDir(), c)
	enqueue(t, s, newTask("a", 4))
	held := claim(t, s, "n", 3)
	finish(t, s, held[0], polar.Completed)
	if n, err := s.Cancel(t.Context(), "a"); n != 2 || err != nil {
		t.Fatalf("flagged %d, %v", n, err)
	}
	cancels, err := s.Cancels(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	want := []api.Cancel{{Session: "a.1", Attempt: 1, Kind: polar.KindCancelled}, {Session: "a.2", Attempt: 1, Kind: polar.KindCancelled}}
	if d := cmp.Diff(want, cancels); d != "" {
		t.Fatal(d)
	}
	if sum, _ := s.Task(t.Context(), "a"); sum.Status != api.TaskCancelling || sum.Completed != 2 {
		t.Fatalf("task is %+v", sum)
	}
	// A failure of what is being cancelled is the cancel, and is not run again.
	if done := finish(t, s, held[1], polar.Errored); done.Cancel != polar.KindCancelled || done.Requeued {
		t.Fatalf("failure of a cancelled session: %+v", done)
	}
	finish(t, s, held[1], polar.Cancelled)
	c.add(time.Minute) // the node with the other one is gone
	if n, err := s.Expire(t.Context()); n != 1 || err != nil {
		t.Fatalf("expired %d, %v", n, err)
	}
	sum, results, err := s.TaskResults(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if sum.Status != api.TaskCancelled || sum.Completed != 4 {
		t.Errorf("task is %+v", sum)
	}
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprintf("%s %s", r.Summary.Session, r.Summary.Status))
	}
	if d := cmp.Diff([]string{"a.0 COMPLETED", "a.1 CANCELLED", "a.2 CANCELLED", "a.3 CANCELLED"}, got); d != "" {
		t.Error(d)
	}
	if _, err := s.Cancel(t.Context(), "nobody"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("unknown task: %v", err)
	}
}

func TestEarlyStopEndsTheRest(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), newClock())
	task := newTask("a", 5)
	task.EarlyStop = 2
	enqueue(t, s, task)
	held := claim(t, s, "n", 3)
	finish(t, s, held[0], polar.Completed)
	if done := finish(t, s, held[1], polar.Completed); done.Flagged != 1 {
		t.Fatalf("flagged %d", done.Flagged)
	}
	if got := claim(t, s, "n", 3); got != nil {
		t.Fatalf("claimed %s of a stopped group", ids(got))
	}
	finish(t, s, held[2], polar.Cancelled)
	sum, results, err := s.TaskResults(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if sum.Status != api.TaskCompleted || len(results) != 5 || results[4].Summary.Failure.Kind != polar.KindEarlyStop || results[4].Summary.Session != "a.4" {
		t.Errorf("task %+v, last result %+v", sum, results[len(results)-1])
	}
}

func TestOperationsThatWaitTogetherShareATransaction(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), newClock())
	const askers, each = 32, 10
	var wg sync.WaitGroup
	for i := range askers {
		wg.Go(func() {
			for j := range each {
				// Every third is a conflict: its error must not reach the others.
				task := newTask(fmt.Sprintf("t-%d-%d", i, j), 1)
				if j%3 == 2 {
					task = newTask("same", 1+i)
				}
				_, err := s.Enqueue(t.Context(), task)
				if err != nil && (j%3 != 2 || !errors.Is(err, api.ErrConflict)) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	st := s.Stats()
	t.Logf("%d operations in %d transactions", st.Operations, st.Transactions)
	if st.Operations != askers*each || st.Transactions > st.Operations/2 {
		t.Errorf("%+v: operations were not grouped", st)
	}
	if n, err := s.Counts(t.Context()); err != nil || n.Pending < askers*7 {
		t.Errorf("stored %+v, %v", n, err)
	}
}

func TestEventsAreKeptUpToABound(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "polar.db"), KeepEvents: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	enqueue(t, s, newTask("big", 1500))
	if _, err := s.Cancel(t.Context(), "big"); err != nil { // 1500 events at once
		t.Fatal(err)
	}
	oldest, newest, err := s.EventRange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if newest < 1500 || newest-oldest > 600 {
		t.Errorf("kept events %d to %d", oldest, newest)
	}
	events, err := s.Events(t.Context(), newest-1, 10)
	if err != nil || len(events) != 1 || events[0].Type != api.EventTaskCompleted {
		t.Errorf("last event %+v, %v", events, err)
	}
}

func TestSecondLockNamesTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := store.Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Lock(t.Context(), dir)
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
		t.Errorf("second lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := store.Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), newClock())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), newTask("a", 1)); err == nil {
		t.Error("a closed store took a task")
	}
}
