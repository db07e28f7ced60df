package store_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"polar"
	"polar/api"
	"polar/store"
)

// known is what the model knows of a session.
type known struct {
	attempt, failures int
	node              string // holds it; empty while it waits
	until             time.Time
	cancel, ended     bool
}

// model is a queue that is too simple to be wrong. Every answer of the store is
// held against it.
type model struct {
	t        *testing.T
	rng      *rand.Rand
	clock    *clock
	dir      string
	store    *store.Store
	sessions map[polar.SessionID]*known
	tasks    map[polar.TaskID]int // samples
	stale    []polar.Session      // attempts that were overtaken
}

func TestQueueAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			m := &model{
				t: t, rng: rand.New(rand.NewPCG(seed, 0)), clock: newClock(), dir: t.TempDir(),
				sessions: map[polar.SessionID]*known{}, tasks: map[polar.TaskID]int{},
			}
			m.store = open(t, m.dir, m.clock)
			ops := []func(){m.enqueue, m.claim, m.claim, m.finish, m.finish, m.finish, m.renew, m.reportStale, m.cancel, m.advance, m.release, m.crash}
			for range 160 {
				ops[m.rng.IntN(len(ops))]()
				m.clock.add(time.Millisecond)
			}
			for m.open() > 0 {
				m.claim()
				m.finish()
				m.clock.add(time.Millisecond)
			}
			m.crash()
			m.check()
		})
	}
}

func (m *model) open() (n int) {
	for _, k := range m.sessions {
		if !k.ended {
			n++
		}
	}
	return n
}

func (m *model) pick(want func(*known) bool) (polar.SessionID, *known) {
	ids := slices.Sorted(maps.Keys(m.sessions))
	m.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		if want(m.sessions[id]) {
			return id, m.sessions[id]
		}
	}
	return "", nil
}

func held(k *known) bool { return k.node != "" && !k.ended }

func (m *model) enqueue() {
	id := polar.TaskID(fmt.Sprintf("t%d", m.rng.IntN(40)))
	samples := 1 + m.rng.IntN(4)
	created, err := m.store.Enqueue(m.t.Context(), newTask(string(id), samples))
	before, again := m.tasks[id]
	if again && before != samples {
		if !errors.Is(err, api.ErrConflict) {
			m.t.Fatalf("enqueue %s with another body: %v", id, err)
		}
		return
	}
	if err != nil || created == again {
		m.t.Fatalf("enqueue %s: created %v, %v", id, created, err)
	}
	if !again {
		m.tasks[id] = samples
		for i := range samples {
			m.sessions[polar.SessionID(fmt.Sprintf("%s.%d", id, i))] = &known{}
		}
	}
}

// lapse does to the model what a claim does first.
func (m *model) lapse() {
	for id, k := range m.sessions {
		if held(k) && !k.until.After(m.clock.now()) {
			m.lose(id, k)
		}
	}
}

func (m *model) lose(id polar.SessionID, k *known) {
	m.stale = append(m.stale, polar.Session{ID: id, Attempt: k.attempt})
	k.node, k.ended = "", k.cancel
}

func (m *model) claim() {
	m.lapse()
	waiting := 0
	for _, k := range m.sessions {
		if !k.ended && k.node == "" {
			waiting++
		}
	}
	room := 1 + m.rng.IntN(5)
	node := fmt.Sprintf("n%d", m.rng.IntN(3))
	got := claim(m.t, m.store, node, room)
	if len(got) != min(room, waiting) {
		m.t.Fatalf("claimed %s with room %d and %d waiting", ids(got), room, waiting)
	}
	for _, v := range got {
		k := m.sessions[v.ID]
		if k.ended || k.node != "" || v.Attempt != k.attempt+1 {
			m.t.Fatalf("claimed %s#%d, the model has %+v", v.ID, v.Attempt, *k)
		}
		k.attempt, k.node, k.until = v.Attempt, node, m.clock.now().Add(lease)
	}
}

func (m *model) finish() {
	id, k := m.pick(held)
	if k == nil {
		return
	}
	status := []polar.Status{polar.Completed, polar.Completed, polar.TimedOut, polar.Errored}[m.rng.IntN(4)]
	v := polar.Session{ID: id, Attempt: k.attempt}
	done := finish(m.t, m.store, v, status)
	switch {
	case k.cancel && status != polar.Completed:
		if done.Cancel == "" {
			m.t.Fatalf("%s#%d %s: the cancel was not told", id, k.attempt, status)
		}
		finish(m.t, m.store, v, polar.Cancelled)
		k.ended = true
	case status == polar.Errored && k.failures+1 < 3:
		if !done.Requeued {
			m.t.Fatalf("%s#%d was not run again", id, k.attempt)
		}
		k.failures++
		m.stale = append(m.stale, v)
		k.node = ""
	default:
		if done != (api.Finished{}) {
			m.t.Fatalf("%s#%d %s: %+v", id, k.attempt, status, done)
		}
		k.ended = true
	}
	if k.ended {
		m.stale = append(m.stale, v)
	}
}

