// Package gateway is the endpoint that harnesses talk to. It knows which
// session a call belongs to, imposes what the session's task says, passes the
// call to an engine and records every token before the harness sees the end of
// the answer.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"polar"
	"polar/llm"
)

// Protocol speaks one provider's wire format to harnesses.
type Protocol interface {
	// Wire is the format's name in records.
	Wire() string
	// Routes lists the mux patterns of the format's model calls.
	Routes() []string
	// Decode reads a call, whose body has been read already. What it returns
	// may alias the body. Its error is an *llm.Error with the field to blame.
	Decode(r *http.Request, body []byte) (llm.Request, error)
	// Reply writes the answer, streamed if req asked for that. Once it has
	// written a byte it reports an error of events on the stream, in the
	// format's own way. It returns nil only if the harness was given the whole
	// answer.
	Reply(w http.ResponseWriter, req llm.Request, events iter.Seq2[llm.Event, error]) error
	// Fail writes err as a whole response in the format's error shape.
	Fail(w http.ResponseWriter, err *llm.Error)
}

// ModelLister is a Protocol with routes that say which models there are.
type ModelLister interface {
	ModelRoutes() []string
	Models(w http.ResponseWriter, names []string)
}

// Outsider is a Protocol with routes that are answered without a session and
// without the engine, by mux pattern.
type Outsider interface {
	Asides() map[string]http.HandlerFunc
}

// Backend answers calls with token ids and logprobs. The last event of an
// answer has a Finish; an error is the last thing yielded. Ending ctx or the
// range stops the engine's work.
type Backend interface {
	Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error]
}

// SessionLog keeps the calls of one attempt at a session. Its methods may be
// called at the same time.
type SessionLog interface {
	// Append stores the call and returns when it is durable. It sets
	// call.Prompt from promptIDs.
	Append(ctx context.Context, call *polar.Call, promptIDs llm.IDs) error
	// SetDelivered notes whether the stored call's answer reached the harness,
	// and how many repetitions of the call were given it. It need not be durable
	// on return.
	SetDelivered(id polar.CallID, delivered bool, retries int) error
	// Calls returns all calls stored so far, in order of storing.
	Calls() ([]polar.Call, error)
	Close() error
}

// Config says what a gateway serves.
type Config struct {
	Protocols []Protocol
	Backend   Backend
	// OpenLog opens the log of an attempt at a session, with what is in it.
	OpenLog func(polar.SessionID, int) (SessionLog, error)
	// URL is the gateway's own root as harnesses reach it.
	URL string
	// Model is imposed on every call; empty leaves the harness's.
	Model string
	// ContextWindow says how many tokens the engine takes; 0 if that is not
	// known, and so if it is nil.
	ContextWindow func() int
	// Models lists what is served where no Model is imposed; nil means that
	// nothing is listed then.
	Models func(context.Context) ([]string, error)
	// ControlToken opens the control routes; empty leaves them open, which is
	// for loopback only.
	ControlToken string
	// MaxBodyBytes bounds the body of a call; 0 means 64 MiB.
	MaxBodyBytes int64
	// RememberEnded is how many keys of ended sessions answer 403 and not 401;
	// 0 means 10,000.
	RememberEnded int
	// KeepAlive is how long a stream may be silent before it shows a sign of
	// life; 0 means 5 s.
	KeepAlive time.Duration
	// LateSystem says what becomes of instructions in the middle of a
	// conversation; empty means LateSystemKeep.
	LateSystem string
	// AllowImplicit lets a key that is not known begin a session of its own, as
	// long as fewer than MaxImplicit are open; 0 means 1,000.
	AllowImplicit bool
	MaxImplicit   int
	// Engine is what the status of inference names.
	Engine llm.Engine
	// Build makes a trajectory of calls; nil means there is no such route.
	Build func(strategy string, config json.RawMessage, calls []polar.Call) (polar.Trajectory, error)
	Log   *slog.Logger
}

// What becomes of a system or developer message after the first other one: it
// stays, or it becomes a user message in its place, for chat templates that
// refuse it there.
const (
	LateSystemKeep = "keep"
	LateSystemUser = "user"
)

const (
	defaultMaxBodyBytes  = 64 << 20
	defaultRememberEnded = 10_000
	defaultMaxImplicit   = 1000
	defaultKeepAlive     = 5 * time.Second
)

// Gateway serves model calls and the control routes of one node.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	sessions *sessions
	implicit implicit
	gate     *gate
	// seed makes fingerprints of requests that nobody outside can foresee.
	seed maphash.Seed
	// calls has the routes of harnesses, all has the control routes too.
	calls, all *http.ServeMux
	inFlight   atomic.Int64
	served     atomic.Int64
}

