// Package coordinator is the rollout server: it takes tasks, hands their
// sessions to nodes that ask for work, collects the results and delivers them
// to trainers. All it must remember is in its store.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"polar"
	"polar/api"
)

// Queue is where sessions wait for nodes. Each method is one durable transaction.
type Queue interface {
	Enqueue(ctx context.Context, task polar.Task) (created bool, err error)
	Claim(ctx context.Context, node string, room int, lease time.Duration) ([]api.Assignment, error)
	Renew(ctx context.Context, node string, renewals []api.Renewal, lease time.Duration) (lost []polar.SessionID, err error)
	Finish(ctx context.Context, outcome api.Outcome) (api.Finished, error)
	Expire(ctx context.Context) (int, error)
}

// Stopper takes work away again.
type Stopper interface {
	// Cancel returns how many sessions nodes must now stop.
	Cancel(ctx context.Context, task polar.TaskID) (flagged int, err error)
	Cancels(ctx context.Context, node string) ([]api.Cancel, error)
	// Bury refuses a task that was not submitted yet for some time.
	Bury(ctx context.Context, task polar.TaskID, d time.Duration) error
	Release(ctx context.Context, node string) (int, error)
}

// Tasks answers questions about tasks.
type Tasks interface {
	Task(ctx context.Context, id polar.TaskID) (api.TaskSummary, error)
	TaskBody(ctx context.Context, id polar.TaskID) (polar.Task, error)
	// TaskResults is a task and its results, both of one moment.
	TaskResults(ctx context.Context, id polar.TaskID) (api.TaskSummary, []api.StoredResult, error)
	Tasks(ctx context.Context, filter api.TaskFilter) ([]api.TaskSummary, error)
}

// Sessions answers questions about sessions.
type Sessions interface {
	Sessions(ctx context.Context, task polar.TaskID) ([]api.SessionSummary, error)
	Session(ctx context.Context, id polar.SessionID) (api.SessionRecord, error)
	Counts(ctx context.Context) (api.Counts, error)
	// Health says why nothing can be stored.
	Health(ctx context.Context) error
}

// Records answers questions.
type Records interface {
	Tasks
	Sessions
}

// Feed is what has happened, in order.
type Feed interface {
	Events(ctx context.Context, after int64, limit int) ([]api.Event, error)
	EventRange(ctx context.Context) (oldest, newest int64, err error)
	Results(ctx context.Context, consumer string, limit int) (results []api.StoredResult, cursor int64, err error)
	Ack(ctx context.Context, consumer string, cursor int64) error
	// ResultsAfter is for readers that acknowledge nothing; newest is the number
	// of the newest result there is.
	ResultsAfter(ctx context.Context, after int64, task polar.TaskID, limit int) (results []api.PlacedResult, newest int64, err error)
}

// Outbox is the callbacks that are owed.
type Outbox interface {
	// Due leaves out the hosts in skip; next is when one more is due.
	Due(ctx context.Context, skip []string, limit int) (due []api.Delivery, next time.Time, err error)
	Settle(ctx context.Context, id int64, end api.Settlement) error
}

// Store is all that a coordinator must not forget.
type Store interface {
	Queue
	Stopper
	Records
	Feed
	Outbox
}

// Blobs keeps large things by their content.
type Blobs interface {
	Put(ctx context.Context, r io.Reader) (hash string, size int64, err error)
	Open(hash string) (io.ReadSeekCloser, error)
	Size(hash string) (int64, error)
}

// Config says what a coordinator works with. Zero values have a default unless
// said otherwise.
type Config struct {
	Store Store // required
	Blobs Blobs // required
	// Check opens every plug-in of a task dry; nil checks nothing.
	Check func(polar.Task) error
	// Calls reads the recorded calls of an attempt; nil means that there are none.
	Calls func(ctx context.Context, session polar.SessionID, attempt int) ([]polar.Call, error)
	// ControlToken is the bearer token of every route but /health; empty asks for none.
	ControlToken string
	// Lease is how long a node may be silent before its sessions go to another; 15 s.
	Lease time.Duration
	// MaxBodyBytes bounds a request; 32 MiB.
	MaxBodyBytes int64
	// UnknownFields is "error", the default, or "warn".
	UnknownFields string
	// Tombstone is how long a cancelled id that was never submitted is refused; 5 min.
	Tombstone time.Duration
	// ForgetNode is how long a silent node stays in the list; 1 h.
	ForgetNode time.Duration
	Callbacks  Callbacks
	Log        *slog.Logger // nil discards
}

// Callbacks bounds what is pushed to trainers.
type Callbacks struct {
	// HTTP makes the requests; nil means one with a timeout of 2 min. Redirects
	// are never followed.
	HTTP *http.Client
	// Workers is how many are under way at once, and PerHost how many of them to
	// one host, so that a slow receiver does not hold up the others; 16 and 4.
	Workers, PerHost int
	// RetryFor is how long one is tried; 1 h. Between two tries it waits
	// MinBackoff (1 s), doubled each time up to MaxBackoff (60 s).
	RetryFor, MinBackoff, MaxBackoff time.Duration
}

// Coordinator is the rollout server. It is an http.Handler, and nodes in the
// same process call Claim, Renew, Report and Release.
type Coordinator struct {
	cfg     Config
	handler http.Handler
	nodes   nodes

	work    signal // sessions wait, or a node must stop some
	changed signal // there are events or results
	owed    signal // callbacks are owed
	stopped chan struct{}
	once    sync.Once
}

// New makes a coordinator. Its HTTP side works at once; leases and callbacks
// need Run.
func New(c Config) (*Coordinator, error) {
	if c.Store == nil || c.Blobs == nil {
		return nil, errors.New("coordinator: a store and blobs are needed")
	}
	switch c.UnknownFields {
	case "":
		c.UnknownFields = "error"
	case "error", "warn":
	default:
		return nil, polar.Invalid("rollout.unknown_fields", "%q is not known; known: error, warn", c.UnknownFields)
	}
	if c.Check == nil {
		c.Check = func(polar.Task) error { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	orElse(&c.Lease, 15*time.Second)
	orElse(&c.MaxBodyBytes, 32<<20)
	orElse(&c.Tombstone, 5*time.Minute)
	orElse(&c.ForgetNode, time.Hour)
	orElse(&c.Callbacks.Workers, 16)
	orElse(&c.Callbacks.PerHost, 4)
	orElse(&c.Callbacks.RetryFor, time.Hour)
	orElse(&c.Callbacks.MinBackoff, time.Second)
	orElse(&c.Callbacks.MaxBackoff, time.Minute)
	if c.Callbacks.HTTP == nil {
		c.Callbacks.HTTP = &http.Client{Timeout: 2 * time.Minute}
	}
	client := *c.Callbacks.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Callbacks.HTTP = &client
	co := &Coordinator{
		cfg: c, stopped: make(chan struct{}), nodes: nodes{lease: c.Lease, forget: c.ForgetNode},
	}
	co.handler = co.routes()
	return co, nil
}

func orElse[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

// Run expires leases and delivers callbacks until ctx ends. When it returns,
// waiting requests and event streams have been told to end.
func (c *Coordinator) Run(ctx context.Context) error {
	defer c.once.Do(func() { close(c.stopped) })
	all, both := errgroup.WithContext(ctx)
	all.Go(func() error { return c.expireLeases(both) })
	all.Go(func() error { return c.deliverAll(both) })
	if err := all.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

// signal wakes everyone who waits for a change. Take the channel before looking
// at what may change, and nothing is missed.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
