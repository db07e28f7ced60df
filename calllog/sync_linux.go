package calllog

import (
	"errors"
	"os"
	"syscall"
)

// dataFile syncs the data of a file and what is needed to read it, its length,
// but not when it was last changed.
type dataFile struct{ *os.File }

// Sync returns when the data is on the disk.
func (f dataFile) Sync() error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
