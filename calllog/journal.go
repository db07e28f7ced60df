package calllog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write is bytes of a session file on their way into the journal.
type write struct {
	path   string // of the session file, relative to the folder
	offset int64
	data   []byte
	// done gets the outcome; nil if nobody waits for it.
	done chan error
}

// journal is the redo log of the session files. One goroutine at a time uses it.
type journal struct {
	dir  string
	file file
	open opener
	size int64
	buf  []byte
	// The file is zeros from size to reserved. Writing over them changes nothing
	// but data, which is much less to sync than a file that grows; and a file
	// system that keeps files in order need not flush the session files with it.
	// It is reserved in steps; 0 means not at all.
	reserved, step int64
	// dirty are the session files with writes that only the journal has for sure.
	dirty map[string]struct{}
	// syncs counts how often the journal was synced.
	syncs int
	// broken is set when the journal can no longer be trusted to keep what is
	// put in. What it kept before is replayed by the next Open.
	broken error
}

// journalRecordHead is the length and the checksum of a record.
const journalRecordHead = 8

// append writes a batch and syncs it. If that fails nothing of it is kept.
func (j *journal) append(batch []*write) error {
	if j.broken != nil {
		return j.broken
	}
	j.buf = j.buf[:0]
	for _, w := range batch {
		j.buf = appendRecord(j.buf, w)
	}
	err := j.reserve(int64(len(j.buf)))
	if err == nil {
		err = writeAll(j.file, j.buf, j.size)
	}
	if err == nil {
		j.syncs++
		err = j.file.Sync()
	}
	if cap(j.buf) > 1<<20 { // one long prompt is no reason to hold its room for ever
		defer func() { j.buf = nil }()
	}
	if err != nil {
		err = fmt.Errorf("write call journal: %w", err)
		j.reserved = j.size
		if undo := errors.Join(j.file.Truncate(j.size), j.file.Sync()); undo != nil {
			j.broken = fmt.Errorf("call journal is broken, restart to recover: %w", errors.Join(err, undo))
		}
		return err
	}
	j.size += int64(len(j.buf))
	for _, w := range batch {
		j.dirty[w.path] = struct{}{}
	}
	return nil
}

// reserve makes sure that n more bytes fit into what is reserved.
func (j *journal) reserve(n int64) error {
	if j.step == 0 || j.size+n <= j.reserved {
		return nil
	}
	from := max(j.reserved, j.size)
	end := j.size + n + j.step
	if err := writeAll(j.file, make([]byte, end-from), from); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.reserved = end
	return nil
}

func appendRecord(dst []byte, w *write) []byte {
	head := len(dst)
	dst = append(dst, make([]byte, journalRecordHead)...)
	dst = binary.AppendUvarint(dst, uint64(len(w.path)))
	dst = append(dst, w.path...)
	dst = binary.AppendUvarint(dst, uint64(w.offset))
	dst = append(dst, w.data...)
	body := dst[head+journalRecordHead:]
	binary.LittleEndian.PutUint32(dst[head:], uint32(len(body)))
	binary.LittleEndian.PutUint32(dst[head+4:], crc32.Checksum(body, castagnoli))
	return dst
}

// readRecord reads the record at the start of data and returns what is after
// it; ok is false where the journal ends or is torn.
func readRecord(data []byte) (w write, rest []byte, ok bool) {
	if len(data) < journalRecordHead {
		return w, nil, false
	}
	size := binary.LittleEndian.Uint32(data)
	sum := binary.LittleEndian.Uint32(data[4:])
	data = data[journalRecordHead:]
	if size == 0 || uint64(size) > uint64(len(data)) {
		return w, nil, false
	}
	body, rest := data[:size], data[size:]
	if crc32.Checksum(body, castagnoli) != sum {
		return w, nil, false
	}
	d := decoder{data: body}
	w.path = string(d.bytes(d.uint()))
	w.offset = int64(d.uint())
	w.data = d.data
	return w, rest, d.err == nil && w.offset >= 0 && filepath.IsLocal(w.path)
}

// checkpoint syncs the session files and empties the journal. If a file cannot
// be synced, trying again proves nothing: the system may have dropped the
// writes. The journal still has them, so it is left as it is for the next Open.
func (j *journal) checkpoint() error {
	if j.broken != nil {
		return j.broken
	}
	err := syncFiles(j.dir, j.dirty, j.open)
	if err == nil {
		err = errors.Join(j.file.Truncate(0), j.file.Sync())
	}
	if err != nil {
		j.broken = fmt.Errorf("sync call logs, restart to recover: %w", err)
		return j.broken
	}
	j.size, j.reserved = 0, 0
	clear(j.dirty)
	return nil
}

// syncFiles syncs session files and the folders they are in. A file that was
// removed needs none.
func syncFiles(dir string, paths map[string]struct{}, open opener) error {
	if len(paths) == 0 {
		return nil
	}
	folders := map[string]struct{}{}
	for path := range paths {
		full := filepath.Join(dir, path)
		if err := syncFile(full, os.O_RDWR, open); err != nil {
			return err
		}
		folders[filepath.Dir(full)] = struct{}{}
	}
	folders[dir] = struct{}{}
	for folder := range folders {
		if err := syncFile(folder, os.O_RDONLY, open); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(path string, flag int, open opener) error {
	f, err := open(path, flag)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func writeAll(f file, data []byte, offset int64) error {
	_, err := f.WriteAt(data, offset)
	return err
}
