// Package calllog keeps the model calls of sessions: append-only, framed with
// checksums, and durable when Append returns.
//
// Each attempt at a session has a file of its own, <dir>/<session>/<attempt>.log,
// which is what readers read. It is written without being synced, because
// syncing many files at once is slow. What was written also goes to one journal
// that all sessions share, <dir>/_journal, which is synced once for everything
// that waits. Open replays the journal over the session files; once these are
// synced themselves the journal starts again from nothing.
//
// A file that ends in the middle of a frame, or in one that is damaged, is read
// up to there.
package calllog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"polar"
)

// Config is the settings of a Log.
type Config struct {
	// Dir is the folder of the log. One Log at a time can have it.
	Dir string
	// JournalBytes is how long the journal may grow before the session files
	// are synced and it starts anew; 0 means 64 MiB.
	JournalBytes int64
	Log          *slog.Logger
}

// ErrClosed is returned for what comes after Close.
var ErrClosed = errors.New("call log is closed")

// Log is the call log of a node. All its methods may be called at the same time.
type Log struct {
	dir     string
	bound   int64
	log     *slog.Logger
	open    opener
	lock    *os.File
	journal *journal

	leading chan struct{} // has room for one: who commits

	mu     sync.Mutex
	queue  []*write
	closed error
}

// opener opens a file for writing.
type opener func(path string, flag int) (file, error)

// file is what is done with a file that is written.
type file interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

func openOS(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return dataFile{f}, nil
}

const journalName = "_journal" // no session can have this id

// Open takes the folder and brings the session files up to what was
// acknowledged before a crash. Whoever opens it closes it.
func Open(c Config) (*Log, error) {
	l, err := openWith(c, openOS)
	if err != nil {
		return nil, err
	}
	l.journal.step = reserveStep
	return l, nil
}

// reserveStep is how far ahead the journal is reserved.
const reserveStep = 1 << 20

func openWith(c Config, open opener) (_ *Log, err error) {
	l := &Log{dir: c.Dir, bound: c.JournalBytes, log: c.Log, open: open, leading: make(chan struct{}, 1)}
	if l.bound <= 0 {
		l.bound = 64 << 20
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open call log %s: %w", c.Dir, err)
			if l.lock != nil {
				_ = l.lock.Close()
			}
		}
	}()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(c.Dir, journalName)
	if l.lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(l.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("in use by another process: %w", err)
	}
	if err := recoverSessions(c.Dir, l.log, open); err != nil {
		return nil, err
	}
	f, err := open(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	l.journal = &journal{dir: c.Dir, file: f, open: open, dirty: map[string]struct{}{}}
	return l, nil
}

// Close commits what waits, syncs the session files and gives the folder free.
// Calls that come later are refused.
func (l *Log) Close() error {
	l.mu.Lock()
	first := l.closed == nil || !errors.Is(l.closed, ErrClosed)
	l.closed = ErrClosed
	l.mu.Unlock()
	l.leading <- struct{}{}
	defer func() { <-l.leading }()
	if !first {
		return nil
	}
	l.commit()
	err := l.journal.checkpoint()
	return errors.Join(err, l.journal.file.Close(), l.lock.Close())
}

// settle returns when w is durable or has failed. Of those who wait one commits
// for all that have come by then: no goroutine stands between a call and the
// disk, and one sync serves many.
func (l *Log) settle(ctx context.Context, w *write) error {
	for {
		select {
		case err := <-w.done:
			return err
		case l.leading <- struct{}{}:
			l.commit()
			<-l.leading
		case <-ctx.Done():
			if l.withdraw(w) {
				return context.Cause(ctx)
			}
			return <-w.done
		}
	}
}

// commit makes everything that waits durable with one sync. Writes that nobody
// waits for are tried again with the next commit if it fails. Who calls it
// leads.
func (l *Log) commit() {
	l.mu.Lock()
	batch := l.queue
	l.queue = nil
	l.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	err := l.journal.append(batch)
	var again []*write
	for _, w := range batch {
		switch {
		case w.done != nil:
			w.done <- err
		case err != nil:
			again = append(again, w)
		}
	}
	if err == nil && l.journal.size >= l.bound {
		if err := l.journal.checkpoint(); err != nil {
			l.log.Error("session files cannot be synced; no more calls are taken", "error", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(again, l.queue...)
	if l.journal.broken != nil && l.closed == nil {
		l.closed = l.journal.broken
	}
}

// enqueue hands a write to the journal. One that nobody waits for goes with the
// next that somebody does.
func (l *Log) enqueue(w *write) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	l.queue = append(l.queue, w)
	return nil
}

// withdraw takes back a write and reports whether it was still waiting.
func (l *Log) withdraw(w *write) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, queued := range l.queue {
		if queued == w {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return true
		}
	}
	return false
}

// Session begins the file of an attempt. An attempt is written once: if its
// file is there, the error wraps fs.ErrExist.
func (l *Log) Session(id polar.SessionID, attempt int) (*Session, error) {
	path, err := sessionPath(id, attempt)
	if err != nil {
		return nil, err
	}
	full := filepath.Join(l.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return nil, fmt.Errorf("begin call log: %w", err)
	}
	f, err := l.open(full, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("begin call log: %w", err)
	}
	s := &Session{log: l, path: path, file: f, known: map[polar.CallID]int{}, deltas: newDeltas()}
	if err := s.writeQuietly([]byte(fileHeader)); err != nil {
		_ = f.Close()
		_ = os.Remove(full)
		return nil, fmt.Errorf("begin call log: %w", err)
	}
	return s, nil
}
