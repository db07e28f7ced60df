package calllog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"polar"
	"polar/llm"
)

// disk is a file system that can fail. It syncs nothing, so that tests are
// quick, and counts.
type disk struct {
	mu    sync.Mutex
	syncs map[string]int // by base name
	// fail is asked before each operation on a file and may return an error; a
	// write that fails leaves half of its bytes.
	fail func(operation, path string) error
	// held makes the journal's Sync wait for a value.
	held chan struct{}
}

func (d *disk) open(path string, flag int) (file, error) {
	if err := d.asked("open", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d}, nil
}

func (d *disk) asked(operation, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if operation == "sync" {
		if d.syncs == nil {
			d.syncs = map[string]int{}
		}
		d.syncs[filepath.Base(path)]++
	}
	if d.fail == nil {
		return nil
	}
	return d.fail(operation, path)
}

func (d *disk) setFail(fail func(operation, path string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

type diskFile struct {
	*os.File
	disk *disk
}

func (f *diskFile) WriteAt(b []byte, offset int64) (int, error) {
	if err := f.disk.asked("write", f.Name()); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], offset)
		return n, err
	}
	return f.File.WriteAt(b, offset)
}

func (f *diskFile) Truncate(size int64) error {
	if err := f.disk.asked("truncate", f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Sync() error {
	if f.disk.held != nil && filepath.Base(f.Name()) == journalName {
		<-f.disk.held
	}
	return f.disk.asked("sync", f.Name())
}

// launch opens a log on d; it is dropped, not closed, by crash.
func launch(t *testing.T, dir string, bound int64, d *disk) (l *Log, crash func()) {
	t.Helper()
	l, err := openWith(Config{Dir: dir, JournalBytes: bound}, d.open)
	if err != nil {
		t.Fatal(err)
	}
	return l, sync.OnceFunc(func() {
		_ = l.lock.Close()
		_ = l.journal.file.Close()
	})
}

func call(n int) (*polar.Call, llm.IDs) {
	c := &polar.Call{ID: polar.CallID(fmt.Sprint("c", n)), Delivered: true}
	ids := llm.IDs{}
	for i := range n + 1 {
		c.Messages = append(c.Messages, json.RawMessage(fmt.Sprintf(`"m%d"`, i)))
		ids = append(ids, int32(i), int32(i+1))
	}
	c.Sampled = []llm.Token{{ID: int32(n), Logprob: -1}}
	return c, ids
}

func record(t *testing.T, s *Session, n int) {
	t.Helper()
	c, ids := call(n)
	if err := s.Append(t.Context(), c, ids); err != nil {
		t.Fatal(err)
	}
}

// checkPrefix fails unless the attempt has the calls made by call(0), call(1), …
// and at least so many of them.
func checkPrefix(t *testing.T, dir string, atLeast, atMost int) {
	t.Helper()
	got, err := Read(dir, "s", 1)
	if err != nil && (atLeast > 0 || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	if len(got) < atLeast || len(got) > atMost {
		t.Fatalf("%d calls, want %d to %d", len(got), atLeast, atMost)
	}
	for n, c := range got {
		want, ids := call(n)
		if c.ID != want.ID || !slices.Equal(c.Prompt.IDs(), ids) || len(c.Messages) != len(want.Messages) || !slices.Equal(c.Sampled, want.Sampled) {
			t.Fatalf("call %d came back as %+v", n, c)
		}
		for i := range want.Messages {
			if string(c.Messages[i]) != string(want.Messages[i]) {
				t.Fatalf("call %d: message %d is %s", n, i, c.Messages[i])
			}
		}
	}
}

// TestACrashAtAnyByteLosesNothingAcknowledged cuts the session file and the
// journal where a crash could have and opens the log again.
func TestACrashAtAnyByteLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	const calls = 4
	origin := t.TempDir()
	l, crash := launch(t, origin, 0, &disk{})
	s, err := l.Session("s", 1)
	if err != nil {
		t.Fatal(err)
	}
	var early, earlyJournal int // where the last call begins
	for n := range calls {
		if n == calls-1 {
			early, earlyJournal = len(contents(t, origin, "s/1.log")), len(contents(t, origin, journalName))
		}
		record(t, s, n)
		if err := s.SetDelivered(polar.CallID(fmt.Sprint("c", n)), true, 0); err != nil {
			t.Fatal(err)
		}
	}
	crash()
	session, journal := contents(t, origin, "s/1.log"), contents(t, origin, journalName)

	dir := t.TempDir()
	reopen := func(session, journal []byte, atLeast int) {
		t.Helper()
		if session == nil {
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := os.MkdirAll(filepath.Join(dir, "s"), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, dir, "s/1.log", session)
		}
		put(t, dir, journalName, journal)
		l, err := openWith(Config{Dir: dir}, (&disk{}).open)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if left := contents(t, dir, journalName); len(left) != 0 {
			t.Fatalf("the journal has %d bytes after recovery", len(left))
		}
		checkPrefix(t, dir, atLeast, calls)
	}
	reopen(nil, journal, calls) // not even the folder arrived
	reopen(session[:0], journal, calls)
	reopen(slices.Concat(session[:early], make([]byte, len(session))), journal, calls)
	for cut := early; cut <= len(session); cut++ { // the journal is whole
		reopen(session[:cut], journal, calls)
	}
	for cut := earlyJournal; cut <= len(journal); cut++ { // the journal is torn
		reopen(nil, journal[:cut], calls-1)
		if cut%5 == 0 {
			reopen(session, journal[:cut], calls)
			reopen(session[:min(len(session), early+cut-earlyJournal)], journal[:cut], calls-1)
		}
	}
	damaged := slices.Clone(journal)
	damaged[earlyJournal-1] ^= 1
	reopen(nil, damaged, calls-2)
}

func contents(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheJournalIsEmptiedOnceTheSessionFilesAreSynced(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &disk{}
	l, crash := launch(t, dir, 500, d)
	defer crash()
	s, err := l.Session("s", 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 40 {
		record(t, s, n)
		if size := len(contents(t, dir, journalName)); size > 1500 {
			t.Fatalf("the journal has %d bytes", size)
		}
	}
	crash()
	if d.syncs["1.log"] == 0 || d.syncs["s"] == 0 || d.syncs[filepath.Base(dir)] == 0 {
		t.Errorf("synced: %v", d.syncs)
	}
	checkPrefix(t, dir, 40, 40)
}

func TestASessionThatWasRemovedIsNotBroughtBackInPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, journalName, appendRecord(nil, &write{path: "s/1.log", offset: int64(len(fileHeader)), data: []byte("frame")}))
	_, crash := launch(t, dir, 0, &disk{})
	crash()
	if _, err := Read(dir, "s", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read: %v", err)
	}
}

// TestAFailedWriteIsAsIfItWereNotMade fails each operation in turn while a call
// is recorded, then lets the disk work again.
func TestAFailedWriteIsAsIfItWereNotMade(t *testing.T) {
	t.Parallel()
	full := &os.PathError{Op: "write", Err: syscall.ENOSPC}
	tests := map[string]struct {
		operation, file string
		always          bool // fails until the log is opened again
		usable          bool
	}{
		"the session file is full":              {"write", "1.log", false, true},
		"the journal is full":                   {"write", journalName, false, true},
		"the journal cannot be synced":          {"sync", journalName, false, true},
		"the journal can never be synced again": {"sync", journalName, true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, d := t.TempDir(), &disk{}
			l, crash := launch(t, dir, 0, d)
			defer crash()
			s, err := l.Session("s", 1)
			if err != nil {
				t.Fatal(err)
			}
			record(t, s, 0)
			if err := s.SetDelivered("c0", true, 0); err != nil {
				t.Fatal(err)
			}
			failed := false
			d.setFail(func(operation, path string) error {
				if operation != test.operation || filepath.Base(path) != test.file || failed && !test.always {
					return nil
				}
				failed = true
				return full
			})
			c, ids := call(1)
			if err := s.Append(t.Context(), c, ids); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("error %v", err)
			}
			if c.Prompt != nil {
				t.Error("a call that is not recorded got its prompt")
			}
			checkPrefix(t, dir, 1, 1)
			if cut, err := Torn(dir, "s", 1); cut != 0 || err != nil {
				t.Errorf("%d bytes of the failed call are left, %v", cut, err)
			}
			err = s.Append(t.Context(), c, ids)
			if (err == nil) != test.usable {
				t.Fatalf("the next call: %v", err)
			}
			crash()
			want := 1
			if test.usable {
				want = 2
			}
			checkPrefix(t, dir, want, want)
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil { // as if power was lost
				t.Fatal(err)
			}
			_, crash = launch(t, dir, 0, &disk{})
			crash()
			checkPrefix(t, dir, want, want)
		})
	}
}

