package node

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"polar"
	"polar/evaluate"
	"polar/harness"
	"polar/sandbox"
	"polar/trajectory"
)

// Plugins are what sessions are made of, by the names tasks call them.
type Plugins struct {
	Harnesses  polar.Registry[harness.Preset]
	Builders   polar.Registry[trajectory.Builder]
	Evaluators polar.Registry[evaluate.Evaluator]
	// Drivers nil leaves the runtime to be checked by who has them.
	Drivers map[string]sandbox.Driver
	// DefaultRuntime is that of a task without one.
	DefaultRuntime polar.Runtime
	// AllowedHostPaths are the folders of this machine that tasks may upload
	// from.
	AllowedHostPaths []string
}

// opened is the plug-ins of one task.
type opened struct {
	preset    harness.Preset
	builder   trajectory.Builder
	evaluator evaluate.Evaluator // nil for none
	driver    sandbox.Driver
	runtime   polar.Runtime
}

// Check finds out whether a task could be run, by opening every plug-in it
// names and planning it with made-up paths. It starts nothing. Errors are
// polar.FieldErrors.
func (p Plugins) Check(t polar.Task) error {
	o, err := p.open(t)
	if err != nil {
		return err
	}
	plan, err := o.preset(harness.Job{
		Session: "session", Task: t.ID, Instruction: t.Instruction, Agent: t.Agent,
		Paths:   sandbox.Paths{Home: "/polar/home", Work: "/polar/work", Session: "/polar/session", Tools: "/polar/tools"},
		BaseURL: "http://gateway", Key: "key", Model: "model",
	})
	if err != nil {
		return fieldError("agent", err)
	}
	if err := checkText(t, o.runtime); err != nil {
		return err
	}
	if err := p.checkPrepare(o.runtime); err != nil {
		return err
	}
	if o.driver == nil {
		return nil
	}
	return runtimeError(o.driver.Check(specOf("check", o.runtime, plan.Mounts)))
}

// open makes the plug-ins of a task.
func (p Plugins) open(t polar.Task) (o opened, err error) {
	if o.preset, err = p.Harnesses.Open(polar.Spec{Kind: t.Agent.Harness, Config: t.Agent.Settings}); err != nil {
		return o, pluginError("agent.harness", "agent.settings", err)
	}
	if o.builder, err = p.Builders.Open(polar.Spec{Kind: t.Builder.Strategy, Config: t.Builder.Config}); err != nil {
		return o, pluginError("builder.strategy", "builder.config", err)
	}
	if e := t.Evaluator; e != nil {
		if o.evaluator, err = p.Evaluators.Open(polar.Spec{Kind: e.Strategy, Config: e.Config}); err != nil {
			return o, pluginError("evaluator.strategy", "evaluator.config", err)
		}
	}
	o.runtime = p.DefaultRuntime
	if t.Runtime != nil {
		o.runtime = *t.Runtime
	}
	if p.Drivers == nil {
		return o, nil
	}
	var ok bool
	if o.driver, ok = p.Drivers[o.runtime.Backend]; !ok {
		known := slices.Sorted(maps.Keys(p.Drivers))
		return o, polar.Invalid("runtime.backend", "%q is not known; known: %s", o.runtime.Backend, strings.Join(known, ", "))
	}
	return o, nil
}

// pluginError says in which field of the task the fault lies: the one with the
// plug-in's name or, below it, one of its settings.
func pluginError(name, settings string, err error) error {
	if _, missing := errors.AsType[*harness.NotInstalledError](err); missing || errors.Is(err, polar.ErrUnknownKind) {
		return polar.Invalid(name, "%v", err)
	}
	var bad *polar.FieldError
	if !errors.As(err, &bad) {
		return polar.Invalid(settings, "%v", err)
	}
	if bad.Field == "body" {
		return polar.Invalid(settings, "%s", bad.Message)
	}
	return polar.Invalid(settings+"."+bad.Field, "%s", bad.Message)
}

// fieldError makes sure that an error names a field.
func fieldError(field string, err error) error {
	var bad *polar.FieldError
	if err == nil || errors.As(err, &bad) {
		return err
	}
	return polar.Invalid(field, "%v", err)
}

