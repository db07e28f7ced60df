package agent_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/goccy/go-yaml"

	"polar"
	"polar/agent"
	"polar/sim"
)

// TestTheExamplesAreSolvedAsOftenAsTheSimulationMeansTo runs each example as
// the service would, but by hand: its preparation, the agent against the
// simulated inference server, its check.
func TestTheExamplesAreSolvedAsOftenAsTheSimulationMeansTo(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../examples/demo/*.yaml")
	if err != nil || len(paths) != 6 {
		t.Fatalf("found %d demo tasks, want 6: %v", len(paths), err)
	}
	for _, path := range append(paths, "../examples/hello.yaml") {
		for _, solved := range []bool{true, false} {
			t.Run(filepath.Base(path)+" solved "+strconv.FormatBool(solved), func(t *testing.T) {
				t.Parallel()
				task := readTask(t, path)
				dir := prepare(t, task)
				c := sim.Defaults()
				c.SuccessRate = 0
				if solved {
					c.SuccessRate = 1
				}
				server, url := startSim(t, c)
				out, err := agent.Run(t.Context(), agent.Config{BaseURL: url, Instruction: task.Instruction, Workdir: dir, Env: environ(), Stream: true})
				if err != nil || out.Reason != agent.Done {
					t.Fatalf("run ended with %+v, %v", out, err)
				}
				if n := len(server.Calls()); n < 2 || n > 4 || n != out.Steps {
					t.Errorf("%d calls in %d steps, want 2 to 4", n, out.Steps)
				}
				if got := check(t, task, dir); got != solved {
					t.Errorf("the check says %v, want %v", got, solved)
				}
			})
		}
	}
}

func readTask(t *testing.T, path string) polar.Task {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	task, err := polar.DecodeTask(data)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func prepare(t *testing.T, task polar.Task) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range task.Runtime.Prepare {
		switch p.Type {
		case "write_file":
			path := filepath.Join(dir, p.Target)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(p.Content), 0o644); err != nil {
				t.Fatal(err)
			}
		case "exec":
			if out, err := bash(t, dir, p.Command).CombinedOutput(); err != nil {
				t.Fatalf("prepare: %v: %s", err, out)
			}
		default:
			t.Fatalf("a demo task needs no %s", p.Type)
		}
	}
	return dir
}

// check runs the task's evaluator in dir and reports whether it passes.
func check(t *testing.T, task polar.Task, dir string) bool {
	t.Helper()
	if task.Evaluator.Strategy != "command" {
		t.Fatalf("evaluator %s", task.Evaluator.Strategy)
	}
	var config struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(task.Evaluator.Config, &config); err != nil {
		t.Fatal(err)
	}
	return bash(t, dir, config.Command).Run() == nil
}

func bash(t *testing.T, dir, command string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = dir, environ()
	return cmd
}
