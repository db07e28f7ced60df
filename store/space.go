package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"polar/api"
)

// ErrNoSpace is wrapped by what fails because the data folder's disk is full.
// The store works again as soon as there is room.
var ErrNoSpace = api.ErrNoSpace

// explain makes one clear error of the many faces of a full disk.
func (s *Store) explain(err error) error {
	if err == nil || !isFull(err, s.dir) {
		return err
	}
	return noSpace(s.dir)
}

func noSpace(dir string) error { return fmt.Errorf("%w in the data folder %s", ErrNoSpace, dir) }

func isFull(err error, dir string) bool {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	var fault *sqlite.Error
	if !errors.As(err, &fault) {
		return false
	}
	switch fault.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		// A journal or its index that cannot grow is only an I/O error to SQLite.
		var fs syscall.Statfs_t
		return syscall.Statfs(dir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) < 1<<20
	}
	return false
}

// isFault tells an error of the database from a refusal of ours.
func isFault(err error) bool {
	var fault *sqlite.Error
	return errors.As(err, &fault) && !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrNoRows)
}
