package backend

import (
	"encoding/json"
	"io"
	"net"
	"slices"

	"polar/rawjson"
)

// body is a request's body as a list of byte slices. What is short is copied
// together; what is long, such as a message with an image, is only referred to,
// so that it is in memory once however often it is sent.
type body struct {
	parts [][]byte
	tail  []byte // what was written since the last part
	size  int64  // of the parts
}

// referFrom is the length from which a value is not copied.
const referFrom = 4 << 10

// newBody makes an empty body; its first bytes go into one allocation.
func newBody() *body { return &body{tail: make([]byte, 0, referFrom)} }

// text writes what is not a value of its own.
func (b *body) text(s string) { b.tail = append(b.tail, s...) }

// quoted writes a JSON string.
func (b *body) quoted(s string) { b.tail = rawjson.AppendString(b.tail, s) }

// raw writes JSON as it is. It must not be changed afterwards.
func (b *body) raw(value []byte) {
	if len(value) < referFrom {
		b.tail = append(b.tail, value...)
		return
	}
	b.cut()
	b.parts = append(b.parts, value)
	b.size += int64(len(value))
}

// field writes a member of an object that has others before it; nil is none.
func (b *body) field(key string, value json.RawMessage) {
	if value == nil {
		return
	}
	b.text(",")
	b.quoted(key)
	b.text(":")
	b.raw(value)
}

// list writes an array of values.
func (b *body) list(values []json.RawMessage) {
	b.text("[")
	for i, v := range values {
		if i > 0 {
			b.text(",")
		}
		b.raw(v)
	}
	b.text("]")
}

// cut makes a part of the tail. What is written next goes behind it in the
// same memory, as long as there is room.
func (b *body) cut() {
	if len(b.tail) == 0 {
		return
	}
	b.parts = append(b.parts, slices.Clip(b.tail))
	b.size += int64(len(b.tail))
	b.tail = b.tail[len(b.tail):]
}

// length is how many bytes there are to send.
func (b *body) length() int64 { return b.size + int64(len(b.tail)) }

// open is the body from its beginning. The body must be complete.
func (b *body) open() (io.ReadCloser, error) {
	b.cut()
	parts := net.Buffers(slices.Clone(b.parts))
	return io.NopCloser(&parts), nil
}
