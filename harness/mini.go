package harness

import (
	"errors"
	"path"
	"strconv"
	"time"

	"polar"
	"polar/sandbox"
)

// MiniConfig is the settings of the mini harness.
type MiniConfig struct {
	// MaxSteps is the most model calls; 0 leaves it to the agent.
	MaxSteps int `json:"max_steps"`
	// CommandTimeout is the most time for one command of the model's; 0 leaves
	// it to the agent.
	CommandTimeout polar.Seconds `json:"command_timeout_seconds"`
	// Stream false asks for whole answers; the default is to stream.
	Stream *bool `json:"stream"`
}

// MiniWith returns the constructor of the mini harness: the agent built into
// polar itself, whose file on this machine is binary. It runs in any sandbox
// with nothing installed.
func MiniWith(binary string) func(MiniConfig) (Preset, error) {
	return func(c MiniConfig) (Preset, error) {
		switch {
		case binary == "":
			return nil, errors.New("the path of the polar binary is not known")
		case c.MaxSteps < 0:
			return nil, polar.Invalid("max_steps", "is %d, must be 1 or more", c.MaxSteps)
		case c.CommandTimeout < 0:
			return nil, polar.Invalid("command_timeout_seconds", "must be above 0")
		}
		return func(j Job) (Plan, error) { return planMini(binary, c, j) }, nil
	}
}

func planMini(binary string, c MiniConfig, j Job) (Plan, error) {
	if err := refuseExtras("mini", j.Agent); err != nil {
		return Plan{}, err
	}
	const tool = "polar"
	args := []string{path.Join(j.Paths.Tools, tool), "agent"}
	if c.MaxSteps > 0 {
		args = append(args, "--max-steps", strconv.Itoa(c.MaxSteps))
	}
	if c.CommandTimeout > 0 {
		args = append(args, "--command-timeout", c.CommandTimeout.Duration().Round(time.Millisecond).String())
	}
	if c.Stream != nil && !*c.Stream {
		args = append(args, "--no-stream")
	}
	if model := j.model(); model != "" {
		args = append(args, "--model", model)
	}
	return Plan{
		Mounts: []sandbox.Mount{{Host: binary, Name: tool}},
		Run:    []Step{{Args: args, Log: "mini.log"}},
	}, nil
}
