package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"polar"
	"polar/sandbox"
)

// Work is a plan carried out in a sandbox: set up, run, records kept. It is
// the one place where a plan is more than data.
type Work struct {
	Sandbox sandbox.Sandbox
	Job     Job
	Plan    Plan
	// Env is the task's own, over the plan's; later ones over earlier ones.
	Env []map[string]string
	// Scratch is the folder for output under way and MaxLogBytes the most that is
	// kept of one output.
	Scratch     string
	MaxLogBytes int64
	// Save keeps the output of a command as the log of that path. It must work
	// after the context of the work has ended.
	Save func(out *sandbox.Output, path string)
	// Stdout and Stderr, if set, get the output of the run as it comes.
	Stdout, Stderr io.Writer
}

// Used says what ran, for whoever reads the result.
type Used struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// SetUp writes the plan's files, runs its setup and finds out which version
// will run.
func (w Work) SetUp(ctx context.Context) (Used, error) {
	for _, f := range w.Plan.Files {
		mode := f.Mode
		if mode == 0 {
			mode = 0o644
		}
		if err := sandbox.WriteFile(ctx, w.Sandbox, f.Path, mode, int64(len(f.Content)), bytes.NewReader(f.Content)); err != nil {
			return Used{}, err
		}
	}
	quiet := w
	quiet.Stdout, quiet.Stderr = nil, nil
	for i, s := range w.Plan.Setup {
		ran, err := quiet.step(ctx, s, fmt.Sprintf("setup-%d.log", i))
		if err != nil {
			return Used{}, err
		}
		ran.close()
		if ran.code != 0 {
			return Used{}, notReady("set up harness: exit code %d%s", ran.code, ran.excerpt())
		}
	}
	return quiet.identify(ctx)
}

// notReady is a harness that cannot be started as the task wants it.
func notReady(format string, args ...any) error {
	return &polar.Failure{Stage: polar.StageInit, Blame: polar.BlameTask, Kind: polar.KindPrepare, Message: fmt.Sprintf(format, args...)}
}

func (w Work) identify(ctx context.Context) (Used, error) {
	r := w.Plan.Release
	used := Used{Name: w.Job.Agent.Harness, Version: r.Version}
	if len(r.Ask) > 0 {
		ran, err := w.step(ctx, Step{Args: r.Ask, Errors: "version.stderr.log"}, "version.log")
		if err != nil {
			return Used{}, err
		}
		ran.close()
		if ran.code != 0 {
			return Used{}, notReady("%s: exit code %d%s; name a program of the sandbox in agent.settings.command", strings.Join(r.Ask, " "), ran.code, ran.excerpt())
		}
		used.Version = ReadVersion(ran.out.Tail(sandbox.TailBytes))
	}
	if r.Expected != "" && used.Version != r.Expected {
		return Used{}, notReady("agent.settings.version is %s, %s is %q", r.Expected, r.Ask[0], used.Version)
	}
	used.Warning = r.Product.Warning(used.Version)
	return used, nil
}

// Run runs the harness to its end. The code is that of the last command that
// ended by itself, nil for none; the error is a *polar.Failure if the harness
// ended without having done its work.
func (w Work) Run(ctx context.Context) (code *int, err error) {
	for i, s := range w.Plan.Run {
		ran, err := w.step(ctx, s, fmt.Sprintf("run-%d.log", i))
		if err != nil {
			if ctx.Err() != nil {
				return code, context.Cause(ctx)
			}
			return code, err
		}
		code = &ran.code
		failure := w.judge(ran, i == len(w.Plan.Run)-1)
		ran.close()
		if failure != nil {
			return code, failure
		}
	}
	return code, nil
}

// judge says whether a step that has ended did its work.
func (w Work) judge(ran stepRun, last bool) *polar.Failure {
	if w.Plan.Judge != nil && (last || ran.code != 0) {
		end := Ending{Code: ran.code, Stdout: ran.out.Reader(), Stderr: strings.NewReader("")}
		if ran.err != ran.out {
			end.Stderr = ran.err.Reader()
		}
		return w.Plan.Judge(end)
	}
	if ran.code == 0 {
		return nil
	}
	return &polar.Failure{
		Stage: polar.StageRun, Blame: polar.BlameAgent, Kind: polar.KindExitCode,
		Message: fmt.Sprintf("the harness ended with exit code %d%s", ran.code, ran.excerpt()),
	}
}

// stepRun is a command that has ended, with what it printed.
type stepRun struct {
	code     int
	out, err *sandbox.Output // one and the same unless the step keeps them apart
}

func (r stepRun) excerpt() string {
	if text := r.err.Excerpt(0); text != "" {
		return text
	}
	return r.out.Excerpt(0)
}

func (r stepRun) close() {
	_ = r.out.Close() // what counts was saved
	if r.err != r.out {
		_ = r.err.Close()
	}
}

// step runs one command and keeps its output as a log. Without an error, what
// it returns must be closed.
func (w Work) step(ctx context.Context, s Step, log string) (ran stepRun, err error) {
	if ran.out, err = sandbox.NewOutput(w.Scratch, w.MaxLogBytes); err != nil {
		return ran, err
	}
	ran.err = ran.out
	if s.Errors != "" {
		if ran.err, err = sandbox.NewOutput(w.Scratch, w.MaxLogBytes); err != nil {
			_ = ran.out.Close()
			return ran, err
		}
	}
	env := Env(w.Job)
	maps.Copy(env, w.Plan.Env)
	for _, over := range append(slices.Clip(w.Env), s.Env) {
		maps.Copy(env, over)
	}
	cmd := sandbox.Cmd{Args: s.Args, Dir: s.Dir, Env: env, Stdout: ran.out, Stderr: ran.err}
	if w.Stdout != nil {
		cmd.Stdout = io.MultiWriter(w.Stdout, ran.out)
	}
	if w.Stderr != nil {
		cmd.Stderr = io.MultiWriter(w.Stderr, ran.err)
	}
	ran.code, err = w.Sandbox.Exec(ctx, cmd)
	if s.Log != "" {
		log = s.Log
	}
	dir := AgentLogDir(w.Sandbox.Paths())
	if ran.out.Len() > 0 || s.Log != "" {
		w.Save(ran.out, path.Join(dir, log))
	}
	if ran.err != ran.out && ran.err.Len() > 0 {
		w.Save(ran.err, path.Join(dir, s.Errors))
	}
	if err != nil {
		ran.close()
	}
	return ran, err
}

// KeepRecords puts what the harness wrote of its own work beside its logs.
func (w Work) KeepRecords(ctx context.Context) error {
	var errs []error
	for _, k := range w.Plan.Keep {
		err := sandbox.Pipe(
			func(tar io.Writer) error { return w.Sandbox.Download(ctx, k.Path, tar) },
			func(tar io.Reader) error {
				return w.Sandbox.Upload(ctx, path.Join(AgentLogDir(w.Sandbox.Paths()), k.Name), tar)
			},
		)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("keep %s: %w", k.Path, err))
		}
	}
	return errors.Join(errs...)
}
