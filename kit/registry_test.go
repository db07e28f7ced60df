package kit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"polar/harness"
	"polar/kit"
)

// toy is a CLI with no lock that runs with Node, as every new one does.
var toy = harness.Product{Name: "toy", Source: harness.SourceNPM, Package: "@toys/toy", Command: "toy", Oldest: "1.2.3", Newest: "1.2.3"}

// codex is one with a lock and a program of its own.
var codex = harness.Product{Name: "codex", Source: harness.SourceNPM, Package: "@openai/codex", Command: "codex", Oldest: "0.166.0", Newest: "0.166.0"}

// opencode has more than one program for a platform.
var opencode = harness.Product{Name: "opencode", Source: harness.SourceNPM, Package: "opencode-ai", Command: "opencode", Oldest: "1.18.33", Newest: "1.18.33"}

// registry is a fake npm: a script that writes the files of a kit. Its Node
// runs scripts of the shell.
type registry struct {
	t   *testing.T
	dir string
}

// newRegistry makes one; packages is what it does, in the folder of the kit.
func newRegistry(t *testing.T, packages string) (registry, kit.Folder) {
	t.Helper()
	if len(platforms[runtime.GOARCH]) == 0 {
		t.Skip("no packages for " + runtime.GOARCH)
	}
	r := registry{t, t.TempDir()}
	script := fmt.Sprintf(`#!/bin/sh
world=%s os=%s cpu=%s
put() { mkdir -p "${1%%/*}"; cat >"$1"; chmod 755 "$1"; }
broken() { echo "npm error code $1"; echo "npm error $2"; exit 1; }
if grep -q polar-kit-node package.json; then
	echo node >>$world/node-installs
	put node_modules/node-$os-$cpu/bin/node <<'EOF'
#!/bin/sh
[ "$1" = --version ] && { echo v22.23.3; exit; }
exec /bin/sh "$@"
EOF
	mkdir -p node_modules/node-$os-$cpu/include
	exit
fi
echo "$*" >>$world/tries
tries=$(grep -c . $world/tries)
%s
`, r.dir, runtime.GOOS, platforms[runtime.GOARCH][0], packages)
	syscall.ForkLock.RLock() // a child that is started meanwhile would hold it open
	err := os.WriteFile(filepath.Join(r.dir, "npm"), []byte(script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return r, kit.Folder{Dir: filepath.Join(t.TempDir(), "harnesses"), NPM: filepath.Join(r.dir, "npm")}
}

var platforms = map[string][]string{"amd64": {"x64", "x86_64"}, "arm64": {"arm64", "aarch64"}}

// tries are the commands that npm got.
func (r registry) tries() []string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "tries"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	return strings.FieldsFunc(string(data), func(c rune) bool { return c == '\n' })
}

const npmFlags = " --ignore-scripts --no-audit --no-fund --fetch-retries=1 --fetch-retry-mintimeout=1000"

const toyPackage = `
put node_modules/@toys/toy/package.json <<'EOF'
{"name": "@toys/toy", "version": "1.2.3", "bin": {"toy": "./cli.js"}}
EOF
put node_modules/@toys/toy/cli.js <<'EOF'
[ "$1" = --version ] && { echo "toy ${TOY-1.2.3}"; exit; }
for a; do echo "<$a>"; done
echo "home=$HOME"
EOF
`

func codexPackage() string {
	target := platforms[runtime.GOARCH][1] + map[string]string{"linux": "-unknown-linux-musl", "darwin": "-apple-darwin"}[runtime.GOOS]
	return `
put node_modules/@openai/codex-$os-$cpu/vendor/` + target + `/bin/codex <<'EOF'
#!/bin/sh
echo codex-cli 0.166.0
EOF
`
}

func quiet(string) {}

func install(t *testing.T, f kit.Folder, p harness.Product) harness.Kit {
	t.Helper()
	made, err := f.Install(t.Context(), p, "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
