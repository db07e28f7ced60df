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

const taskSummary = `SELECT id, status, harness, total, completed, created, labels FROM tasks`

func scanTask(rows interface{ Scan(...any) error }, t *api.TaskSummary) error {
	var (
		created int64
		labels  string
	)
	if err := rows.Scan(&t.Task, &t.Status, &t.Harness, &t.Total, &t.Completed, &created, &labels); err != nil {
		return err
	}
	t.CreatedAt = fromNanos(created)
	return json.Unmarshal([]byte(labels), &t.Labels)
}

const storedResult = `SELECT r.seq, s.id, t.id, r.blob, s.summary FROM results r JOIN sessions s ON s.seq = r.session JOIN tasks t ON t.seq = r.task`

func scanResult(rows *sql.Rows, r *api.StoredResult) error {
	var summary string
	if err := rows.Scan(&r.Seq, &r.Session, &r.Task, &r.Blob, &summary); err != nil {
		return err
	}
	return json.Unmarshal([]byte(summary), &r.Summary)
}

// Task returns how a task stands.
func (s *Store) Task(ctx context.Context, id polar.TaskID) (t api.TaskSummary, err error) {
	err = scanTask(s.reads.QueryRowContext(ctx, taskSummary+` WHERE id = ?`, id), &t)
	return t, s.readError("task", string(id), err)
}

// TaskBody returns a task as it was submitted.
func (s *Store) TaskBody(ctx context.Context, id polar.TaskID) (t polar.Task, err error) {
	var body []byte
	if err = s.reads.QueryRowContext(ctx, `SELECT body FROM tasks WHERE id = ?`, id).Scan(&body); err == nil {
		err = json.Unmarshal(body, &t)
	}
	return t, s.readError("task", string(id), err)
}

// TaskResults returns how a task stands and, of the same moment, its results in
// the order of the samples.
func (s *Store) TaskResults(ctx context.Context, id polar.TaskID) (t api.TaskSummary, out []api.StoredResult, err error) {
	view, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return t, nil, fmt.Errorf("read task %s: %w", id, err)
	}
	defer func() { _ = view.Rollback() }() // it changed nothing
	if err = scanTask(view.QueryRowContext(ctx, taskSummary+` WHERE id = ?`, id), &t); err != nil {
		return t, nil, s.readError("task", string(id), err)
	}
	rows, err := view.QueryContext(ctx, storedResult+` WHERE t.id = ? ORDER BY s.idx`, id)
	if err == nil {
		out, err = collect(rows, scanResult)
	}
	return t, out, s.readError("results of task", string(id), err)
}

// Tasks lists tasks, the newest first.
func (s *Store) Tasks(ctx context.Context, f api.TaskFilter) ([]api.TaskSummary, error) {
	rows, err := s.reads.QueryContext(ctx, taskSummary+` WHERE (?1 = '' OR status = ?1) AND (?2 = '' OR harness = ?2) AND created >= ?3
		ORDER BY seq DESC LIMIT ?4`, f.Status, f.Harness, nanos(f.Since), f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return collect(rows, func(rows *sql.Rows, t *api.TaskSummary) error { return scanTask(rows, t) })
}

const sessionSummary = `SELECT s.id, t.id, s.idx, s.attempt, s.status, s.node, s.created, s.started, s.ended, s.summary, s.failures + s.losses,
	(SELECT json_group_array(json_object('attempt', attempt, 'node_id', node, 'at', at, 'failure', json(failure)))
	 FROM (SELECT * FROM attempts a WHERE a.session = s.seq ORDER BY a.attempt))
	FROM sessions s JOIN tasks t ON t.seq = s.task`

func scanSession(rows interface{ Scan(...any) error }, v *api.SessionSummary) error {
	var (
		created, started, ended int64
		summary, attempts       string
		failed                  int
	)
	if err := rows.Scan(&v.ID, &v.Task, &v.Index, &v.Attempt, &v.Status, &v.Node, &created, &started, &ended, &summary, &failed, &attempts); err != nil {
		return err
	}
	v.CreatedAt, v.StartedAt, v.EndedAt = fromNanos(created), fromNanos(started), fromNanos(ended)
	if summary != "" {
		v.Outcome = &polar.Summary{}
		if err := json.Unmarshal([]byte(summary), v.Outcome); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	var notes []struct {
		api.FailedAttempt
		At int64 `json:"at"`
	}
	if err := json.Unmarshal([]byte(attempts), &notes); err != nil {
		return err
	}
	for _, n := range notes {
		n.FailedAttempt.At = fromNanos(n.At)
		v.FailedAttempts = append(v.FailedAttempts, n.FailedAttempt)
	}
	return nil
}

// Sessions lists the sessions of a task in the order of the samples.
func (s *Store) Sessions(ctx context.Context, task polar.TaskID) ([]api.SessionSummary, error) {
	if _, err := s.Task(ctx, task); err != nil {
		return nil, err
	}
	rows, err := s.reads.QueryContext(ctx, sessionSummary+` WHERE t.id = ? ORDER BY s.idx`, task)
	if err != nil {
		return nil, fmt.Errorf("list sessions of task %s: %w", task, err)
	}
	return collect(rows, func(rows *sql.Rows, v *api.SessionSummary) error { return scanSession(rows, v) })
}

// Session returns one session, with the place of its result once it has ended.
func (s *Store) Session(ctx context.Context, id polar.SessionID) (r api.SessionRecord, err error) {
	if err = scanSession(s.reads.QueryRowContext(ctx, sessionSummary+` WHERE s.id = ?`, id), &r.SessionSummary); err != nil {
		return r, s.readError("session", string(id), err)
	}
	rows, err := s.reads.QueryContext(ctx, storedResult+` WHERE s.id = ?`, id)
	if err != nil {
		return r, s.readError("session", string(id), err)
	}
	results, err := collect(rows, scanResult)
	if len(results) == 1 {
		r.Result = &results[0]
	}
	return r, s.readError("session", string(id), err)
}

// Counts says how many sessions wait, are held and have ended.
func (s *Store) Counts(ctx context.Context) (c api.Counts, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT coalesce(sum(waiting), 0), coalesce(sum(held), 0), coalesce(sum(completed), 0) FROM tasks`).
		Scan(&c.Pending, &c.Running, &c.Ended)
	if err != nil {
		err = fmt.Errorf("count sessions: %w", err)
	}
	return c, err
}

func (s *Store) readError(what, id string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s %s: %w", what, id, api.ErrNotFound)
	default:
		return fmt.Errorf("read %s %s: %w", what, id, s.explain(err))
	}
}
