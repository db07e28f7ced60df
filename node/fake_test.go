package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"polar"
	"polar/api"
	"polar/evaluate"
	"polar/harness"
	"polar/llm"
	"polar/node"
	"polar/sandbox"
	"polar/sandbox/local"
	"polar/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a rollout server with its queue in memory.
type server struct {
	mu      sync.Mutex
	queue   []api.Assignment
	cancels []api.Cancel
	lost    map[polar.SessionID]bool
	states  map[polar.SessionID][]polar.Status
	results []polar.Result
	// reject, if set, answers reports.
	reject  func(polar.Result) error
	renewed int
	lease   time.Duration
	wake    chan struct{}
}

func newServer(tasks ...polar.Task) *server {
	s := &server{
		lost: map[polar.SessionID]bool{}, states: map[polar.SessionID][]polar.Status{},
		lease: 15 * time.Second, wake: make(chan struct{}),
	}
	for _, t := range tasks {
		s.submit(t)
	}
	return s
}

func (s *server) submit(t polar.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range t.NumSamples {
		s.queue = append(s.queue, api.Assignment{
			Session: polar.Session{ID: polar.SessionID(fmt.Sprintf("%s-%d", t.ID, i)), Task: t.ID, Index: i, Attempt: 1},
			Task:    t, Queued: time.Now(), Lease: s.lease,
		})
	}
	s.broadcast()
}

// broadcast wakes who waits for a change. The lock is held.
func (s *server) broadcast() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *server) Claim(ctx context.Context, req api.ClaimRequest) (api.ClaimReply, error) {
	end := time.NewTimer(req.Wait)
	defer end.Stop()
	for {
		s.mu.Lock()
		n := min(req.Room, len(s.queue))
		reply := api.ClaimReply{Sessions: append([]api.Assignment(nil), s.queue[:n]...), Cancel: s.cancels}
		s.queue = s.queue[n:]
		s.cancels = nil
		wake := s.wake
		s.mu.Unlock()
		if len(reply.Sessions)+len(reply.Cancel) > 0 {
			return reply, nil
		}
		select {
		case <-wake:
		case <-end.C:
			return reply, nil
		case <-ctx.Done():
			return reply, ctx.Err()
		}
	}
}

func (s *server) Renew(_ context.Context, req api.RenewRequest) (api.RenewReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed++
	var reply api.RenewReply
	for _, r := range req.Renewals {
		if s.lost[r.Session] {
			reply.Lost = append(reply.Lost, r.Session)
			continue
		}
		if seen := s.states[r.Session]; len(seen) == 0 || seen[len(seen)-1] != r.Status {
			s.states[r.Session] = append(seen, r.Status)
		}
	}
	s.broadcast()
	return reply, nil
}

func (s *server) Report(_ context.Context, r polar.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reject != nil {
		if err := s.reject(r); err != nil {
			return err
		}
	}
	s.results = append(s.results, r)
	s.broadcast()
	return nil
}

// until waits for the condition, which is asked under the lock at each change
// and every few milliseconds, for what the server hears nothing of.
func (s *server) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		s.mu.Lock()
		done := ok()
		wake := s.wake
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-wake:
		case <-time.After(10 * time.Millisecond):
		case <-limit.C:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func (s *server) reached(id polar.SessionID, status polar.Status) func() bool {
	return func() bool {
		return slices.Contains(s.states[id], status)
	}
}

func (s *server) cancel(id polar.SessionID, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels = append(s.cancels, api.Cancel{Session: id, Attempt: 1, Kind: kind})
	s.broadcast()
}

// recorder hands out scripted calls.
type recorder struct {
	calls    []polar.Call
	openErr  error
	closeErr error

	mu     sync.Mutex
	opened []polar.Recording
	closed []string
}

func (r *recorder) Open(_ context.Context, rec polar.Recording) (polar.Endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.openErr != nil {
		return polar.Endpoint{}, r.openErr
	}
	r.opened = append(r.opened, rec)
	return polar.Endpoint{URL: "http://gateway", Key: rec.Key, Model: "served"}, nil
}

func (r *recorder) Close(_ context.Context, key string) ([]polar.Call, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = append(r.closed, key)
	return r.calls, r.closeErr
}

