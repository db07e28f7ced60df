package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"polar"
	"polar/api"
)

// Cancel cancels a task: what waits ends now, what nodes hold is marked for
// them to stop. It returns how many were marked. A task that has ended stays as
// it is.
func (s *Store) Cancel(ctx context.Context, id polar.TaskID) (flagged int, err error) {
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		flagged = 0
		var (
			seq    int64
			status string
		)
		err := t.one(ctx, `SELECT seq, status FROM tasks WHERE id = ?`, []any{id}, &seq, &status)
		if errors.Is(err, sql.ErrNoRows) {
			return api.ErrNotFound
		}
		if err != nil || status != api.TaskRunning {
			return err
		}
		now := nanos(s.now())
		if err := t.exec(ctx, `UPDATE tasks SET status = ? WHERE seq = ?`, api.TaskCancelling, seq); err != nil {
			return err
		}
		if flagged, err = t.stop(ctx, now, seq, id, polar.KindCancelled); err != nil {
			return err
		}
		_, err = t.settle(ctx, now, seq)
		return err
	})
	switch {
	case errors.Is(err, api.ErrNotFound):
		return 0, fmt.Errorf("task %s: %w", id, err)
	case err != nil:
		return 0, fmt.Errorf("cancel task %s: %w", id, err)
	}
	return flagged, nil
}

// Cancels lists the sessions that a node holds and must stop.
func (s *Store) Cancels(ctx context.Context, node string) ([]api.Cancel, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT id, attempt, cancel FROM sessions INDEXED BY sessions_node WHERE phase = 1 AND node = ? AND cancel != '' ORDER BY seq`, node)
	if err != nil {
		return nil, fmt.Errorf("list cancels of node %s: %w", node, err)
	}
	return collect(rows, func(rows *sql.Rows, c *api.Cancel) error { return rows.Scan(&c.Session, &c.Attempt, &c.Kind) })
}

// stop ends what waits of a task and marks what is held, all with a few
// statements: a task may have very many sessions.
func (t *tx) stop(ctx context.Context, now, task int64, id polar.TaskID, kind string) (flagged int, err error) {
	summary, err := encode(cancelled(kind, row{taskID: id}))
	if err != nil {
		return 0, err
	}
	for _, step := range []struct {
		query string
		args  []any
	}{
		{`UPDATE tasks SET stopped = 1 WHERE seq = ?`, []any{task}},
		{`INSERT INTO results (session, task, blob) SELECT seq, task, '' FROM sessions WHERE task = ? AND phase = 0 ORDER BY idx`, []any{task}},
		{`INSERT INTO deliveries (task, session, host, due) SELECT t.seq, s.seq, t.cb_host, ? FROM sessions s JOIN tasks t ON t.seq = s.task
			WHERE s.task = ? AND s.phase = 0 AND t.cb_each AND t.cb_url != '' ORDER BY s.idx`, []any{now, task}},
		{
			`INSERT INTO events (at, type, data)
			SELECT ?, ?, json_object('session_id', id, 'task_id', ?, 'status', ?, 'attempt', attempt) FROM sessions WHERE task = ? AND phase = 0 ORDER BY idx`,
			[]any{now, api.EventSessionChanged, id, polar.Cancelled, task},
		},
		{`UPDATE sessions SET phase = 2, status = ?, cancel = ?, ended = ?, summary = json_set(?, '$.session_id', id, '$.attempt', attempt)
			WHERE task = ? AND phase = 0`, []any{polar.Cancelled, kind, now, string(summary), task}},
		{`UPDATE tasks SET completed = completed + waiting, waiting = 0 WHERE seq = ?`, []any{task}},
	} {
		if err := t.exec(ctx, step.query, step.args...); err != nil {
			return 0, err
		}
	}
	if err := t.pruneEvents(ctx); err != nil {
		return 0, err
	}
	return t.change(ctx, `UPDATE sessions SET cancel = ? WHERE task = ? AND phase = 1 AND cancel = ''`, kind, task)
}

// cancelled is the outcome of a session that was stopped and has no traces.
func cancelled(kind string, r row) polar.Summary {
	f := api.Stopped(kind)
	return polar.Summary{
		Session: r.id, Task: r.taskID, Status: polar.Cancelled, Attempt: r.attempt, Node: r.node, Error: f.Message, Failure: &f,
	}
}