func TestAFileThatCannotBeCutBackTakesNoMoreCalls(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &disk{}
	l, crash := launch(t, dir, 0, d)
	defer crash()
	s, err := l.Session("s", 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Session("other", 1)
	if err != nil {
		t.Fatal(err)
	}
	record(t, s, 0)
	d.setFail(func(operation, path string) error {
		if filepath.Base(filepath.Dir(path)) == "s" && (operation == "write" || operation == "truncate") {
			return syscall.EIO
		}
		return nil
	})
	c, ids := call(1)
	if err := s.Append(t.Context(), c, ids); err == nil {
		t.Error("the call was taken")
	}
	d.setFail(nil)
	if err := s.Append(t.Context(), c, ids); err == nil {
		t.Error("the broken file took a call")
	}
	record(t, other, 0)
	checkPrefix(t, dir, 1, 1)
	if cut, err := Torn(dir, "s", 1); cut == 0 || err != nil {
		t.Errorf("%d bytes torn, %v", cut, err)
	}
}

func TestSessionFilesThatCannotBeSyncedEndTheLogAndLoseNothing(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &disk{}
	l, crash := launch(t, dir, 1, d)
	defer crash()
	s, err := l.Session("s", 1)
	if err != nil {
		t.Fatal(err)
	}
	d.setFail(func(operation, path string) error {
		if operation == "sync" && filepath.Base(path) == "1.log" {
			return syscall.EIO
		}
		return nil
	})
	record(t, s, 0)
	c, ids := call(1)
	if err := s.Append(t.Context(), c, ids); !errors.Is(err, syscall.EIO) {
		t.Errorf("after the sync failed: %v", err)
	}
	crash()
	if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	_, crash = launch(t, dir, 0, &disk{})
	crash()
	checkPrefix(t, dir, 1, 1)
}

func TestWhatWaitsTogetherIsSyncedOnce(t *testing.T) {
	t.Parallel()
	const sessions = 32
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l, crash := launch(t, dir, 0, d)
		defer crash()
		d.held = make(chan struct{})
		before := d.syncs[journalName]
		var all sync.WaitGroup
		for k := range sessions {
			s, err := l.Session(polar.SessionID(fmt.Sprint("s", k)), 1)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() { record(t, s, 0) })
			if k == 0 {
				synctest.Wait() // its sync has begun
			}
		}
		synctest.Wait() // the others wait
		close(d.held)
		all.Wait()
		crash()
		if syncs := d.syncs[journalName] - before; syncs != 2 {
			t.Errorf("%d syncs for %d calls, want 2", syncs, sessions)
		}
	})
}

func TestACallIsGivenUpWhileItWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l, crash := launch(t, dir, 0, d)
		defer crash()
		first, err := l.Session("first", 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Session("s", 1)
		if err != nil {
			t.Fatal(err)
		}
		d.held = make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { record(t, first, 0) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			c, ids := call(0)
			if err := s.Append(ctx, c, ids); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			record(t, s, 0)
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(d.held)
		all.Wait()
		checkPrefix(t, dir, 1, 1)
	})
}
