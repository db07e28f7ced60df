package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

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
		ran, err := l.harnessStep(ctx, s, fmt.Sprintf("setup-%d.log", i))
		if err != nil {
			return err
		}
		ran.close()
		if ran.code != 0 {
			return notReady("set up harness: exit code %d%s", ran.code, ran.tail())
		}
	}
	return l.identify(ctx)
}

// notReady is a harness that cannot be started as the task wants it.
func notReady(format string, args ...any) error {
	return &polar.Failure{Stage: polar.StageInit, Blame: polar.BlameTask, Kind: polar.KindPrepare, Message: fmt.Sprintf(format, args...)}
}

// identify finds out which version of the harness will run.
func (l *life) identify(ctx context.Context) error {
	r := l.plan.Release
	used := usedHarness{Name: l.s.Task.Agent.Harness, Version: r.Version}
	if len(r.Ask) > 0 {
		ran, err := l.harnessStep(ctx, harness.Step{Args: r.Ask}, "version.log")
		if err != nil {
			return err
		}
		ran.close()
		if ran.code != 0 {
			return notReady("%s: exit code %d%s; name a program of the sandbox in agent.settings.command", strings.Join(r.Ask, " "), ran.code, ran.tail())
		}
		used.Version = harness.ReadVersion(ran.out.Tail(sandbox.TailBytes))
	}
	if r.Expected != "" && used.Version != r.Expected {
		return notReady("agent.settings.version is %s, %s is %q", r.Expected, r.Ask[0], used.Version)
	}
	if used.Warning = r.Product.Warning(used.Version); used.Warning != "" {
		l.s.log.Warn("harness", "warning", used.Warning)
	}
	l.used = used
	return nil
}

// usedHarness says what ran, for whoever reads the result.
type usedHarness struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Warning string `json:"warning,omitempty"`
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
		ran, err := l.harnessStep(ctx, s, fmt.Sprintf("run-%d.log", i))
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		l.code = &ran.code
		err = l.judgeStep(ran, i == len(l.plan.Run)-1)
		ran.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeStep says whether a step that has ended did its work.
func (l *life) judgeStep(ran stepRun, last bool) error {
	if l.plan.Judge != nil && (last || ran.code != 0) {
		end := harness.Ending{Code: ran.code, Stdout: ran.out.Reader(), Stderr: strings.NewReader("")}
		if ran.err != ran.out {
			end.Stderr = ran.err.Reader()
		}
		if f := l.plan.Judge(end); f != nil {
			return f
		}
		return nil
	}
	if ran.code == 0 {
		return nil
	}
	return &polar.Failure{
		Stage: polar.StageRun, Blame: polar.BlameAgent, Kind: polar.KindExitCode,
		Message: fmt.Sprintf("the harness ended with exit code %d%s", ran.code, ran.tail()),
	}
}

// stepRun is a command of the harness that has ended, with what it printed.
type stepRun struct {
	code     int
	out, err *sandbox.Output // one and the same unless the step keeps them apart
}

func (r stepRun) tail() string {
	if tail := tailOf(r.err, 0); tail != "" {
		return tail
	}
	return tailOf(r.out, 0)
}

func (r stepRun) close() {
	_ = r.out.Close() // what counts was saved
	if r.err != r.out {
		_ = r.err.Close()
	}
}

// harnessStep runs one command of the harness and keeps its output as a log.
// Without an error, what it returns must be closed.
func (l *life) harnessStep(ctx context.Context, s harness.Step, log string) (ran stepRun, err error) {
	if ran.out, err = sandbox.NewOutput(l.node.cfg.Scratch, l.node.cfg.MaxLogBytes); err != nil {
		return ran, err
	}
	ran.err = ran.out
	if s.Errors != "" {
		if ran.err, err = sandbox.NewOutput(l.node.cfg.Scratch, l.node.cfg.MaxLogBytes); err != nil {
			_ = ran.out.Close()
			return ran, err
		}
	}
	env := harness.Env(l.job)
	for _, over := range []map[string]string{l.plan.Env, l.opened.runtime.Env, l.s.Task.Agent.Env, s.Env} {
		maps.Copy(env, over)
	}
	ran.code, err = l.sandbox.Exec(ctx, sandbox.Cmd{Args: s.Args, Dir: s.Dir, Env: env, Stdout: ran.out, Stderr: ran.err})
	if s.Log != "" {
		log = s.Log
	}
	dir := harness.AgentLogDir(l.sandbox.Paths())
	if ran.out.Len() > 0 || s.Log != "" {
		l.saveLog(ran.out, l.sandbox, path.Join(dir, log))
	}
	if ran.err != ran.out && ran.err.Len() > 0 {
		l.saveLog(ran.err, l.sandbox, path.Join(dir, s.Errors))
	}
	if err != nil {
		ran.close()
	}
	return ran, err
}

// keepRecords puts what the harness wrote of its own work beside its logs. What
// cannot be kept is no reason to fail a session.
func (l *life) keepRecords(ctx context.Context) error {
	if !l.ran {
		return nil
	}
	for _, k := range l.plan.Keep {
		to := path.Join(harness.AgentLogDir(l.sandbox.Paths()), k.Name)
		err := copyFolder(ctx, l.sandbox, k.Path, l.sandbox, to)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.s.log.Warn("keep records of the harness", "path", k.Path, "error", err)
		}
	}
	return nil
}
