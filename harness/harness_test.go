package harness_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/harness"
	"polar/sandbox"
)

var update = flag.Bool("update", false, "rewrite the golden plans")

func job(a polar.Agent) harness.Job {
	return harness.Job{
		Session:     "s1",
		Task:        "t1",
		Instruction: "Don't $(panic) \"now\"",
		Agent:       a,
		Paths:       sandbox.Paths{Home: "/sb/home", Work: "/sb/work", Session: "/sb/session", Tools: "/sb/tools"},
		BaseURL:     "http://gateway:8100",
		Key:         "sk-key",
		Model:       "served",
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got, err := json.MarshalIndent(harness.Env(job(polar.Agent{})), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "environment.json", append(got, '\n'))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update rewrites it:\n%s", file, diff)
	}
}

func TestALineTooLongForTheSystemIsRefused(t *testing.T) {
	t.Parallel()
	preset, err := harness.Shell(harness.ShellConfig{})
	if err != nil {
		t.Fatal(err)
	}
	j := job(polar.Agent{CustomShell: &polar.CustomShell{Command: "x {instruction}"}})
	j.Instruction = strings.Repeat("x", harness.MaxArgument)
	var bad *polar.FieldError
	if _, err := preset(j); !errors.As(err, &bad) || bad.Field != "agent.custom_shell.command" {
		t.Errorf("error %v", err)
	}
}
