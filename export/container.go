package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	parquetzstd "github.com/parquet-go/parquet-go/compress/zstd"
)

// container writes rows in pieces. After cut everything before is written and
// whole, and what follows does not depend on it.
type container interface {
	add(row any, tokens int) error
	// full reports that it is time to cut.
	full() bool
	cut() error
	end() error
}

// defaultPiece is what Config.PieceBytes is when it is not set.
const defaultPiece = 4 << 20

func newContainer(kind string, w io.Writer, f format, piece int) (container, error) {
	if piece == 0 {
		piece = defaultPiece
	}
	switch kind {
	case JSONL:
		return &lines{w: w, piece: piece}, nil
	case JSONLZstd:
		// One goroutine: with several the bytes may differ from run to run.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
		return &lines{w: w, enc: enc, piece: piece}, err
	}
	codec := compress.Codec(&parquetzstd.Codec{Level: parquetzstd.DefaultLevel, Concurrency: 1})
	writer := parquet.NewGenericWriter[any](w, parquet.SchemaOf(f.columns), parquet.Compression(codec), parquet.CreatedBy("polar", "", ""))
	return &table{w: writer}, nil
}

// encode is JSON without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// lines is JSON lines, plain or with each piece in a zstd frame of its own.
type lines struct {
	w     io.Writer
	enc   *zstd.Encoder
	piece int
	text  bytes.Buffer
	zip   []byte
	// since counts the bytes of text since the last cut that was asked for.
	since int
}

func (l *lines) add(row any, _ int) error {
	before := l.text.Len()
	e := json.NewEncoder(&l.text)
	e.SetEscapeHTML(false)
	if err := e.Encode(row); err != nil {
		return fmt.Errorf("write row as JSON: %w", err)
	}
	l.since += l.text.Len() - before
	if l.text.Len() >= l.piece {
		return l.flush()
	}
	return nil
}

func (l *lines) full() bool { return l.since >= l.piece }

func (l *lines) flush() error {
	if l.text.Len() == 0 {
		return nil
	}
	out := l.text.Bytes()
	if l.enc != nil {
		l.zip = l.enc.EncodeAll(out, l.zip[:0])
		out = l.zip
	}
	_, err := l.w.Write(out)
	l.text.Reset()
	return err
}

func (l *lines) cut() error {
	l.since = 0
	return l.flush()
}

func (l *lines) end() error { return l.cut() }

// columnar is a row with values of any shape, which are JSON text in Parquet.
type columnar interface {
	columns(text *jsonText) any
}

// jsonText makes the JSON text of a row and counts its bytes.
type jsonText struct {
	bytes int
	err   error
}

func (j *jsonText) of(v any) string {
	text, err := encode(v)
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("write column as JSON: %w", err)
	}
	j.bytes += len(text)
	return string(text)
}

// ofList is nothing, which is null where a column is optional, for an empty list.
func (j *jsonText) ofList(list []json.RawMessage) string {
	if len(list) == 0 {
		return ""
	}
	return j.of(list)
}

// A row group of Parquet is cut at so many tokens, bytes of JSON text or rows,
// whichever comes first.
const (
	groupText   = 64 << 20
	groupTokens = 1 << 20
	groupRows   = 10_000
)

// table is Parquet.
type table struct {
	w                  *parquet.GenericWriter[any]
	tokens, text, rows int
}

func (t *table) add(row any, tokens int) error {
	if c, ok := row.(columnar); ok {
		var text jsonText
		row = c.columns(&text)
		if text.err != nil {
			return text.err
		}
		t.text += text.bytes
	}
	if _, err := t.w.Write([]any{row}); err != nil {
		return err
	}
	t.tokens += tokens
	t.rows++
	if t.tokens >= groupTokens || t.text >= groupText || t.rows >= groupRows {
		t.tokens, t.text, t.rows = 0, 0, 0
		return t.w.Flush()
	}
	return nil
}

// full is never true: what is before the end of a Parquet file is of no use
// without it.
func (t *table) full() bool { return false }
func (t *table) cut() error { return nil }
func (t *table) end() error { return t.w.Close() }
