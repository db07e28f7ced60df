package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"

	"polar"
	"polar/harness"
	"polar/sandbox"
)

// openRecorder gets the session an endpoint of its own at the gateway. It comes
// before the plan, whose files hold the endpoint's address, key and model.
func (l *life) openRecorder(ctx context.Context) error {
	task := l.s.Task
	sampling := task.Sampling
	if base := l.hints.SeedBase; base != nil && sampling.Seed == nil {
		seed := *base + int64(l.s.Session.Index)
		sampling.Seed = &seed
	}
	key := newKey()
	at, err := l.node.cfg.Recorder.Open(ctx, polar.Recording{
		Session: l.s.Session.ID, Task: task.ID, Attempt: l.s.Session.Attempt, Key: key,
		Sampling: sampling, Budget: task.Budget, Version: l.hints.PolicyVersion,
	})
	if err != nil {
		return service(polar.StageInit, polar.KindStorage, fmt.Errorf("open recorder: %w", err))
	}
	if at.Key != "" {
		key = at.Key
	}
	l.key = key
	l.job.Key, l.job.Model, l.job.BaseURL = key, at.Model, at.URL
	if at.URL == "" {
		l.job.BaseURL = l.node.cfg.GatewayURL
	}
	return nil
}

// closeRecorder takes the session's calls. From here on its key is worthless.
func (l *life) closeRecorder(ctx context.Context) error {
	if l.key == "" {
		return nil
	}
	calls, err := l.node.cfg.Recorder.Close(ctx, l.key)
	l.calls = calls
	if err == nil || ctx.Err() == nil { // one that ran out of time is tried again at the end
		l.key = ""
	}
	if err != nil {
		return fmt.Errorf("close recorder: %w", err)
	}
	return nil
}

func (l *life) planHarness(context.Context) (err error) {
	l.plan, err = l.opened.preset(l.job)
	return fieldError("agent", err)
}

// setUpHarness writes the plan's files and runs its setup.
func (l *life) setUpHarness(ctx context.Context) error {
	for _, f := range l.plan.Files {
		mode := f.Mode
		if mode == 0 {
			mode = 0o644
		}
		if err := sandbox.WriteFile(ctx, l.sandbox, f.Path, mode, int64(len(f.Content)), bytes.NewReader(f.Content)); err != nil {
			return err
		}
	}
	for i, s := range l.plan.Setup {
		code, tail, err := l.harnessStep(ctx, s, fmt.Sprintf("setup-%d.log", i))
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("set up harness: exit code %d%s", code, tail)
		}
	}
	return nil
}

// runHarness runs the harness to its end, or to that of its time.
func (l *life) runHarness(ctx context.Context) error {
	l.ran = true
	if limit := l.hints.AgentTimeout.Duration(); limit > 0 {
		var cancel func()
		ctx, cancel = deadline(ctx, limit, errAgentTimeout, l.holding())
		defer cancel()
	}
	for i, s := range l.plan.Run {
		code, tail, err := l.harnessStep(ctx, s, fmt.Sprintf("run-%d.log", i))
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		l.code = &code
		if code != 0 {
			return &polar.Failure{
				Stage: polar.StageRun, Blame: polar.BlameAgent, Kind: polar.KindExitCode,
				Message: fmt.Sprintf("the harness ended with exit code %d%s", code, tail),
			}
		}
	}
	return nil
}

// harnessStep runs one command of the harness and keeps its output as a log.
func (l *life) harnessStep(ctx context.Context, s harness.Step, log string) (code int, tail string, err error) {
	out, err := sandbox.NewOutput(l.node.cfg.Scratch, l.node.cfg.MaxLogBytes)
	if err != nil {
		return 0, "", err
	}
	defer out.Close() //nolint:errcheck // what counts was saved
	env := harness.Env(l.job)
	for _, over := range []map[string]string{l.opened.runtime.Env, l.s.Task.Agent.Env, l.plan.Env, s.Env} {
		maps.Copy(env, over)
	}
	code, err = l.sandbox.Exec(ctx, sandbox.Cmd{Args: s.Args, Dir: s.Dir, Env: env, Stdout: out, Stderr: out})
	if s.Log != "" {
		log = s.Log
	}
	if out.Len() > 0 || s.Log != "" {
		l.saveLog(out, l.sandbox, path.Join(harness.AgentLogDir(l.sandbox.Paths()), log))
	}
	return code, tailOf(out, 0), err
}
