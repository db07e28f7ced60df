package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// shell runs commands, each in a process group of its own.
type shell struct {
	dir       string
	env       []string
	maxOutput int
	timeout   time.Duration
	// background are the process groups that outlived their command.
	background []int
}

// outputGrace is how long output is still read after a command ended or was
// killed, while something it started holds on to the pipe.
const outputGrace = 200 * time.Millisecond

// run runs one command and describes what came of it. An error means that the
// run as a whole is over.
func (s *shell) run(ctx context.Context, command string) (string, error) {
	timed, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	output := &clip{max: s.maxOutput}
	cmd := exec.CommandContext(timed, "bash", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputGrace
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start bash: %w", err)
	}
	err := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case timed.Err() != nil && !cmd.ProcessState.Success():
		return describe(fmt.Sprintf("killed after %s, the time limit of a command", s.timeout), output), nil
	}
	if syscall.Kill(-cmd.Process.Pid, 0) == nil {
		s.background = append(s.background, cmd.Process.Pid)
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("run bash: %w", err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return describe("killed by signal: "+status.Signal().String(), output), nil
	}
	return describe(fmt.Sprintf("exit code %d", cmd.ProcessState.ExitCode()), output), nil
}

// close ends what commands left in the background.
func (s *shell) close() {
	for _, group := range s.background {
		_ = syscall.Kill(-group, syscall.SIGKILL) // it may have ended by itself
	}
}

func describe(end string, output *clip) string {
	text := output.String()
	if text == "" {
		return end + "\n(no output)"
	}
	return end + "\n" + text
}

// clip keeps the head and the tail of what is written to it.
type clip struct {
	max int

	mu    sync.Mutex
	head  []byte
	tail  []byte // the last bytes after the head, at most twice what is shown
	total int
}

// Write never fails, so that a command is not stopped by how much it says.
func (c *clip) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	c.total += n
	if room := c.max/2 - len(c.head); room > 0 {
		took := min(room, len(p))
		c.head = append(c.head, p[:took]...)
		p = p[took:]
	}
	keep := c.max - c.max/2
	if len(p) > keep {
		p = p[len(p)-keep:]
	}
	c.tail = append(c.tail, p...)
	if len(c.tail) > 2*keep {
		c.tail = c.tail[:copy(c.tail, c.tail[len(c.tail)-keep:])]
	}
	return n, nil
}

// String is the text with a note where something was left out. Bytes that are
// not UTF-8 are replaced, since JSON has no place for them.
func (c *clip) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := c.tail
	if keep := c.max - c.max/2; len(tail) > keep {
		tail = tail[len(tail)-keep:]
	}
	text := string(c.head)
	if left := c.total - len(c.head) - len(tail); left > 0 {
		text += fmt.Sprintf("\n[%d bytes left out]\n", left)
	}
	return strings.ToValidUTF8(text+string(tail), "�")
}
