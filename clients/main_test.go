package clients_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// polarBinary is the polar that is tested, an absolute path.
var polarBinary = flag.String("polar", "", "binary to test (default: built from this tree)")

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for processes and timers more than they compute.
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "polar-clients-")
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

// buildPolar builds the binary into dir, unless one was given.
func buildPolar(dir string) error {
	if *polarBinary != "" {
		return nil
	}
	*polarBinary = filepath.Join(dir, "polar")
	cmd := exec.Command("go", "build", "-o", *polarBinary, "./cmd/polar")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build polar: %w\n%s", err, out)
	}
	return nil
}
