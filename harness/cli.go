package harness

import (
	"encoding/json"
	"path"

	"polar"
	"polar/sandbox"
)

// CLI is a harness that is a program of its own: what there is to install, and
// the preset that runs it. It is one line in the list of built-in harnesses.
type CLI struct {
	Product
	open func(Find, json.RawMessage) (Preset, error)
}

// Product says where a program comes from and which versions of it were tried.
type Product struct {
	// Name is the harness's.
	Name string
	// Source is the registry, SourceNPM or SourcePyPI; Package is the name there.
	Source  string
	Package string
	// Command is the program as it is called on a PATH.
	Command string
	// AskVersion are the arguments that make it print its version; none means
	// --version.
	AskVersion []string `json:",omitempty"`
	// Oldest and Newest bound the versions that were tried. Newest is the one
	// that is installed unless another is asked for.
	Oldest, Newest string
	// Wires are the protocols it speaks to the model, the usual one first.
	Wires []string
}

// Ask is the command that makes the program at a path print its version.
func (p Product) Ask(program string) []string {
	if len(p.AskVersion) == 0 {
		return []string{program, "--version"}
	}
	return append([]string{program}, p.AskVersion...)
}

// The registries.
const (
	SourceNPM  = "npm"
	SourcePyPI = "pypi"
)

// Kit is a product installed on this machine: one folder with all it needs,
// which a sandbox mounts as it is.
type Kit struct {
	Dir     string
	Version string
	// Program is the path of the command in the folder, with slashes.
	Program string
}

// Find returns the kit of a product. An empty version means the newest that was
// tried. One that is not installed is an error that says how to install it.
type Find func(p Product, version string) (Kit, error)

// NotInstalledError is that of a preset whose program is not there. It is no
// fault of the settings.
type NotInstalledError struct{ Err error }

func (e *NotInstalledError) Error() string { return e.Err.Error() }
func (e *NotInstalledError) Unwrap() error { return e.Err }

// CLIConfig are the settings that every CLI's preset has.
type CLIConfig struct {
	// Version picks among those installed; with Command it is the one that must
	// be found there.
	Version string `json:"version"`
	// Command runs a program of the sandbox instead of the installed one: a name
	// on its PATH, or a path.
	Command string `json:"command"`
}

func (c CLIConfig) common() CLIConfig { return c }

// Opener opens the preset with kits that find finds.
func (c CLI) Opener(find Find) func(json.RawMessage) (Preset, error) {
	return func(settings json.RawMessage) (Preset, error) { return c.open(find, settings) }
}

// newCLI makes the CLI of a product. plan gets the path of the program in the
// sandbox; where the program comes from is no concern of its. It may refuse a
// setting with an error of the field agent.settings.NAME.
func newCLI[C interface{ common() CLIConfig }](p Product, plan func(program string, c C, j Job) (Plan, error)) CLI {
	return CLI{Product: p, open: func(find Find, raw json.RawMessage) (Preset, error) {
		return polar.Opener(func(c C) (Preset, error) {
			common := c.common()
			if common.Command != "" {
				return func(j Job) (Plan, error) {
					made, err := planCLI(common.Command, c, j, plan)
					made.Release = Release{Product: p, Expected: common.Version, Ask: p.Ask(common.Command)}
					return made, err
				}, nil
			}
			kit, err := find(p, common.Version)
			switch {
			case err != nil && common.Version != "":
				return nil, polar.Invalid("version", "%v", err)
			case err != nil:
				return nil, &NotInstalledError{err}
			}
			return func(j Job) (Plan, error) {
				made, err := planCLI(path.Join(j.Paths.Tools, p.Name, kit.Program), c, j, plan)
				made.Mounts = append(made.Mounts, sandbox.Mount{Host: kit.Dir, Name: p.Name})
				made.Release = Release{Product: p, Version: kit.Version}
				return made, err
			}, nil
		})(raw)
	}}
}

func planCLI[C any](program string, c C, j Job, plan func(string, C, Job) (Plan, error)) (Plan, error) {
	if j.Agent.CustomShell != nil {
		return Plan{}, polar.Invalid("agent.custom_shell", "is for the shell harness, this is %s", j.Agent.Harness)
	}
	if err := checkMCP(j.Agent.MCPServers); err != nil {
		return Plan{}, err
	}
	return plan(program, c, j)
}