func runtimeError(err error) error {
	if unsupported, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return polar.Invalid(unsupported.Field, "%s", unsupported.Reason)
	}
	return fieldError("runtime", err)
}

// specOf describes the sandbox of a runtime.
func specOf(id string, r polar.Runtime, mounts []sandbox.Mount) sandbox.Spec {
	return sandbox.Spec{
		ID: id, Image: r.Image, Workdir: r.Workdir, Env: r.Env, Mounts: mounts, Network: r.Network,
		AllowInternet: r.AllowInternet, CPUs: r.CPUs, MemoryMB: r.MemoryMB, StorageMB: r.StorageMB,
		GPUs: r.GPUs, Volumes: r.Kwargs.Volumes,
	}
}

// checkText refuses what cannot be passed to a program.
func checkText(t polar.Task, r polar.Runtime) error {
	if len(t.Instruction) > harness.MaxArgument {
		return polar.Invalid("instruction", "is %d bytes, at most %d can be passed to a harness; put the rest in a file with runtime.prepare", len(t.Instruction), harness.MaxArgument)
	}
	if strings.ContainsRune(t.Instruction, 0) {
		return polar.Invalid("instruction", "has a zero byte in it")
	}
	envs := map[string]map[string]string{"runtime.env": r.Env, "agent.env": t.Agent.Env}
	if t.Evaluator != nil {
		envs["evaluator.env"] = t.Evaluator.Env
	}
	if t.Agent.CustomShell != nil {
		envs["agent.custom_shell.env"] = t.Agent.CustomShell.Env
	}
	for _, list := range prepareLists(r) {
		for i, a := range list.actions {
			envs[fmt.Sprintf("%s[%d].env", list.field, i)] = a.Env
		}
	}
	for _, field := range slices.Sorted(maps.Keys(envs)) {
		for name, value := range envs[field] {
			switch {
			case name == "" || strings.ContainsAny(name, "=\x00"):
				return polar.Invalid(field, "%q is not the name of a variable", name)
			case strings.ContainsRune(value, 0) || len(value) > harness.MaxArgument:
				return polar.Invalid(field+"."+name, "is not text of at most %d bytes", harness.MaxArgument)
			}
		}
	}
	return nil
}

type prepareList struct {
	field   string
	actions []polar.Prepare
}

func prepareLists(r polar.Runtime) []prepareList {
	return []prepareList{{"runtime.prepare", r.Prepare}, {"runtime.eval_prepare", r.EvalPrepare}}
}

// checkPrepare refuses uploads from where they are not allowed.
func (p Plugins) checkPrepare(r polar.Runtime) error {
	for _, list := range prepareLists(r) {
		for i, a := range list.actions {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			switch a.Type {
			case "upload_file", "upload_dir":
				if _, err := p.hostPath(field+".source", a.Source); err != nil {
					return err
				}
			case "write_file":
				if _, err := fileMode(a.Mode); err != nil {
					return polar.Invalid(field+".mode", "%q is not an octal mode such as 0644", a.Mode)
				}
			}
		}
	}
	return nil
}

// hostPath resolves a path of this machine that a task names. Links count as
// what they lead to.
func (p Plugins) hostPath(field, name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", polar.Invalid(field, "%q must be an absolute path on the node", name)
	}
	host, err := filepath.EvalSymlinks(name)
	if err != nil {
		host = filepath.Clean(name)
	}
	for _, root := range p.AllowedHostPaths {
		if !within(root, host) {
			continue
		}
		if err != nil {
			return "", polar.Invalid(field, "%s is not there", name)
		}
		return host, nil
	}
	return "", polar.Invalid(field, "%s is not in gateway.allowed_host_paths", name)
}

// within reports whether an absolute path lies in the folder root.
func within(root, name string) bool {
	root, err := filepath.Abs(root)
	if err != nil {
		return false
	}
	if r, err := filepath.EvalSymlinks(root); err == nil {
		root = r
	}
	rel, err := filepath.Rel(root, name)
	return err == nil && filepath.IsLocal(rel)
}

// fileMode reads a mode as chmod takes it; empty means 0644.
func fileMode(mode string) (int64, error) {
	if mode == "" {
		return 0o644, nil
	}
	n, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("%q is not a mode", mode)
	}
	return int64(n), nil
}
