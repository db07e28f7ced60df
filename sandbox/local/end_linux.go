package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a running process as /proc shows it.
type process struct {
	pid, parent, session int
	terminal             bool
	start                string // with pid, it names a process for good
}

// killOnce looks once for processes on the trail, kills them and says how many
// there were. Those that have ended but are not yet reaped do not count.
func killOnce(t trail) (int, error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	self := os.Getpid()
	marked := map[int]process{}
	for _, p := range all {
		if p.pid != self && t.leadsTo(p) {
			marked[p.pid] = p
		}
	}
	if len(marked) == 0 {
		return 0, nil
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			_, child := marked[p.parent]
			if _, known := marked[p.pid]; child && !known && p.pid != self {
				marked[p.pid] = p
				grown = true
			}
		}
	}
	left := 0
	for _, p := range marked {
		if kill(p) {
			left++
		}
	}
	return left, nil
}

// leadsTo reports whether the process is one of the sandbox's by itself. The
// folder alone does not condemn a process with a terminal: that is a person
// looking around.
func (t trail) leadsTo(p process) bool {
	if t.sessions[p.session] {
		return true
	}
	dir := filepath.Join("/proc", strconv.Itoa(p.pid))
	if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil && t.marks(env) {
		return true
	}
	if t.folder == "" || p.terminal {
		return false
	}
	for _, link := range []string{"cwd", "exe"} {
		target, err := os.Readlink(filepath.Join(dir, link))
		if err == nil && within(t.folder, strings.TrimSuffix(target, " (deleted)")) {
			return true
		}
	}
	return false
}

func (t trail) marks(env []byte) bool {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		value, ok := strings.CutPrefix(string(v), markerName+"=")
		if ok {
			return value == t.marker || !t.exact && strings.HasPrefix(value, t.marker)
		}
	}
	return false
}

// kill ends a process if it is still the one that was seen, and reports
// whether it was. The handle is opened before the second look, so that a pid
// given to another process in between is not hit.
func kill(p process) bool {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return false
	}
	defer handle.Release() //nolint:errcheck // only frees the handle
	now, ok := readProcess(p.pid)
	if !ok || now.start != p.start {
		return false
	}
	return !errors.Is(handle.Kill(), os.ErrProcessDone)
}

// processes lists the machine's running processes that can be seen.
func processes() ([]process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close() //nolint:errcheck // it was only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// readProcess reads /proc/PID/stat; false if the process has ended.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	// The name in brackets may hold anything; the fields begin after its end.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	session, _ := strconv.Atoi(fields[3])
	return process{pid: pid, parent: parent, session: session, terminal: fields[4] != "0", start: fields[19]}, true
}
