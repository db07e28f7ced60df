package calllog

import (
	"testing"
)

// FuzzRead reads any bytes as a file, as a frame of each kind with a right
// checksum after a good call, and as a journal.
func FuzzRead(f *testing.F) {
	d := newDeltas()
	c, ids := call(3)
	c.Tools = c.Messages
	frame, a, err := d.encode(c, ids)
	if err != nil {
		f.Fatal(err)
	}
	d.accept(a)
	next, nextIDs := call(4)
	next.Tools = c.Tools
	second, _, err := d.encode(next, nextIDs)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte(fileHeader), frame...))
	f.Add(frame[frameHead:])
	f.Add(second[frameHead:])
	f.Add([]byte{0, 1})
	f.Add(appendRecord(nil, &write{path: "s/1.log", offset: 3, data: frame}))
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, data)
		for _, kind := range []byte{0, frameCall, frameDelivered} {
			file := append([]byte(fileHeader), frame...)
			check(t, appendFrame(file, kind, data))
		}
		for rest, ok := data, true; ok; {
			_, rest, ok = readRecord(rest)
		}
	})
}

// check reads a file and writes out all that it refers to.
func check(t *testing.T, file []byte) {
	t.Helper()
	calls, rest := parse(file)
	if len(rest) > len(file) {
		t.Fatalf("%d bytes of %d are left", len(rest), len(file))
	}
	for _, c := range calls {
		if len(c.Prompt.IDs()) != c.Prompt.Len() || len(c.Sampled) > len(file) {
			t.Fatalf("call %s", c.ID)
		}
	}
}
