// Package harness turns a job into what a sandbox must hold and run for one
// kind of agent. Presets are pure: files, environment and commands as data.
package harness

import (
	"polar"
	"polar/sandbox"
)

// Preset plans a job for one kind of harness. It is pure, so that a task can
// be checked by planning it before anything is started.
type Preset func(Job) (Plan, error)

// Job is what a session wants of a harness.
type Job struct {
	Session     polar.SessionID
	Task        polar.TaskID
	Instruction string
	Agent       polar.Agent
	Paths       sandbox.Paths
	// BaseURL is the gateway's address as seen from the sandbox; Key is the
	// session's credential there.
	BaseURL string
	Key     string
	// Model is what the gateway serves, if the agent names none.
	Model string
	// ContextWindow is how many tokens the model takes; 0 if that is not known.
	ContextWindow int
}

// Plan is what to do. Everything in it is data.
type Plan struct {
	// Mounts are made when the sandbox starts, before anything else is known of
	// it, so they may depend on the preset's settings only.
	Mounts []sandbox.Mount
	Files  []File
	// Env is set for setup and run, over the session's environment and below what
	// the task sets.
	Env   map[string]string
	Setup []Step
	Run   []Step
	// Keep is what the harness writes about its own work; it is kept with its
	// logs when it has ended.
	Keep []Keep `json:",omitempty"`
	// Release is the program that is run, if it is not polar itself.
	Release Release `json:",omitzero"`
	// Judge says how the harness ended, going by what it reported rather than by
	// its exit code; nil leaves it to the exit code.
	Judge Judge `json:"-"`
}

// File is written into the sandbox before setup. The path is absolute or
// relative to the work folder.
type File struct {
	Path    string
	Content []byte
	Mode    int64
}

// Step is one command. Steps run in order; the first that fails ends the stage.
type Step struct {
	Args []string
	Dir  string
	Env  map[string]string
	// Log is the file name below AGENT_LOG_DIR that the output is kept in.
	Log string
	// Errors is the one for what goes to standard error; empty means Log too.
	Errors string `json:",omitempty"`
}

// Keep is a file or folder to keep below AGENT_LOG_DIR. One that is not there
// when the harness has ended is left out.
type Keep struct {
	// Path is where it is in the sandbox.
	Path string
	// Name is the folder below AGENT_LOG_DIR that it is put into.
	Name string
}
