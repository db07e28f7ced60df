package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"polar/sandbox"
)

// The codes a shell gives for a command that could not be run.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// drainDelay is how long output is still taken after a command has ended while
// something it left running holds the pipe open.
const drainDelay = 500 * time.Millisecond

// Exec runs a command as the leader of a process session of its own. What it
// leaves running in the background lives until the sandbox closes; what a
// cancelled one leaves is ended at once. A program that is not there is exit
// code 127, one that cannot be run 126, as in a shell.
func (s *place) Exec(ctx context.Context, c sandbox.Cmd) (int, error) {
	if len(c.Args) == 0 {
		return 0, errors.New("exec: no command")
	}
	marker, ok := s.begin()
	if !ok {
		return 0, fmt.Errorf("exec %s: %w", c.Args[0], errClosed)
	}
	defer s.busy.Done()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	out := s.newOutputs()
	stdout, err := out.pipe(c.Stdout)
	if err != nil {
		return 0, fmt.Errorf("exec %s: %w", c.Args[0], err)
	}
	stderr := stdout
	if !sameWriter(c.Stdout, c.Stderr) {
		if stderr, err = out.pipe(c.Stderr); err != nil {
			out.abandon()
			return 0, fmt.Errorf("exec %s: %w", c.Args[0], err)
		}
	}
	cmd := s.command(c, marker)
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if stderr != nil {
		cmd.Stderr = stderr
	}
	if err := cmd.Start(); err != nil {
		out.abandon()
		return refused(c, err)
	}
	out.start()
	s.track(cmd.Process.Pid, true)
	code, err := s.wait(ctx, cmd, marker)
	out.finish()
	return code, err
}

// command describes the process: only what is named here of the server's own
// surroundings reaches it.
func (s *place) command(c sandbox.Cmd, marker string) *exec.Cmd {
	dir := s.paths.Work
	switch {
	case filepath.IsAbs(c.Dir):
		dir = c.Dir
	case c.Dir != "":
		dir = filepath.Join(dir, c.Dir)
	}
	env := map[string]string{
		"PATH": s.driver.path, "HOME": s.paths.Home, "TMPDIR": s.tmp,
		"LANG": "C.UTF-8", "TERM": "dumb", "PWD": dir,
	}
	for _, over := range []map[string]string{s.env, c.Env} {
		maps.Copy(env, over)
	}
	env[markerName] = marker
	cmd := &exec.Cmd{
		Path:        lookPath(c.Args[0], env["PATH"], dir),
		Args:        c.Args,
		Dir:         dir,
		Env:         make([]string, 0, len(env)),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// lookPath finds a program as a shell in dir would. One that is not found is
// returned as a path that is not there.
func lookPath(name, path, dir string) string {
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return filepath.Join(dir, name)
}

// refused turns a command that could not be started into what a shell says of
// it; only the machine's own troubles stay errors.
func refused(c sandbox.Cmd, err error) (int, error) {
	code := codeNotExecutable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = codeNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EINVAL):
	default:
		return 0, fmt.Errorf("exec %s: %w", c.Args[0], err)
	}
	if c.Stderr != nil {
		fmt.Fprintf(c.Stderr, "%s: %v\n", c.Args[0], err)
	}
	return code, nil
}

// wait returns when the command has ended by itself or has been ended.
func (s *place) wait(ctx context.Context, cmd *exec.Cmd, marker string) (int, error) {
	session := cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var cause error
	select {
	case err := <-ended:
		s.track(session, syscall.Kill(-session, 0) == nil)
		return exitCode(cmd, err)
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-s.closing:
		cause = errClosed
	}
	_ = syscall.Kill(-session, syscall.SIGTERM)
	grace := time.NewTimer(s.driver.grace)
	defer grace.Stop()
	left := ended
	select {
	case <-left:
		left = nil
	case <-grace.C:
	}
	_ = syscall.Kill(-session, syscall.SIGKILL)
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer cancel()
	err := endAll(kill, trail{marker: marker, exact: true, sessions: map[int]bool{session: true}})
	if left != nil {
		select {
		case <-left:
		case <-kill.Done(): // a process the kernel will not let go of
		}
	}
	s.track(session, err != nil)
	if err != nil {
		return 0, errors.Join(cause, err)
	}
	return 0, cause
}

func exitCode(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("exec %s: %w", cmd.Args[0], err)
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

func sameWriter(a, b io.Writer) bool {
	defer func() { _ = recover() }() // writers of a type that cannot be compared are two
	return a == b
}

// outputs carries a command's output from its pipes to its writers.
type outputs struct {
	place *place
	pumps []*pump
}

type pump struct {
	r, w *os.File
	done chan struct{}

	mu sync.Mutex
	to io.Writer // nil once the command's caller has gone on
}

func (s *place) newOutputs() *outputs { return &outputs{place: s} }

// pipe returns the end a command writes to; nil for no writer.
func (o *outputs) pipe(to io.Writer) (*os.File, error) {
	if to == nil {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.pumps = append(o.pumps, &pump{r: r, w: w, to: to, done: make(chan struct{})})
	return w, nil
}

func (o *outputs) abandon() {
	for _, p := range o.pumps {
		_ = p.r.Close()
		_ = p.w.Close()
	}
}

func (o *outputs) start() {
	s := o.place
	for _, p := range o.pumps {
		_ = p.w.Close()
		s.mu.Lock()
		if s.drains == nil {
			s.drains = map[*os.File]bool{}
		}
		s.drains[p.r] = true
		s.mu.Unlock()
		s.pumps.Go(func() {
			p.run()
			s.mu.Lock()
			delete(s.drains, p.r)
			s.mu.Unlock()
			_ = p.r.Close()
		})
	}
}

// finish waits for the rest of the output. A process left running may hold the
// pipe open: its output is then drained and dropped, so that it does not die of
// a broken pipe.
func (o *outputs) finish() {
	if len(o.pumps) == 0 {
		return
	}
	late := time.NewTimer(drainDelay)
	defer late.Stop()
	for _, p := range o.pumps {
		select {
		case <-p.done:
		case <-late.C:
			late.Reset(0)
			p.mu.Lock()
			p.to = nil
			p.mu.Unlock()
		}
	}
}

func (p *pump) run() {
	defer close(p.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.r.Read(buf)
		if n > 0 {
			p.pass(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// pass hands output on. A writer that fails gets no more.
func (p *pump) pass(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to == nil {
		return
	}
	if _, err := p.to.Write(b); err != nil {
		p.to = nil
	}
}
