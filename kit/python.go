package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"polar/harness"
)

// pythonRecipe is how a package of PyPI becomes a program.
type pythonRecipe struct {
	// also are packages that come in the same version.
	also []string
	// module is what the command runs; empty makes the command a Python that has
	// the package.
	module string
}

var pythonRecipes = map[string]pythonRecipe{
	"mini-swe-agent": {module: "minisweagent"},
	"openhands-sdk":  {also: []string{"openhands-tools"}},
}

// The folders of a Python kit: the copy of an interpreter, and beside its
// standard library what pip installed.
const (
	pythonDir   = "python"
	packagesDir = "packages"
)

// installPython fills dir with a package from PyPI, all that it needs, a copy
// of a Python of this machine, and a command that runs them. Of the machine it
// runs on a kit needs the C library alone, not older than this machine's.
func (f Folder) installPython(ctx context.Context, p harness.Product, version, dir string, note func(string)) (manifest, error) {
	recipe, ok := pythonRecipes[p.Package]
	if !ok {
		return manifest{}, fmt.Errorf("how to run the package %s is not known", p.Package)
	}
	python, err := findPython(ctx)
	if err != nil {
		return manifest{}, err
	}
	note(fmt.Sprintf("with Python %s of this machine", python.Version))
	if err := python.copyTo(filepath.Join(dir, pythonDir)); err != nil {
		return manifest{}, fmt.Errorf("copy Python: %w", err)
	}
	packages := filepath.Join(dir, pythonDir, packagesDir)
	if l := lockFor(p, version); l.hash != "" {
		note("packages of " + p.Package + " " + version)
		err = python.pip(ctx, packages, string(l.files["requirements.txt"]), []string{"--require-hashes", "--no-deps"}, note)
	} else {
		note("packages of " + p.Package + " " + version + ", which are not pinned")
		wanted := append([]string{p.Package}, recipe.also...)
		err = python.pip(ctx, packages, strings.Join(wanted, "=="+version+"\n")+"=="+version+"\n", nil, note)
	}
	if err != nil {
		return manifest{}, err
	}
	if err := prune(packages); err != nil {
		return manifest{}, err
	}
	note("compiling")
	if err := python.compile(ctx, filepath.Join(dir, pythonDir)); err != nil {
		return manifest{}, err
	}
	program := path.Join("bin", p.Command)
	if err := python.writeCommand(dir, program, recipe.module); err != nil {
		return manifest{}, err
	}
	if err := check(ctx, p, version, dir, program); err != nil {
		return manifest{}, err
	}
	return manifest{Program: program, Runtime: "python " + python.Version}, nil
}

const (
	// pipTries is how often pip is run where a registry has a bad moment, each
	// time for pipTime at most.
	pipTries = 2
	pipTime  = 8 * time.Minute
)

// pip installs requirements into a folder. Nothing is built: packages are
// wheels, of which no code runs.
func (i interpreter) pip(ctx context.Context, target, requirements string, flags []string, note func(string)) error {
	list, err := os.CreateTemp("", "polar-requirements-*.txt")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(list.Name()) }()
	if _, err := list.WriteString(requirements); err != nil {
		return errors.Join(err, list.Close())
	}
	if err := list.Close(); err != nil {
		return err
	}
	args := append([]string{
		"-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--no-compile",
		"--only-binary=:all:", "--retries=1", "--target", target, "--requirement", list.Name(),
	}, flags...)
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, pipTime)
		cmd := exec.CommandContext(once, i.path, args...)
		inGroup(cmd)
		out, err := cmd.CombinedOutput()
		late := once.Err() != nil
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line := pipComplaint(string(out))
		if !late && !pipNetwork.Match(out) {
			return errors.New("pip: " + line)
		}
		if try == pipTries {
			return unreachable("the Python package index cannot be reached: " + line)
		}
		note("pip: " + line + "; trying again")
		if err := os.RemoveAll(target); err != nil {
			return err
		}
	}
}

// pipNetwork is in what pip says of a registry that it does not reach.
var pipNetwork = regexp.MustCompile(`NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|ConnectionResetError|` +
	`ConnectionError|Max retries exceeded|IncompleteRead|name resolution|HTTP error 5\d\d|SSLError`)

// pipComplaint finds the line of pip's output that says what went wrong.
func pipComplaint(out string) string {
	for line := range strings.Lines(out) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: "); ok {
			return said
		}
	}
	if line := lastLine(out); line != "" {
		return line
	}
	return "it said nothing"
}

// unused are files of packages that no command of a kit reads: tests, what
// compilers need, the commands of other packages, and the web pages of
// LiteLLM's proxy, which are a third of it.
var unused = []string{"*/tests", "*/*/tests", "*/include", "*/*.pyx", "*/*.pxd", "*/py.typed", "bin", "litellm/proxy/_experimental/out"}

func prune(packages string) error {
	for _, pattern := range unused {
		found, err := filepath.Glob(filepath.Join(packages, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile writes the bytecode of every module, so that a kit that is mounted
// read-only starts as fast. It holds without looking at the sources' times,
// which a copy of the kit may not keep.
func (i interpreter) compile(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, i.path, "-I", "-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "unchecked-hash", dir)
	inGroup(cmd)
	_, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if errors.As(err, &failed) && ctx.Err() == nil {
		return nil // some packages have templates that are no Python
	}
	return err
}

// writeCommand writes the command of the kit. The libraries of the kit's Python
// are found by a variable that the Python takes away again when it has started,
// so that what the agent runs is not led to them.
func (i interpreter) writeCommand(dir, program, module string) error {
	name := filepath.Join(dir, filepath.FromSlash(program))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	run := `"$kit/python/bin/` + i.name() + `" -I -B`
	if module != "" {
		run += " -m " + module
	}
	script := `#!/bin/sh
case $0 in */*) kit=${0%/*}/.. ;; *) kit=.. ;; esac
POLAR_KIT_LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}
LD_LIBRARY_PATH=$kit/python/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH POLAR_KIT_LD_LIBRARY_PATH
exec ` + run + ` "$@"
`
	return os.WriteFile(name, []byte(script), 0o755)
}
