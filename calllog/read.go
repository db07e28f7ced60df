package calllog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"polar"
)

// Read reads the calls of an attempt from the folder of a log, whether the log
// is in use or not. A file that ends in a torn or damaged frame is read up to
// there; Torn says so. If there is no such attempt the error wraps
// fs.ErrNotExist.
func Read(dir string, id polar.SessionID, attempt int) ([]polar.Call, error) {
	path, err := sessionPath(id, attempt)
	if err != nil {
		return nil, err
	}
	calls, _, err := readFile(filepath.Join(dir, path), -1)
	return calls, err
}

// Torn is how many bytes at the end of an attempt's file are not calls: 0,
// unless a crash cut the last write off or the file was damaged.
func Torn(dir string, id polar.SessionID, attempt int) (int64, error) {
	path, err := sessionPath(id, attempt)
	if err != nil {
		return 0, err
	}
	_, cut, err := readFile(filepath.Join(dir, path), -1)
	return cut, err
}

// Attempts lists the attempts at a session that were recorded, in order; none
// for a session that is not known.
func Attempts(dir string, id polar.SessionID) ([]int, error) {
	if _, err := sessionPath(id, 0); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, string(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list attempts of %s: %w", id, err)
	}
	var attempts []int
	for _, e := range entries {
		name, isLog := strings.CutSuffix(e.Name(), ".log")
		if n, err := strconv.Atoi(name); isLog && err == nil && n >= 0 {
			attempts = append(attempts, n)
		}
	}
	slices.Sort(attempts)
	return attempts, nil
}

// readFile reads a session file up to end, or all of it if end is negative, and
// returns how many bytes at its end were no frames.
func readFile(path string, end int64) (calls []polar.Call, cut int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("read call log: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("read call log: %w", err)
	}
	if end < 0 || end > info.Size() {
		end = info.Size()
	}
	data := make([]byte, end)
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read call log: %w", err)
	}
	calls, rest := parse(data[:n])
	return calls, int64(len(rest)), nil
}

// parse reads a session file and returns what at its end is no frame.
func parse(data []byte) (calls []polar.Call, rest []byte) {
	data, ok := bytes.CutPrefix(data, []byte(fileHeader))
	if !ok {
		return nil, data
	}
	var r reader
	rest = r.read(data)
	return r.calls, rest
}
