// Package sse reads and writes server-sent events.
package sse

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Config bounds a Reader; the zero value has the defaults.
type Config struct {
	// MaxEventBytes is how long one event may be, from its first line of data to
	// its end; 0 means 64 MiB.
	MaxEventBytes int
	// Buffers, if given, lets readers use each other's large buffers.
	Buffers *Buffers
}

// Buffers are the buffers that long events were read into and that wait for the
// next such. The zero value is ready; it may be used by many readers at a time.
type Buffers struct{ pool sync.Pool }

// get returns a buffer of at least size bytes, whatever is in it.
func (b *Buffers) get(size int) []byte {
	if b != nil && size > keepBufferBytes {
		if spare, ok := b.pool.Get().(*[]byte); ok && len(*spare) >= size {
			return *spare
		}
	}
	return make([]byte, size)
}

func (b *Buffers) put(buf []byte) {
	if b != nil && len(buf) > keepBufferBytes {
		b.pool.Put(&buf)
	}
}

// ErrTooLarge is returned for an event longer than the bound.
var ErrTooLarge = errors.New("server-sent event is larger than the bound")

// Event is one event of a stream.
type Event struct {
	// Type is "message" where the stream names none.
	Type string
	// Data is valid until the next call of Next.
	Data []byte
	// ID is the last id the stream gave, on this event or one before it.
	ID string
}

const (
	defaultMaxEventBytes = 64 << 20
	firstBufferBytes     = 4 << 10
	// keepBufferBytes is how large a buffer may stay once its event is read: a
	// stream whose first event was long is not to hold that much to its end.
	keepBufferBytes = 64 << 10
	// lineWindowBytes is how far a search for a line's end looks at a time, so
	// that two kinds of line end cost no more than one.
	lineWindowBytes = 4 << 10
)

// Reader reads the events of one stream. It is not for use by more than one
// goroutine.
type Reader struct {
	src     io.Reader
	max     int
	buffers *Buffers

	buf     []byte
	start   int // of what is still needed in buf
	pos     int // of the line being read
	scanned int // no line ends between pos and here
	end     int // of what was read into buf

	skipLF  bool // the line before ended in CR
	begun   bool // a byte order mark can no longer come
	eof     error
	id      string
	typ     string
	hasData bool
	// data is where the lines of data lie in buf; more than one are moved
	// together in place.
	dataFrom, dataTo int
}

// NewReader reads events from src.
func NewReader(src io.Reader, c Config) *Reader {
	if c.MaxEventBytes <= 0 {
		c.MaxEventBytes = defaultMaxEventBytes
	}
	return &Reader{src: src, max: c.MaxEventBytes, buffers: c.Buffers}
}

// Next returns the next event. At the end of the stream it returns io.EOF; an
// event that the end cut off is dropped, as the specification says.
func (r *Reader) Next() (Event, error) {
	r.typ, r.hasData = "", false
	r.start = r.pos
	r.shrink()
	for {
		line, err := r.line()
		if err == nil && r.pos-r.start > r.max {
			r.pos, r.scanned, r.eof = r.end, r.end, ErrTooLarge
			err = r.eof
		}
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if e, ok := r.dispatch(); ok {
				return e, nil
			}
		} else {
			r.field(line)
		}
		if !r.hasData {
			r.start = r.pos
		}
	}
}

// Buffered reports whether Next would return an event without reading from the
// source. It may say false where it would.
func (r *Reader) Buffered() bool {
	rest := r.buf[r.pos:r.end]
	return bytes.Contains(rest, []byte("\n\n")) || bytes.Contains(rest, []byte("\n\r\n"))
}

func (r *Reader) dispatch() (Event, bool) {
	typ := r.typ
	r.typ = ""
	if !r.hasData {
		return Event{}, false
	}
	if typ == "" {
		typ = "message"
	}
	return Event{Type: typ, Data: r.buf[r.dataFrom:r.dataTo:r.dataTo], ID: r.id}, true
}

