package kit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polar/harness"
	"polar/kit"
)

func TestKitRunsWhereverItIsMounted(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, toyPackage)
	made := install(t, f, toy)
	if diff := cmp.Diff(harness.Kit{Dir: filepath.Join(f.Dir, "toy", "1.2.3"), Version: "1.2.3", Program: "bin/toy"}, made); diff != "" {
		t.Fatalf("kit (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"install --save-exact @toys/toy@1.2.3" + npmFlags}, r.tries()); diff != "" {
		t.Errorf("npm (-want +got):\n%s", diff)
	}
	found, err := f.Find(toy, "")
	if err != nil || found != made {
		t.Errorf("found %+v, %v", found, err)
	}

	// Elsewhere, with nothing of its folder left at the old place, behind a link
	// and not to be written to.
	moved := filepath.Join(t.TempDir(), "a folder", "toy")
	if err := os.MkdirAll(filepath.Dir(moved), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made.Dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		t.Fatal(err)
	}
	readOnly(t, moved)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(moved, link); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{filepath.Join(link, "bin/toy"), filepath.Join(moved, "bin/toy")} {
		cmd := exec.CommandContext(t.Context(), program, "a  b", "", "$HOME")
		cmd.Env, cmd.Dir = []string{"HOME=/nowhere"}, t.TempDir()
		out, err := cmd.CombinedOutput()
		if want := "<a  b>\n<>\n<$HOME>\nhome=/nowhere\n"; err != nil || string(out) != want {
			t.Errorf("%s: %v, printed %q and not %q", program, err, out, want)
		}
	}
}

// readOnly takes the right to write from a folder and gives it back in the end.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	set := func(mode fs.FileMode) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return os.Chmod(path, mode)
		})
		if err != nil {
			t.Error(err)
		}
	}
	set(0o555)
	t.Cleanup(func() { set(0o755) })
}

