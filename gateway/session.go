package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"polar"
	"polar/llm"
)

// ErrStorage is wrapped by Close if calls of the session could not be stored:
// what it returns is not all that was sampled.
var ErrStorage = errors.New("calls could not be stored")

// ErrNoSession is wrapped where a session is not there.
var ErrNoSession = errors.New("no such session")

// ErrSessionExists is wrapped by Open for a key or a session that is taken.
var ErrSessionExists = errors.New("session exists")

// session is one attempt at a session for as long as it is recorded.
type session struct {
	rec    polar.Recording
	opened time.Time
	log    SessionLog

	recent recent
	// held is how long calls waited for paused inference.
	held stopwatch

	mu       sync.Mutex
	lastCall int
	inFlight map[*call]context.CancelCauseFunc
	// calls and tokens are what counts against the budget.
	calls, tokens int
	ended         bool
	// idle is closed when the session has ended and its last call has.
	idle   chan struct{}
	broken error

	closing sync.Mutex // held by the one who closes
	closed  bool
}

// Open begins to record a session and says where its harness finds the gateway.
func (g *Gateway) Open(_ context.Context, rec polar.Recording) (polar.Endpoint, error) {
	if !polar.ValidID(string(rec.Session)) {
		return polar.Endpoint{}, polar.Invalid("session_id", "%q is not an id", rec.Session)
	}
	if rec.Key == "" {
		rec.Key = "sk-polar-" + randomHex(16)
	}
	s := &session{rec: rec, opened: time.Now(), inFlight: map[*call]context.CancelCauseFunc{}, idle: make(chan struct{})}
	if err := g.sessions.reserve(s); err != nil {
		return polar.Endpoint{}, fmt.Errorf("open session %s: %w", rec.Session, err)
	}
	if err := s.openLog(g.cfg.OpenLog); err != nil {
		g.sessions.release(s)
		return polar.Endpoint{}, fmt.Errorf("open session %s: %w", rec.Session, err)
	}
	g.sessions.admit(s)
	return polar.Endpoint{URL: g.cfg.URL, Key: rec.Key, Model: g.cfg.Model, ContextWindow: g.window(rec.Budget)}, nil
}

// window is how many tokens a session may have in a call, by the engine or by
// its budget.
func (g *Gateway) window(b polar.Budget) int {
	window := 0
	if g.cfg.ContextWindow != nil {
		window = g.cfg.ContextWindow()
	}
	if bound := b.MaxContextTokens; bound > 0 && (window == 0 || bound < window) {
		window = bound
	}
	return window
}

// openLog goes on where the log left off, if something is in it.
func (s *session) openLog(open func(polar.SessionID, int) (SessionLog, error)) error {
	log, err := open(s.rec.Session, s.rec.Attempt)
	if err != nil {
		return err
	}
	calls, err := log.Calls()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	for _, c := range calls {
		s.lastCall++
		if c.Engine.Kind != "" {
			s.calls++
		}
		s.tokens += len(c.Sampled)
	}
	s.log = log
	return nil
}

// Close ends the session with that key: new calls are refused, those in flight
// are aborted and recorded, and all calls are returned. An error that wraps
// ErrStorage comes with the calls that are there. If ctx ends first the session
// stays ended and Close can be called again.
func (g *Gateway) Close(ctx context.Context, key string) ([]polar.Call, error) {
	s := g.sessions.get(key)
	if s == nil {
		return nil, fmt.Errorf("close session: %w", ErrNoSession)
	}
	s.end()
	select {
	case <-s.idle:
	case <-ctx.Done():
		return nil, fmt.Errorf("close session %s: wait for its calls: %w", s.rec.Session, context.Cause(ctx))
	}
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil, fmt.Errorf("close session %s: %w", s.rec.Session, ErrNoSession)
	}
	s.closed = true
	g.sessions.forget(s)
	calls, err := s.log.Calls()
	err = errors.Join(err, s.log.Close())
	if s.broken != nil {
		err = errors.Join(fmt.Errorf("%w: %w", ErrStorage, s.broken), err)
	}
	if err != nil {
		return calls, fmt.Errorf("close session %s: %w", s.rec.Session, err)
	}
	return calls, nil
}

// end refuses further calls and aborts those in flight.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	for _, cancel := range s.inFlight {
		cancel(llm.Errorf(llm.SessionEnded, "the session has ended"))
	}
	if len(s.inFlight) == 0 {
		close(s.idle)
	}
}

// enter takes a call in. The context it returns ends with the session, and when
// everybody who asked for the answer is gone.
func (s *session) enter(caller context.Context, c *call) (context.Context, *llm.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return nil, llm.Errorf(llm.SessionEnded, "the session has ended")
	case s.broken != nil:
		return nil, llm.Errorf(llm.StorageFailed, "calls of the session cannot be stored")
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	s.inFlight[c] = cancel
	c.cancel, c.turn.cancel = cancel, cancel
	c.forgetCaller = context.AfterFunc(caller, func() { c.turn.leave() })
	return ctx, nil
}

// nextID names a call. Calls are numbered as they are understood.
func (s *session) nextID() polar.CallID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCall++
	return polar.CallID(fmt.Sprintf("call-%06d", s.lastCall))
}

// leave lets a call go whose record is stored.
func (s *session) leave(c *call) {
	c.forgetCaller()
	s.recent.trim()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[c](nil)
	delete(s.inFlight, c)
	if s.ended && len(s.inFlight) == 0 {
		close(s.idle)
	}
}

// breakDown notes that a call could not be stored: the record has a hole, so
// no further call is to be paid for.
func (s *session) breakDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
	}
}

type prefixKey struct{}

// credential is what a caller shows: the key in its path, else in a header or
// parameter that some provider's client uses.
func credential(r *http.Request) string {
	if key, ok := r.Context().Value(prefixKey{}).(string); ok {
		return key
	}
	if key, ok := bearer(r); ok {
		return key
	}
	for _, header := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := r.Header.Get(header); key != "" {
			return key
		}
	}
	return r.URL.Query().Get("key")
}

func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "bearer")
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
