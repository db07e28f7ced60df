package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"polar"
)

// Judge tells from how a harness ended whether it failed and whose fault that
// is; nil means that it did its work, whatever its exit code.
type Judge func(Ending) *polar.Failure

// Ending is how the last command of a harness ended.
type Ending struct {
	Code int
	// Stdout and Stderr read what the command printed, as its logs have it. If
	// the step keeps both in one log, Stderr is empty.
	Stdout, Stderr io.Reader
}

// maxLine bounds a line of output that is looked at; longer ones are skipped.
const maxLine = 8 << 20

// lines yields each line of r that is not empty, without its end. A slice is
// good until the next one.
func lines(r io.Reader) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if r == nil {
			return
		}
		in := bufio.NewReaderSize(r, 64<<10)
		var line []byte
		for long := false; ; {
			part, err := in.ReadSlice('\n')
			if long = long || len(line)+len(part) > maxLine; !long {
				line = append(line, part...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if line = bytes.TrimSuffix(line, []byte("\n")); !long && len(line) > 0 && !yield(line) || err != nil {
				return
			}
			line, long = line[:0], false
		}
	}
}

// failed is what a judge returns of a harness that reported a failure.
func failed(blame polar.Blame, format string, args ...any) *polar.Failure {
	return &polar.Failure{
		Stage: polar.StageRun, Blame: blame, Kind: polar.KindHarness,
		Message: "the harness reported: " + shorten(fmt.Sprintf(format, args...)),
	}
}

// exited is what a judge returns of a harness that ended with a code that is
// not 0 and gave no reason but the last line of its errors.
func exited(e Ending) *polar.Failure {
	if e.Code == 0 {
		return nil
	}
	f := &polar.Failure{
		Stage: polar.StageRun, Blame: polar.BlameAgent, Kind: polar.KindExitCode,
		Message: fmt.Sprintf("the harness ended with exit code %d", e.Code),
	}
	var last string
	for line := range lines(e.Stderr) {
		last = string(line)
	}
	if last != "" {
		f.Message += ": " + shorten(last)
	}
	return f
}

// shorten keeps a message to what a line of a table can take.
func shorten(s string) string {
	const most = 500
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
