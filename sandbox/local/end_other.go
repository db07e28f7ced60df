//go:build !linux

package local

import "syscall"

// killOnce kills the process groups that commands were started as. Without
// /proc, what has left its group cannot be found.
func killOnce(t trail) (int, error) {
	left := 0
	for session := range t.sessions {
		if syscall.Kill(-session, syscall.SIGKILL) == nil {
			left++
		}
	}
	return left, nil
}
