package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"polar"
	"polar/api"
)

// row is a session as the operations see it.
type row struct {
	seq, task        int64
	id               polar.SessionID
	taskID           polar.TaskID
	phase            int
	status           polar.Status
	attempt          int
	failures, losses int
	node, cancel     string
	maxAttempts      int
}

const sessionRow = `SELECT s.seq, s.task, s.id, t.id, s.phase, s.status, s.attempt, s.failures, s.losses, s.node, s.cancel, t.max_attempts
	FROM sessions s JOIN tasks t ON t.seq = s.task`

func (r *row) fields() []any {
	return []any{
		&r.seq, &r.task, &r.id, &r.taskID, &r.phase, &r.status, &r.attempt, &r.failures, &r.losses, &r.node, &r.cancel, &r.maxAttempts,
	}
}

func (t *tx) session(ctx context.Context, id polar.SessionID) (r row, err error) {
	err = t.one(ctx, sessionRow+` WHERE s.id = ?`, []any{id}, r.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("session %s: %w", id, api.ErrNotFound)
	}
	return r, err
}

// Finish ends the attempt that holds a session. The session ends with it, or
// goes back to the queue if the outcome asks for that and the task allows one
// more attempt. An attempt that does not hold the session gets api.ErrStale.
// Everything that follows from it is in the same transaction: the result, the
// task's state, owed callbacks and events.
func (s *Store) Finish(ctx context.Context, o api.Outcome) (done api.Finished, err error) {
	id := o.Summary.Session
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		done = api.Finished{}
		r, err := t.session(ctx, id)
		if err != nil {
			return err
		}
		if r.phase != phaseHeld || r.attempt != o.Summary.Attempt {
			return api.ErrStale
		}
		status := o.Summary.Status
		if r.cancel != "" && status != polar.Completed && status != polar.Cancelled {
			done.Cancel = r.cancel
			return nil
		}
		now := nanos(s.now())
		if o.Retry && r.cancel == "" && o.Summary.Failure != nil && r.failures+1 < r.maxAttempts {
			done.Requeued = true
			if err := t.exec(ctx, `UPDATE sessions SET failures = failures + 1 WHERE seq = ?`, r.seq); err != nil {
				return err
			}
			return t.requeue(ctx, now, r, *o.Summary.Failure, o.Blob)
		}
		done.Flagged, err = t.end(ctx, now, r, o.Summary, o.Blob, o.Usable)
		return err
	})
	if err != nil {
		return api.Finished{}, fmt.Errorf("finish session %s attempt %d: %w", id, o.Summary.Attempt, err)
	}
	return done, nil
}

// requeue notes how an attempt failed and puts its session back.
func (t *tx) requeue(ctx context.Context, now int64, r row, why polar.Failure, blob string) error {
	failure, err := encode(why)
	if err != nil {
		return err
	}
	if err := t.exec(ctx, `INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)`, r.seq, r.attempt, r.node, now, blob, string(failure)); err != nil {
		return err
	}
	if err := t.exec(ctx, `UPDATE sessions SET phase = 0, status = ?, node = '', lease_until = 0, started = 0 WHERE seq = ?`,
		polar.Registered, r.seq); err != nil {
		return err
	}
	if err := t.exec(ctx, `UPDATE tasks SET waiting = waiting + 1, held = held - 1 WHERE seq = ?`, r.task); err != nil {
		return err
	}
	return t.event(ctx, now, api.EventSessionChanged, sessionEvent{
		Session: r.id, Task: r.taskID, Status: polar.Registered, Attempt: r.attempt, Failure: &why,
	})
}

// end ends a session that is held, inserts its result and settles its task. It
// returns how many other sessions nodes must now stop.
func (t *tx) end(ctx context.Context, now int64, r row, sum polar.Summary, blob string, usable bool) (flagged int, err error) {
	summary, err := encode(sum)
	if err != nil {
		return 0, err
	}
	if err := t.exec(ctx, `UPDATE sessions SET phase = 2, status = ?, lease_until = 0, ended = ?, summary = ? WHERE seq = ?`,
		sum.Status, now, string(summary), r.seq); err != nil {
		return 0, err
	}
	if err := t.exec(ctx, `INSERT INTO results (session, task, blob) VALUES (?, ?, ?)`, r.seq, r.task, blob); err != nil {
		return 0, err
	}
	broken := sum.Status == polar.Errored && (sum.Failure == nil || sum.Failure.Blame != polar.BlameAgent)
	if err := t.exec(ctx, `UPDATE tasks SET held = held - 1, completed = completed + 1, usable = usable + ?, broken = broken + ? WHERE seq = ?`,
		usable, broken, r.task); err != nil {
		return 0, err
	}
	if err := t.exec(ctx, `INSERT INTO deliveries (task, session, host, due) SELECT seq, ?, cb_host, ? FROM tasks WHERE seq = ? AND cb_each AND cb_url != ''`,
		r.seq, now, r.task); err != nil {
		return 0, err
	}
	if err := t.event(ctx, now, api.EventSessionChanged, sessionEvent{
		Session: r.id, Task: r.taskID, Status: sum.Status, Attempt: r.attempt, Node: r.node, Failure: sum.Failure,
	}); err != nil {
		return 0, err
	}
	return t.settle(ctx, now, r.task)
}

// settle draws the conclusions for a task of which sessions have ended: it has
// enough of them, or was that the last.
func (t *tx) settle(ctx context.Context, now, task int64) (flagged int, err error) {
	var (
		ev                                    taskEvent
		early, usable, broken, held, cbWanted int
		stopped                               bool
	)
	read := func() error {
		return t.one(ctx, `SELECT id, status, total, completed, early_stop, usable, broken, held, stopped, cb_url != '' FROM tasks WHERE seq = ?`,
			[]any{task}, &ev.Task, &ev.Status, &ev.Total, &ev.Completed, &early, &usable, &broken, &held, &stopped, &cbWanted)
	}
	if err := read(); err != nil {
		return 0, err
	}
	if early > 0 && usable >= early && !stopped && ev.Completed < ev.Total {
		if flagged, err = t.stop(ctx, now, task, ev.Task, polar.KindEarlyStop); err != nil {
			return 0, err
		}
		if err := read(); err != nil {
			return 0, err
		}
	}
	if ev.Completed < ev.Total {
		return flagged, t.event(ctx, now, api.EventTaskUpdated, ev)
	}
	switch {
	case ev.Status == api.TaskCancelling:
		ev.Status = api.TaskCancelled
	case broken == ev.Total:
		ev.Status = api.TaskFailed
	default:
		ev.Status = api.TaskCompleted
	}
	if err := t.exec(ctx, `UPDATE tasks SET status = ?, ended = ? WHERE seq = ?`, ev.Status, now, task); err != nil {
		return 0, err
	}
	if cbWanted != 0 {
		if err := t.exec(ctx, `INSERT INTO deliveries (task, host, due) SELECT seq, cb_host, ? FROM tasks WHERE seq = ?`, now, task); err != nil {
			return 0, err
		}
	}
	return flagged, t.event(ctx, now, api.EventTaskCompleted, ev)
}
