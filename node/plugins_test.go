package node_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polar"
	"polar/harness"
)

func TestATaskThatCannotRunIsRefusedByField(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	runtime := func(r polar.Runtime) func(*polar.Task) {
		return func(t *polar.Task) {
			r.Backend = "local"
			t.Runtime = &r
		}
	}
	upload := func(source string) func(*polar.Task) {
		return runtime(polar.Runtime{EvalPrepare: []polar.Prepare{{Type: "upload_file", Source: source, Target: "x"}}})
	}
	p := plugins(t)
	p.AllowedHostPaths = []string{host}
	for name, c := range map[string]struct {
		change         func(*polar.Task)
		field, message string
	}{
		"unknown harness":         {func(t *polar.Task) { t.Agent.Harness = "codexx" }, "agent.harness", `"codexx" is not known; known: mini, shell`},
		"unknown setting":         {func(t *polar.Task) { t.Agent = mini(`{"max_stepz":1}`) }, "agent.settings.max_stepz", "unknown field"},
		"bad setting":             {func(t *polar.Task) { t.Agent = mini(`{"max_steps":-1}`) }, "agent.settings.max_steps", "1 or more"},
		"setting of another type": {func(t *polar.Task) { t.Agent = mini(`{"max_steps":"x"}`) }, "agent.settings.max_steps", "an integer"},
		"settings that are none":  {func(t *polar.Task) { t.Agent = mini(`[]`) }, "agent.settings", "an object"},
		"custom_shell for mini":   {func(t *polar.Task) { t.Agent.Harness = "mini" }, "agent.custom_shell", "shell harness"},
		"no command":              {func(t *polar.Task) { t.Agent.CustomShell = nil }, "agent.custom_shell", "missing"},
		"unknown builder":         {func(t *polar.Task) { t.Builder.Strategy = "x" }, "builder.strategy", "known: broken, per_request"},
		"builder's setting":       {func(t *polar.Task) { t.Builder.Config = json.RawMessage(`{"drift":1}`) }, "builder.config.drift", "unknown"},
		"unknown evaluator":       {func(t *polar.Task) { t.Evaluator = evaluator("x", "") }, "evaluator.strategy", "known: broken, command"},
		"evaluator's setting":     {func(t *polar.Task) { t.Evaluator = evaluator("command", `{}`) }, "evaluator.config.command", "missing"},
		"unknown backend":         {func(t *polar.Task) { t.Runtime = &polar.Runtime{Backend: "docker"} }, "runtime.backend", "known: local"},
		"image for local":         {runtime(polar.Runtime{Image: "debian"}), "runtime.image", "container"},
		"work folder elsewhere":   {runtime(polar.Runtime{Workdir: "/"}), "runtime.workdir", "allowed"},
		"upload from elsewhere":   {upload("/etc/passwd"), "runtime.eval_prepare[0].source", "allowed_host_paths"},
		"upload through a link":   {upload(filepath.Join(host, "link")), "runtime.eval_prepare[0].source", "allowed_host_paths"},
		"upload past the folder":  {upload(host + "/../x"), "runtime.eval_prepare[0].source", "allowed_host_paths"},
		"upload of nothing":       {upload(filepath.Join(host, "none")), "runtime.eval_prepare[0].source", "is not there"},
		"relative upload":         {upload("x"), "runtime.eval_prepare[0].source", "absolute"},
		"mode that is none":       {runtime(polar.Runtime{Prepare: []polar.Prepare{{Type: "write_file", Target: "x", Mode: "rwx"}}}), "runtime.prepare[0].mode", "octal"},
		"name of a variable":      {func(t *polar.Task) { t.Agent.Env = map[string]string{"A=B": ""} }, "agent.env", "name of a variable"},
		"value of a variable":     {runtime(polar.Runtime{Env: map[string]string{"A": "\x00"}}), "runtime.env.A", "text"},
		"instruction with a zero": {func(t *polar.Task) { t.Instruction = "a\x00" }, "instruction", "zero byte"},
		"instruction too long":    {func(t *polar.Task) { t.Instruction = strings.Repeat("x", harness.MaxArgument+1) }, "instruction", "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := shell("true")
			c.change(&task)
			err := p.Check(task)
			var bad *polar.FieldError
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Message, c.message) {
				t.Errorf("error %v, want %s: …%s…", err, c.field, c.message)
			}
		})
	}
}

func mini(settings string) polar.Agent {
	return polar.Agent{Harness: "mini", Settings: json.RawMessage(settings)}
}

func TestAGoodTaskPasses(t *testing.T) {
	t.Parallel()
	p := plugins(t)
	task := shell("run {instruction}")
	task.Evaluator = evaluator("command", `{"command":"true"}`)
	if err := p.Check(task); err != nil {
		t.Error(err)
	}
	task.Agent = mini(`{"max_steps":5}`)
	if err := p.Check(task); err != nil {
		t.Error(err)
	}
	p.Drivers = nil
	task.Runtime = &polar.Runtime{Backend: "elsewhere"}
	if err := p.Check(task); err != nil {
		t.Errorf("without drivers the runtime is not ours to check: %v", err)
	}
}
