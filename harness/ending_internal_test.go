package harness

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	for name, c := range map[string]struct {
		in   io.Reader
		want []string
	}{
		"nothing to read from":            {nil, nil},
		"nothing":                         {strings.NewReader(""), nil},
		"empty lines are left out":        {strings.NewReader("\n\na\n\nb\n\n"), []string{"a", "b"}},
		"no end of line at the end":       {strings.NewReader("a\nb"), []string{"a", "b"}},
		"a line as long as the buffer":    {strings.NewReader(strings.Repeat("y", 64<<10) + "\nb\n"), []string{strings.Repeat("y", 64<<10), "b"}},
		"a line that is too long":         {strings.NewReader("a\n" + long + "\nb\n"), []string{"a", "b"}},
		"one that ends with the input":    {strings.NewReader("a\n" + long + "x"), []string{"a"}},
		"bytes that come one at a time":   {iotest.OneByteReader(strings.NewReader("a\nbc\n")), []string{"a", "bc"}},
		"an input that breaks off":        {io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("gone"))), []string{"a", "b"}},
		"windows' ends of lines are kept": {strings.NewReader("a\r\n"), []string{"a\r"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, collect(lines(c.in))); diff != "" {
				t.Errorf("lines (-want +got):\n%.500s", diff)
			}
		})
	}
}

func TestLinesEndWhenTheyAreNotWanted(t *testing.T) {
	t.Parallel()
	for line := range lines(strings.NewReader("a\nb\n")) {
		if string(line) != "a" {
			t.Errorf("went on to %q", line)
		}
		break
	}
}

// collect copies the lines, as each is good until the next one only.
func collect(seq iter.Seq[[]byte]) []string {
	return slices.Collect(func(yield func(string) bool) {
		for line := range seq {
			if !yield(string(bytes.Clone(line))) {
				return
			}
		}
	})
}

func TestExited(t *testing.T) {
	t.Parallel()
	if f := exited(Ending{Stderr: strings.NewReader("a warning\n")}); f != nil {
		t.Errorf("a harness that ended well failed: %v", f)
	}
	f := exited(Ending{Code: 3, Stderr: strings.NewReader("a warning\nError: " + strings.Repeat("é", 600) + "\n")})
	if want := "the harness ended with exit code 3: Error: " + strings.Repeat("é", 493) + "…"; f.Message != want {
		t.Errorf("message is %q, want %q", f.Message, want)
	}
}
