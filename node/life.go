package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"polar"
	"polar/harness"
	"polar/sandbox"
)

// life is a session on its way through the stages. Its steps run one after the
// other in one goroutine.
type life struct {
	node  *Node
	s     *session
	owned context.Context //nolint:containedctx // it is the session's, like everything here
	begun time.Time
	clock clock
	hints polar.Hints

	opened  opened
	sandbox sandbox.Sandbox
	fresh   sandbox.Sandbox // the one to evaluate in, if another
	plan    harness.Plan
	job     harness.Job
	key     string // of the open recording; empty if none is open
	calls   []polar.Call
	held    *pool // the slot the session holds
	ran     bool  // the harness was started
	code    *int  // the exit code of the harness
	used    harness.Used

	failure *polar.Failure
	result  polar.Result
}

func (n *Node) newLife(owned context.Context, s *session) *life {
	l := &life{
		node: n, s: s, owned: owned, begun: time.Now(),
		clock: clock{left: s.Task.Timeout.Duration()},
		result: polar.Result{
			Session: s.Session.ID, Task: s.Session.Task, Attempt: s.Session.Attempt, Node: n.cfg.ID,
			Metadata: maps.Clone(s.Task.Metadata), Artifacts: []polar.Artifact{},
			Trajectory: polar.Trajectory{Traces: []polar.Trace{}},
		},
	}
	if !s.Queued.IsZero() {
		l.begun = s.Queued
	}
	return l
}

// place says where a step belongs, who is to blame if it breaks and who if the
// session's time ends there.
type place struct {
	stage polar.Stage
	blame polar.Blame
	kind  string
	late  polar.Blame
}

// The places of a session's life.
var (
	inPlugins   = place{polar.StageInit, polar.BlameTask, polar.KindPlugin, polar.BlameTask}
	inSandbox   = place{polar.StageInit, polar.BlameService, polar.KindSandbox, polar.BlameService}
	inPrepare   = place{polar.StageInit, polar.BlameTask, polar.KindPrepare, polar.BlameTask}
	inSetup     = place{polar.StageInit, polar.BlameService, polar.KindPrepare, polar.BlameService}
	inRun       = place{polar.StageRun, polar.BlameService, polar.KindSandbox, polar.BlameAgent}
	inRecorder  = place{polar.StageRun, polar.BlameService, polar.KindStorage, polar.BlameService}
	inBuild     = place{polar.StageBuild, polar.BlameService, polar.KindInternal, polar.BlameService}
	inEvaluate  = place{polar.StageEvaluate, polar.BlameService, polar.KindEvaluator, polar.BlameTask}
	inArtifacts = place{polar.StageEvaluate, polar.BlameService, polar.KindStorage, polar.BlameService}
)

var (
	errTimeout      = errors.New("timeout_seconds ran out")
	errAgentTimeout = errors.New("metadata.agent_timeout ran out")
)

// step does one thing on the way, unless the session has already failed.
func (l *life) step(ctx context.Context, at place, took *float64, do func(context.Context) error) {
	if l.failure != nil || l.owned.Err() != nil {
		return
	}
	if ctx.Err() != nil {
		l.fail(at, context.Cause(ctx))
		return
	}
	begun := time.Now()
	err := guarded(ctx, do)
	if took != nil {
		*took += ms(time.Since(begun))
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	l.fail(at, err)
}

// always does one thing that must be done however the session went, in a time
// of its own.
func (l *life) always(at place, took *float64, do func(context.Context) error) {
	if l.owned.Err() != nil {
		return
	}
	ctx, cancel := l.cleanup()
	defer cancel()
	begun := time.Now()
	l.fail(at, guarded(ctx, do))
	if took != nil {
		*took += ms(time.Since(begun))
	}
}

// cleanup is a context that outlives the session's.
func (l *life) cleanup() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(l.owned), l.node.cfg.CleanupLimit)
}

// guarded turns a panic of a plug-in into a failure of the session alone.
func guarded(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicked{value: r, stack: debug.Stack()}
		}
	}()
	return do(ctx)
}

type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// timed does steps while the session's clock runs.
func (l *life) timed(ctx context.Context, took *float64, steps func(context.Context)) {
	if l.failure != nil || l.owned.Err() != nil {
		return
	}
	begun := time.Now()
	ctx, stop := l.clock.start(ctx, l.holding())
	steps(ctx)
	stop()
	*took = ms(time.Since(begun))
}

