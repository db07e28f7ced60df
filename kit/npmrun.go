package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// npmTries is how often npm is run where a registry has a bad moment, each
	// time for npmTime at most.
	npmTries = 3
	npmTime  = 5 * time.Minute
)

// npm runs npm.
type npm struct {
	program string
	// node is the folder of the Node to run it with; empty means the machine's.
	// npm leaves optional packages out that do not suit the Node it runs with.
	node string
}

func (f Folder) findNPM() (npm, error) {
	if f.NPM != "" {
		return npm{program: f.NPM}, nil
	}
	found, err := exec.LookPath("npm")
	if err != nil {
		return npm{}, unreachable("npm is not on the PATH; install Node.js, which has it, or name a program of the sandbox in agent.settings.command")
	}
	return npm{program: found}, nil
}

// run runs npm in a folder. No script of a package is run; the hash of each
// package is checked by npm. What it said is noted where a line does not
// explain the failure.
func (n npm) run(ctx context.Context, dir string, args []string, note func(string)) error {
	args = slices.Concat(args, []string{"--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"})
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, npmTime)
		cmd := exec.CommandContext(once, n.program, args...)
		cmd.Dir = dir
		cmd.Env = n.environ(cmd.Environ())
		inGroup(cmd)
		out, err := cmd.CombinedOutput()
		late := once.Err() != nil
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		code, line := complaint(string(out))
		if slices.Contains(finalCodes, code) {
			return fmt.Errorf("npm: %s", line)
		}
		if try < npmTries {
			note(fmt.Sprintf("npm: %s; trying again", line))
			continue
		}
		if late || slices.Contains(networkCodes, code) || strings.HasPrefix(code, "E5") {
			return unreachable("the npm registry cannot be reached: " + line)
		}
		for text := range strings.Lines(string(out)) {
			note(strings.TrimSuffix(text, "\n"))
		}
		return errors.New("npm: " + line)
	}
}

// environ puts the folder of Node first in the PATH.
func (n npm) environ(env []string) []string {
	for i, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok && n.node != "" {
			env[i] = "PATH=" + n.node + string(os.PathListSeparator) + path
		}
	}
	return env
}

// npm's codes of failures that come again, and of those of the network.
var (
	finalCodes   = []string{"E404", "ETARGET", "E401", "E403", "EUSAGE", "ENOSPC", "EACCES", "EROFS"}
	networkCodes = []string{
		"EAI_AGAIN", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "ENOTCACHED",
		"ENOTFOUND", "EPIPE", "ERR_SOCKET_TIMEOUT", "ETIMEDOUT", "FETCH_ERROR", "UND_ERR_CONNECT_TIMEOUT",
	}
)

var npmError = regexp.MustCompile(`(?m)^npm (?:error|ERR!) +(.*\S)`)

// complaint finds npm's code and words for a failure in its output.
func complaint(out string) (code, line string) {
	for _, m := range npmError.FindAllStringSubmatch(out, -1) {
		if c, ok := strings.CutPrefix(m[1], "code "); ok {
			code = c
			continue
		}
		first, rest, _ := strings.Cut(m[1], " ")
		switch {
		case line != "" || slices.Contains([]string{"errno", "syscall", "path"}, first):
		case rest != "" && slices.Contains([]string{"network", "notarget", "404", code}, first):
			line = rest
		default:
			line = m[1]
		}
	}
	switch {
	case line == "" && code != "":
		line = code
	case line == "":
		if line = lastLine(out); line == "" {
			line = "it said nothing"
		}
	}
	return code, line
}
