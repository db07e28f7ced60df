package export_test

import (
	"context"
	"encoding/json"

	"polar/export"
)

type ctx = context.Context

// endless gives the same result n times and says when.
type endless struct {
	raw json.RawMessage
	n   int64
	at  func(seq int64)
}

func (e endless) Newest(ctx) (int64, error) { return e.n, nil }

func (e endless) Each(_ ctx, after, until int64, f func(export.Item) error) error {
	for seq := after + 1; seq <= until; seq++ {
		e.at(seq)
		item := export.Item{Place: export.Place{Seq: seq, TaskSeq: seq}, Load: func() (json.RawMessage, error) { return e.raw, nil }}
		if err := f(item); err != nil {
			return err
		}
	}
	return nil
}

func (e endless) Read(ctx, string) (json.RawMessage, error) { return e.raw, nil }
