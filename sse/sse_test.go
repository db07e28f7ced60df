package sse_test

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"polar/sse"
)

type event struct{ Type, Data, ID string }

func readAll(tb testing.TB, src io.Reader, c sse.Config) ([]event, error) {
	tb.Helper()
	var out []event
	r := sse.NewReader(src, c)
	for {
		e, err := r.Next()
		if err != nil {
			if _, again := r.Next(); !errors.Is(again, err) {
				tb.Errorf("after %v Next says %v", err, again)
			}
			return out, err
		}
		out = append(out, event{e.Type, string(e.Data), e.ID})
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stream string
		want   []event
	}{
		"one event":                         {"data: a\n\n", []event{{"message", "a", ""}}},
		"no space after the colon":          {"data:a\n\n", []event{{"message", "a", ""}}},
		"only one space is taken":           {"data:  a\n\n", []event{{"message", " a", ""}}},
		"lines of data are joined":          {"data: a\ndata\ndata: b\n\n", []event{{"message", "a\n\nb", ""}}},
		"data without a value is empty":     {"data\n\n", []event{{"message", "", ""}}},
		"two data without a value":          {"data\ndata\n\n", []event{{"message", "\n", ""}}},
		"carriage returns end lines":        {"data: a\r\rdata: b\r\r", []event{{"message", "a", ""}, {"message", "b", ""}}},
		"both ends of line end one line":    {"event: x\r\ndata: a\r\n\r\n", []event{{"x", "a", ""}}},
		"a comment is nothing":              {": hello\n\ndata: a\n: and\n\n", []event{{"message", "a", ""}}},
		"a byte order mark is skipped once": {"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", []event{{"message", "a", ""}}},
		"an id stays":                       {"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []event{{"message", "a", "1"}, {"message", "b", "1"}, {"message", "c", ""}}},
		"an id with a NUL does not count":   {"id: 1\x00\ndata: a\n\n", []event{{"message", "a", ""}}},
		"a type is of one event":            {"event: x\n\ndata: a\n\n", []event{{"message", "a", ""}}},
		"unknown fields are nothing":        {"retry: 5\nfoo\ndata: a\n\n", []event{{"message", "a", ""}}},
		"an event cut off is dropped":       {"data: a\n\ndata: b\n", []event{{"message", "a", ""}}},
		"part of a mark is text":            {"\xef\xbb", nil},
		"nothing":                           {"", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way, src := range map[string]io.Reader{
				"whole":      strings.NewReader(tc.stream),
				"bytewise":   iotest.OneByteReader(strings.NewReader(tc.stream)),
				"early end":  iotest.DataErrReader(strings.NewReader(tc.stream)),
				"half reads": iotest.HalfReader(strings.NewReader(tc.stream)),
			} {
				got, err := readAll(t, src, sse.Config{})
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: ended with %v", way, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", way, diff)
				}
			}
		})
	}
}

func TestEventIsSeenBeforeTheLineFeedOfItsLastCarriageReturn(t *testing.T) {
	t.Parallel()
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.WriteString(pw, "data: a\r\n\r")
	}()
	e, err := sse.NewReader(pr, sse.Config{}).Next()
	if err != nil || string(e.Data) != "a" {
		t.Errorf("got %q, %v", e.Data, err)
	}
	<-done
}

func TestReaderPassesAReadErrorOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken))
	got, err := readAll(t, src, sse.Config{})
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestReaderRefusesAnEventOverTheBound(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	tests := map[string]struct {
		stream string
		max    int
		events int
		want   error
	}{
		"just within":               {"data: " + long + "\n\n", 10_008, 1, io.EOF},
		"one over":                  {"data: " + long + "\n\n", 10_007, 0, sse.ErrTooLarge},
		"in many lines":             {strings.Repeat("data: 12345\n", 1000) + "\n", 10_000, 0, sse.ErrTooLarge},
		"a line without end":        {"data: a\n\ndata: " + strings.Repeat(long, 10), 20_000, 1, sse.ErrTooLarge},
		"comments do not add up":    {strings.Repeat(": 12345678\n", 10_000) + "data: a\n\n", 1000, 1, io.EOF},
		"events do not add up":      {strings.Repeat("data: 12345678\n\n", 10_000), 1000, 10_000, io.EOF},
		"small events are no bound": {"data: a\n\n", 9, 1, io.EOF},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readAll(t, strings.NewReader(tc.stream), sse.Config{MaxEventBytes: tc.max})
			if !errors.Is(err, tc.want) || len(got) != tc.events {
				t.Errorf("got %d events, %v; want %d, %v", len(got), err, tc.events, tc.want)
			}
		})
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	w := sse.NewWriter(rec)
	w.Add("", []byte("queued"))
	if rec.Body.Len() != 0 {
		t.Error("an added event is written before its time")
	}
	for _, err := range []error{
		w.Event("x", []byte("a\nb\r\nc\rd")),
		w.Comment("two\nlines"),
		w.Event("", nil),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if !rec.Flushed || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/event-stream") {
		t.Errorf("flushed %v, headers %v", rec.Flushed, rec.Header())
	}
	got, _ := readAll(t, rec.Body, sse.Config{})
	want := []event{{"message", "queued", ""}, {"x", "a\nb\nc\nd", ""}, {"message", "", ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzReader holds the reader against one that is too simple to be wrong, in
// pieces of every size.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"", "data: a\n\n", "data: a\r\rdata:b\r\n\r\n", "\xef\xbb\xbfid: 1\nevent: x\ndata\ndata: b\n\n",
		": c\n\nid: 2\x00\ndata:  x\n\n\n", "\xef\xbb", "data: cut", "\r\n\r\ndata\n\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		want := reference(string(stream))
		got, err := readAll(t, &pieces{bytes.NewReader(stream), int(piece) + 1}, sse.Config{})
		if !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

type pieces struct {
	src io.Reader
	n   int
}

func (p *pieces) Read(b []byte) (int, error) { return p.src.Read(b[:min(len(b), p.n)]) }

func reference(stream string) []event {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	lines := strings.Split(strings.ReplaceAll(stream, "\r", "\n"), "\n")
	var out []event
	var data []string
	typ, id := "", ""
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if data != nil {
				if typ == "" {
					typ = "message"
				}
				out = append(out, event{typ, strings.Join(data, "\n"), id})
			}
			data, typ = nil, ""
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data = append(data, value)
		case "event":
			typ = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		}
	}
	return out
}

func BenchmarkReader(b *testing.B) {
	for name, stream := range map[string]string{
		"one event of 700 KB":     "data: " + strings.Repeat("123456,", 100_000) + "\n\n",
		"4096 events of 200 byte": strings.Repeat("data: "+strings.Repeat("x", 192)+"\n\n", 4096),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				r := sse.NewReader(strings.NewReader(stream), sse.Config{})
				for {
					if _, err := r.Next(); err != nil {
						break
					}
				}
			}
		})
	}
}

func TestReadersUseEachOthersBuffers(t *testing.T) {
	t.Parallel()
	var buffers sse.Buffers
	for i := range 20 {
		long := strings.Repeat(string(rune('a'+i)), 100_000*(1+i%3))
		stream := "data: " + long + "\n\ndata: short\n\ndata: " + long + "\n\n"
		got, err := readAll(t, iotest.HalfReader(strings.NewReader(stream)), sse.Config{Buffers: &buffers})
		want := []event{{"message", long, ""}, {"message", "short", ""}, {"message", long, ""}}
		if !errors.Is(err, io.EOF) || !cmp.Equal(want, got) {
			t.Errorf("stream %d: %d events, %v", i, len(got), err)
		}
	}
}

func TestBufferedNeverPromisesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := sse.NewReader(strings.NewReader("data: a\n\ndata: b\r\n\r\ndata: c\n"), sse.Config{})
	for _, want := range []bool{false, true, false} {
		if got := r.Buffered(); got != want {
			t.Errorf("buffered %v, want %v", got, want)
		}
		_, _ = r.Next()
	}
}
