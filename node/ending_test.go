package node_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polar"
	"polar/harness"
	"polar/llm"
	"polar/node"
)

// planned is a task whose harness follows a plan that is given.
func planned(plan harness.Plan) (polar.Task, func(*testing.T) func(*node.Config)) {
	task := shell("")
	task.Agent = polar.Agent{Harness: "cli"}
	return task, func(t *testing.T) func(*node.Config) {
		t.Helper()
		return func(cfg *node.Config) {
			cfg.Plugins = plugins(t)
			cfg.Plugins.Harnesses["cli"] = polar.Opener(func(struct{}) (harness.Preset, error) {
				return func(j harness.Job) (harness.Plan, error) {
					own := plan
					own.Keep = nil
					for _, k := range plan.Keep {
						own.Keep = append(own.Keep, harness.Keep{Path: filepath.Join(j.Paths.Home, k.Path), Name: k.Name})
					}
					return own, nil
				}, nil
			})
		}
	}
}

func bash(line string) harness.Step { return harness.Step{Args: []string{"bash", "-c", line}} }

func TestAHarnessIsJudgedByWhatItReports(t *testing.T) {
	t.Parallel()
	says := func(blame polar.Blame) *polar.Failure {
		return &polar.Failure{Stage: polar.StageRun, Blame: blame, Kind: polar.KindHarness, Message: "so it says"}
	}
	for name, c := range map[string]struct {
		line    string
		verdict *polar.Failure
		calls   []polar.Call
		want    *polar.Failure
	}{
		"exit code 1 and yet done":          {"exit 1", nil, []polar.Call{goodCall("c", 1)}, nil},
		"exit code 0 and yet failed":        {"true", says(polar.BlameAgent), []polar.Call{goodCall("c", 1)}, says(polar.BlameAgent)},
		"its fault is the task's":           {"true", says(polar.BlameTask), []polar.Call{goodCall("c", 1)}, says(polar.BlameTask)},
		"its fault is the service's":        {"true", says(polar.BlameService), []polar.Call{goodCall("c", 1)}, says(polar.BlameService)},
		"it took a full context for ours":   {"true", says(polar.BlameService), []polar.Call{badCall("c", 1, llm.ContextOverflow)}, says(polar.BlameAgent)},
		"it took a used-up budget for ours": {"true", says(polar.BlameService), []polar.Call{badCall("c", 1, llm.OverBudget)}, says(polar.BlameAgent)},
		"it took a dead engine for its own": {
			"true", says(polar.BlameAgent),
			[]polar.Call{badCall("c", 1, llm.EngineFailed)},
			&polar.Failure{Stage: polar.StageRun, Blame: polar.BlameService, Kind: polar.KindEngine, Message: "the last model call failed: it broke"},
		},
		"a dead engine it knew as one": {
			"true", says(polar.BlameService),
			[]polar.Call{badCall("c", 1, llm.EngineFailed)},
			&polar.Failure{Stage: polar.StageRun, Blame: polar.BlameService, Kind: polar.KindEngine, Message: "the last model call failed: it broke"},
		},
		"a dead engine it said nothing of": {
			"true", nil,
			[]polar.Call{badCall("c", 1, llm.EngineFailed)},
			&polar.Failure{Stage: polar.StageRun, Blame: polar.BlameService, Kind: polar.KindEngine, Message: "the last model call failed: it broke"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := c.verdict
			task, change := planned(harness.Plan{
				Run: []harness.Step{bash(c.line)},
				Judge: func(harness.Ending) *polar.Failure {
					if verdict == nil {
						return nil
					}
					own := *verdict
					return &own
				},
			})
			r, _ := one(t, task, &recorder{calls: c.calls}, change(t))
			if diff := cmp.Diff(c.want, r.Failure); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
			learnt := c.calls[0].Error == nil && (c.want == nil || c.want.Blame == polar.BlameAgent)
			if got := r.Summary().Trainable > 0; got != learnt {
				t.Errorf("trained on: %v, want %v", got, learnt)
			}
		})
	}
}