func TestNodeIsSharedOnDisk(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, toyPackage)
	made := install(t, f, toy)
	second := toy
	second.Name = "second"
	other := install(t, f, second)
	a, err := os.Stat(filepath.Join(made.Dir, "node/bin/node"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.Stat(filepath.Join(other.Dir, "node/bin/node"))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(a, b) {
		t.Error("two kits have a Node each")
	}
	if data, _ := os.ReadFile(filepath.Join(r.dir, "node-installs")); string(data) != "node\n" {
		t.Errorf("Node was installed more than once: %q", data)
	}
}

func TestPinnedKitIsInstalledByItsLock(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, codexPackage())
	made := install(t, f, codex)
	if diff := cmp.Diff([]string{"ci" + npmFlags}, r.tries()); diff != "" {
		t.Errorf("npm (-want +got):\n%s", diff)
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		want, err := os.ReadFile(filepath.Join("locks/codex", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(made.Dir, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not that of the lock (%v)", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(made.Dir, "node")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a native program has Node beside it: %v", err)
	}
	install(t, f, codex)
	if n := len(r.tries()); n != 1 {
		t.Errorf("npm ran %d times for a kit that was there", n)
	}

	// One that another version of polar made is named, listed and replaced.
	edit(t, made.Dir, "lock", "0123")
	_, err := f.Find(codex, "")
	if want := "codex 0.166.0 was installed by another version of polar; run polar harness install codex"; err == nil || err.Error() != want {
		t.Errorf("found it with %v, want %s", err, want)
	}
	list, err := f.List(codex)
	if err != nil || len(list) != 1 || list[0].Fault != "was installed by another version of polar" {
		t.Errorf("listed %+v, %v", list, err)
	}
	install(t, f, codex)
	if list, err = f.List(codex); err != nil || len(list) != 1 || list[0].Fault != "" || list[0].Bytes == 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	edit(t, made.Dir, "platform", "plan9/mips")
	if _, err := f.Find(codex, "0.166.0"); err == nil || !strings.Contains(err.Error(), "was installed for plan9/mips") {
		t.Errorf("found it with %v", err)
	}
}

// edit changes a field of a kit's description.
func edit(t *testing.T, dir, field, value string) {
	t.Helper()
	name := filepath.Join(dir, "kit.json")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	m[field] = value
	if data, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestProgramThatRunsIsChosen(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the lock has no programs for this platform")
	}
	_, f := newRegistry(t, `
put node_modules/opencode-linux-x64/bin/opencode <<'EOF'
#!/bin/sh
echo illegal instruction >&2; exit 132
EOF
put node_modules/opencode-linux-x64-baseline/bin/opencode <<'EOF'
#!/bin/sh
echo 1.18.33
EOF
`)
	made := install(t, f, opencode)
	out, err := exec.CommandContext(t.Context(), filepath.Join(made.Dir, made.Program)).Output()
	if err != nil || string(out) != "1.18.33\n" {
		t.Errorf("printed %q, %v", out, err)
	}
	if _, err := os.Stat(filepath.Join(made.Dir, "node_modules/opencode-linux-x64")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the program that does not run was kept: %v", err)
	}
}

func TestNativeProgramOfAnotherVersionIsNotKept(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the lock has no programs for this platform")
	}
	_, f := newRegistry(t, `
put node_modules/opencode-linux-x64/bin/opencode <<'EOF'
#!/bin/sh
echo 1.18.34
EOF
`)
	_, err := f.Install(t.Context(), opencode, "", quiet)
	if want := `install opencode 1.18.33: bin/opencode --version says "1.18.34" and not 1.18.33`; fmt.Sprint(err) != want {
		t.Errorf("failed with %q, want %q", err, want)
	}
	leftNothing(t, f, opencode)
}

func TestFailedInstallations(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		packages    string
		fails       string // empty if it works in the end
		tries       int
		unreachable bool
	}{
		"a bad moment of the registry is waited out": {
			packages: `[ $tries -lt 3 ] && broken ECONNRESET "network aborted"` + "\n" + toyPackage, tries: 3,
		},
		"a registry that is not there is named": {
			packages: `broken EAI_AGAIN "network request failed"`, tries: 3, unreachable: true,
			fails: "install toy 1.2.3: the npm registry cannot be reached: request failed",
		},
		"a registry that is down is one that is not there": {
			packages: `broken E503 "503 Service Unavailable"`, tries: 3, unreachable: true,
			fails: "install toy 1.2.3: the npm registry cannot be reached: 503 Service Unavailable",
		},
		"a version that does not exist is asked for once": {
			packages: `broken ETARGET "notarget No matching version found"`, tries: 1,
			fails: "install toy 1.2.3: npm: No matching version found",
		},
		"a package with another hash is not taken": {
			packages: toyPackage + `broken EINTEGRITY "sha512-A integrity checksum failed"`, tries: 3,
			fails: "install toy 1.2.3: npm: sha512-A integrity checksum failed",
		},
		"a package of another version is not kept": {
			packages: strings.ReplaceAll(toyPackage, `"version": "1.2.3"`, `"version": "1.2.4"`), tries: 1,
			fails: `install toy 1.2.3: npm installed @toys/toy 1.2.4 and not 1.2.3`,
		},
		"a script may be wrong about the version of its package": {
			packages: strings.ReplaceAll(toyPackage, "TOY-1.2.3", "TOY-0.0.1"), tries: 1,
		},
		"a program that does not start is not kept": {
			packages: strings.ReplaceAll(toyPackage, "exit; }", "echo no such library >&2; exit 127; }"), tries: 1,
			fails: "install toy 1.2.3: bin/toy --version: exit status 127: no such library",
		},
		"a package without the command is not kept": {
			packages: strings.ReplaceAll(toyPackage, `{"toy":`, `{"doll":`), tries: 1,
			fails: "install toy 1.2.3: @toys/toy has no command toy",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r, f := newRegistry(t, c.packages)
			_, err := f.Install(t.Context(), toy, "", quiet)
			if got := fmt.Sprint(err); got != c.fails && (err != nil || c.fails != "") {
				t.Errorf("failed with %q, want %q", got, c.fails)
			}
			if errors.Is(err, kit.ErrUnreachable) != c.unreachable {
				t.Errorf("unreachable is %v: %v", !c.unreachable, err)
			}
			if n := len(r.tries()); n != c.tries {
				t.Errorf("npm ran %d times and not %d", n, c.tries)
			}
			if c.fails != "" {
				leftNothing(t, f, toy)
			}
		})
	}
}

// leftNothing fails the test if a kit or parts of one are in the folder.
func leftNothing(t *testing.T, f kit.Folder, p harness.Product) {
	t.Helper()
	if _, err := f.Find(p, ""); err == nil {
		t.Error("what was not installed is found")
	}
	entries, err := os.ReadDir(filepath.Join(f.Dir, p.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".lock" {
			t.Errorf("left %s", e.Name())
		}
	}
}

func TestInterruptedInstallationLeavesNothing(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, `exec 3>$world/alive; echo >$world/started; /bin/sleep 600; exit 1`)
	started := openFIFO(t, filepath.Join(r.dir, "started"), os.O_RDWR)
	alive := openFIFO(t, filepath.Join(r.dir, "alive"), os.O_RDONLY|syscall.O_NONBLOCK)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := f.Install(ctx, toy, "", quiet)
		ended <- err
	}()
	going := make(chan error, 1)
	go func() {
		_, err := started.Read(make([]byte, 1)) // until npm writes to it
		going <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("ended before it was interrupted: %v", err)
	case err := <-going:
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	leftNothing(t, f, toy)
	// The other end of alive is closed when npm and all that it started are gone.
	if err := alive.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := alive.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("npm left processes: %v", err)
	}
}

