package clitest_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startPolar runs polar until the test ends and returns the first group of
// each pattern in what it prints first. Its log is shown if the test fails.
func startPolar(t *testing.T, env, args []string, wants ...string) []string {
	t.Helper()
	cmd := exec.Command(*polarBinary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = dieWithParent()
	var log lockedBuffer
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		stop(cmd, ended)
		if t.Failed() {
			t.Logf("log of polar %q:\n%s", args, log.String())
		}
	})
	found := make(chan []string, 1)
	go func() {
		defer close(ended)
		found <- matchLines(stdout, wants)
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait() // killed, or its log says why
	}()
	got := <-found
	if got == nil {
		t.Fatalf("polar %q did not start:\n%s", args, log.String())
	}
	return got
}

// matchLines reads until each pattern has matched a line; nil means that one
// did not.
func matchLines(r io.Reader, patterns []string) []string {
	lines := bufio.NewScanner(r)
	out := []string{}
	for len(out) < len(patterns) && lines.Scan() {
		if m := regexp.MustCompile(patterns[len(out)]).FindStringSubmatch(lines.Text()); m != nil {
			out = append(out, m[1])
		}
	}
	if len(out) < len(patterns) {
		return nil
	}
	return out
}

// stop asks a process to end and, if it does not, ends it.
func stop(cmd *exec.Cmd, ended <-chan struct{}) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		_ = cmd.Process.Kill()
		<-ended
	}
}

// lockedBuffer is a buffer that a process writes to while it is read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// eventually waits until check says that nothing is missing any more.
func eventually(t *testing.T, check func() (missing string)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(15 * time.Second)
	defer deadline.Stop()
	for {
		missing := check()
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after 15 s: %s", missing)
		}
	}
}
