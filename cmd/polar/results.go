package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"polar"
	"polar/api"
	"polar/coordinator"
	"polar/export"
	"polar/store"
)

// resultsPage is how many results are asked for at a time. They are read one by
// one all the same.
const resultsPage = 100

// placeOf is what a format may know of a result beside the result.
func placeOf(seq int64, p api.ResultPlace) export.Place {
	return export.Place{Seq: seq, TaskSeq: p.TaskSeq, Index: p.Index, Harness: p.Harness, Labels: p.Labels, Temperature: p.Temperature}
}

// serverResults reads the results of a rollout server, acknowledging nothing.
type serverResults struct {
	client *api.Client
	task   polar.TaskID
}

func (s *serverResults) Newest(ctx context.Context) (int64, error) {
	if s.task != "" {
		if _, err := s.client.Task(ctx, s.task, api.ResultsNone); err != nil {
			return 0, err
		}
	}
	errEnough := errors.New("enough")
	_, newest, err := s.client.EachResultAfter(ctx, 0, s.task, 1, func(api.ListedResult, json.RawMessage) error { return errEnough })
	if errors.Is(err, errEnough) {
		err = nil
	}
	return newest, err
}

func (s *serverResults) Each(ctx context.Context, after, until int64, f func(export.Item) error) error {
	for {
		more := false
		last, _, err := s.client.EachResultAfter(ctx, after, s.task, resultsPage, func(p api.ListedResult, raw json.RawMessage) error {
			if p.Seq > until {
				return nil
			}
			more = true
			id, err := sessionOf(raw)
			if err != nil {
				return err
			}
			return f(export.Item{
				Place: placeOf(p.Seq, p.ResultPlace), Ref: id,
				Load: func() (json.RawMessage, error) { return raw, nil },
			})
		})
		if err != nil || !more || last >= until {
			return err
		}
		after = last
	}
}

func sessionOf(raw json.RawMessage) (string, error) {
	var r struct {
		Session string `json:"session_id"`
	}
	err := json.Unmarshal(raw, &r)
	return r.Session, err
}

func (s *serverResults) Read(ctx context.Context, ref string) (json.RawMessage, error) {
	return s.client.Session(ctx, polar.SessionID(ref))
}

// folderResults reads the results in a data folder, which a server may be using.
type folderResults struct {
	db    *store.Reader
	blobs *store.Blobs
	task  polar.TaskID
}

func openFolderResults(ctx context.Context, dataDir string, task polar.TaskID) (*folderResults, error) {
	db, err := store.OpenReader(ctx, filepath.Join(dataDir, "polar.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("%s is no data folder of polar: it has no polar.db", dataDir)
	}
	if err != nil {
		return nil, err
	}
	return &folderResults{db: db, blobs: store.BlobsIn(filepath.Join(dataDir, "blobs")), task: task}, nil
}

func (s *folderResults) Close() error { return s.db.Close() }

func (s *folderResults) Newest(ctx context.Context) (int64, error) {
	if s.task != "" {
		if _, err := s.db.TaskBody(ctx, s.task); err != nil {
			return 0, err
		}
	}
	_, newest, err := s.db.ResultsAfter(ctx, 0, s.task, 1)
	return newest, err
}

func (s *folderResults) Each(ctx context.Context, after, until int64, f func(export.Item) error) error {
	for {
		page, _, err := s.db.ResultsAfter(ctx, after, s.task, resultsPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, r := range page {
			if r.Seq > until {
				return nil
			}
			if err := f(export.Item{
				Place: placeOf(r.Seq, r.ResultPlace), Status: r.Summary.Status, Ref: r.Blob,
				Load: func() (json.RawMessage, error) { return s.load(ctx, r.StoredResult) },
			}); err != nil {
				return err
			}
			after = r.Seq
		}
	}
}

// load reads a result; one without traces is made of its summary.
func (s *folderResults) load(ctx context.Context, r api.StoredResult) (json.RawMessage, error) {
	if r.Blob != "" {
		return s.blobs.Get(r.Blob)
	}
	task, err := s.db.TaskBody(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(coordinator.BareResult(task, r.Summary))
	return b.Bytes(), err
}

func (s *folderResults) Read(_ context.Context, ref string) (json.RawMessage, error) {
	return s.blobs.Get(ref)
}
