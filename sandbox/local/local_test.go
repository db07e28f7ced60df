package local_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"polar/sandbox"
	"polar/sandbox/local"
	"polar/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDriver(t *testing.T, c local.Config) sandbox.Driver {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "sandboxes")
	}
	c.Path = os.Getenv("PATH")
	if c.GraceSeconds == 0 {
		c.GraceSeconds = 0.2
	}
	d, err := local.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func start(t *testing.T, d sandbox.Driver, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	sb, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return sb
}

func bash(t *testing.T, sb sandbox.Sandbox, line string) string {
	t.Helper()
	var out bytes.Buffer
	code, err := sb.Exec(t.Context(), sandbox.Cmd{Args: sandbox.Bash(line), Stdout: &out, Stderr: &out})
	if err != nil || code != 0 {
		t.Fatalf("%s: code %d, error %v\n%s", line, code, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// alive reports whether a process of this machine runs; one that has ended and
// was not reaped does not.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		n, _ := strconv.Atoi(pid)
		return syscall.Kill(n, 0) == nil
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	state := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
	return state != "Z" && state != "X"
}

func needsProc(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("what has left its process group is only found on Linux")
	}
}

func TestContract(t *testing.T) {
	needsProc(t)
	d := newDriver(t, local.Config{})
	sandboxtest.Run(t, d, sandbox.Spec{ID: "contract"})
}

func TestNothingOfTheServersEnvironmentIsSeen(t *testing.T) {
	t.Setenv("POLAR_SECRET_OF_SERVER", "hidden")
	sb := start(t, newDriver(t, local.Config{}), sandbox.Spec{ID: "env"})
	got := bash(t, sb, "env | cut -d= -f1 | sort | tr '\\n' ' '")
	if want := "HOME LANG PATH POLAR_SANDBOX PWD SHLVL TERM TMPDIR _"; got != want {
		t.Errorf("variables %q, want %q", got, want)
	}
}

func TestClosingEndsDaemonsHoweverTheyHide(t *testing.T) {
	t.Parallel()
	needsProc(t)
	for name, line := range map[string]string{
		"in the background":                     "sleep 1000 & echo $! >$PIDS",
		"in a session of its own":               "setsid -f bash -c 'echo $$ >$PIDS; exec sleep 1000' </dev/null >/dev/null 2>&1",
		"forked twice, elsewhere":               "(setsid bash -c 'cd /; (echo $BASHPID >$PIDS; exec sleep 1000) & ' </dev/null >/dev/null 2>&1 &)",
		"without environment, in the sandbox":   "setsid -f env -i bash -c \"echo \\$\\$ >$PIDS; exec sleep 1000\" </dev/null >/dev/null 2>&1",
		"without environment, in the session":   "(cd / && env -i bash -c \"echo \\$\\$ >$PIDS; exec sleep 1000\" </dev/null >/dev/null 2>&1 &)",
		"child of a marked one, no environment": "setsid -f bash -c 'cd /; setsid env -i bash -c \"echo \\$\\$ >$PIDS; exec sleep 1000\"; true' </dev/null >/dev/null 2>&1",
		"ignoring signals":                      "setsid -f bash -c 'trap \"\" TERM HUP INT; echo $$ >$PIDS; while :; do sleep 1; done' </dev/null >/dev/null 2>&1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t, local.Config{})
			pids := filepath.Join(t.TempDir(), "pid")
			sb := start(t, d, sandbox.Spec{ID: "daemon", Env: map[string]string{"PIDS": pids}})
			bash(t, sb, line+"; for i in $(seq 400); do test -s $PIDS && exit 0; sleep 0.02; done; exit 1")
			raw, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			pid := strings.TrimSpace(string(raw))
			if !alive(t, pid) {
				t.Fatal("the daemon did not start")
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if alive(t, pid) {
				t.Error("the daemon still runs")
			}
		})
	}
}

