package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"polar/sandbox"
	"polar/sandbox/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALongOutputKeepsItsHeadAndItsTail(t *testing.T) {
	t.Parallel()
	d, err := local.New(local.Config{Dir: filepath.Join(t.TempDir(), "sb"), Path: os.Getenv("PATH")})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := d.Start(t.Context(), sandbox.Spec{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct{ limit, lines int }{
		"nothing":                        {1000, 0},
		"all of a short one":             {1 << 20, 100},
		"a head and what the tail holds": {1000, 5000},
		"a head, a gap and a tail":       {1000, 50_000},
		"no head":                        {0, 50_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := sandbox.NewOutput(t.TempDir(), int64(c.limit))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close() //nolint:errcheck // only the test used it
			var all strings.Builder
			for i := range c.lines {
				line := fmt.Sprintf("line %d\n", i)
				all.WriteString(line)
				if n, err := io.WriteString(out, line); n != len(line) || err != nil {
					t.Fatal(n, err)
				}
			}
			text := all.String()
			file := strings.ReplaceAll(name, " ", "-") + ".log"
			if err := out.Save(t.Context(), sb, file); err != nil {
				t.Fatal(err)
			}
			got, err := sandbox.ReadFile(t.Context(), sb, file, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			want := text
			if gap := len(text) - c.limit - sandbox.TailBytes; gap > 0 {
				want = text[:c.limit] + fmt.Sprintf("\n[%d bytes left out]\n", gap) + text[c.limit+gap:]
			}
			if string(got) != want {
				t.Errorf("%d bytes kept, want %d", len(got), len(want))
			}
			if tail := out.Tail(100); tail != text[max(0, len(text)-100):] || out.Len() != int64(len(text)) {
				t.Errorf("tail %q, length %d", tail, out.Len())
			}
		})
	}
}

func TestABigWriteAndSmallOnesLeaveTheSameTail(t *testing.T) {
	t.Parallel()
	out, err := sandbox.NewOutput(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // only the test used it
	var all strings.Builder
	for _, n := range []int{10, sandbox.TailBytes - 5, 30, sandbox.TailBytes, 7, 2 * sandbox.TailBytes, 1, sandbox.TailBytes - 1, 50} {
		part := strings.Repeat(string(rune('a'+n%26)), n-1) + "|"
		all.WriteString(part)
		if _, err := io.WriteString(out, part); err != nil {
			t.Fatal(err)
		}
		text := all.String()
		if got := out.Tail(sandbox.TailBytes); got != text[max(0, len(text)-sandbox.TailBytes):] {
			t.Fatalf("after %d bytes the tail is wrong", len(text))
		}
	}
}

func TestAPipeEndsWithTheErrorOfWhoFailed(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		write func(io.Writer) error
		read  func(io.Reader) error
		want  string
	}{
		"the writer": {
			func(io.Writer) error { return bad },
			func(r io.Reader) error { _, err := io.ReadAll(r); return err }, "bad",
		},
		"the reader": {
			func(w io.Writer) error { _, err := w.Write(make([]byte, 1<<20)); return err },
			func(io.Reader) error { return bad }, "bad",
		},
		"a writer that panics": {
			func(io.Writer) error { panic("boom") },
			func(r io.Reader) error { _, err := io.ReadAll(r); return err }, "panic: boom",
		},
		"nobody, though the reader had enough": {
			func(w io.Writer) error { _, err := w.Write(make([]byte, 1<<20)); return err },
			func(io.Reader) error { return nil }, "<nil>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(sandbox.Pipe(c.write, c.read)); got != c.want {
				t.Errorf("error %s, want %s", got, c.want)
			}
		})
	}
}
