package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"polar"
	"polar/api"
)

// Reader reads a store that a server may be using. It takes no lock and writes
// nothing.
type Reader struct{ db *sql.DB }

// OpenReader opens the database file at path. One that is not there is an error
// that wraps fs.ErrNotExist.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	r, err := openReader(ctx, path, "mode", "ro")
	if err == nil {
		return r, nil
	}
	// Where nothing can be written beside the file, and no server has written
	// what is not in it yet, it can be read as it stands.
	if _, missing := os.Stat(path + "-wal"); errors.Is(missing, fs.ErrNotExist) {
		if r, again := openReader(ctx, path, "immutable", "1"); again == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("open store %s: %w", filepath.Clean(path), err)
}

func openReader(ctx context.Context, path, key, value string) (*Reader, error) {
	db, err := sql.Open("sqlite", dsn(path, "query_only(1)")+"&"+key+"="+value)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	var version int
	err = db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version)
	if err == nil && version != schemaVersion {
		err = fmt.Errorf("made by another version of polar (schema %d, this one reads %d)", version, schemaVersion)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Reader{db: db}, nil
}

// Close ends the reader.
func (r *Reader) Close() error { return r.db.Close() }

// ResultsAfter is Store.ResultsAfter.
func (r *Reader) ResultsAfter(ctx context.Context, after int64, task polar.TaskID, limit int) ([]api.PlacedResult, int64, error) {
	return resultsAfter(ctx, r.db, after, task, limit)
}

// TaskBody returns a task as it was submitted.
func (r *Reader) TaskBody(ctx context.Context, id polar.TaskID) (t polar.Task, err error) {
	var body []byte
	err = r.db.QueryRowContext(ctx, `SELECT body FROM tasks WHERE id = ?`, id).Scan(&body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return t, fmt.Errorf("task %s: %w", id, api.ErrNotFound)
	case err != nil:
		return t, fmt.Errorf("read task %s: %w", id, err)
	}
	return t, json.Unmarshal(body, &t)
}
