// Package store is what survives a restart: tasks, their sessions and results,
// events and owed callbacks in one SQLite file, and large things as blobs
// beside it. Every operation is one durable transaction.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the database driver
)

// Config says where a store lives and how it bounds itself.
type Config struct {
	// Path is the database file; its folder is made if it is not there.
	Path string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// KeepEvents is how many events are kept; 0 means 100,000.
	KeepEvents int
	// MaxLosses is how many nodes a session may outlive; 0 means 50.
	MaxLosses int
	// Readers is how many reads run at once; 0 means 4.
	Readers int
}

// Store keeps the state of a rollout server. Its methods may be called from
// many goroutines.
type Store struct {
	dir       string
	now       func() time.Time
	keep      int64
	maxLosses int

	db    *sql.DB
	reads *sql.DB

	mu      sync.RWMutex // held for reading while an operation is handed over
	closed  bool
	ops     chan op
	written chan struct{} // closed when the writer has ended

	opCount, txCount atomic.Int64
	broken           atomic.Pointer[error]
}

var errClosed = errors.New("the store is closed")

// Open opens the store in a folder, making it if need be. Whoever opens it
// closes it. ctx bounds the opening only.
func Open(ctx context.Context, c Config) (_ *Store, err error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KeepEvents == 0 {
		c.KeepEvents = 100_000
	}
	if c.MaxLosses == 0 {
		c.MaxLosses = 50
	}
	if c.Readers == 0 {
		c.Readers = 4
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	s := &Store{
		dir: filepath.Dir(c.Path), now: c.Now, keep: int64(c.KeepEvents), maxLosses: c.MaxLosses,
		ops: make(chan op, maxBatch), written: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open store %s: %w", c.Path, s.explain(err))
		}
	}()
	if s.db, err = sql.Open("sqlite", dsn(c.Path, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "journal_size_limit(67108864)")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	s.db.SetMaxOpenConns(1)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if s.reads, err = sql.Open("sqlite", dsn(c.Path, "query_only(1)")); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.reads.SetMaxOpenConns(c.Readers)
	s.reads.SetMaxIdleConns(c.Readers)
	// The writer outlives the call: it ends with Close.
	go s.writeAll(context.WithoutCancel(ctx), conn)
	return s, nil
}

// dsn escapes the path, which may hold what means something in a URL.
func dsn(path string, pragmas ...string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	q := url.Values{"_pragma": append([]string{"busy_timeout(10000)"}, pragmas...)}
	u.RawQuery = q.Encode()
	return u.String()
}

// Close ends the store when the operations under way have ended. It is safe to
// call twice.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed = true
		close(s.ops)
	}
	s.mu.Unlock()
	<-s.written
	if !first {
		return nil
	}
	return errors.Join(s.reads.Close(), s.db.Close())
}

// Stats counts what was written.
type Stats struct {
	// Operations share Transactions when they wait together.
	Operations, Transactions int64
}

// Stats returns the counts since the store was opened.
func (s *Store) Stats() Stats {
	return Stats{Operations: s.opCount.Load(), Transactions: s.txCount.Load()}
}

// Health says why the store cannot be written, or nothing. After a failure it
// tries a small write, so that a disk with room again is noticed.
func (s *Store) Health(ctx context.Context) error {
	if s.broken.Load() != nil {
		return s.write(ctx, func(ctx context.Context, t *tx) error {
			return t.exec(ctx, `INSERT INTO probes VALUES (1, ?) ON CONFLICT DO UPDATE SET at = excluded.at`, nanos(s.now()))
		})
	}
	var one int
	return s.reads.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
