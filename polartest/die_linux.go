package polartest

import "syscall"

// DieWithParent keeps a process from outliving a test run that is killed.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
