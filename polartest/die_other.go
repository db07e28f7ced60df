//go:build !linux

package polartest

import "syscall"

// DieWithParent has no way to keep a process from outliving a test run that is
// killed.
func DieWithParent() *syscall.SysProcAttr { return nil }
