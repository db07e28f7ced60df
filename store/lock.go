package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrInUse is wrapped when another server has the data folder.
var ErrInUse = errors.New("in use by another polar server")

// FolderLock is the hold of one process on a data folder.
type FolderLock struct{ file *os.File }

// Close lets the folder go.
func (l *FolderLock) Close() error { return l.file.Close() }

// Lock takes the data folder for this process, making it if it is not there,
// and holds it until the lock is closed or the process ends, however it ends.
func Lock(dir string) (*FolderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data folder %s is %w%s: stop it or choose another folder", dir, ErrInUse, holder(f))
		}
		return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	// The process id is for the reader of the next error; the lock does not need it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &FolderLock{file: f}, nil
}

func holder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}