func TestSweepEndsWhatAKilledServerLeft(t *testing.T) {
	t.Parallel()
	needsProc(t)
	dir := filepath.Join(t.TempDir(), "sandboxes")
	old := newDriver(t, local.Config{Dir: dir})
	sb := start(t, old, sandbox.Spec{ID: "left-1"})
	pid := bash(t, sb, "cd /; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!")
	other := newDriver(t, local.Config{})
	neighbour := bash(t, start(t, other, sandbox.Spec{ID: "left-1"}), "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!")

	fresh := newDriver(t, local.Config{Dir: dir})
	if err := fresh.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alive(t, pid) {
		t.Error("a process of the earlier server still runs")
	}
	if !alive(t, neighbour) {
		t.Error("a process of another server was ended")
	}
	if _, err := os.Stat(filepath.Join(dir, "left-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	start(t, fresh, sandbox.Spec{ID: "left-1"})
}

func TestAPersonLookingAroundIsSpared(t *testing.T) {
	t.Parallel()
	needsProc(t)
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("no script(1) to make a terminal with")
	}
	d := newDriver(t, local.Config{})
	sb := start(t, d, sandbox.Spec{ID: "visited"})
	cmd := exec.CommandContext(t.Context(), script, "-qfec", "cd "+sb.Paths().Home+"; echo $$; exec sleep 1000", "/dev/null")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(buf[:n]))
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !alive(t, pid) {
		t.Error("a process with a terminal was ended for its folder alone")
	}
	if n, err := strconv.Atoi(pid); err == nil {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
	_ = cmd.Wait()
}

func TestAFolderOfOtherThingsIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := local.New(local.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v", err)
	}
}

func TestWhatCannotBeHonouredIsRefusedByName(t *testing.T) {
	t.Parallel()
	host, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(host, "way-out")); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, local.Config{AllowedHostPaths: []string{host}})
	no, yes := false, true
	for field, spec := range map[string]sandbox.Spec{
		"runtime.image":          {Image: "debian"},
		"runtime.cpus":           {CPUs: 1},
		"runtime.memory_mb":      {MemoryMB: 1},
		"runtime.storage_mb":     {StorageMB: 1},
		"runtime.gpus":           {GPUs: 1},
		"runtime.network":        {Network: "host"},
		"runtime.kwargs.volumes": {Volumes: []string{"/a:/b"}},
		"runtime.allow_internet": {AllowInternet: &no},
		"runtime.workdir":        {Workdir: elsewhere},
	} {
		spec.ID = "x"
		var unsupported *sandbox.UnsupportedError
		err := d.Check(spec)
		if !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &unsupported) || unsupported.Field != field {
			t.Errorf("%s: error %v", field, err)
		}
		if _, err := d.Start(t.Context(), spec); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: started, error %v", field, err)
		}
	}
	for _, dir := range []string{"../out", "a/../../b", filepath.Join(host, "way-out"), filepath.Join(host, "not-there")} {
		if err := d.Check(sandbox.Spec{ID: "x", Workdir: dir}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("work folder %s: error %v", dir, err)
		}
	}
	if err := d.Check(sandbox.Spec{ID: "x", AllowInternet: &yes, Workdir: host}); err != nil {
		t.Error(err)
	}
}

func TestWorkFolders(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	d := newDriver(t, local.Config{AllowedHostPaths: []string{host}})
	inside := start(t, d, sandbox.Spec{ID: "inside", Workdir: "repo/sub"})
	if got := bash(t, inside, "pwd"); !strings.HasSuffix(got, "/inside/work/repo/sub") {
		t.Errorf("work folder %s", got)
	}
	outside := start(t, d, sandbox.Spec{ID: "outside", Workdir: host})
	bash(t, outside, "echo kept >file")
	if err := sandbox.WriteFile(t.Context(), outside, "up", 0o600, 2, strings.NewReader("up")); err != nil {
		t.Error(err)
	}
	if err := outside.Upload(t.Context(), t.TempDir(), strings.NewReader("")); err == nil {
		t.Error("an upload outside the sandbox was taken")
	}
	if err := outside.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "up"} {
		if _, err := os.Stat(filepath.Join(host, name)); err != nil {
			t.Errorf("the host's folder was not left alone: %v", err)
		}
	}
}

func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	sb := start(t, newDriver(t, local.Config{MaxUploadBytes: 10}), sandbox.Spec{ID: "bounded"})
	if err := sandbox.WriteFile(t.Context(), sb, "f", 0o600, 11, strings.NewReader("hello world")); err == nil {
		t.Error("too many bytes were taken")
	}
}

func TestIDsThatLeaveTheFolderAreRefused(t *testing.T) {
	t.Parallel()
	d := newDriver(t, local.Config{})
	for _, id := range []string{"", "..", "../x", "a/b", ".hidden"} {
		if _, err := d.Start(t.Context(), sandbox.Spec{ID: id}); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
}
