package store

import (
	"context"
	"database/sql"
	"errors"
)

// maxBatch bounds how many operations share a transaction.
const maxBatch = 256

// op is one operation on its way to the writer.
type op struct {
	// gone says that the asker has left before the operation began.
	gone func() error
	run  func(context.Context, *tx) error
	done chan<- error
}

// write runs f in the writer's transaction and returns when that is durable.
// An error of f undoes what f did and nothing else. Once f has begun, ctx no
// longer ends it: the caller learns what happened.
func (s *Store) write(ctx context.Context, f func(context.Context, *tx) error) error {
	done := make(chan error, 1)
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return errClosed
	}
	s.ops <- op{gone: ctx.Err, run: f, done: done}
	s.mu.RUnlock()
	return s.explain(<-done)
}

// writeAll is the one writer. Operations that wait together share one
// transaction and so one fsync.
func (s *Store) writeAll(ctx context.Context, conn *sql.Conn) {
	defer close(s.written)
	t := &tx{conn: conn, stmts: map[string]*sql.Stmt{}, keepEvents: s.keep}
	defer t.close()
	for first := range s.ops {
		batch := append(make([]op, 0, 8), first)
	gather:
		for len(batch) < maxBatch {
			select {
			case next, ok := <-s.ops:
				if !ok {
					break gather
				}
				batch = append(batch, next)
			default:
				break gather
			}
		}
		errs := t.commit(ctx, batch)
		s.txCount.Add(1)
		s.opCount.Add(int64(len(batch)))
		s.note(errs)
		for i, o := range batch {
			o.done <- errs[i]
		}
	}
}

// note remembers whether the disk takes writes.
func (s *Store) note(errs []error) {
	for _, err := range errs {
		if err == nil {
			s.broken.Store(nil)
			return
		}
	}
	for _, err := range errs {
		if isFault(err) {
			s.broken.Store(&err)
		}
	}
}

// tx is the writer's connection with its prepared statements.
type tx struct {
	conn       *sql.Conn
	stmts      map[string]*sql.Stmt
	keepEvents int64
}

// commit runs each operation in its own savepoint of one transaction, and
// returns an error for each.
func (t *tx) commit(ctx context.Context, batch []op) []error {
	errs := make([]error, len(batch))
	whole := t.exec(ctx, `BEGIN IMMEDIATE`)
	for i, o := range batch {
		if whole != nil {
			break
		}
		if errs[i] = o.gone(); errs[i] != nil {
			continue
		}
		if whole = t.exec(ctx, `SAVEPOINT op`); whole != nil {
			break
		}
		if errs[i] = o.run(ctx, t); errs[i] != nil && t.exec(ctx, `ROLLBACK TO op`) != nil {
			// SQLite has undone the whole transaction, as it does on a full disk.
			whole = errs[i]
			break
		}
		whole = t.exec(ctx, `RELEASE op`)
	}
	if whole == nil {
		whole = t.exec(ctx, `COMMIT`)
	}
	if whole != nil {
		_ = t.exec(ctx, `ROLLBACK`) // an error says that there is nothing to undo
		for i := range errs {
			if errs[i] == nil {
				errs[i] = whole
			}
		}
	}
	return errs
}

func (t *tx) close() {
	for _, stmt := range t.stmts {
		_ = stmt.Close()
	}
	_ = t.conn.Close()
}

func (t *tx) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := t.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := t.conn.PrepareContext(ctx, query)
	if err == nil {
		t.stmts[query] = stmt
	}
	return stmt, err
}

func (t *tx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.change(ctx, query, args...)
	return err
}

// change is exec that counts the rows.
func (t *tx) change(ctx context.Context, query string, args ...any) (int, error) {
	stmt, err := t.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// one scans the only row into dest; sql.ErrNoRows when there is none.
func (t *tx) one(ctx context.Context, query string, args []any, dest ...any) error {
	stmt, err := t.prepare(ctx, query)
	if err != nil {
		return err
	}
	return stmt.QueryRowContext(ctx, args...).Scan(dest...)
}

// each scans every row with scan. The rows are read to the end first, so that
// use may change the tables.
func each[T any](ctx context.Context, t *tx, query string, arg any, scan func(*sql.Rows, *T) error) ([]T, error) {
	stmt, err := t.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, arg)
	if err != nil {
		return nil, err
	}
	return collect(rows, scan)
}

// collect reads rows to their end and closes them.
func collect[T any](rows *sql.Rows, scan func(*sql.Rows, *T) error) (out []T, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
