package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"

	"polar"
)

// Config says what is exported, and how.
type Config struct {
	Source    Source
	Format    string
	Container string
	Filter    Filter
	// PieceBytes is how much text is written and made durable at a time: what a
	// crash costs, and what is held in memory. Each piece is a zstd frame of its
	// own. 0 means 4 MiB.
	PieceBytes int
	// Resume goes on with what an earlier export of the same kind left.
	Resume bool
	// Progress is told how far it is, in the order of commits; nil is not told.
	Progress func(Progress)
	// Note is told what a user should know meanwhile; nil is not told.
	Note func(string)
}

// Progress is how far an export is.
type Progress struct {
	Done, Total int64
	Rows        int
}

// Summary is what came of an export.
type Summary struct {
	Format    string         `json:"format"`
	Container string         `json:"container"`
	File      string         `json:"file,omitempty"`
	Results   int            `json:"results"`
	Rows      int            `json:"rows"`
	Bytes     int64          `json:"bytes"`
	LeftOut   map[string]int `json:"left_out"`
}

// job is an export under way.
type job struct {
	Config
	form   format
	out    container
	state  state
	filter string
	// save makes what was cut durable; nil where it cannot be gone on with.
	save func() error
}

// state is how far an export is: what FILE.part.state holds.
type state struct {
	Format    string `json:"format"`
	Container string `json:"container"`
	Filter    string `json:"filter"`
	// Until is the newest result when the export began. Later ones are not in it.
	Until int64 `json:"until"`
	// Last is the last result of which all rows are in the file, Offset the size
	// of the file then.
	Last    int64          `json:"last_seq"`
	Offset  int64          `json:"offset"`
	Rows    int            `json:"rows"`
	Results int            `json:"results"`
	Groups  int            `json:"groups,omitempty"`
	LeftOut map[string]int `json:"left_out"`
}

// ToWriter exports to w. It cannot be resumed.
func ToWriter(ctx context.Context, c Config, w io.Writer) (Summary, error) {
	j, err := newJob(c)
	if err != nil {
		return Summary{}, err
	}
	if c.Resume {
		return Summary{}, polar.Invalid("resume", "needs a file to go on with")
	}
	counted := &counter{w: w}
	if j.out, err = newContainer(c.Container, counted, j.form, c.PieceBytes); err != nil {
		return Summary{}, err
	}
	if err := j.run(ctx); err != nil {
		return Summary{}, err
	}
	return j.summary("", counted.n), nil
}

func newJob(c Config) (*job, error) {
	if err := Check(c.Format, c.Container); err != nil {
		return nil, err
	}
	filter, err := c.Filter.text()
	if err != nil {
		return nil, err
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Note == nil {
		c.Note = func(string) {}
	}
	j := &job{Config: c, form: formats[c.Format], filter: filter}
	j.state = state{Format: c.Format, Container: c.Container, Filter: filter, LeftOut: map[string]int{}}
	return j, nil
}

func (j *job) summary(file string, bytes int64) Summary {
	return Summary{
		Format: j.Format, Container: j.Container, File: file, Results: j.state.Results, Rows: j.state.Rows, Bytes: bytes,
		LeftOut: maps.Clone(j.state.LeftOut),
	}
}

// run writes all rows and the end of the container.
func (j *job) run(ctx context.Context) error {
	newest, err := j.Source.Newest(ctx)
	if err != nil {
		return err
	}
	switch {
	case j.state.Until == 0:
		j.state.Until = newest
	case j.state.Until > newest:
		return fmt.Errorf("the export that is to be gone on with had %d results, here are %d: it is of another data folder or server", j.state.Until, newest)
	}
	if j.form.pair != nil {
		err = j.pairs(ctx)
	} else {
		err = j.sessions(ctx)
	}
	if err != nil {
		return err
	}
	j.Progress(Progress{Done: j.state.Until, Total: j.state.Until, Rows: j.state.Rows})
	return j.out.end()
}

// sessions writes the rows of one session after another.
func (j *job) sessions(ctx context.Context) error {
	return j.Source.Each(ctx, j.state.Last, j.state.Until, func(item Item) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		s, err := j.open(item)
		if err != nil {
			return err
		}
		if s != nil {
			if err := j.write(s); err != nil {
				return err
			}
		}
		j.state.Last = item.Seq
		j.Progress(Progress{Done: item.Seq, Total: j.state.Until, Rows: j.state.Rows})
		return j.cutIfFull()
	})
}

// open reads a result and chooses its traces; nil if nothing of it is wanted.
func (j *job) open(item Item) (*session, error) {
	j.state.Results++
	if !j.Filter.wantsPlace(item) {
		j.state.LeftOut[sessionsFiltered]++
		return nil, nil
	}
	raw, err := item.Load()
	if err != nil {
		return nil, fmt.Errorf("read result %d: %w", item.Seq, err)
	}
	return j.choose(item.Place, raw, j.state.LeftOut)
}

func (j *job) choose(p Place, raw json.RawMessage, left map[string]int) (*session, error) {
	r, err := decodeResult(p.Seq, raw)
	if err != nil {
		return nil, err
	}
	s := &session{Place: p, raw: raw, result: r, row: j.state.Rows, left: left}
	if !s.choose(j.Filter, j.form) {
		return nil, nil
	}
	return s, nil
}

func (j *job) write(s *session) error {
	rows, err := j.form.rows(s)
	if err != nil {
		return err
	}
	tokens := 0
	for _, t := range s.traces {
		tokens += len(t.PromptIDs) + len(t.ResponseIDs)
	}
	for _, row := range rows {
		if err := j.out.add(row, tokens/len(rows)); err != nil {
			return err
		}
	}
	j.state.Rows += len(rows)
	return nil
}

func (j *job) cutIfFull() error {
	if !j.out.full() {
		return nil
	}
	if err := j.out.cut(); err != nil || j.save == nil {
		return err
	}
	return j.save()
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