func TestAJudgeReadsBothOutputsAndTheyAreKeptApart(t *testing.T) {
	t.Parallel()
	var code int
	var stdout, stderr []byte
	step := bash("echo out; echo err >&2; mkdir -p ~/.cli/day; echo turn >~/.cli/day/rollout.jsonl; exit 4")
	step.Log, step.Errors = "cli.jsonl", "cli.stderr.log"
	task, change := planned(harness.Plan{
		Run:  []harness.Step{step},
		Keep: []harness.Keep{{Path: ".cli", Name: "records"}, {Path: ".never", Name: "none"}},
		Judge: func(e harness.Ending) *polar.Failure {
			code = e.Code
			stdout, _ = io.ReadAll(e.Stdout)
			stderr, _ = io.ReadAll(e.Stderr)
			return nil
		},
	})
	r, g := one(t, task, &recorder{calls: []polar.Call{goodCall("c", 1)}}, change(t))
	if r.Status != polar.Completed || code != 4 || string(stdout) != "out\n" || string(stderr) != "err\n" {
		t.Errorf("%s, code %d, stdout %q, stderr %q", r.Status, code, stdout, stderr)
	}
	for path, want := range map[string]string{
		"logs/agent/cli.jsonl": "out\n", "logs/agent/cli.stderr.log": "err\n", "logs/agent/records/day/rollout.jsonl": "turn\n",
	} {
		if got := g.blobs.of(r, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if len(r.Artifacts) != 3 {
		t.Errorf("artifacts %v", r.Artifacts)
	}
}

func TestTheVersionThatRanIsRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "cli")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho warning: not 3.2.1 >&2\necho cli 1.2.3 of today\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	product := harness.Product{Name: "cli", Oldest: "1.2.0", Newest: "1.2.3"}
	newer := harness.Product{Name: "cli", Oldest: "1.3.0", Newest: "1.4.0"}
	for name, c := range map[string]struct {
		release harness.Release
		meta    string
		failure string
	}{
		"known beforehand":      {harness.Release{Product: product, Version: "1.2.1"}, `{"name":"cli","version":"1.2.1"}`, ""},
		"asked of the program":  {harness.Release{Product: product, Ask: []string{program, "--version"}}, `{"name":"cli","version":"1.2.3"}`, ""},
		"one that was expected": {harness.Release{Product: product, Ask: []string{program}, Expected: "1.2.3"}, `{"name":"cli","version":"1.2.3"}`, ""},
		"one that was never tried": {
			harness.Release{Product: newer, Ask: []string{program}},
			`{"name":"cli","version":"1.2.3","warning":"cli 1.2.3 was not tried with this version of polar; 1.3.0 to 1.4.0 was"}`, "",
		},
		"another than expected": {harness.Release{Product: product, Ask: []string{program}, Expected: "1.2.2"}, "", `agent.settings.version is 1.2.2, `},
		"a program not there":   {harness.Release{Product: product, Ask: []string{"no-such-cli"}}, "", "no-such-cli: exit code 127"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task, change := planned(harness.Plan{Run: []harness.Step{bash("true")}, Release: c.release})
			r, g := one(t, task, &recorder{calls: []polar.Call{goodCall("c", 1)}}, change(t))
			if c.failure != "" {
				if r.Failure == nil || r.Failure.Blame != polar.BlameTask || !strings.Contains(r.Failure.Message, c.failure) {
					t.Errorf("failure %+v, want one of the task with %q", r.Failure, c.failure)
				}
				return
			}
			if got := string(r.Trajectory.Metadata["harness"]); r.Failure != nil || got != c.meta {
				t.Errorf("failure %v, harness %s, want %s", r.Failure, got, c.meta)
			}
			if warned := strings.Contains(g.log.String(), "level=WARN msg=harness"); warned != strings.Contains(c.meta, "warning") {
				t.Errorf("log:\n%s", g.log)
			}
		})
	}
}

func TestATaskHasTheLastWordOnTheEnvironment(t *testing.T) {
	t.Parallel()
	task, change := planned(harness.Plan{
		Env: map[string]string{"QUIET": "plan", "WINDOW": "plan"},
		Run: []harness.Step{bash(`test "$QUIET-$WINDOW" = plan-task`)},
	})
	task.Agent.Env = map[string]string{"WINDOW": "task"}
	if r, _ := one(t, task, &recorder{calls: []polar.Call{goodCall("c", 1)}}, change(t)); r.Failure != nil {
		t.Error(r.Failure)
	}
}
