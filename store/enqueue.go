package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"polar"
	"polar/api"
)

// Enqueue stores a task and its sessions. The same task again changes nothing
// and is not created; another task under the same id wraps api.ErrConflict, and
// so does an id that was cancelled before it came.
func (s *Store) Enqueue(ctx context.Context, task polar.Task) (created bool, err error) {
	body, err := encode(task)
	if err != nil {
		return false, fmt.Errorf("enqueue task %s: %w", task.ID, err)
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	err = s.write(ctx, func(ctx context.Context, t *tx) error {
		created = false
		now := nanos(s.now())
		var known string
		switch err := t.one(ctx, `SELECT body_hash FROM tasks WHERE id = ?`, []any{task.ID}, &known); {
		case err == nil && known == hash:
			return nil
		case err == nil:
			return fmt.Errorf("%w: task %s was submitted before with another body", api.ErrConflict, task.ID)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		var until int64
		switch err := t.one(ctx, `SELECT until FROM tombstones WHERE task = ? AND until > ?`, []any{task.ID, now}, &until); {
		case err == nil:
			return fmt.Errorf("%w: task %s was cancelled before it was submitted", api.ErrConflict, task.ID)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		created = true
		return t.insertTask(ctx, task, body, hash, now)
	})
	if err != nil && !errors.Is(err, api.ErrConflict) {
		err = fmt.Errorf("enqueue task %s: %w", task.ID, err)
	}
	return created && err == nil, err
}

func (t *tx) insertTask(ctx context.Context, task polar.Task, body []byte, hash string, now int64) error {
	labels, err := encode(task.Labels)
	if err != nil {
		return err
	}
	to := polar.Callback{URL: task.CallbackURL}
	if task.Callback != nil {
		to = *task.Callback
	}
	headers, err := encode(to.Headers)
	if err != nil {
		return err
	}
	host := ""
	if u, err := url.Parse(to.URL); err == nil {
		host = u.Host
	}
	if err := t.exec(ctx, `INSERT INTO tasks
		(id, body_hash, status, harness, labels, priority, max_attempts, early_stop, total, waiting, created, cb_url, cb_host, cb_headers, cb_each, body)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13, ?14, ?15)`,
		task.ID, hash, api.TaskRunning, task.Agent.Harness, string(labels), task.Priority, task.MaxAttempts, task.EarlyStop,
		task.NumSamples, now, to.URL, host, string(headers), to.PerSession, body); err != nil {
		return err
	}
	var seq int64
	if err := t.one(ctx, `SELECT seq FROM tasks WHERE id = ?`, []any{task.ID}, &seq); err != nil {
		return err
	}
	if err := t.exec(ctx, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
		INSERT INTO sessions (id, task, idx, phase, status, created) SELECT ?2 || '.' || i, ?3, i, ?4, ?5, ?6 FROM n`,
		task.NumSamples, task.ID, seq, phaseWaiting, polar.Registered, now); err != nil {
		return err
	}
	return t.event(ctx, now, api.EventTaskCreated, taskEvent{Task: task.ID, Status: api.TaskRunning, Total: task.NumSamples})
}

// Bury keeps a task that was never submitted from being submitted for some time.
func (s *Store) Bury(ctx context.Context, task polar.TaskID, d time.Duration) error {
	err := s.write(ctx, func(ctx context.Context, t *tx) error {
		now := s.now()
		if err := t.exec(ctx, `DELETE FROM tombstones WHERE until <= ?`, nanos(now)); err != nil {
			return err
		}
		return t.exec(ctx, `INSERT INTO tombstones VALUES (?, ?) ON CONFLICT DO UPDATE SET until = excluded.until`, task, nanos(now.Add(d)))
	})
	if err != nil {
		return fmt.Errorf("bury task %s: %w", task, err)
	}
	return nil
}

// encode is json.Marshal that leaves <, > and & as they were written.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
