package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"polar/harness"
)

// recipe is what must be known of an npm package beyond its own description,
// where a script that polar does not run would put its program in place. Paths
// are below node_modules; {os}, {cpu} and {target} are this platform's.
type recipe struct {
	// programs are where a native program can be, the best first; the first that
	// runs is kept, the packages of the others are removed.
	programs []string
	// useless is large and not needed to run it.
	useless []string
}

// recipes are by the name of the package. A package that is not here runs the
// script it describes as its command, with Node.
var recipes = map[string]recipe{
	"@anthropic-ai/claude-code": {programs: []string{
		"@anthropic-ai/claude-code-{os}-{cpu}/claude", "@anthropic-ai/claude-code-{os}-{cpu}-musl/claude",
	}},
	"@openai/codex": {programs: []string{"@openai/codex-{os}-{cpu}/vendor/{target}/bin/codex"}},
	"node":          {programs: []string{"node-{os}-{cpu}/bin/node"}, useless: []string{"node-{os}-{cpu}/include"}},
	"opencode-ai": {programs: []string{
		"opencode-{os}-{cpu}/bin/opencode", "opencode-{os}-{cpu}-baseline/bin/opencode", // for processors without AVX2
		"opencode-{os}-{cpu}-musl/bin/opencode", "opencode-{os}-{cpu}-baseline-musl/bin/opencode",
	}},
}

// nodeProduct is the Node that kits bring. Each has it under a second name of
// the same file.
func nodeProduct() harness.Product {
	version := "22.23.3"
	if platform == "darwin/arm64" {
		version = "22.23.2" // the newest that npm has for it
	}
	return harness.Product{Name: "node", Source: harness.SourceNPM, Package: "node", Command: "node", Oldest: version, Newest: version}
}

// forPlatform fills this platform's names into a path of a recipe.
func forPlatform(name string) string {
	cpu := runtime.GOARCH
	if cpu == "amd64" {
		cpu = "x64"
	}
	target := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	target += map[string]string{"linux": "-unknown-linux-musl", "darwin": "-apple-darwin"}[runtime.GOOS]
	return path.Join("node_modules", strings.NewReplacer("{os}", runtime.GOOS, "{cpu}", cpu, "{target}", target).Replace(name))
}

// packageOf is the folder of the package that a path below node_modules is in.
func packageOf(name string) string {
	parts := strings.Split(name, "/")
	n := 2
	if strings.HasPrefix(parts[1], "@") {
		n = 3
	}
	return strings.Join(parts[:n], "/")
}

// isIn says whether a lock has a program for this platform.
func (r recipe) isIn(l lock) bool {
	for _, program := range r.programs {
		if bytes.Contains(l.files["package-lock.json"], []byte(`"`+packageOf(forPlatform(program))+`"`)) {
			return true
		}
	}
	return len(r.programs) == 0
}

// installNPM fills dir with a package from npm and a command that runs it, and
// checks that it does.
func (f Folder) installNPM(ctx context.Context, p harness.Product, version, dir string, note func(string)) (manifest, error) {
	npm, err := f.findNPM()
	if err != nil {
		return manifest{}, err
	}
	r := recipes[p.Package]
	m := manifest{Program: path.Join("bin", p.Command)}
	if len(r.programs) == 0 {
		if m.Runtime, err = f.bringNode(ctx, dir, note); err != nil {
			return manifest{}, err
		}
		npm.node = filepath.Join(dir, path.Dir(nodePath))
	}
	note(fmt.Sprintf("installing %s %s from npm", p.Package, version))
	args := []string{"ci"}
	files := lockFor(p, version).files
	if files == nil {
		args = []string{"install", "--save-exact", p.Package + "@" + version}
		files = map[string][]byte{"package.json": []byte(`{"private": true}`)}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return manifest{}, err
		}
	}
	if err := npm.run(ctx, dir, args, note); err != nil {
		return manifest{}, err
	}
	for _, name := range r.useless {
		if err := os.RemoveAll(filepath.Join(dir, forPlatform(name))); err != nil {
			return manifest{}, err
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return manifest{}, err
	}
	if len(r.programs) > 0 {
		return m, r.choose(ctx, p, version, dir, m.Program)
	}
	script, err := scriptOf(dir, p, version)
	if err != nil {
		return manifest{}, err
	}
	if err := writeLauncher(dir, m.Program, nodePath, script); err != nil {
		return manifest{}, err
	}
	_, err = ask(ctx, p, dir, m.Program) // it must run; its version is the package's, whatever it says
	return m, err
}

