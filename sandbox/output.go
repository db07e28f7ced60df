package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Output keeps what a command writes, in a file without a name: the first Max
// bytes and, if there is more, the last TailBytes. It is safe for use by
// several goroutines.
type Output struct {
	max int64

	mu    sync.Mutex
	file  *os.File
	head  int64
	total int64
	tail  []byte // ring of the last TailBytes, oldest at next
	next  int
	err   error
}

// TailBytes is how much of the end of an output is always kept.
const TailBytes = 64 << 10

// NewOutput makes an Output that keeps its file in the folder dir; empty means
// the system's place for temporary files. It must be closed.
func NewOutput(dir string, limit int64) (*Output, error) {
	f, err := os.CreateTemp(dir, "polar-output-*")
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("keep output: %w", err), f.Close())
	}
	return &Output{max: limit, file: f}, nil
}

// Write takes output in. It never fails, so that a full disk does not break the
// command; see Save.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(p))
	o.keepTail(p)
	if room := o.max - o.head; room > 0 && o.err == nil {
		n, err := o.file.Write(p[:min(int64(len(p)), room)])
		o.head += int64(n)
		o.err = err
	}
	return len(p), nil
}

func (o *Output) keepTail(p []byte) {
	if len(p) >= TailBytes {
		o.tail = append(o.tail[:0], p[len(p)-TailBytes:]...)
		o.next = 0
		return
	}
	if room := TailBytes - len(o.tail); room > 0 {
		n := min(room, len(p))
		o.tail = append(o.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(o.tail[o.next:], p)
		p = p[n:]
		o.next = (o.next + n) % TailBytes
	}
}

// Tail returns the last n bytes, at most TailBytes.
func (o *Output) Tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.lastBytes()
	return string(end[max(0, len(end)-n):])
}

// Excerpt is the end of what was written since a mark, in the shape of the end
// of a message: nothing, or a colon and the text.
func (o *Output) Excerpt(since int64) string {
	const most = 2 << 10
	text := strings.TrimSpace(strings.ToValidUTF8(o.Tail(int(min(most, o.Len()-since))), "\ufffd"))
	if text == "" {
		return ""
	}
	return ": " + text
}

func (o *Output) lastBytes() []byte {
	return append(append(make([]byte, 0, len(o.tail)), o.tail[o.next:]...), o.tail[:o.next]...)
}

// Len is how much was written.
func (o *Output) Len() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// Save writes the output into a file of a sandbox. What was left out between
// the head and the tail is named there.
func (o *Output) Save(ctx context.Context, sb Sandbox, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	content, size := o.content()
	if err := WriteFile(ctx, sb, name, 0o644, size, content); err != nil {
		return err
	}
	return o.err
}

// Reader reads what Save would write.
func (o *Output) Reader() io.Reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	content, _ := o.content()
	return content
}

func (o *Output) content() (io.Reader, int64) {
	var rest []byte
	if missing := o.total - o.head; missing > 0 {
		rest = o.lastBytes()
		if int64(len(rest)) > missing {
			rest = rest[int64(len(rest))-missing:]
		}
		if gap := missing - int64(len(rest)); gap > 0 {
			rest = append(fmt.Appendf(nil, "\n[%d bytes left out]\n", gap), rest...)
		}
	}
	head := io.NewSectionReader(o.file, 0, o.head)
	return io.MultiReader(head, bytes.NewReader(rest)), o.head + int64(len(rest))
}

// Close frees the file.
func (o *Output) Close() error { return o.file.Close() }
