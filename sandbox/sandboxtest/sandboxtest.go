// Package sandboxtest is the contract of a sandbox driver as a test. Each
// driver's own tests call Run.
package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"polar/sandbox"
)

// Run holds a driver to the contract. Each part starts a sandbox of its own
// from spec, whose ID is the beginning of theirs. The sandbox needs bash, the
// usual small tools and, for what is left running, Linux's /proc and setsid.
func Run(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	t.Helper()
	for i, part := range []struct {
		name string
		test func(*bench)
	}{
		{"a command's end is its exit code", exitCodes},
		{"a program that is not there is exit code 127", notThere},
		{"standard input is empty", emptyInput},
		{"only the named environment is seen", cleanEnvironment},
		{"home is empty and commands begin in the work folder", folders},
		{"output of both kinds comes in order and whole", outputOrder},
		{"a process left behind does not hold up its command", heldOutput},
		{"a process left behind can still write", lateOutput},
		{"cancelling ends children, grandchildren and daemons", cancelEndsAll},
		{"cancelling ends a command that ignores SIGTERM", cancelIsNotAsked},
		{"a cancelled command does not touch its neighbours", cancelIsNarrow},
		{"commands run side by side", concurrent},
		{"an upload comes back as it went in", roundTrip},
		{"a single file can be read and written", singleFile},
		{"a hostile tar does not leave its folder", hostileTar},
		{"a link planted in the sandbox is not written through", plantedLink},
		{"what is not there cannot be downloaded", missingDownload},
		{"mounts are found among the tools", mounts},
		{"closing twice is as good as once", closeTwice},
		{"closing ends a running command", closeWhileRunning},
		{"closing works after the session was cancelled", closeAfterCancel},
		{"nothing runs after closing", execAfterClose},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			own := spec
			own.ID = fmt.Sprintf("%s-%d", spec.ID, i)
			part.test(&bench{T: t, driver: d, spec: own})
		})
	}
}

type bench struct {
	*testing.T
	driver sandbox.Driver
	spec   sandbox.Spec
}

