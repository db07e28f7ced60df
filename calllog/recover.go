package calllog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// recoverSessions writes what the journal has over the session files, syncs
// them and empties the journal. Doing it twice does no harm.
func recoverSessions(dir string, log *slog.Logger, open opener) error {
	path := filepath.Join(dir, journalName)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	size := len(data)
	r := replay{dir: dir, open: open, touched: map[string]struct{}{}}
	for {
		w, rest, ok := readRecord(data)
		if !ok {
			break
		}
		if err := r.write(w); err != nil {
			return errors.Join(fmt.Errorf("recover %s: %w", w.path, err), r.close())
		}
		data = rest
	}
	if err := r.close(); err != nil {
		return err
	}
	if err := syncFiles(dir, r.touched, open); err != nil {
		return err
	}
	if torn := bytes.TrimRight(data, "\x00"); len(torn) > 0 { // zeros are what was reserved
		log.Warn("call journal ended in a write that was not finished", "cut_bytes", len(torn))
	}
	if size > 0 {
		log.Info("call logs recovered", "files", len(r.touched), "journal_bytes", size)
	}
	f, err := open(path, os.O_RDWR)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(0), f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(syncFile(dir, os.O_RDONLY, open), syncFile(filepath.Dir(dir), os.O_RDONLY, open))
}

// replay writes to one session file after the other and holds the last open.
type replay struct {
	dir     string
	open    opener
	path    string
	file    file
	touched map[string]struct{}
}

func (r *replay) write(w write) error {
	if r.file == nil || r.path != w.path {
		if err := r.close(); err != nil {
			return err
		}
		if err := r.begin(w); err != nil || r.file == nil {
			return err
		}
	}
	return writeAll(r.file, w.data, w.offset)
}

// begin opens the file of w. Only the write at its start makes the file: if it
// is not there at a later one, somebody removed it, and part of it is no use.
func (r *replay) begin(w write) error {
	full := filepath.Join(r.dir, w.path)
	flag := os.O_RDWR
	if w.offset == 0 {
		flag |= os.O_CREATE
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			return err
		}
	}
	f, err := r.open(full, flag)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.path, r.file = w.path, f
	r.touched[w.path] = struct{}{}
	return nil
}

func (r *replay) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
