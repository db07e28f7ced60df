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

var presets = polar.Registry[harness.Preset]{
	"shell": polar.Opener(harness.Shell),
	"mini":  polar.Opener(harness.MiniWith("/opt/polar")),
}

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

func TestPlans(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]polar.Agent{
		"shell": {Harness: "shell", CustomShell: &polar.CustomShell{
			Command: "run-agent --prompt {instruction} | tee out", Cwd: "repo", Env: map[string]string{"A": "1"},
		}},
		"mini":          {Harness: "mini"},
		"mini-settings": {Harness: "mini", ModelName: "own", Settings: json.RawMessage(`{"max_steps":7,"command_timeout_seconds":1.5,"stream":false}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			preset, err := presets.Open(polar.Spec{Kind: a.Harness, Config: a.Settings})
			if err != nil {
				t.Fatal(err)
			}
			plan, err := preset(job(a))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(plan, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", append(got, '\n'))
		})
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

func TestWhatAHarnessHasNoUseForIsRefused(t *testing.T) {
	t.Parallel()
	shell := &polar.CustomShell{Command: "true"}
	mcp := []polar.MCPServer{{Name: "x"}}
	for name, c := range map[string]struct {
		agent polar.Agent
		field string
	}{
		"shell without a command":  {polar.Agent{Harness: "shell"}, "agent.custom_shell"},
		"shell with an empty one":  {polar.Agent{Harness: "shell", CustomShell: &polar.CustomShell{Command: " "}}, "agent.custom_shell.command"},
		"shell with MCP":           {polar.Agent{Harness: "shell", CustomShell: shell, MCPServers: mcp}, "agent.mcp_servers"},
		"shell with skills":        {polar.Agent{Harness: "shell", CustomShell: shell, SkillsPath: "/x"}, "agent.skills_path"},
		"mini with custom_shell":   {polar.Agent{Harness: "mini", CustomShell: shell}, "agent.custom_shell"},
		"mini with MCP":            {polar.Agent{Harness: "mini", MCPServers: mcp}, "agent.mcp_servers"},
		"mini with skills":         {polar.Agent{Harness: "mini", SkillsPath: "/x"}, "agent.skills_path"},
		"mini with a wrong number": {polar.Agent{Harness: "mini", Settings: json.RawMessage(`{"max_steps":-1}`)}, "max_steps"},
		"mini with a slip":         {polar.Agent{Harness: "mini", Settings: json.RawMessage(`{"max_stepz":1}`)}, "max_stepz"},
		"shell with settings":      {polar.Agent{Harness: "shell", CustomShell: shell, Settings: json.RawMessage(`{"x":1}`)}, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			preset, err := presets.Open(polar.Spec{Kind: c.agent.Harness, Config: c.agent.Settings})
			if err == nil {
				_, err = preset(job(c.agent))
			}
			var bad *polar.FieldError
			if !errors.As(err, &bad) || bad.Field != c.field {
				t.Errorf("error %v, want one of field %s", err, c.field)
			}
		})
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
