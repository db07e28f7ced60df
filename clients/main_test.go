package clients_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"polar/polartest"
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
	forgetProviders()
	dir, err := os.MkdirTemp("", "polar-clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *polarBinary == "" {
		if *polarBinary, err = polartest.Build("..", dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			_ = os.RemoveAll(dir)
			os.Exit(1)
		}
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// forgetProviders takes out of the environment what the clients would read: keys
// and addresses of whoever runs the tests.
func forgetProviders() {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		for _, prefix := range []string{"ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_"} {
			if strings.HasPrefix(name, prefix) {
				_ = os.Unsetenv(name) // the name is one
			}
		}
	}
}
