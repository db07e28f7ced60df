package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"polar"
	"polar/api"
)

// Claim gives a node up to room sessions under a lease: of the highest priority
// first, then of the task with the fewest held, then of the oldest. Sessions
// whose lease ran out are among them.
func (s *Store) Claim(ctx context.Context, node string, room int, lease time.Duration) (out []api.Assignment, err error) {
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		out = nil
		now := s.now()
		if _, err := s.expire(ctx, t, now); err != nil {
			return err
		}
		bodies := map[int64]polar.Task{}
		for len(out) < room {
			a, ok, err := t.claimOne(ctx, node, nanos(now.Add(lease)), bodies)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			a.Lease = lease
			out = append(out, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim for node %s: %w", node, err)
	}
	return out, nil
}

// claimOne takes the next session; bodies saves reading a task twice.
func (t *tx) claimOne(ctx context.Context, node string, until int64, bodies map[int64]polar.Task) (a api.Assignment, ok bool, err error) {
	var task, seq, queued int64
	err = t.one(ctx, `SELECT seq, id FROM tasks WHERE waiting > 0 ORDER BY priority DESC, held, seq LIMIT 1`, nil, &task, &a.Session.Task)
	if errors.Is(err, sql.ErrNoRows) {
		return a, false, nil
	}
	if err != nil {
		return a, false, err
	}
	if err := t.one(ctx, `SELECT seq, id, idx, attempt, status, created FROM sessions WHERE task = ? AND phase = 0 ORDER BY idx LIMIT 1`,
		[]any{task}, &seq, &a.Session.ID, &a.Session.Index, &a.Session.Attempt, &a.Session.Status, &queued); err != nil {
		return a, false, err
	}
	a.Session.Attempt++
	a.Queued = fromNanos(queued)
	if err := t.exec(ctx, `UPDATE sessions SET phase = 1, attempt = ?, node = ?, lease_until = ? WHERE seq = ?`,
		a.Session.Attempt, node, until, seq); err != nil {
		return a, false, err
	}
	if err := t.exec(ctx, `UPDATE tasks SET waiting = waiting - 1, held = held + 1 WHERE seq = ?`, task); err != nil {
		return a, false, err
	}
	known, ok := bodies[task]
	if !ok {
		var body []byte
		if err := t.one(ctx, `SELECT body FROM tasks WHERE seq = ?`, []any{task}, &body); err != nil {
			return a, false, err
		}
		if err := json.Unmarshal(body, &known); err != nil {
			return a, false, fmt.Errorf("read task %s: %w", a.Session.Task, err)
		}
		bodies[task] = known
	}
	a.Task = known
	return a, true, nil
}

// Renew keeps the leases a node holds and records how far its sessions are. It
// returns those that are no longer the node's.
func (s *Store) Renew(ctx context.Context, node string, renewals []api.Renewal, lease time.Duration) (lost []polar.SessionID, err error) {
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		lost = nil
		now := s.now()
		for _, r := range renewals {
			row, err := t.session(ctx, r.Session)
			if errors.Is(err, api.ErrNotFound) || err == nil && (row.phase != phaseHeld || row.attempt != r.Attempt || row.node != node) {
				lost = append(lost, r.Session)
				continue
			}
			if err != nil {
				return err
			}
			if err := t.exec(ctx, `UPDATE sessions SET lease_until = ?, status = ?,
				started = CASE WHEN started = 0 AND status != ?2 THEN ?3 ELSE started END WHERE seq = ?4`,
				nanos(now.Add(lease)), r.Status, nanos(now), row.seq); err != nil {
				return err
			}
			if r.Status == row.status {
				continue
			}
			if err := t.event(ctx, nanos(now), api.EventSessionChanged, sessionEvent{
				Session: row.id, Task: row.taskID, Status: r.Status, Attempt: row.attempt, Node: node,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("renew for node %s: %w", node, err)
	}
	return lost, nil
}

// Expire puts sessions whose lease ran out back into the queue and returns how
// many it touched.
func (s *Store) Expire(ctx context.Context) (n int, err error) {
	// It is asked for all the time and there is mostly nothing to do.
	var due bool
	err = s.reads.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sessions INDEXED BY sessions_lease WHERE phase = 1 AND lease_until <= ?)`, nanos(s.now())).Scan(&due)
	if err != nil {
		return 0, fmt.Errorf("expire leases: %w", err)
	}
	if !due {
		return 0, nil
	}
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		n, err = s.expire(ctx, t, s.now())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire leases: %w", err)
	}
	return n, nil
}

func (s *Store) expire(ctx context.Context, t *tx, now time.Time) (int, error) {
	rows, err := t.heldBy(ctx, `SELECT id FROM sessions INDEXED BY sessions_lease WHERE phase = 1 AND lease_until <= ? ORDER BY lease_until, seq`, nanos(now))
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := s.lose(ctx, t, now, r, "node "+r.node+" stopped renewing its lease"); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// Release puts every session that a node holds back into the queue, as when
// the node has been started anew and knows nothing of them. It returns how many
// there were.
func (s *Store) Release(ctx context.Context, node string) (n int, err error) {
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		rows, err := t.heldBy(ctx, `SELECT id FROM sessions INDEXED BY sessions_node WHERE phase = 1 AND node = ? ORDER BY seq`, node)
		if err != nil {
			return err
		}
		now := s.now()
		for _, r := range rows {
			if err := s.lose(ctx, t, now, r, "node "+node+" was started anew"); err != nil {
				return err
			}
		}
		n = len(rows)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("release sessions of node %s: %w", node, err)
	}
	return n, nil
}

// heldBy reads the sessions whose ids the query finds. The index is named in
// the query: the planner would rather walk through every session.
func (t *tx) heldBy(ctx context.Context, query string, arg any) ([]row, error) {
	ids, err := each(ctx, t, query, arg, func(rows *sql.Rows, id *polar.SessionID) error { return rows.Scan(id) })
	if err != nil {
		return nil, err
	}
	out := make([]row, len(ids))
	for i, id := range ids {
		if out[i], err = t.session(ctx, id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lose takes a session from a node that is gone. It is run again, unless it is
// cancelled or has outlived too many nodes: then it may be what kills them.
func (s *Store) lose(ctx context.Context, t *tx, now time.Time, r row, why string) error {
	r.losses++
	if err := t.exec(ctx, `UPDATE sessions SET losses = ? WHERE seq = ?`, r.losses, r.seq); err != nil {
		return err
	}
	lost := polar.Failure{Stage: polar.StageQueue, Blame: polar.BlameService, Kind: polar.KindAttemptsLost, Message: why}
	switch {
	case r.cancel != "":
		_, err := t.end(ctx, nanos(now), r, cancelled(r.cancel, r), "", false)
		return err
	case r.losses > s.maxLosses:
		lost.Message = fmt.Sprintf("%d nodes were lost with the session; the last: %s", r.losses, why)
		_, err := t.end(ctx, nanos(now), r, polar.Summary{
			Session: r.id, Task: r.taskID, Status: polar.Errored, Attempt: r.attempt, Node: r.node, Error: lost.Error(), Failure: &lost,
		}, "", false)
		return err
	default:
		return t.requeue(ctx, nanos(now), r, lost, "")
	}
}
