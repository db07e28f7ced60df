package kit

import (
	"context"
	"debug/elf"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// pythonVersions are those that kits are made with, the first one that is found.
var pythonVersions = []string{"3.12", "3.13"}

// interpreter is a Python of this machine.
type interpreter struct {
	// path is what is run.
	path string
	// Version is that of the Python, as in 3.12.1.
	Version string `json:"version"`
	// Executable and Stdlib are where its program and standard library are.
	Executable string `json:"executable"`
	Stdlib     string `json:"stdlib"`
	// Dynload is the folder of the modules that are shared objects.
	Dynload string `json:"dynload"`
	// Libraries are the shared libraries that it and its modules load.
	Libraries []string `json:"libraries"`
	// Lacks are modules that a kit cannot do without and it has not.
	Lacks []string `json:"lacks"`
}

//go:embed interpreter.py
var probe string

// probeTime is how long a Python may take to tell about itself.
const probeTime = 30 * time.Second

// findPython finds a Python to make kits with: on the PATH, and where pyenv and
// uv keep theirs.
func findPython(ctx context.Context) (interpreter, error) { return choosePython(ctx, pythonPaths) }

// choosePython takes the first Python that will do of those that paths has by
// the name of a program.
func choosePython(ctx context.Context, paths func(name string) []string) (interpreter, error) {
	var poor []string
	for _, version := range pythonVersions {
		for _, candidate := range paths("python" + version) {
			found, err := askPython(ctx, candidate)
			if ctx.Err() != nil {
				return interpreter{}, context.Cause(ctx)
			}
			if err != nil || !strings.HasPrefix(found.Version, version+".") {
				continue // a shim of pyenv's for a version that is not chosen
			}
			if len(found.Lacks) > 0 {
				poor = append(poor, fmt.Sprintf("%s lacks %s", candidate, strings.Join(found.Lacks, ", ")))
				continue
			}
			return found, nil
		}
	}
	wanted := "no Python " + strings.Join(pythonVersions, " or ") + " with pip on this machine; put one on the PATH, or name a program of the sandbox in agent.settings.command"
	if len(poor) > 0 {
		wanted += " (" + strings.Join(poor, "; ") + ")"
	}
	return interpreter{}, unreachable(wanted)
}

// pythonPaths are where a Python may be, by the name of its program.
func pythonPaths(name string) []string {
	var paths, patterns []string
	minor := strings.TrimPrefix(name, "python")
	if found, err := exec.LookPath(name); err == nil {
		paths = append(paths, found)
		// A shim of pyenv's is in ROOT/shims.
		patterns = append(patterns, filepath.Join(filepath.Dir(found), "..", "versions", minor+".*", "bin", name))
	}
	if home, err := os.UserHomeDir(); err == nil {
		patterns = append(patterns,
			filepath.Join(home, ".pyenv", "versions", minor+".*", "bin", name),
			filepath.Join(home, ".local", "share", "uv", "python", "cpython-"+minor+".*", "bin", name))
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/opt/python/bin"} {
		patterns = append(patterns, filepath.Join(dir, name))
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // the patterns are good
		slices.Reverse(found)
		for _, one := range found {
			if !slices.Contains(paths, one) {
				paths = append(paths, one)
			}
		}
	}
	return paths
}

// askPython has a Python tell about itself.
func askPython(ctx context.Context, path string) (interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-c", probe)
	inGroup(cmd)
	out, err := cmd.Output()
	if err != nil {
		return interpreter{}, err
	}
	i := interpreter{path: path}
	if err := json.Unmarshal(out, &i); err != nil {
		return interpreter{}, fmt.Errorf("%s: %w", path, err)
	}
	return i, nil
}

// name is that of the program, as in python3.12.
func (i interpreter) name() string {
	parts := strings.SplitN(i.Version, ".", 3)
	return "python" + parts[0] + "." + parts[1]
}

// customize is run by the kit's Python when it starts.
const customize = `import os
import sys

sys.path.append(os.path.join(sys.prefix, "` + packagesDir + `"))
if "POLAR_KIT_LD_LIBRARY_PATH" in os.environ:
    os.environ["LD_LIBRARY_PATH"] = os.environ.pop("POLAR_KIT_LD_LIBRARY_PATH")
    if not os.environ["LD_LIBRARY_PATH"]:
        del os.environ["LD_LIBRARY_PATH"]
`

// copyTo copies the Python to a folder where it runs by itself: it looks for
// its standard library beside the folder of its program.
func (i interpreter) copyTo(dir string) error {
	lib := filepath.Join(dir, "lib")
	stdlib := filepath.Join(lib, i.name())
	for _, d := range []string{filepath.Join(dir, "bin"), filepath.Join(stdlib, "lib-dynload")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := copyFile(i.Executable, filepath.Join(dir, "bin", i.name()), 0o755); err != nil {
		return err
	}
	for _, l := range i.Libraries {
		name, err := libraryName(l)
		if err != nil {
			return err
		}
		if err := copyFile(l, filepath.Join(lib, name), 0o644); err != nil {
			return err
		}
	}
	if err := copyModules(i.Stdlib, stdlib, i.Dynload); err != nil {
		return err
	}
	if err := copyModules(i.Dynload, filepath.Join(stdlib, "lib-dynload"), ""); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(stdlib, "sitecustomize.py"), []byte(customize), 0o644)
}

// libraryName is the name that a shared library is asked for by.
func libraryName(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return filepath.Base(path), nil
	}
	return names[0], nil
}

// needless is what no agent needs of a standard library, most of which is tests.
var needless = regexp.MustCompile(`^(test|tests|idle_test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|config-.*|site-packages|dist-packages|__pycache__|` +
	`sitecustomize\.py|EXTERNALLY-MANAGED|(_test|_xx|xx|_ctypes_test|_tkinter).*\.so|.*\.a)$`)

// copyModules copies a folder of modules but for the needless ones and for one
// folder that is copied by itself.
func copyModules(from, to, except string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case rel != "." && (needless.MatchString(d.Name()) || name == except):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		default:
			err := copyFile(name, target, 0o644)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a link that leads nowhere
			}
			return err
		}
	})
}

// copyFile copies a file, or what a link leads to.
func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}
