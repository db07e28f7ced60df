// Package polartest runs polar in processes of its own, for tests that see it
// from outside only.
package polartest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Build builds polar from the tree that root is the top of, into dir.
func Build(root, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "polar")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/polar")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build polar: %w\n%s", err, out)
	}
	return binary, nil
}

// Start runs a binary until the test ends and returns the first group of each
// pattern in what it prints first. env is over the test's own. Its log is shown
// if the test fails.
func Start(t *testing.T, binary string, env, args []string, wants ...string) []string {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = DieWithParent()
	var log Buffer
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
		Stop(cmd, ended)
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

// Stop asks a process to end and, if it does not, ends it.
func Stop(cmd *exec.Cmd, ended <-chan struct{}) {
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

// Buffer is a buffer that a process writes to while it is read.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Eventually waits until check says that nothing is missing any more.
func Eventually(t *testing.T, check func() (missing string)) {
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