// choose makes the first native program that runs the command of a kit, and
// removes the packages of the others.
func (r recipe) choose(ctx context.Context, p harness.Product, version, dir, command string) error {
	err := errors.New("npm has no program for " + platform)
	chosen := slices.IndexFunc(r.programs, func(name string) bool {
		name = forPlatform(name)
		if _, missing := os.Stat(filepath.Join(dir, name)); missing != nil {
			return false
		}
		if err = writeLauncher(dir, command, name); err == nil {
			err = check(ctx, p, version, dir, command)
		}
		return err == nil
	})
	if chosen < 0 {
		return err
	}
	for i, name := range r.programs {
		if i == chosen {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, packageOf(forPlatform(name)))); err != nil {
			return err
		}
	}
	return nil
}

// scriptOf is the script that a package of that version describes as its
// command.
func scriptOf(dir string, p harness.Product, version string) (string, error) {
	home := path.Join("node_modules", p.Package)
	data, err := os.ReadFile(filepath.Join(dir, home, "package.json"))
	if err != nil {
		return "", err
	}
	var description struct {
		Version string          `json:"version"`
		Bin     json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(data, &description); err != nil {
		return "", fmt.Errorf("%s/package.json: %w", home, err)
	}
	if description.Version != version {
		return "", fmt.Errorf("npm installed %s %s and not %s", p.Package, description.Version, version)
	}
	var script string
	if json.Unmarshal(description.Bin, &script) != nil {
		var scripts map[string]string
		if err := json.Unmarshal(description.Bin, &scripts); err != nil {
			return "", fmt.Errorf("%s has no command", p.Package)
		}
		script = scripts[p.Command]
	}
	if script == "" || !filepath.IsLocal(script) {
		return "", fmt.Errorf("%s has no command %s", p.Package, p.Command)
	}
	return path.Join(home, script), nil
}

// nodePath is where Node is in a kit that brings it.
const nodePath = "node/bin/node"

// bringNode puts Node into the kit in dir and returns its name and version.
func (f Folder) bringNode(ctx context.Context, dir string, note func(string)) (string, error) {
	p := nodeProduct()
	node, err := f.Install(ctx, p, "", note)
	if err != nil {
		return "", err
	}
	from := filepath.Join(node.Dir, forPlatform(recipes[p.Package].programs[0]))
	to := filepath.Join(dir, nodePath)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	if os.Link(from, to) != nil { // a file system without links
		if err := copyProgram(from, to); err != nil {
			return "", err
		}
	}
	return "node " + node.Version, nil
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()         //nolint:errcheck // it is only read
	syscall.ForkLock.RLock() // as for a launcher
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// writeLauncher writes a command that runs a program of the kit wherever the
// kit is: words are paths from its top.
func writeLauncher(dir, name string, words ...string) error {
	var script strings.Builder
	script.WriteString("#!/bin/sh\ncase $0 in */*) kit=${0%/*}/.. ;; *) kit=.. ;; esac\nexec")
	for _, w := range words {
		fmt.Fprintf(&script, ` "$kit"/'%s'`, strings.ReplaceAll(w, "'", `'\''`))
	}
	script.WriteString(" \"$@\"\n")
	// A child that is started meanwhile would hold the file open, and a file that
	// is open for writing cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(script.String()), 0o755)
}
