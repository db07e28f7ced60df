package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"polar"
	"polar/api"
)

// taskEvent is the data of an event about a task.
type taskEvent struct {
	Task      polar.TaskID `json:"task_id"`
	Status    string       `json:"status"`
	Total     int          `json:"total_sessions"`
	Completed int          `json:"completed_sessions"`
}

// sessionEvent is the data of an event about a session.
type sessionEvent struct {
	Session polar.SessionID `json:"session_id"`
	Task    polar.TaskID    `json:"task_id"`
	Status  polar.Status    `json:"status"`
	Attempt int             `json:"attempt"`
	Node    string          `json:"node_id,omitempty"`
	Failure *polar.Failure  `json:"failure,omitempty"`
}

// pruneEvery is how many events come between two looks at how many there are.
const pruneEvery = 512

func (t *tx) event(ctx context.Context, now int64, kind string, data any) error {
	raw, err := encode(data)
	if err != nil {
		return err
	}
	var id int64
	if err := t.one(ctx, `INSERT INTO events (at, type, data) VALUES (?, ?, ?) RETURNING id`, []any{now, kind, string(raw)}, &id); err != nil {
		return err
	}
	if id%pruneEvery == 0 {
		return t.pruneEvents(ctx)
	}
	return nil
}

func (t *tx) pruneEvents(ctx context.Context) error {
	return t.exec(ctx, `DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?`, t.keepEvents)
}

// Events returns up to limit events after the one with the id after.
func (s *Store) Events(ctx context.Context, after int64, limit int) ([]api.Event, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT id, at, type, data FROM events WHERE id > ? ORDER BY id LIMIT ?`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return collect(rows, func(rows *sql.Rows, e *api.Event) error {
		var (
			at   int64
			data string
		)
		err := rows.Scan(&e.ID, &at, &e.Type, &data)
		e.At, e.Data = fromNanos(at), json.RawMessage(data)
		return err
	})
}

// EventRange returns the ids of the oldest and the newest event kept; 0 and 0
// when there was none yet.
func (s *Store) EventRange(ctx context.Context) (oldest, newest int64, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM events`).Scan(&oldest, &newest)
	if err != nil {
		err = fmt.Errorf("read events: %w", err)
	}
	return oldest, newest, err
}

// Results returns up to limit results, in the order of their commits, after the
// place that the consumer has acknowledged, and the place after the last.
func (s *Store) Results(ctx context.Context, consumer string, limit int) (out []api.StoredResult, cursor int64, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT cursor FROM consumers WHERE name = ?`, consumer).Scan(&cursor)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, fmt.Errorf("read consumer %s: %w", consumer, err)
	}
	rows, err := s.reads.QueryContext(ctx, storedResult+` WHERE r.seq > ? ORDER BY r.seq LIMIT ?`, cursor, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("read results: %w", err)
	}
	if out, err = collect(rows, scanResult); err != nil {
		return nil, 0, fmt.Errorf("read results: %w", err)
	}
	if len(out) > 0 {
		cursor = out[len(out)-1].Seq
	}
	return out, cursor, nil
}

// Ack records that a consumer has everything up to cursor. A place before the
// one acknowledged changes nothing; one that no result has yet is refused.
func (s *Store) Ack(ctx context.Context, consumer string, cursor int64) error {
	return s.write(ctx, func(ctx context.Context, t *tx) error {
		var last int64
		if err := t.one(ctx, `SELECT coalesce(max(seq), 0) FROM results`, nil, &last); err != nil {
			return err
		}
		if cursor < 0 || cursor > last {
			return polar.Invalid("cursor", "is %d, must be one that GET /rollout/results gave (at most %d)", cursor, last)
		}
		return t.exec(ctx, `INSERT INTO consumers VALUES (?, ?) ON CONFLICT DO UPDATE SET cursor = max(cursor, excluded.cursor)`, consumer, cursor)
	})
}

const placedResult = `SELECT r.seq, s.id, t.id, r.blob, s.summary, s.idx, t.seq, t.harness, t.labels, json_extract(CAST(t.body AS TEXT), '$.sampling.temperature')
	FROM results r JOIN sessions s ON s.seq = r.session JOIN tasks t ON t.seq = r.task`

func scanPlaced(rows *sql.Rows, r *api.PlacedResult) error {
	var summary, labels string
	if err := rows.Scan(&r.Seq, &r.Session, &r.Task, &r.Blob, &summary, &r.Index, &r.TaskSeq, &r.Harness, &labels, &r.Temperature); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(labels), &r.Labels); err != nil {
		return err
	}
	return json.Unmarshal([]byte(summary), &r.Summary)
}

// ResultsAfter returns up to limit results, in the order of their commits, after
// the one with the number after, of one task or of all when task is empty, and
// the number of the newest result there is. It changes nothing.
func (s *Store) ResultsAfter(ctx context.Context, after int64, task polar.TaskID, limit int) ([]api.PlacedResult, int64, error) {
	return resultsAfter(ctx, s.reads, after, task, limit)
}

func resultsAfter(ctx context.Context, db *sql.DB, after int64, task polar.TaskID, limit int) (out []api.PlacedResult, newest int64, err error) {
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM results`).Scan(&newest); err != nil {
		return nil, 0, fmt.Errorf("read results: %w", err)
	}
	query, args := placedResult+` WHERE r.seq > ? AND r.seq <= ? ORDER BY r.seq LIMIT ?`, []any{after, newest, limit}
	if task != "" {
		query, args = placedResult+` WHERE r.seq > ? AND r.seq <= ? AND r.task = (SELECT seq FROM tasks WHERE id = ?) ORDER BY r.seq LIMIT ?`, []any{after, newest, task, limit}
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err == nil {
		out, err = collect(rows, scanPlaced)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read results: %w", err)
	}
	return out, newest, nil
}
