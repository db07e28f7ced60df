package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"polar"
	"polar/harness"
	"polar/sandbox"
)

var updatePlans = flag.Bool("update-plans", false, "rewrite the results in harness/testdata")

// planned are the harnesses as they come with polar, with every CLI installed.
var planned = builtin("/opt/polar", func(p harness.Product, version string) (harness.Kit, error) {
	if version == "" {
		version = p.Newest
	}
	return harness.Kit{Dir: "/kits/" + p.Name + "/" + version, Version: version, Program: "bin/" + p.Command}, nil
}).harnesses

// planOf plans an agent in a sandbox whose folders are below /sb, with a model
// that takes so many tokens; 0 means that nobody knows.
func planOf(a polar.Agent, window int) (harness.Plan, error) {
	preset, err := planned.Open(polar.Spec{Kind: a.Harness, Config: a.Settings})
	if err != nil {
		return harness.Plan{}, err
	}
	return preset(harness.Job{
		Session: "s1", Task: "t1", Instruction: "Don't $(panic) \"now\"", Agent: a,
		Paths:   sandbox.Paths{Home: "/sb/home", Work: "/sb/work", Session: "/sb/session", Tools: "/sb/tools"},
		BaseURL: "http://gateway:8100", Key: "sk-key", Model: "served", ContextWindow: window,
	})
}

// TestPlans holds what is planned for an agent against harness/testdata/plans.
// Each file there is an agent as a task has it, agent.json, and what comes of
// it: plan.json and the files of the plan by their paths, or the error that
// refuses it. A first line "window N" is the context window of the model.
func TestPlans(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	eachFixture(t, "plans", func(t *testing.T, a *txtar.Archive) []txtar.File {
		t.Helper()
		var agent polar.Agent
		if err := polar.DecodeStrict([]byte(section(a, "agent.json")), &agent); err != nil {
			t.Fatal(err)
		}
		window := 0
		if text, ok := strings.CutPrefix(string(a.Comment), "window "); ok {
			var err error
			if window, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
				t.Fatal(err)
			}
		}
		plan, err := planOf(agent, window)
		out := a.Files[:1:1]
		if err != nil {
			if _, ok := errors.AsType[*polar.FieldError](err); !ok {
				t.Errorf("%q names no field", err)
			}
			return append(out, txtar.File{Name: "error", Data: []byte(err.Error() + "\n")})
		}
		return append(out, drawPlan(t, plan)...)
	}, covered)
	for _, kind := range planned.Kinds() {
		if !covered[kind] {
			t.Errorf("no plan of the harness %s in harness/testdata/plans", kind)
		}
	}
}

// drawPlan writes a plan down with its files readable.
func drawPlan(t *testing.T, plan harness.Plan) []txtar.File {
	t.Helper()
	var files []txtar.File
	for i, f := range plan.Files {
		files = append(files, txtar.File{Name: fmt.Sprintf("%s (%#o)", f.Path, f.Mode), Data: f.Content})
		plan.Files[i].Content = nil
	}
	if plan.Release.Product.Name != "" {
		plan.Release.Product = harness.Product{Name: plan.Release.Product.Name}
	}
	shown := struct {
		Mounts  []sandbox.Mount   `json:",omitempty"`
		Env     map[string]string `json:",omitempty"`
		Setup   []harness.Step    `json:",omitempty"`
		Run     []harness.Step
		Keep    []harness.Keep `json:",omitempty"`
		Version string         `json:",omitempty"`
		Ask     []string       `json:",omitempty"`
		Expect  string         `json:",omitempty"`
		Judged  bool
	}{
		plan.Mounts, plan.Env, plan.Setup, plan.Run, plan.Keep,
		plan.Release.Version, plan.Release.Ask, plan.Release.Expected, plan.Judge != nil,
	}
	data, err := json.MarshalIndent(shown, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append([]txtar.File{{Name: "plan.json", Data: append(data, '\n')}}, files...)
}

// TestEndings holds what a harness is judged by against harness/testdata/endings.
// Each file there begins with the harness, its exit code, what it printed and
// what it printed as errors; verdict is what comes of it.
func TestEndings(t *testing.T) {
	t.Parallel()
	eachFixture(t, "endings", func(t *testing.T, a *txtar.Archive) []txtar.File {
		t.Helper()
		name, code, _ := strings.Cut(strings.TrimSpace(string(a.Comment)), " ")
		exit, err := strconv.Atoi(code)
		if err != nil {
			t.Fatalf("the first line is %q, want a harness and an exit code", a.Comment)
		}
		plan, err := planOf(polar.Agent{Harness: name}, 0)
		if err != nil {
			t.Fatal(err)
		}
		verdict := "completed\n"
		if f := plan.Judge(harness.Ending{
			Code: exit, Stdout: strings.NewReader(section(a, "stdout")), Stderr: strings.NewReader(section(a, "stderr")),
		}); f != nil {
			verdict = fmt.Sprintf("%s %s: %s\n", f.Blame, f.Kind, f.Message)
		}
		var out []txtar.File
		for _, f := range a.Files {
			if f.Name != "verdict" {
				out = append(out, f)
			}
		}
		return append(out, txtar.File{Name: "verdict", Data: []byte(verdict)})
	}, nil)
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// eachFixture compares every file of a folder with what want makes of it.
// covered takes the harnesses that they are about.
func eachFixture(t *testing.T, folder string, want func(*testing.T, *txtar.Archive) []txtar.File, covered map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "harness", "testdata", folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures in %s: %v", folder, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if kind, _, _ := strings.Cut(name, "-"); covered != nil {
			covered[kind] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := txtar.Parse(data)
			got := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: want(t, a)})
			if *updatePlans {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(data), string(got)); diff != "" {
				t.Errorf("%s differs (-want +got); go test ./cmd/polar -run '%s' -update-plans rewrites it:\n%s", file, t.Name(), diff)
			}
		})
	}
}
