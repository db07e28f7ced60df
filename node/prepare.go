package node

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"polar"
	"polar/harness"
	"polar/sandbox"
)

// openPlugins makes what the task names. It was done before when the task was
// submitted, so it fails only if this node has other plug-ins.
func (l *life) openPlugins(context.Context) (err error) {
	if l.hints, err = l.s.Task.Hints(); err != nil {
		return err
	}
	if l.opened, err = l.node.cfg.Plugins.open(l.s.Task); err != nil {
		return err
	}
	if l.opened.driver == nil {
		return polar.Invalid("runtime.backend", "%q is not known here", l.opened.runtime.Backend)
	}
	l.job = harness.Job{
		Session: l.s.Session.ID, Task: l.s.Task.ID, Instruction: l.s.Task.Instruction, Agent: l.s.Task.Agent,
	}
	return nil
}

// startSandbox starts a sandbox with the mounts of the harness.
func (l *life) startSandbox(ctx context.Context) error {
	plan, err := l.opened.preset(l.job)
	if err != nil {
		return fieldError("agent", err)
	}
	l.sandbox, err = l.newSandbox(ctx, "", plan.Mounts)
	if err != nil {
		return err
	}
	l.job.Paths = l.sandbox.Paths()
	return nil
}

func (l *life) newSandbox(ctx context.Context, suffix string, mounts []sandbox.Mount) (sandbox.Sandbox, error) {
	id := fmt.Sprintf("%s-%d%s", l.s.Session.ID, l.s.Session.Attempt, suffix)
	sb, err := l.opened.driver.Start(ctx, specOf(id, l.opened.runtime, mounts))
	if _, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return nil, runtimeError(err)
	}
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	return sb, nil
}

func (l *life) prepareSandbox(ctx context.Context) error {
	return l.prepare(ctx, l.sandbox, "runtime.prepare", l.opened.runtime.Prepare)
}

// prepare does the actions of a task in order. Their output is kept in
// logs/prepare.log.
func (l *life) prepare(ctx context.Context, sb sandbox.Sandbox, field string, actions []polar.Prepare) error {
	if len(actions) == 0 {
		return nil
	}
	out, err := sandbox.NewOutput(l.node.cfg.Scratch, l.node.cfg.MaxLogBytes)
	if err != nil {
		return service(inPrepare.stage, polar.KindSandbox, err)
	}
	defer out.Close() //nolint:errcheck // what counts was saved
	for i, a := range actions {
		if err = l.prepareOne(ctx, sb, a, out); err != nil {
			err = fmt.Errorf("%s[%d]: %w", field, i, err)
			break
		}
	}
	if out.Len() > 0 {
		l.saveLog(out, sb, path.Join(harness.LogDir(sb.Paths()), "prepare.log"))
	}
	return err
}

func (l *life) prepareOne(ctx context.Context, sb sandbox.Sandbox, a polar.Prepare, out *sandbox.Output) error {
	switch a.Type {
	case "write_file":
		mode, err := fileMode(a.Mode)
		if err != nil {
			return err
		}
		return sandbox.WriteFile(ctx, sb, a.Target, mode, int64(len(a.Content)), strings.NewReader(a.Content))
	case "upload_file", "upload_dir":
		source, err := l.node.cfg.Plugins.hostPath("source", a.Source)
		if err != nil {
			return err
		}
		return upload(ctx, sb, source, a.Target, a.Type == "upload_dir")
	case "exec":
		return l.prepareExec(ctx, sb, a, out)
	}
	return fmt.Errorf("type %q is not known", a.Type)
}

// prepareExec runs a command, again if the action says so.
func (l *life) prepareExec(ctx context.Context, sb sandbox.Sandbox, a polar.Prepare, out *sandbox.Output) error {
	env := harness.Folders(l.jobIn(sb))
	maps.Copy(env, l.opened.runtime.Env)
	maps.Copy(env, a.Env)
	for try := 1; ; try++ {
		before := out.Len()
		code, err := sb.Exec(ctx, sandbox.Cmd{Args: sandbox.Bash(a.Command), Dir: a.Cwd, Env: env, Stdout: out, Stderr: out})
		switch {
		case err != nil && ctx.Err() == nil:
			return service(inPrepare.stage, polar.KindSandbox, err)
		case err != nil:
			return err
		case code == 0:
			return nil
		case try >= max(1, a.MaxAttempts):
			return fmt.Errorf("exit code %d%s", code, out.Excerpt(before))
		}
		wait(ctx, a.RetryBackoff.Duration())
	}
}

func service(stage polar.Stage, kind string, err error) error {
	return &polar.Failure{Stage: stage, Blame: polar.BlameService, Kind: kind, Message: err.Error()}
}

// jobIn is the job as seen from a sandbox.
func (l *life) jobIn(sb sandbox.Sandbox) harness.Job {
	j := l.job
	j.Paths = sb.Paths()
	return j
}

// saveLog keeps a log in the sandbox, from where it becomes an artifact. One
// that cannot be kept is no reason to fail a session.
func (l *life) saveLog(out *sandbox.Output, sb sandbox.Sandbox, name string) {
	ctx, cancel := l.cleanup()
	defer cancel()
	if err := out.Save(ctx, sb, name); err != nil {
		l.s.log.Warn("keep log", "error", err)
	}
}

// upload copies a file or the content of a folder of this machine.
func upload(ctx context.Context, sb sandbox.Sandbox, source, target string, folder bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if folder != info.IsDir() {
		return fmt.Errorf("%s: a folder given where a file is expected, or the other way round", source)
	}
	if !folder {
		f, err := os.Open(source)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it was only read
		return sandbox.WriteFile(ctx, sb, target, int64(info.Mode().Perm()), info.Size(), f)
	}
	return sandbox.Pipe(
		func(w io.Writer) error { return packFolder(ctx, source, w) },
		func(r io.Reader) error { return sb.Upload(ctx, target, r) },
	)
}

// packFolder writes what is in a folder as a tar stream. Links stay links; they
// are not followed.
func packFolder(ctx context.Context, dir string, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it was only read
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		return packOne(tw, root, name, e)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return tw.Close()
}

func packOne(tw *tar.Writer, root *os.Root, name string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	head := &tar.Header{Name: filepath.ToSlash(name), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	switch {
	case info.IsDir():
		head.Typeflag = tar.TypeDir
		head.Name += "/"
		return tw.WriteHeader(head)
	case info.Mode()&fs.ModeSymlink != 0:
		head.Typeflag = tar.TypeSymlink
		if head.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
		return tw.WriteHeader(head)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file, a folder nor a link", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	head.Typeflag, head.Size = tar.TypeReg, info.Size()
	if err := tw.WriteHeader(head); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
