package clitest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"polar"
	"polar/harness"
	"polar/polartest"
)

// cli is a harness CLI as these tests know it.
type cli struct {
	harness string
	// wires are those that it speaks, the usual one first.
	wires []wire
	// trials are what is special to it and what comes of it, by scenario.
	trials map[string]trial
	// slow says that its start alone takes many seconds of processor time, so that
	// it only goes through the scenarios that tell most, unless -slow is given.
	slow bool
}

// wire is a format that a CLI speaks to the model, by the name under which calls
// are recorded.
type wire struct {
	name     string
	settings map[string]any
}

// trial is a scenario with one CLI.
type trial struct {
	// not says why the scenario does not apply.
	not string
	// settings, env, mcp and skills go into the task's agent.
	settings map[string]any
	env      map[string]string
	mcp      []polar.MCPServer
	skills   string
	// rules are tried before those of the scenario's policy.
	rules string
	want  outcome
}

// notes is the MCP server of testdata, as it lies in the work folder.
func notes() []polar.MCPServer {
	return []polar.MCPServer{{Name: "notes", Transport: "stdio", Command: "bash", Args: []string{"notes.sh"}}}
}

// TestCLIs lets every CLI go through every scenario, and holds the table of the
// docs against what came of it.
func TestCLIs(t *testing.T) {
	t.Parallel()
	busy, idle := make(bench, runtime.GOMAXPROCS(0)+1), make(bench, 2*runtime.GOMAXPROCS(0))
	table := newTable()
	t.Cleanup(func() { table.check(t) })
	for _, c := range clis() {
		t.Run(c.harness, func(t *testing.T) {
			t.Parallel()
			install(t, c.harness)
			for _, s := range scenarios() {
				if c.slow && !s.tellsMost && !*slow && !*updateTable {
					continue
				}
				seats := busy
				if s.waits {
					seats = idle
				}
				on := c.wires
				if !s.everyWire {
					on = on[:1]
				}
				for i, w := range on {
					name := s.name
					if i > 0 {
						name += " over " + w.name
					}
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						try(t, c, s, w, seats, table)
					})
				}
			}
		})
	}
}

// bench has a seat for each trial that runs at the same time as others.
type bench chan struct{}

// sit waits for a seat until the end of the test.
func (b bench) sit(t *testing.T) {
	t.Helper()
	b <- struct{}{}
	t.Cleanup(func() { <-b })
}

// try runs one scenario with one CLI over one wire.
func try(t *testing.T, c cli, s scenario, w wire, seats bench, table *table) {
	t.Helper()
	own, ok := c.trials[s.name]
	switch {
	case !ok:
		t.Fatalf("nothing is said of the scenario %s", s.name)
	case own.not != "":
		table.enter(c, s, w, "", "–")
		return
	}
	seats.sit(t)
	r := newRig(t, s.policy(t, own.rules), s.between())
	outside := newSentinel(t)
	sessions := max(s.sessions, 1)
	for n := range sessions {
		polartest.Request(t, http.MethodPost, r.rollout+"/rollout/task/submit", task(t, c, s, own, w, outside, n), nil)
	}
	results := r.results(t, sessions)
	seen := sighting{rig: r, wire: w.name, scenario: s}
	version := ""
	for n := range sessions {
		result := results[taskID(n)]
		seen.session(t, result, own.want, n)
		version = harnessOf(t, result).Version
	}
	seen.nothingElse(t, results)
	for _, line := range outside.requests() {
		t.Errorf("the CLI asked for something outside: %s", line)
	}
	if !t.Failed() {
		table.enter(c, s, w, version, own.want.result)
	}
}

func taskID(n int) polar.TaskID { return polar.TaskID(fmt.Sprintf("task-%d", n)) }

// task is the body of a submission.
func task(t *testing.T, c cli, s scenario, own trial, w wire, outside *sentinel, n int) map[string]any {
	t.Helper()
	settings := map[string]any{}
	maps.Copy(settings, w.settings)
	maps.Copy(settings, own.settings)
	if program := commands[c.harness]; program != "" {
		settings["command"] = program
	}
	env := outside.env()
	maps.Copy(env, own.env)
	agent := map[string]any{"harness": c.harness, "settings": settings, "env": env, "mcp_servers": own.mcp}
	if own.skills != "" {
		agent["skills_path"] = own.skills
	}
	prepare := []map[string]any{}
	for to, from := range s.prepare {
		data, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(from)))
		if err != nil {
			t.Fatal(err)
		}
		prepare = append(prepare, map[string]any{"type": "write_file", "target": to, "content": string(data)})
	}
	return map[string]any{
		"task_id": taskID(n), "instruction": numbered(s.instruction, n), "max_attempts": max(s.attempts, 1), "timeout_seconds": 300,
		"agent":     agent,
		"runtime":   map[string]any{"backend": "local", "prepare": prepare},
		"builder":   map[string]any{"strategy": "prefix_merging"},
		"evaluator": map[string]any{"strategy": "command", "config": map[string]any{"command": numbered(s.check, n)}},
	}
}

// install has polar install a CLI, which is quick if it is there. Where it
// cannot be had the test is skipped, which is a failure where CI is set, unless
// there is no Python to install it with.
func install(t *testing.T, name string) {
	t.Helper()
	if commands[name] != "" {
		return
	}
	out, err := exec.CommandContext(t.Context(), *polarBinary, "harness", "install", name).CombinedOutput()
	switch said := strings.TrimSpace(string(out)); {
	case err == nil:
	case os.Getenv("CI") == "true" && !strings.Contains(said, "no Python "):
		t.Fatalf("polar harness install %s: %v: %s", name, err, said)
	default:
		t.Skipf("%s cannot be had here: %v: %s", name, err, said)
	}
}

// harnessOf is what the trajectory's metadata say of the harness.
func harnessOf(t *testing.T, r polar.Result) harness.Used {
	t.Helper()
	var used harness.Used
	if err := json.Unmarshal(r.Trajectory.Metadata["harness"], &used); err != nil {
		t.Errorf("metadata.harness of %s: %v", r.Session, err)
	}
	return used
}
