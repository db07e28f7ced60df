package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/api"
	"polar/store"
)

func TestReaderReadsBesideTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := store.Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	s := open(t, dir, newClock())
	task := newTask("a", 2)
	task.Labels = map[string]string{"k": "v"}
	heat := 0.5
	task.Sampling.Temperature = &heat
	enqueue(t, s, task)
	enqueue(t, s, newTask("b", 1))

	r, err := store.OpenReader(t.Context(), filepath.Join(dir, "polar.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, v := range claim(t, s, "n", 3) {
		finish(t, s, v, polar.Completed)
	}
	places := func(got []api.PlacedResult, newest int64, err error) (out []any) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range got {
			out = append(out, p.Seq, p.Session, p.Index, p.TaskSeq, p.Labels["k"], p.Temperature != nil && *p.Temperature == heat)
		}
		return append(out, newest)
	}
	all := places(s.ResultsAfter(t.Context(), 0, "", 10))
	if diff := cmp.Diff(all, places(r.ResultsAfter(t.Context(), 0, "", 10))); diff != "" {
		t.Errorf("the reader and the store differ: %s", diff)
	}
	if len(all) != 3*6+1 {
		t.Errorf("%v", all)
	}
	want := []any{int64(1), polar.SessionID("a.0"), 0, int64(1), "v", true, int64(3)}
	if diff := cmp.Diff(want, places(r.ResultsAfter(t.Context(), 0, "a", 1))); diff != "" {
		t.Error(diff)
	}
	if got := places(r.ResultsAfter(t.Context(), 3, "", 10)); len(got) != 1 {
		t.Errorf("after the last: %v", got)
	}
	if body, err := r.TaskBody(t.Context(), "a"); err != nil || body.NumSamples != 2 {
		t.Errorf("task a: %+v, %v", body, err)
	}
	if _, err := r.TaskBody(t.Context(), "nobody"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("task nobody: %v", err)
	}
	if _, err := store.OpenReader(t.Context(), filepath.Join(dir, "other.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestReaderReadsWhatAKilledServerLeft reads a database whose newest
// transactions are in its log alone, without the index that a server keeps.
func TestReaderReadsWhatAKilledServerLeft(t *testing.T) {
	t.Parallel()
	dir, left := t.TempDir(), t.TempDir()
	s := open(t, dir, newClock())
	enqueue(t, s, newTask("a", 1))
	finish(t, s, claim(t, s, "n", 1)[0], polar.Completed)
	for _, name := range []string{"polar.db", "polar.db-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(left, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := store.OpenReader(t.Context(), filepath.Join(left, "polar.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if got, newest, err := r.ResultsAfter(t.Context(), 0, "", 10); err != nil || len(got) != 1 || newest != 1 {
		t.Errorf("%d results of %d, %v", len(got), newest, err)
	}
}