// enter goes on to the next stage: it waits for a slot there and then gives
// back the one it has. Waiting takes nothing off the session's time.
func (l *life) enter(ctx context.Context, p *pool, ph phase, status polar.Status, waited *float64) {
	if l.failure != nil || l.owned.Err() != nil {
		return
	}
	begun := time.Now()
	if ph == phaseInit {
		begun = l.begun
	}
	err := p.take(ctx)
	if waited != nil {
		*waited = ms(time.Since(begun))
	}
	if err != nil {
		stage := polar.StageInit
		if ph == phaseRun {
			stage = polar.StageRun
		}
		l.fail(place{stage, polar.BlameService, polar.KindInternal, polar.BlameService}, err)
		return
	}
	l.leave()
	l.held = p
	l.state(ph, status)
}

// enterAfterRun goes on to POSTRUN, also after a failure: what the harness did
// before is still worth having. A session that never ran needs no slot.
func (l *life) enterAfterRun(p *pool, waited *float64) {
	l.leave()
	if !l.ran || l.owned.Err() != nil {
		l.state(phasePostrun, polar.PostRun)
		return
	}
	l.state(phasePostrun, polar.PostRun)
	begun := time.Now()
	if p.take(l.owned) == nil {
		l.held = p
		l.state(phasePostrun, polar.Building)
	}
	*waited = ms(time.Since(begun))
}

func (l *life) leave() {
	if l.held != nil {
		l.held.give()
		l.held = nil
	}
}

func (l *life) state(ph phase, status polar.Status) {
	if l.owned.Err() == nil {
		l.node.move(l.s, ph, status)
	}
}

// free gives everything back that is still held.
func (l *life) free() {
	ctx, cancel := l.cleanup()
	defer cancel()
	for _, do := range []func(context.Context) error{l.closeRecorder, l.closeSandboxes} {
		if err := guarded(ctx, do); err != nil {
			l.s.log.Error("session left something behind", "error", err)
		}
	}
	l.leave()
}

// fail records why the session failed. The first failure counts, except that
// one of the service's own outweighs one of the agent's: nothing may be learnt
// from it. It also outweighs what a harness says of itself, since it says more.
func (l *life) fail(at place, err error) {
	if err == nil {
		return
	}
	f := failureOf(at, err)
	if p, ok := errors.AsType[*panicked](err); ok {
		l.s.log.Error("panic in a session", "stage", at.stage, "error", err, "stack", string(p.stack))
	}
	switch {
	case l.failure == nil:
		l.failure = f
	case f.Blame == polar.BlameService && (l.failure.Blame == polar.BlameAgent || l.failure.Kind == polar.KindHarness):
		l.failure = f
	case l.failure != f:
		l.s.log.Warn("session failed further", "stage", at.stage, "error", err)
	}
}

// failureOf says what an error means at its place.
func failureOf(at place, err error) *polar.Failure {
	f := &polar.Failure{Stage: at.stage, Blame: at.blame, Kind: at.kind, Message: err.Error()}
	var (
		known  *polar.Failure
		bad    *polar.FieldError
		caller *cancelled
		p      *panicked
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &caller):
		f.Blame, f.Kind = polar.BlameTask, caller.kind
	case errors.Is(err, errAgentTimeout):
		f.Blame, f.Kind = polar.BlameAgent, polar.KindAgentTimeout
	case errors.Is(err, errTimeout):
		f.Blame, f.Kind = at.late, polar.KindTimeout
	case errors.As(err, &p):
		f.Blame, f.Kind = polar.BlameService, polar.KindInternal
	case errors.As(err, &bad):
		f.Blame = polar.BlameTask
		if f.Kind != polar.KindPrepare {
			f.Kind = polar.KindPlugin
		}
	}
	return f
}

// newKey makes a credential that no other attempt ever had, so that a harness
// left over from a lost attempt cannot record into this one.
func newKey() string { return "sk-polar-" + rand.Text() }

// ms is a length of time as results have it. A clock that was set back gives 0.
func ms(d time.Duration) float64 { return float64(max(0, d)) / float64(time.Millisecond) }
