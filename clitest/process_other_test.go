//go:build !linux

package clitest_test

import (
	"syscall"
	"testing"
)

// dieWithParent has no way to keep a process from outliving a test run that is
// killed.
func dieWithParent() *syscall.SysProcAttr { return nil }

// processesIn has no way to find processes by their folders.
func processesIn(*testing.T, string) []string { return nil }
