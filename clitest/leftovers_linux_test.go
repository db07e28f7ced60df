package clitest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// processesIn are those whose folder, program or environment is below dir, by
// their command lines.
func processesIn(t *testing.T, dir string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range all {
		// One that ended meanwhile has nothing to read.
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		exe, _ := os.Readlink(filepath.Join(proc, "exe"))
		env, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if strings.HasPrefix(cwd, dir) || strings.HasPrefix(exe, dir) || bytes.Contains(env, []byte(dir)) {
			line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
			found = append(found, filepath.Base(proc)+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}
