package polar_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports is the architecture: what each package may import of this module.
// A package that is not listed fails the test, so a new one is a decision.
var imports = map[string][]string{
	// Values: no package of ours, or only other values.
	"rawjson": {},
	"sse":     {},
	"llm":     {"rawjson"},
	".":       {"llm", "rawjson"},

	// Contracts.
	"sandbox": {},
	"api":     {".", "llm", "rawjson"},

	// Plug-ins: a protocol cannot know a task, a harness cannot know a wire format.
	"protocol/openai":       {"llm", "rawjson"},
	"protocol/anthropic":    {"llm", "sse", "rawjson"},
	"protocol/chat":         {"llm", "sse", "rawjson", "protocol/openai"},
	"protocol/gemini":       {"llm", "rawjson"},
	"protocol/protocoltest": {"llm", "rawjson"},
	"protocol/responses":    {"llm", "sse", "rawjson", "protocol/openai"},
	"backend":               {"llm", "sse", "rawjson"},
	"sandbox/local":         {"sandbox"},
	"sandbox/sandboxtest":   {"sandbox"},
	"harness":               {".", "sandbox", "llm", "rawjson"},
	"kit":                   {"harness"},
	"trajectory":            {".", "llm", "rawjson"},
	"evaluate":              {".", "sandbox", "llm", "rawjson"},

	// Results as trainers read them.
	"export": {".", "llm", "rawjson"},

	// What survives.
	"calllog": {".", "llm", "rawjson"},
	"store":   {".", "api", "llm", "rawjson"},

	// Actors: they do not know each other.
	"gateway":     {".", "llm", "rawjson"},
	"node":        {".", "sandbox", "harness", "trajectory", "evaluate", "api", "llm", "rawjson"},
	"coordinator": {".", "api", "llm", "rawjson"},

	// Programs of their own that ride in the binary.
	"sim":   {"llm", "sse", "rawjson"},
	"agent": {"llm", "sse", "rawjson"},

	// Tasks as data.
	"examples": {},

	// Tests of the binary with real CLIs.
	"clitest": {},

	"polartest": {},
	"cmd/polar": {"*"},
	"bench":     {"*"},
}

// TestImports reads the files itself: `go list` in a child process would hide
// them from the test cache, and the test would stay green when it should not.
func TestImports(t *testing.T) {
	t.Parallel()
	const module = "polar"
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "tools" || path == "clients" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		may, ok := imports[pkg]
		if !ok {
			t.Errorf("%s: package %s is not in the architecture", path, pkg)
		}
		seen[pkg] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			rel, ours := strings.CutPrefix(imp+"/", module+"/")
			if rel = strings.TrimSuffix(rel, "/"); rel == "" {
				rel = "."
			}
			if ours && !slices.Contains(may, rel) && !slices.Contains(may, "*") {
				t.Errorf("%s: %s must not import %s", path, pkg, rel)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range imports {
		if !seen[pkg] {
			t.Errorf("package %s is in the architecture and not in the tree", pkg)
		}
	}
}
