package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"time"

	"polar"
	"polar/evaluate"
	"polar/harness"
	"polar/llm"
	"polar/sandbox"
	"polar/trajectory"
)

// build looks at the calls for whose fault a failure is, and makes the
// trajectory of them.
func (l *life) build(context.Context) error {
	if !l.ran {
		return nil
	}
	for _, c := range l.calls {
		l.result.Usage.Calls++
		l.result.Usage.PromptTokens += c.Usage.PromptTokens
		l.result.Usage.CompletionTokens += c.Usage.CompletionTokens
		l.result.Usage.CachedTokens += c.Usage.CachedTokens
	}
	l.settleBlame()
	if len(l.calls) == 0 {
		if l.failure == nil {
			l.fail(inRun, &polar.Failure{
				Stage: polar.StageRun, Blame: polar.BlameAgent, Kind: polar.KindNoCalls,
				Message: "the harness ended without a model call",
			})
		}
		return nil
	}
	t, err := l.opened.builder(trajectory.Record{Instruction: l.s.Task.Instruction, Calls: l.calls})
	if err != nil {
		return fmt.Errorf("build trajectory: %w", err)
	}
	if t.Traces == nil {
		t.Traces = []polar.Trace{}
	}
	l.result.Trajectory = t
	return nil
}

// settleBlame holds what the harness made of its end against the calls, which
// know better. If the last that it heard of the model was an error that is not
// its own, then whatever it did about it, and whatever it reported, is no fault
// of the agent's; if that error was its own (a prompt too long, a budget used
// up), it is the agent's, though the harness may have taken it for ours.
func (l *life) settleBlame() {
	last := lastHeard(l.calls)
	if last == nil || last.Error == nil || l.wasCancelled() {
		return
	}
	kind, ours := serviceErrors[last.Error.Kind]
	switch {
	case ours:
		l.fail(inRun, &polar.Failure{
			Stage: polar.StageRun, Blame: polar.BlameService, Kind: kind,
			Message: "the last model call failed: " + last.Error.Message,
		})
	case agentErrors[last.Error.Kind] && kindOf(l.failure) == polar.KindHarness:
		l.failure.Blame = polar.BlameAgent
	}
}

// lastHeard is the last call whose answer or error reached the harness. Calls
// that were cut off with the session it never heard of.
func lastHeard(calls []polar.Call) (last *polar.Call) {
	for i := range calls {
		c := &calls[i]
		heard := c.Delivered || c.Error != nil && c.Error.Kind != llm.SessionEnded
		if heard && (last == nil || c.End.After(last.End)) {
			last = c
		}
	}
	return last
}

// agentErrors are the errors of a call that the agent brought on itself.
var agentErrors = map[llm.ErrorKind]bool{
	llm.BadRequest: true, llm.NotFound: true, llm.TooLarge: true, llm.ContextOverflow: true, llm.OverBudget: true,
}

// serviceErrors are the errors of a call that are no fault of the agent's.
var serviceErrors = map[llm.ErrorKind]string{
	llm.EngineFailed:  polar.KindEngine,
	llm.EngineTimeout: polar.KindEngine,
	llm.RateLimited:   polar.KindEngine,
	llm.StorageFailed: polar.KindStorage,
	"internal":        polar.KindInternal, // a fault of the gateway itself
}

func (l *life) wasCancelled() bool {
	return l.failure != nil && (l.failure.Kind == polar.KindCancelled || l.failure.Kind == polar.KindEarlyStop)
}

// score lets the evaluator judge the session, if there is anything to judge and
// time left for it.
func (l *life) score(wanted context.Context) {
	if l.opened.evaluator == nil || !l.ran || l.owned.Err() != nil || l.wasCancelled() ||
		l.failure != nil && (l.failure.Blame != polar.BlameAgent || l.clock.left <= 0) {
		return
	}
	l.state(phasePostrun, polar.Evaluating)
	l.result.Trajectory.Status = l.status()
	ctx, stop := l.clock.start(wanted, l.holding())
	defer stop()
	begun := time.Now()
	var verdict evaluate.Verdict
	err := guarded(ctx, func(ctx context.Context) (err error) {
		verdict, err = l.judge(ctx)
		return err
	})
	l.result.Timing.Eval = ms(time.Since(begun))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		l.fail(inEvaluate, err)
		return
	}
	l.fail(inEvaluate, reward(&l.result.Trajectory, verdict))
}

// judge calls the evaluator, in a fresh sandbox if the task asks for one.
func (l *life) judge(ctx context.Context) (evaluate.Verdict, error) {
	sb := l.sandbox
	if l.s.Task.Evaluator.RefreshRuntime {
		if err := l.refresh(ctx); err != nil {
			return evaluate.Verdict{}, err
		}
		sb = l.fresh
	}
	env := harness.Folders(l.jobIn(sb))
	maps.Copy(env, l.opened.runtime.Env)
	maps.Copy(env, l.s.Task.Evaluator.Env)
	return l.opened.evaluator.Evaluate(ctx, evaluate.Case{
		Session: l.s.Session.ID, Task: l.s.Task.ID, Trajectory: l.result.Trajectory, Sandbox: sb, Env: env,
	})
}

