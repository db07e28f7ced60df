package clitest_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"polar/polartest"
)

var (
	polarBinary = flag.String("polar", "", "binary to test, an absolute path (default: built from this tree)")
	slow        = flag.Bool("slow", false, "let slow CLIs go through every scenario too")
	updateTable = flag.Bool("update-table", false, "rewrite the table of docs/harnesses.md")
	commands    = commandFlags{}
)

// commandFlags are programs to try in place of installed CLIs, by harness.
type commandFlags map[string]string

func (c commandFlags) String() string { return fmt.Sprint(map[string]string(c)) }

// Set adds NAME=PROGRAM.
func (c commandFlags) Set(s string) error {
	name, program, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("is %q, must be NAME=PROGRAM", s)
	}
	c[name] = program
	return nil
}

func TestMain(m *testing.M) {
	flag.Var(commands, "command", "NAME=PROGRAM: a program to try in place of the installed CLI (repeatable)")
	flag.Parse()
	// Tests wait for processes; how many of those run at once is bounded by a bench.
	if err := flag.Set("test.parallel", "64"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "polar-clitest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := buildPolar(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// dependOnSources looks at the sources of polar, so that the test cache knows of
// them: it does not see what a compiler in another process reads.
func dependOnSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "clients", "clitest", "docs", "tools"}, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		_, err = os.Stat(path)
		return err
	})
}

// buildPolar builds the binary into dir, unless one was given.
func buildPolar(dir string) error {
	if *polarBinary != "" {
		return nil
	}
	if err := dependOnSources(); err != nil {
		return err
	}
	binary, err := polartest.Build("..", dir)
	if err != nil {
		return err
	}
	*polarBinary = binary
	return nil
}
