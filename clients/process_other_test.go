//go:build !linux

package clients_test

import "syscall"

// dieWithParent has no way to keep a process from outliving a test run that is
// killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
