package coordinator

import (
	"bytes"
	"context"
	"io"

	"polar"
	"polar/api"
)

// document is JSON made of pieces that are read one after another, so that the
// results of a big group are never in memory together.
type document struct {
	pieces []piece
	blobs  Blobs
	tasks  map[polar.TaskID]polar.Task // of results without a blob
}

// piece is a text, or a result.
type piece struct {
	text   []byte
	result *api.StoredResult
}

// document puts the results as a JSON list between head and tail.
func (c *Coordinator) document(ctx context.Context, head []byte, results []api.StoredResult, tail []byte) (document, error) {
	d := document{blobs: c.cfg.Blobs, tasks: map[polar.TaskID]polar.Task{}}
	d.pieces = append(d.pieces, piece{text: head})
	for i := range results {
		r := &results[i]
		sep := []byte(",")
		if i == 0 {
			sep = []byte("[")
		}
		d.pieces = append(d.pieces, piece{text: sep}, piece{result: r})
		if _, known := d.tasks[r.Task]; r.Blob == "" && !known {
			task, err := c.cfg.Store.TaskBody(ctx, r.Task)
			if err != nil {
				return document{}, err
			}
			d.tasks[r.Task] = task
		}
	}
	if len(results) == 0 {
		d.pieces = append(d.pieces, piece{text: []byte("[")})
	}
	d.pieces = append(d.pieces, piece{text: []byte("]")}, piece{text: tail})
	return d, nil
}

// single is one result alone.
func (c *Coordinator) single(ctx context.Context, r api.StoredResult) (document, error) {
	d, err := c.document(ctx, nil, []api.StoredResult{r}, nil)
	if err == nil {
		d.pieces = d.pieces[2:3]
	}
	return d, err
}

// size is how many bytes the document has.
func (d document) size() (int64, error) {
	var sum int64
	for _, p := range d.pieces {
		if p.result != nil && p.result.Blob != "" {
			n, err := d.blobs.Size(p.result.Blob)
			if err != nil {
				return 0, err
			}
			sum += n
			continue
		}
		text, err := d.text(p)
		if err != nil {
			return 0, err
		}
		sum += int64(len(text))
	}
	return sum, nil
}

// text is a piece that is not in a blob.
func (d document) text(p piece) ([]byte, error) {
	if p.result == nil {
		return p.text, nil
	}
	return encode(BareResult(d.tasks[p.result.Task], p.result.Summary))
}

// reader reads the document once from its beginning.
func (d document) reader() io.ReadCloser { return &documentReader{left: d} }

type documentReader struct {
	left document
	open io.ReadCloser
}

func (r *documentReader) Read(p []byte) (int, error) {
	for {
		if r.open == nil {
			if len(r.left.pieces) == 0 {
				return 0, io.EOF
			}
			var err error
			if r.open, err = r.left.openFirst(); err != nil {
				return 0, err
			}
			r.left.pieces = r.left.pieces[1:]
		}
		n, err := r.open.Read(p)
		if err == io.EOF { //nolint:errorlint // a reader returns io.EOF itself
			err = r.Close()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close closes the piece being read.
func (r *documentReader) Close() error {
	if r.open == nil {
		return nil
	}
	open := r.open
	r.open = nil
	return open.Close()
}

func (d document) openFirst() (io.ReadCloser, error) {
	p := d.pieces[0]
	if p.result != nil && p.result.Blob != "" {
		return d.blobs.Open(p.result.Blob)
	}
	text, err := d.text(p)
	return io.NopCloser(bytes.NewReader(text)), err
}
