package node

import (
	"context"
	"fmt"

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
	l.job.Key, l.job.Model, l.job.ContextWindow, l.job.BaseURL = key, at.Model, at.ContextWindow, at.URL
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

// work is the plan in the session's sandbox.
func (l *life) work() harness.Work {
	return harness.Work{
		Sandbox: l.sandbox, Job: l.job, Plan: l.plan, Env: []map[string]string{l.opened.runtime.Env, l.s.Task.Agent.Env},
		Scratch: l.node.cfg.Scratch, MaxLogBytes: l.node.cfg.MaxLogBytes,
		Save: func(out *sandbox.Output, name string) { l.saveLog(out, l.sandbox, name) },
	}
}

func (l *life) setUpHarness(ctx context.Context) (err error) {
	l.used, err = l.work().SetUp(ctx)
	if l.used.Warning != "" {
		l.s.log.Warn("harness", "warning", l.used.Warning)
	}
	return err
}

// runHarness runs the harness to its end, or to that of its time.
func (l *life) runHarness(ctx context.Context) (err error) {
	l.ran = true
	if limit := l.hints.AgentTimeout.Duration(); limit > 0 {
		var cancel func()
		ctx, cancel = deadline(ctx, limit, errAgentTimeout, l.holding())
		defer cancel()
	}
	l.code, err = l.work().Run(ctx)
	return err
}

// keepRecords keeps what the harness wrote of its own work. What cannot be kept
// is no reason to fail a session.
func (l *life) keepRecords(ctx context.Context) error {
	if !l.ran {
		return nil
	}
	if err := l.work().KeepRecords(ctx); err != nil {
		l.s.log.Warn("keep records of the harness", "error", err)
	}
	return nil
}