// refresh starts the sandbox to evaluate in. Of the first one it has the
// artifacts, so that what the agent handed in can be judged.
func (l *life) refresh(ctx context.Context) (err error) {
	begun := time.Now()
	l.fresh, err = l.newSandbox(ctx, "-eval", nil)
	l.result.Timing.EvalContainerStart = ms(time.Since(begun))
	if err != nil {
		return service(polar.StageEvaluate, polar.KindSandbox, err)
	}
	from, to := path.Join(l.sandbox.Paths().Session, "artifacts"), path.Join(l.fresh.Paths().Session, "artifacts")
	if err := copyFolder(ctx, l.sandbox, from, l.fresh, to); err != nil {
		return service(polar.StageEvaluate, polar.KindSandbox, err)
	}
	field, actions := "runtime.eval_prepare", l.opened.runtime.EvalPrepare
	if len(actions) == 0 {
		field, actions = "runtime.prepare", l.opened.runtime.Prepare
	}
	begun = time.Now()
	err = l.prepare(ctx, l.fresh, field, actions)
	l.result.Timing.EvalPrepare = ms(time.Since(begun))
	var known *polar.Failure
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &polar.Failure{Stage: polar.StageEvaluate, Blame: polar.BlameTask, Kind: polar.KindPrepare, Message: err.Error()}
}

// reward puts a verdict onto the traces.
func reward(t *polar.Trajectory, v evaluate.Verdict) error {
	rewards := slices.AppendSeq(slices.Clone(v.TraceRewards), maps.Values(v.Components))
	if v.Reward != nil {
		rewards = append(rewards, *v.Reward)
	}
	for _, r := range rewards {
		if math.IsNaN(r) || math.IsInf(r, 0) {
			return fmt.Errorf("the evaluator gave the reward %v", r)
		}
	}
	if err := trajectory.Reward(t, trajectory.Rewards{Session: v.Reward, Traces: v.TraceRewards, Components: v.Components}); err != nil {
		return fmt.Errorf("the evaluator gave %w", err)
	}
	t.SetMeta("evaluation", v)
	return nil
}

// tearDown closes the sandboxes. If that does not work the session is none the
// worse for it; it is tried again at the very end.
func (l *life) tearDown(took *float64) {
	if l.owned.Err() != nil {
		return
	}
	ctx, cancel := l.cleanup()
	defer cancel()
	begun := time.Now()
	if err := guarded(ctx, l.closeSandboxes); err != nil {
		l.s.log.Error("close sandbox", "error", err)
		l.note("sandbox_error", err.Error())
	}
	*took = ms(time.Since(begun))
}

// closeSandboxes ends all that the session started.
func (l *life) closeSandboxes(ctx context.Context) error {
	var errs []error
	for _, sb := range []*sandbox.Sandbox{&l.fresh, &l.sandbox} {
		if *sb == nil {
			continue
		}
		if err := (*sb).Close(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		*sb = nil
	}
	return errors.Join(errs...)
}

// status is the end that the session has come to so far.
func (l *life) status() polar.Status {
	if l.failure == nil {
		return polar.Completed
	}
	switch l.failure.Kind {
	case polar.KindCancelled, polar.KindEarlyStop:
		return polar.Cancelled
	case polar.KindTimeout, polar.KindAgentTimeout:
		return polar.TimedOut
	}
	return polar.Errored
}

// finish writes the result up.
func (l *life) finish() polar.Result {
	r := &l.result
	r.Status, r.Failure = l.status(), l.failure
	t := &r.Trajectory
	t.Status = r.Status
	if l.failure != nil {
		r.Error = l.failure.Message
		t.Error = l.failure.Message
	}
	l.describe(t)
	if l.failure != nil && l.failure.Blame != polar.BlameAgent {
		untrain(t, l.failure)
	}
	if r.Metadata == nil {
		r.Metadata = metadata{}
	}
	r.Timing.E2E = ms(time.Since(l.begun))
	return *r
}

// untrain makes sure that nothing is learnt from a session that did not end by
// the agent's doing.
func untrain(t *polar.Trajectory, f *polar.Failure) {
	for i := range t.Traces {
		trace := &t.Traces[i]
		trace.Reward, trace.RewardComponents = nil, nil
		trajectory.Exclude(trace, string(f.Blame)+"_failure", f.Kind)
	}
}

// agentResult is how the harness itself ended.
type agentResult struct {
	Status        polar.Status `json:"status"`
	ReturnCode    *int         `json:"return_code"`
	TimeoutSource string       `json:"timeout_source,omitempty"`
}

// describe puts what a trainer sorts by into the trajectory's metadata.
func (l *life) describe(t *polar.Trajectory) {
	t.SetMeta("session_id", l.s.Session.ID)
	t.SetMeta("task_id", l.s.Task.ID)
	t.SetMeta("builder", l.s.Task.Builder.Strategy)
	t.SetMeta("record_count", len(l.calls))
	t.SetMeta("trace_count", len(t.Traces))
	if len(l.s.Task.Metadata) > 0 {
		t.SetMeta("task_metadata", l.s.Task.Metadata)
	}
	maps.Copy(t.Metadata, l.hints.OnTrajectory)
	a := agentResult{Status: l.status(), ReturnCode: l.code}
	switch kindOf(l.failure) {
	case polar.KindAgentTimeout:
		a.TimeoutSource = "agent"
	case polar.KindTimeout:
		a.TimeoutSource = "session"
	}
	t.SetMeta("agent_result", a)
	if l.used.Name != "" {
		t.SetMeta("harness", l.used)
	}
}