// New makes a gateway. It holds no resource until a session is opened.
func New(c Config) (*Gateway, error) {
	switch {
	case len(c.Protocols) == 0:
		return nil, errors.New("gateway: no protocol given")
	case c.Backend == nil:
		return nil, errors.New("gateway: no backend given")
	case c.OpenLog == nil:
		return nil, errors.New("gateway: no way to open a log given")
	case c.Log == nil:
		return nil, errors.New("gateway: no logger given")
	}
	switch c.LateSystem {
	case "", LateSystemKeep, LateSystemUser:
	default:
		return nil, fmt.Errorf("gateway: late system messages: %q is not known; known: %s, %s", c.LateSystem, LateSystemKeep, LateSystemUser)
	}
	if c.MaxBodyBytes <= 0 {
		c.MaxBodyBytes = defaultMaxBodyBytes
	}
	if c.RememberEnded <= 0 {
		c.RememberEnded = defaultRememberEnded
	}
	if c.MaxImplicit <= 0 {
		c.MaxImplicit = defaultMaxImplicit
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = defaultKeepAlive
	}
	c.URL = strings.TrimRight(c.URL, "/")
	g := &Gateway{
		cfg: c, log: c.Log, sessions: newSessions(c.RememberEnded), gate: newGate(), seed: maphash.MakeSeed(),
		calls: http.NewServeMux(), all: http.NewServeMux(),
	}
	for _, mux := range []*http.ServeMux{g.calls, g.all} {
		for _, p := range c.Protocols {
			g.routeProtocol(mux, p)
		}
		mux.HandleFunc("/", notFound)
	}
	g.routeControl(g.all)
	return g, nil
}

// routeProtocol registers what a protocol serves.
func (g *Gateway) routeProtocol(mux *http.ServeMux, p Protocol) {
	handle := func(routes []string, serve http.HandlerFunc) {
		for _, route := range routes {
			mux.Handle(route, g.guard(p, serve))
		}
	}
	handle(p.Routes(), func(w http.ResponseWriter, r *http.Request) { g.call(w, r, p) })
	if lister, ok := p.(ModelLister); ok {
		handle(lister.ModelRoutes(), func(w http.ResponseWriter, r *http.Request) { g.models(w, r, p, lister) })
	}
	if counter, ok := p.(TokenCounter); ok {
		handle(counter.CountRoutes(), func(w http.ResponseWriter, r *http.Request) { g.countRoute(w, r, p, counter) })
	}
	if outsider, ok := p.(Outsider); ok {
		for route, serve := range outsider.Asides() {
			handle([]string{route}, serve)
		}
	}
}

// ServeHTTP serves everything. A path below /s/{key} is a model call of the
// session with that key and nothing else.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A mux would answer a doubled slash with a redirect, which clients of model
	// calls do not follow.
	if strings.Contains(r.URL.Path, "//") {
		r = withPath(r, path.Clean(r.URL.Path))
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/s/"); ok {
		key, below, _ := strings.Cut(rest, "/")
		r = withPath(r.WithContext(context.WithValue(r.Context(), prefixKey{}, key)), "/"+below)
		g.calls.ServeHTTP(w, r)
		return
	}
	g.all.ServeHTTP(w, r)
}

func withPath(r *http.Request, path string) *http.Request {
	r2, u := *r, *r.URL
	u.Path, u.RawPath = path, ""
	r2.URL = &u
	return &r2
}

// Stats are what a gateway is doing.
type Stats struct {
	Sessions int   `json:"sessions"`
	InFlight int64 `json:"inflight"`
	// Calls counts the model calls since the start, failed ones too.
	Calls int64 `json:"calls"`
}

// Stats says what the gateway is doing now.
func (g *Gateway) Stats() Stats {
	return Stats{Sessions: g.sessions.len(), InFlight: g.inFlight.Load(), Calls: g.served.Load()}
}

// models answers which models there are to a harness that has a session.
func (g *Gateway) models(w http.ResponseWriter, r *http.Request, p Protocol, lister ModelLister) {
	if _, err := g.session(r); err != nil {
		p.Fail(w, err)
		return
	}
	var names []string
	switch {
	case g.cfg.Model != "":
		names = []string{g.cfg.Model}
	case g.cfg.Models != nil:
		var err error
		if names, err = g.cfg.Models(r.Context()); err != nil {
			p.Fail(w, g.explain(err))
			return
		}
	}
	lister.Models(w, names)
}

// guard keeps a panic of one handler from ending the others. p says how to
// tell the caller; nil is for control routes.
func (g *Gateway) guard(p Protocol, serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &watched{ResponseWriter: w}
		defer func() {
			fault := recover()
			if fault == nil {
				return
			}
			if fault == http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
				panic(fault)
			}
			g.log.Error("handler panicked", "path", r.Pattern, "panic", fault, "stack", string(debug.Stack()))
			switch {
			case seen.wrote:
				panic(http.ErrAbortHandler) // the client is not to take it for the end
			case p != nil:
				p.Fail(seen, internalError())
			default:
				writeError(seen, http.StatusInternalServerError, "internal error", "")
			}
		}()
		serve(seen, r)
	})
}

func internalError() *llm.Error {
	return &llm.Error{Status: http.StatusInternalServerError, Message: "internal error"}
}

// watched knows whether anything was written.
type watched struct {
	http.ResponseWriter
	wrote bool
}

func (w *watched) WriteHeader(status int) {
	w.wrote = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find what it needs.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