func openFIFO(t *testing.T, name string, mode int) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(name, mode, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestLeftoversOfAKilledInstallationAreNoKit(t *testing.T) {
	t.Parallel()
	_, f := newRegistry(t, toyPackage)
	for _, name := range []string{".installing-1/node_modules/x", "1.2.3/node_modules/x"} {
		if err := os.MkdirAll(filepath.Join(f.Dir, "toy", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Find(toy, ""); err == nil || !strings.Contains(err.Error(), "run polar harness install toy") {
		t.Errorf("found it with %v", err)
	}
	if list, err := f.List(toy); err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Fault, "is broken: ") {
		t.Errorf("listed %+v, %v", list, err)
	}
	install(t, f, toy)
	entries, err := os.ReadDir(filepath.Join(f.Dir, "toy"))
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestInstallationsAtOnceMakeOneKit(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, toyPackage)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := f.Install(t.Context(), toy, "", quiet); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(r.tries()); n != 1 {
		t.Errorf("npm ran %d times", n)
	}
}

func TestReinstallKeepsTheOldKitUntilTheNewOneIsThere(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, `[ $tries -gt 1 -a $tries -lt 5 ] && broken EIO "disk on fire"`+"\n"+toyPackage+`echo $tries >made`)
	made := install(t, f, toy)
	var notes []string
	_, err := f.Reinstall(t.Context(), toy, "1.2.3", func(line string) { notes = append(notes, line) })
	if err == nil || err.Error() != "install toy 1.2.3: npm: disk on fire" {
		t.Errorf("failed with %v", err)
	}
	if !slices.Contains(notes, "npm error code EIO") {
		t.Errorf("what npm said is not in the notes: %q", notes)
	}
	if found, err := f.Find(toy, ""); err != nil || found != made {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err = f.Reinstall(t.Context(), toy, "", quiet); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(made.Dir, "made")); err != nil || string(data) != "5\n" {
		t.Errorf("the kit is of try %q, %v; npm ran %d times", data, err, len(r.tries()))
	}
}

func TestListAndRemove(t *testing.T) {
	t.Parallel()
	_, f := newRegistry(t, `v=${3##*@}`+"\n"+toyPackage+`echo '{"version": "'$v'", "bin": {"toy": "./cli.js"}}' >node_modules/@toys/toy/package.json`)
	for _, version := range []string{"1.2.3", "1.10.0", "1.9.0"} {
		if _, err := f.Install(t.Context(), toy, version, quiet); err != nil {
			t.Fatal(err)
		}
	}
	list, err := f.List(toy)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range list {
		got = append(got, one.Version+" "+one.Runtime+one.Fault)
	}
	if diff := cmp.Diff([]string{"1.10.0 node 22.23.3", "1.9.0 node 22.23.3", "1.2.3 node 22.23.3"}, got); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if err := f.Remove(t.Context(), toy, "1.9.0"); err != nil {
		t.Error(err)
	}
	if _, err := f.Find(toy, "1.9.0"); err == nil {
		t.Error("what was removed is found")
	}
	if err := f.Remove(t.Context(), toy, "1.9.0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed it again with %v", err)
	}
	if list, err := f.List(toy); err != nil || len(list) != 2 {
		t.Errorf("listed %+v, %v", list, err)
	}
}

func TestOnlyExactVersions(t *testing.T) {
	t.Parallel()
	r, f := newRegistry(t, toyPackage)
	for _, version := range []string{"latest", "^1.2.3", "../toy/1.2.3", "1.2.3/..", "-g", "1.2.3 x"} {
		if _, err := f.Install(t.Context(), toy, version, quiet); err == nil || !strings.Contains(err.Error(), "is not a version") {
			t.Errorf("%s: installed with %v", version, err)
		}
		if _, err := f.Find(toy, version); err == nil || !strings.Contains(err.Error(), "is not a version") {
			t.Errorf("%s: found with %v", version, err)
		}
	}
	if n := len(r.tries()); n != 0 {
		t.Errorf("npm ran %d times", n)
	}
}

func TestWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	f := kit.Folder{Dir: t.TempDir()}
	_, err := f.Install(t.Context(), codex, "", quiet)
	if !errors.Is(err, kit.ErrUnreachable) || !strings.HasPrefix(err.Error(), "install codex 0.166.0: npm is not on the PATH; install Node.js") {
		t.Errorf("failed with %v", err)
	}
	leftNothing(t, f, codex)
}
