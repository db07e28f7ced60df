package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrInUse is wrapped when another server has the data folder.
var ErrInUse = errors.New("in use by another polar server")

// FolderLock is the hold of one process on a data folder.
type FolderLock struct{ file *os.File }

// Close lets the folder go.
func (l *FolderLock) Close() error { return l.file.Close() }

// releaseWait is how long a folder may still be held after its holder died: a
// process that was being started at that moment has the lock until it runs.
const releaseWait = 2 * time.Second

// Lock takes the data folder for this process, making it if it is not there,
// and holds it until the lock is closed or the process ends, however it ends.
func Lock(ctx context.Context, dir string) (*FolderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := flock(ctx, f); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data folder %s is %w%s: stop it or choose another folder", dir, ErrInUse, holderName(f))
		}
		return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	// The process id is for the next who wants the folder; the lock does not need it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &FolderLock{file: f}, nil
}

// flock takes the lock at once, or soon if who held it is dead.
func flock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) || alive(holder(f)) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func alive(pid int) bool { return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// holder is the process that wrote itself down last, or 0.
func holder(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

func holderName(f *os.File) string {
	if pid := holder(f); pid > 0 {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}
