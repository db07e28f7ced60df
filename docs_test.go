package polar_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkTarget = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	codePath   = regexp.MustCompile("`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]+)`")
)

// TestDocsNameWhatIsThere fails on a link or a path in the documentation that
// leads nowhere.
func TestDocsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	top := map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		top[e.Name()] = e.IsDir()
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range linkTarget.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
		for _, m := range codePath.FindAllStringSubmatch(string(text), -1) {
			first, _, _ := strings.Cut(m[1], "/")
			if !top[first] || first == "bin" {
				continue // not a path of this repository
			}
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryCommandIsDocumented holds the page of the command line against the
// commands there are.
func TestEveryCommandIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile("cmd/polar/main.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`([a-z]+)Command\(\)`).FindAllStringSubmatch(string(main), -1)
	if len(found) == 0 {
		t.Fatal("no commands found in cmd/polar/main.go")
	}
	for _, m := range found {
		if !strings.Contains(string(page), "\n## polar "+m[1]) {
			t.Errorf("docs/cli.md does not describe polar %s", m[1])
		}
	}
}
