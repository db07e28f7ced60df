package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"polar/api"
)

// Due returns up to limit owed callbacks whose time has come, leaving out those
// to the hosts in skip, and when the next of the others is due (zero: none).
func (s *Store) Due(ctx context.Context, skip []string, limit int) (due []api.Delivery, next time.Time, err error) {
	hosts, err := encode(append([]string{}, skip...))
	if err != nil {
		return nil, time.Time{}, err
	}
	now := nanos(s.now())
	rows, err := s.reads.QueryContext(ctx, `SELECT d.id, t.id, coalesce(s.id, ''), t.cb_url, d.host, t.cb_headers, d.tries, d.first_try
		FROM deliveries d JOIN tasks t ON t.seq = d.task LEFT JOIN sessions s ON s.seq = d.session
		WHERE d.state = 'owed' AND d.due <= ? AND d.host NOT IN (SELECT value FROM json_each(?)) ORDER BY d.due, d.id LIMIT ?`, now, string(hosts), limit)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read deliveries: %w", err)
	}
	due, err = collect(rows, func(rows *sql.Rows, d *api.Delivery) error {
		var (
			headers string
			first   int64
		)
		if err := rows.Scan(&d.ID, &d.Task, &d.Session, &d.URL, &d.Host, &headers, &d.Tries, &first); err != nil {
			return err
		}
		d.FirstTry = fromNanos(first)
		return json.Unmarshal([]byte(headers), &d.Headers)
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read deliveries: %w", err)
	}
	var at int64
	if err := s.reads.QueryRowContext(ctx, `SELECT coalesce(min(due), 0) FROM deliveries WHERE state = 'owed' AND due > ?`, now).Scan(&at); err != nil {
		return nil, time.Time{}, fmt.Errorf("read deliveries: %w", err)
	}
	return due, fromNanos(at), nil
}

// Settle records what became of a try at a callback.
func (s *Store) Settle(ctx context.Context, id int64, end api.Settlement) error {
	state := "owed"
	switch {
	case end.Done:
		state = "done"
	case end.GiveUp:
		state = "given_up"
	}
	err := s.write(ctx, func(ctx context.Context, t *tx) error {
		return t.exec(ctx, `UPDATE deliveries SET state = ?1, due = ?2, error = ?3, tries = tries + 1,
			first_try = CASE WHEN first_try = 0 THEN ?4 ELSE first_try END WHERE id = ?5`,
			state, nanos(end.Due), end.Error, nanos(s.now()), id)
	})
	if err != nil {
		return fmt.Errorf("settle delivery %d: %w", id, err)
	}
	return nil
}
