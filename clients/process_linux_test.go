package clients_test

import "syscall"

// dieWithParent keeps a process from outliving a test run that is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