// field takes in one line, which lies in buf just before pos.
func (r *Reader) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		r.addData(value)
	case "event":
		r.typ = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 && string(value) != r.id {
			r.id = string(value)
		}
	}
}

func (r *Reader) addData(value []byte) {
	if !r.hasData {
		r.hasData = true
		r.dataTo = r.pos - 1 // where the line's end is
		r.dataFrom = r.dataTo - len(value)
		return
	}
	// "data" and a line end lie between what is there and value: room for a
	// newline, and for value to move down.
	r.buf[r.dataTo] = '\n'
	r.dataTo += 1 + copy(r.buf[r.dataTo+1:], value)
}

// line returns the next line without its end and moves pos past it.
func (r *Reader) line() ([]byte, error) {
	for {
		if r.skipLF && r.pos < r.end {
			r.skipLF = false
			if r.buf[r.pos] == '\n' {
				r.pos++
			}
			r.scanned = r.pos
		}
		if !r.begun && !r.skipMark() {
			if err := r.fill(); err != nil {
				return nil, err
			}
			continue
		}
		if n := r.lineEnd(); n >= 0 {
			line := r.buf[r.pos:n]
			r.skipLF = r.buf[n] == '\r'
			r.pos, r.scanned = n+1, n+1
			return line, nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// skipMark steps over a byte order mark and reports whether it could be told.
func (r *Reader) skipMark() bool {
	const mark = "\xef\xbb\xbf"
	head := r.buf[r.pos:r.end]
	if len(head) < len(mark) && r.eof == nil && string(head) == mark[:len(head)] {
		return false
	}
	if bytes.HasPrefix(head, []byte(mark)) {
		r.pos += len(mark)
		r.scanned = r.pos
	}
	r.begun = true
	return true
}

// lineEnd finds the CR or LF that ends the line at pos, or -1.
func (r *Reader) lineEnd() int {
	for r.scanned < r.end {
		window := r.buf[r.scanned:min(r.end, r.scanned+lineWindowBytes)]
		found := -1
		if i := bytes.IndexByte(window, '\n'); i >= 0 {
			found, window = r.scanned+i, window[:i]
		}
		if i := bytes.IndexByte(window, '\r'); i >= 0 {
			found = r.scanned + i
		}
		if found >= 0 {
			return found
		}
		r.scanned += len(window)
	}
	return -1
}

// fill reads more into buf, which it first makes room in.
func (r *Reader) fill() error {
	if r.eof != nil {
		return r.eof
	}
	if r.end-r.start > r.max {
		r.eof = ErrTooLarge
		return r.eof
	}
	if r.end == len(r.buf) {
		r.makeRoom()
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.eof = err
		}
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.eof = io.ErrNoProgress
	return r.eof
}

// makeRoom moves what is needed to the front, and grows the buffer by a factor
// if that is more than half of it: the cost of a long event stays linear.
func (r *Reader) makeRoom() {
	into := r.buf
	if need := r.end - r.start; need > len(r.buf)/2 || r.buf == nil {
		factor := 2
		if len(r.buf) < 1<<20 {
			factor = 4
		}
		into = r.buffers.get(max(firstBufferBytes, factor*len(r.buf)))
	}
	copy(into, r.buf[r.start:r.end])
	if len(into) != len(r.buf) {
		r.buffers.put(r.buf)
	}
	r.buf = into
	r.pos -= r.start
	r.scanned -= r.start
	r.end -= r.start
	r.dataFrom -= r.start
	r.dataTo -= r.start
	r.start = 0
}

// shrink lets go of a long buffer once nothing in it is needed.
func (r *Reader) shrink() {
	if r.start == r.end && len(r.buf) > keepBufferBytes {
		r.buffers.put(r.buf)
		r.buf = nil
		r.start, r.pos, r.scanned, r.end = 0, 0, 0, 0
	}
}
