package kit

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar/harness"
)

func pythonProducts() []harness.Product {
	return []harness.Product{harness.MiniSWEAgent().Product, harness.OpenHandsSDK().Product}
}

func TestPythonLocksPinEveryPackage(t *testing.T) {
	t.Parallel()
	requirement := regexp.MustCompile(`^([a-z0-9-]+)==(\S+)(?: ; .+?)?((?: --hash=sha256:[0-9a-f]{64})+)$`)
	for _, p := range pythonProducts() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			text := strings.ReplaceAll(string(lockFor(p, p.Newest).files["requirements.txt"]), " \\\n   ", "")
			pinned := map[string]string{}
			for line := range strings.Lines(text) {
				m := requirement.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
				if m == nil {
					t.Fatalf("%q is not a package in one version with hashes", line)
				}
				if pinned[m[1]] != "" {
					t.Errorf("%s is there twice", m[1])
				}
				pinned[m[1]] = m[2]
			}
			for _, name := range append([]string{p.Package}, pythonRecipes[p.Package].also...) {
				if pinned[name] != p.Newest {
					t.Errorf("%s is pinned to %q, want %s", name, pinned[name], p.Newest)
				}
			}
			if got := lockFor(p, "0.0.1").hash; got != "" {
				t.Errorf("a version that is not pinned has the lock %s", got)
			}
		})
	}
}

// fakePython writes a program that answers the probe.
func fakePython(t *testing.T, answer string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+answer+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPythonIsChosen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []string // of those that are named python3.12
		want    string   // the version that is taken
		err     string
	}{
		"the first that will do": {answers: []string{`echo '{"version": "3.12.4"}'`, `echo '{"version": "3.12.9"}'`}, want: "3.12.4"},
		"a shim without a version": {
			answers: []string{`echo 'no version is set' >&2; exit 127`, `echo '{"version": "3.12.9"}'`}, want: "3.12.9",
		},
		"another version by that name": {answers: []string{`echo '{"version": "3.11.7"}'`}, err: "no Python 3.12 or 3.13 with pip"},
		"something that is no Python":  {answers: []string{`echo hello`}, err: "no Python 3.12 or 3.13 with pip"},
		"one without pip":              {answers: []string{`echo '{"version": "3.12.4", "lacks": ["pip"]}'`}, err: "lacks pip"},
		"none":                         {err: "put one on the PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var paths []string
			for _, answer := range tt.answers {
				paths = append(paths, fakePython(t, answer))
			}
			got, err := choosePython(t.Context(), func(name string) []string {
				if name == "python3.12" {
					return paths
				}
				return nil
			})
			if tt.err == "" && (err != nil || got.Version != tt.want) {
				t.Errorf("got %q, %v, want %s", got.Version, err, tt.want)
			}
			if tt.err != "" && (!errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want an error of ErrUnreachable with %q", err, tt.err)
			}
		})
	}
}

func TestPipIsRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		out, want string
		network   bool
	}{
		"no registry": {
			out: "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('x')': /simple/a/\n" +
				"ERROR: Could not find a version that satisfies the requirement a==1 (from versions: none)\nERROR: No matching distribution found for a==1\n",
			want: "Could not find a version that satisfies the requirement a==1 (from versions: none)", network: true,
		},
		"no such version": {
			out:  "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1, 2)\n",
			want: "Could not find a version that satisfies the requirement a==9 (from versions: 1, 2)",
		},
		"another file": {
			out:  "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    a==1\n",
			want: "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
		},
		"a crash":   {out: "Traceback\nValueError: x\n", want: "ValueError: x"},
		"a silence": {want: "it said nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := pipComplaint(tt.out); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
			if got := pipNetwork.MatchString(tt.out); got != tt.network {
				t.Errorf("a failure of the network: %v, want %v", got, tt.network)
			}
		})
	}
}

func TestModulesAreCopied(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for _, name := range []string{
		"os.py", "json/decoder.py", "json/tests/x.py", "test/support.py", "__pycache__/os.pyc", "site-packages/pip/x.py", "sitecustomize.py",
		"lib-dynload/_ssl.so", "lib-dynload/_testcapi.so", "config-3.12/libpython.a",
	} {
		write(t, filepath.Join(from, name), name)
	}
	if err := os.Symlink("os.py", filepath.Join(from, "link.py")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(from, "broken.py")); err != nil {
		t.Fatal(err)
	}
	if err := copyModules(from, to, filepath.Join(from, "lib-dynload")); err != nil {
		t.Fatal(err)
	}
	if err := copyModules(filepath.Join(from, "lib-dynload"), filepath.Join(to, "dynload"), ""); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, pattern := range []string{"*.py", "*/*"} {
		names, err := filepath.Glob(filepath.Join(to, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(to, name)
			if err != nil {
				t.Fatal(err)
			}
			got[rel] = string(data)
		}
	}
	want := map[string]string{"os.py": "os.py", "link.py": "os.py", "json/decoder.py": "json/decoder.py", "dynload/_ssl.so": "lib-dynload/_ssl.so"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):", diff)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestPythonCommand runs the command of a kit whose Python is a script, from
// another place than where it was written.
func TestPythonCommand(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		module, before, want string
	}{
		"a module":                {module: "some.module", want: "-I -B -m some.module it's here;KIT/python/lib;"},
		"a Python":                {want: "-I -B it's here;KIT/python/lib;"},
		"libraries of the caller": {before: "/a:/b", want: "-I -B it's here;KIT/python/lib:/a:/b;/a:/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := filepath.Join(t.TempDir(), "kit")
			write(t, filepath.Join(made, "python/bin/python3.12"), "#!/bin/sh\necho \"$*;$LD_LIBRARY_PATH;$POLAR_KIT_LD_LIBRARY_PATH\"\n")
			if err := (interpreter{Version: "3.12.1"}).writeCommand(made, "bin/run", tt.module); err != nil {
				t.Fatal(err)
			}
			moved := filepath.Join(t.TempDir(), "a kit")
			if err := os.Symlink(made, moved); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(moved, "bin/run"), "it's here")
			cmd.Env = []string{"PATH=/usr/bin:/bin"}
			if tt.before != "" {
				cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+tt.before)
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got := strings.ReplaceAll(strings.TrimSpace(string(out)), filepath.Join(moved, "bin")+"/..", "KIT"); got != tt.want {
				t.Errorf("it ran %q, want %q", got, tt.want)
			}
		})
	}
}