func (m *model) renew() {
	id, k := m.pick(held)
	if k == nil {
		return
	}
	lost, err := m.store.Renew(m.t.Context(), k.node, []api.Renewal{{Session: id, Attempt: k.attempt, Status: polar.Running}}, lease)
	if err != nil || len(lost) > 0 {
		m.t.Fatalf("renew %s#%d: lost %v, %v", id, k.attempt, lost, err)
	}
	k.until = m.clock.now().Add(lease)
}

func (m *model) reportStale() {
	if len(m.stale) == 0 {
		return
	}
	v := m.stale[m.rng.IntN(len(m.stale))]
	if _, err := m.store.Finish(m.t.Context(), outcome(v, polar.Completed)); !errors.Is(err, api.ErrStale) {
		m.t.Fatalf("stale report %s#%d: %v", v.ID, v.Attempt, err)
	}
	lost, err := m.store.Renew(m.t.Context(), "n0", []api.Renewal{{Session: v.ID, Attempt: v.Attempt, Status: polar.Running}}, lease)
	if err != nil || len(lost) != 1 {
		m.t.Fatalf("stale renewal %s#%d: lost %v, %v", v.ID, v.Attempt, lost, err)
	}
}

func (m *model) cancel() {
	if m.rng.IntN(3) > 0 || len(m.tasks) == 0 {
		return
	}
	task := slices.Sorted(maps.Keys(m.tasks))[m.rng.IntN(len(m.tasks))]
	if _, err := m.store.Cancel(m.t.Context(), task); err != nil {
		m.t.Fatal(err)
	}
	for i := range m.tasks[task] {
		if k := m.sessions[polar.SessionID(fmt.Sprintf("%s.%d", task, i))]; k.node == "" {
			k.ended = true
		} else {
			k.cancel = true
		}
	}
}

func (m *model) advance() { m.clock.add(time.Duration(m.rng.IntN(12)) * time.Second) }

func (m *model) release() {
	node := fmt.Sprintf("n%d", m.rng.IntN(3))
	want := 0
	for id, k := range m.sessions {
		if held(k) && k.node == node {
			m.lose(id, k)
			want++
		}
	}
	if n, err := m.store.Release(m.t.Context(), node); err != nil || n != want {
		m.t.Fatalf("released %d, want %d, %v", n, want, err)
	}
}

// crash goes on with what is in the files at this moment, as after a kill -9.
func (m *model) crash() {
	dir := m.t.TempDir()
	for _, name := range []string{"polar.db", "polar.db-wal"} {
		copyFile(m.t, filepath.Join(m.dir, name), filepath.Join(dir, name))
	}
	if err := m.store.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.dir = dir
	m.store = open(m.t, dir, m.clock)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	dst, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dst.Close() }()
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
}

// check finds every session ended with one result, and every counter right.
func (m *model) check() {
	results, cursor, err := m.store.Results(m.t.Context(), "all", 100_000)
	if err != nil {
		m.t.Fatal(err)
	}
	seen := map[polar.SessionID]bool{}
	for _, r := range results {
		if seen[r.Session] {
			m.t.Errorf("%s has two results", r.Session)
		}
		seen[r.Session] = true
		if k := m.sessions[r.Session]; k == nil || k.attempt != r.Summary.Attempt {
			m.t.Errorf("result %+v, the model has %+v", r.Summary, k)
		}
	}
	if len(seen) != len(m.sessions) || len(results) > 0 && cursor != results[len(results)-1].Seq {
		m.t.Errorf("%d results of %d sessions, cursor %d", len(seen), len(m.sessions), cursor)
	}
	for id, samples := range m.tasks {
		sum, err := m.store.Task(m.t.Context(), id)
		if err != nil {
			m.t.Fatal(err)
		}
		if sum.Completed != samples || sum.Status == api.TaskRunning || sum.Status == api.TaskCancelling {
			m.t.Errorf("task %+v of %d", sum, samples)
		}
	}
	if n, err := m.store.Counts(m.t.Context()); err != nil || n != (api.Counts{Ended: len(m.sessions)}) {
		m.t.Errorf("counts %+v, %v", n, err)
	}
}