// blobs keeps files in memory.
type blobs struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (b *blobs) Put(_ context.Context, r io.Reader) (string, int64, error) {
	content, err := io.ReadAll(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	ref := fmt.Sprintf("blob-%d", len(b.files))
	b.files[ref] = content
	return ref, int64(len(content)), err
}

func (b *blobs) of(r polar.Result, path string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range r.Artifacts {
		if a.Path == path {
			return string(b.files[a.Blob])
		}
	}
	return "(no " + path + ")"
}

func goodCall(id string, at int) polar.Call {
	end := time.Unix(int64(at), 0)
	return polar.Call{
		ID: polar.CallID(id), End: end, Delivered: true,
		Prompt: polar.NewPrompt(nil, 0, llm.IDs{1, 2}), Sampled: []llm.Token{{ID: 7, Logprob: -1}, {ID: 8, Logprob: -2}},
		Usage: llm.Usage{PromptTokens: 2, CompletionTokens: 2, CachedTokens: 1},
	}
}

func badCall(id string, at int, kind llm.ErrorKind) polar.Call {
	return polar.Call{ID: polar.CallID(id), End: time.Unix(int64(at), 0), Error: &polar.CallError{Kind: kind, Message: "it broke"}}
}

// perCall is a builder of one trace a call that was answered.
func perCall(struct{}) (trajectory.Builder, error) {
	return func(r trajectory.Record) (polar.Trajectory, error) {
		var t polar.Trajectory
		for _, c := range r.Calls {
			if c.Error != nil {
				continue
			}
			trace := polar.Trace{ID: polar.TraceID(c.ID), PromptIDs: c.Prompt.IDs()}
			for _, tok := range c.Sampled {
				trace.ResponseIDs = append(trace.ResponseIDs, tok.ID)
				trace.LossMask = append(trace.LossMask, true)
			}
			t.Traces = append(t.Traces, trace)
		}
		return t, nil
	}, nil
}

type evaluatorFunc func(context.Context, evaluate.Case) (evaluate.Verdict, error)

func (f evaluatorFunc) Evaluate(ctx context.Context, c evaluate.Case) (evaluate.Verdict, error) {
	return f(ctx, c)
}

func plugins(tb testing.TB) node.Plugins {
	tb.Helper()
	driver, err := local.New(local.Config{
		Dir: filepath.Join(tb.TempDir(), "sandboxes"), Path: os.Getenv("PATH"), GraceSeconds: 0.05,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return node.Plugins{
		Harnesses: polar.Registry[harness.Preset]{
			"shell": polar.Opener(harness.Shell),
			"mini":  polar.Opener(harness.MiniWith("/opt/polar")),
		},
		Builders: polar.Registry[trajectory.Builder]{
			"per_request":    polar.Opener(perCall),
			"prefix_merging": polar.Opener(trajectory.PrefixMerging),
			"broken": func(json.RawMessage) (trajectory.Builder, error) {
				return func(trajectory.Record) (polar.Trajectory, error) { return polar.Trajectory{}, errors.New("no way") }, nil
			},
		},
		Evaluators: polar.Registry[evaluate.Evaluator]{
			"command":           polar.Opener(evaluate.Command),
			"session_completed": polar.Opener(evaluate.SessionCompleted),
			"panics": func(json.RawMessage) (evaluate.Evaluator, error) {
				return evaluatorFunc(func(context.Context, evaluate.Case) (evaluate.Verdict, error) { panic("boom") }), nil
			},
			"broken": func(json.RawMessage) (evaluate.Evaluator, error) {
				return evaluatorFunc(func(context.Context, evaluate.Case) (evaluate.Verdict, error) {
					return evaluate.Verdict{}, errors.New("judge is away")
				}), nil
			},
			"not_a_number": func(json.RawMessage) (evaluate.Evaluator, error) {
				return evaluatorFunc(func(context.Context, evaluate.Case) (evaluate.Verdict, error) {
					one := 1.0
					return evaluate.Verdict{Reward: &one, Components: map[string]float64{"c": math.NaN()}}, nil
				}), nil
			},
			"per_trace": polar.Opener(func(rewards struct {
				Rewards []float64 `json:"rewards"`
			},
			) (evaluate.Evaluator, error) {
				return evaluatorFunc(func(context.Context, evaluate.Case) (evaluate.Verdict, error) {
					half := 0.5
					return evaluate.Verdict{Reward: &half, TraceRewards: rewards.Rewards, Components: map[string]float64{"c": 1}}, nil
				}), nil
			}),
		},
		Drivers:        map[string]sandbox.Driver{"local": driver},
		DefaultRuntime: polar.Runtime{Backend: "local"},
	}
}

// shell is a task whose harness is a line for bash.
func shell(line string) polar.Task {
	return polar.Task{
		ID: "t", Instruction: "do it", NumSamples: 1, Timeout: 60, MaxAttempts: 1,
		Agent:   polar.Agent{Harness: "shell", CustomShell: &polar.CustomShell{Command: line}},
		Builder: polar.Strategy{Strategy: "per_request"},
	}
}

func evaluator(strategy, config string) *polar.Evaluate {
	e := &polar.Evaluate{Strategy: strategy}
	if config != "" {
		e.Config = json.RawMessage(config)
	}
	return e
}

// rig is a node with everything around it.
type rig struct {
	server   *server
	recorder *recorder
	blobs    *blobs
	node     *node.Node
	log      *bytes.Buffer
	stop     func() // ends the node and waits for it
}

// start runs a node on the server until the test ends.
func start(t *testing.T, s *server, r *recorder, change func(*node.Config)) *rig {
	t.Helper()
	g := &rig{server: s, recorder: r, blobs: &blobs{files: map[string][]byte{}}, log: &bytes.Buffer{}}
	cfg := node.Config{
		ID: "n1", Work: s, Recorder: r, Blobs: g.blobs, GatewayURL: "http://gateway",
		Log: slog.New(slog.NewTextHandler(&syncWriter{w: g.log}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	if cfg.Plugins.Harnesses == nil {
		cfg.Plugins = plugins(t)
	}
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.node = n
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(g.stop)
	return g
}

type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// one runs a single task and returns its result.
func one(t *testing.T, task polar.Task, r *recorder, change func(*node.Config)) (polar.Result, *rig) {
	t.Helper()
	s := newServer(task)
	g := start(t, s, r, change)
	s.until(t, "a result", func() bool { return len(s.results) > 0 })
	g.stop()
	return s.results[0], g
}