func (b *bench) start() sandbox.Sandbox {
	b.Helper()
	if err := b.driver.Check(b.spec); err != nil {
		b.Fatalf("check: %v", err)
	}
	sb, err := b.driver.Start(b.Context(), b.spec)
	if err != nil {
		b.Fatalf("start: %v", err)
	}
	b.Cleanup(func() {
		if err := sb.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	return sb
}

// bash runs a line that must work and returns its output.
func (b *bench) bash(sb sandbox.Sandbox, line string) string {
	b.Helper()
	var out bytes.Buffer
	code, err := sb.Exec(b.Context(), sandbox.Cmd{Args: sandbox.Bash(line), Stdout: &out, Stderr: &out})
	if err != nil || code != 0 {
		b.Fatalf("%s: code %d, error %v\n%s", line, code, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// alive reports whether a process of the sandbox runs. One that has ended and
// is not yet reaped does not.
func (b *bench) alive(sb sandbox.Sandbox, pid string) bool {
	b.Helper()
	state := b.bash(sb, "cut -d' ' -f3 /proc/"+pid+"/stat 2>/dev/null || true")
	return state != "" && state != "Z" && state != "X"
}

func exitCodes(b *bench) {
	sb := b.start()
	for line, want := range map[string]int{
		"true": 0, "false": 1, "exit 42": 42, "false | true": 1, "kill -9 $$": 137,
	} {
		code, err := sb.Exec(b.Context(), sandbox.Cmd{Args: sandbox.Bash(line)})
		if err != nil || code != want {
			b.Errorf("%q: code %d, error %v; want %d", line, code, err, want)
		}
	}
}

func notThere(b *bench) {
	code, err := b.start().Exec(b.Context(), sandbox.Cmd{Args: []string{"no-such-program-here"}})
	if err != nil || code != 127 {
		b.Errorf("code %d, error %v; want 127", code, err)
	}
}

func emptyInput(b *bench) {
	if got := b.bash(b.start(), "cat"); got != "" {
		b.Errorf("read %q", got)
	}
}

func cleanEnvironment(b *bench) {
	b.spec.Env = map[string]string{"OF_SPEC": "spec", "OF_BOTH": "spec"}
	sb := b.start()
	b.Logf("the test's own environment has %d variables", len(os.Environ()))
	var out bytes.Buffer
	_, err := sb.Exec(b.Context(), sandbox.Cmd{
		Args: []string{"env"}, Stdout: &out,
		Env: map[string]string{"OF_CMD": "a b\nc", "OF_BOTH": "cmd"},
	})
	if err != nil {
		b.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"OF_SPEC=spec\n", "OF_BOTH=cmd\n", "OF_CMD=a b\nc\n", "HOME=" + sb.Paths().Home + "\n"} {
		if !strings.Contains(got, want) {
			b.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "GOCACHE=") || strings.Contains(got, "GO_TEST") || strings.Contains(got, "POLAR_SECRET_OF_SERVER") {
		b.Errorf("the server's environment shows:\n%s", got)
	}
}

func folders(b *bench) {
	sb := b.start()
	p := sb.Paths()
	if got := b.bash(sb, "pwd"); got != p.Work {
		b.Errorf("work folder %q, want %q", got, p.Work)
	}
	if got := b.bash(sb, `ls -A "$HOME"`); got != "" {
		b.Errorf("home has %q", got)
	}
	if got := b.bash(sb, "cd "+p.Session+" && test -w . && echo yes"); got != "yes" {
		b.Errorf("the session folder cannot be written")
	}
	b.bash(sb, "mkdir -p sub")
	var out bytes.Buffer
	if _, err := sb.Exec(b.Context(), sandbox.Cmd{Args: []string{"pwd"}, Dir: "sub", Stdout: &out}); err != nil {
		b.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != p.Work+"/sub" {
		b.Errorf("a relative folder was %q", got)
	}
}

func outputOrder(b *bench) {
	got := b.bash(b.start(), "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done")
	want := "out1\nerr1\nout2\nerr2\nout3\nerr3\nout4\nerr4\nout5\nerr5"
	if got != want {
		b.Errorf("got\n%s\nwant\n%s", got, want)
	}
	sb := b.start2()
	var out, errs bytes.Buffer
	line := "head -c 300000 /dev/zero | tr '\\0' x; echo e >&2"
	if _, err := sb.Exec(b.Context(), sandbox.Cmd{Args: sandbox.Bash(line), Stdout: &out, Stderr: &errs}); err != nil {
		b.Fatal(err)
	}
	if out.Len() != 300000 || errs.String() != "e\n" {
		b.Errorf("%d bytes of output, errors %q", out.Len(), errs.String())
	}
}

// start2 is a second sandbox of the same part.
func (b *bench) start2() sandbox.Sandbox {
	b.Helper()
	other := *b
	other.spec.ID += "-b"
	return other.start()
}

func heldOutput(b *bench) {
	sb := b.start()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	code, err := sb.Exec(ctx, sandbox.Cmd{Args: sandbox.Bash("sleep 1000 & echo done; exit 3"), Stdout: &out, Stderr: &out})
	if err != nil || code != 3 || out.String() != "done\n" {
		b.Errorf("code %d, error %v, output %q", code, err, out.String())
	}
}

func lateOutput(b *bench) {
	sb := b.start()
	b.bash(sb, `(for i in 1 2 3 4 5 6 7 8; do sleep 0.2; echo still here; done; touch "$HOME/survived"; sleep 1000) & true`)
	b.bash(sb, `for i in $(seq 200); do test -e "$HOME/survived" && exit 0; sleep 0.05; done; exit 1`)
}

// tree starts a child, a grandchild and a daemon that has left its parents, its
// session and the output behind, and waits.
const tree = `
sleep 1000 & echo $! >$HOME/pids
bash -c 'sleep 1000 & echo $! >>$HOME/pids; wait' &
setsid bash -c 'cd /; echo $$ >>$HOME/pids; exec sleep 1000' </dev/null >/dev/null 2>&1 &
disown -a
while [ "$(wc -l <$HOME/pids)" -lt 3 ]; do sleep 0.02; done
`

var errCancelled = errors.New("cancelled by the test")

// cancelOnceReady runs line and cancels it when the file $HOME/ready is there.
func (b *bench) cancelOnceReady(sb sandbox.Sandbox, line string) {
	b.Helper()
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := sb.Exec(ctx, sandbox.Cmd{Args: sandbox.Bash(line)})
		ended <- err
	}()
	b.bash(sb, `for i in $(seq 600); do test -e "$HOME/ready" && exit 0; sleep 0.05; done; exit 1`)
	cancel(errCancelled)
	if err := <-ended; !errors.Is(err, errCancelled) {
		b.Errorf("error %v, want the cause of the context", err)
	}
}

func cancelEndsAll(b *bench) {
	sb := b.start()
	b.cancelOnceReady(sb, tree+"touch $HOME/ready; wait; sleep 1000")
	pids := strings.Fields(b.bash(sb, "cat $HOME/pids"))
	if len(pids) != 3 {
		b.Fatalf("pids %q", pids)
	}
	for i, pid := range pids {
		if b.alive(sb, pid) {
			b.Errorf("process %d still runs", i)
		}
	}
}

func cancelIsNotAsked(b *bench) {
	sb := b.start()
	b.cancelOnceReady(sb, `trap '' TERM INT HUP; echo $$ >$HOME/pid; touch $HOME/ready; while true; do sleep 1; done`)
	if b.alive(sb, b.bash(sb, "cat $HOME/pid")) {
		b.Error("it still runs")
	}
}

func cancelIsNarrow(b *bench) {
	sb := b.start()
	b.bash(sb, "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >$HOME/neighbour")
	b.cancelOnceReady(sb, "touch $HOME/ready; sleep 1000")
	if !b.alive(sb, b.bash(sb, "cat $HOME/neighbour")) {
		b.Error("another command's process was ended")
	}
}

func concurrent(b *bench) {
	sb := b.start()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var out bytes.Buffer
			// Each waits for all: they can only end if they run at the same time.
			line := fmt.Sprintf("touch $HOME/in%d; while [ $(ls $HOME | wc -l) -lt 8 ]; do sleep 0.02; done; echo %d", i, i)
			code, err := sb.Exec(b.Context(), sandbox.Cmd{Args: sandbox.Bash(line), Stdout: &out})
			if err != nil || code != 0 || out.String() != fmt.Sprintln(i) {
				b.Errorf("command %d: code %d, error %v, output %q", i, code, err, out.String())
			}
		})
	}
	wg.Wait()
}

func mounts(b *bench) {
	dir := b.TempDir()
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho tool runs\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	b.spec.Mounts = []sandbox.Mount{{Host: tool, Name: "my-tool"}, {Host: dir, Name: "folder"}}
	sb := b.start()
	for _, name := range []string{"my-tool", "folder/tool"} {
		if got := b.bash(sb, sb.Paths().Tools+"/"+name); got != "tool runs" {
			b.Errorf("%s said %q", name, got)
		}
	}
}

func closeTwice(b *bench) {
	sb := b.start()
	for range 2 {
		if err := sb.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func closeWhileRunning(b *bench) {
	sb := b.start()
	ended := make(chan error, 1)
	go func() {
		_, err := sb.Exec(b.Context(), sandbox.Cmd{Args: sandbox.Bash("touch $HOME/ready; sleep 1000")})
		ended <- err
	}()
	b.bash(sb, `for i in $(seq 600); do test -e "$HOME/ready" && exit 0; sleep 0.05; done; exit 1`)
	if err := sb.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := <-ended; err == nil {
		b.Error("the command ended as if nothing had happened")
	}
}

func closeAfterCancel(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	sb, err := b.driver.Start(ctx, b.spec)
	if err != nil {
		b.Fatal(err)
	}
	b.bash(sb, "mkdir -p ro/sub && touch ro/sub/f && chmod -R a-w ro")
	cancel()
	if _, err := sb.Exec(ctx, sandbox.Cmd{Args: sandbox.Bash("true")}); !errors.Is(err, context.Canceled) {
		b.Errorf("error %v, want the cause of the context", err)
	}
	if err := sb.Close(context.WithoutCancel(ctx)); err != nil {
		b.Fatal(err)
	}
}

func execAfterClose(b *bench) {
	sb := b.start()
	if err := sb.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := sb.Exec(b.Context(), sandbox.Cmd{Args: sandbox.Bash("true")}); err == nil {
		b.Error("a command ran in a closed sandbox")
	}
}
