// Package sandbox is the contract of a place to run a harness in. Drivers live
// in folders below it; sandboxtest is the contract as a test that each driver
// runs.
package sandbox

import (
	"context"
	"io"
)

// Driver starts sandboxes of one kind.
type Driver interface {
	// Check says what of spec the driver cannot honour, as an error that wraps
	// errors.ErrUnsupported and names the field as the task has it. It starts
	// nothing.
	Check(spec Spec) error
	// Start returns a running sandbox, or nothing that needs closing.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Sweep ends what sandboxes of an earlier process left behind. It is called
	// once, before the first Start.
	Sweep(ctx context.Context) error
}

// Sandbox is one isolated place to run commands in. Its methods may be called
// from several goroutines.
type Sandbox interface {
	// Paths says where things are, as seen from inside.
	Paths() Paths
	// Exec runs one command to its end. A command that ran and failed is an exit
	// code, not an error. Cancelling ctx kills all its processes, and the error
	// is then the cause of ctx.
	Exec(ctx context.Context, cmd Cmd) (code int, err error)
	// Upload unpacks a tar stream below dir, which is made if it is not there.
	Upload(ctx context.Context, dir string, tar io.Reader) error
	// Download writes the file or folder at path as a tar stream with names
	// relative to path. A path that is not there wraps fs.ErrNotExist.
	Download(ctx context.Context, path string, tar io.Writer) error
	// Close ends every process of the sandbox and frees all it holds. It is safe
	// to call twice, and works when the session's own context has ended.
	Close(ctx context.Context) error
}

// Spec describes a sandbox.
type Spec struct {
	// ID is unique among the sandboxes of the node and safe in a path.
	ID    string
	Image string
	// Workdir is where commands run; empty means an empty folder of the sandbox.
	Workdir string
	// Env is set for every command, below what a command sets itself.
	Env     map[string]string
	Mounts  []Mount
	Network string
	// AllowInternet nil leaves it to the driver.
	AllowInternet *bool
	CPUs          float64
	MemoryMB      int
	StorageMB     int
	GPUs          int
	Volumes       []string
}

// Mount makes a file or folder of the host visible, read-only, as
// Paths.Tools/Name.
type Mount struct {
	Host string
	Name string
}

// Paths are the folders of a sandbox as seen from inside.
type Paths struct {
	// Home is the HOME of every command and starts empty.
	Home string
	// Work is where commands run by default.
	Work string
	// Session is kept after the run: logs and artifacts go below it.
	Session string
	// Tools holds the mounts.
	Tools string
}

// Cmd is one command.
type Cmd struct {
	// Args is the program and its arguments.
	Args []string
	// Dir is absolute or relative to Paths.Work; empty means Paths.Work.
	Dir string
	Env map[string]string
	// Stdout and Stderr take the output; nil discards it. Both may be the same
	// writer: each write is then whole.
	Stdout io.Writer
	Stderr io.Writer
}

// Bash is a command line for bash, run without a login shell's start-up files
// and with the exit code of a pipe's first failing part.
func Bash(line string) []string { return []string{"bash", "-o", "pipefail", "-c", line} }
