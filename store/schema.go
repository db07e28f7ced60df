package store

import (
	"context"
	"database/sql"
	"fmt"
)

// schemaVersion is kept in the file's user_version.
const schemaVersion = 1

// A session waits in the queue, is held by a node under a lease, or has ended.
const (
	phaseWaiting = 0
	phaseHeld    = 1
	phaseEnded   = 2
)

// schema is the whole database. Times are nanoseconds since 1970, 0 for never.
// The counters of a task are kept in the same transactions that change its
// sessions, so that a claim need not count.
const schema = `
CREATE TABLE tasks (
  seq          INTEGER PRIMARY KEY,
  id           TEXT NOT NULL UNIQUE,
  body_hash    TEXT NOT NULL,
  status       TEXT NOT NULL,
  harness      TEXT NOT NULL,
  labels       TEXT NOT NULL,
  priority     INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  early_stop   INTEGER NOT NULL,
  total        INTEGER NOT NULL,
  waiting      INTEGER NOT NULL,
  held         INTEGER NOT NULL DEFAULT 0,
  completed    INTEGER NOT NULL DEFAULT 0,
  usable       INTEGER NOT NULL DEFAULT 0,
  broken       INTEGER NOT NULL DEFAULT 0,
  stopped      INTEGER NOT NULL DEFAULT 0,
  created      INTEGER NOT NULL,
  ended        INTEGER NOT NULL DEFAULT 0,
  cb_url       TEXT NOT NULL,
  cb_host      TEXT NOT NULL,
  cb_headers   TEXT NOT NULL,
  cb_each      INTEGER NOT NULL,
  body         BLOB NOT NULL
);
CREATE INDEX tasks_next ON tasks (priority DESC, held, seq) WHERE waiting > 0;

CREATE TABLE sessions (
  seq         INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  task        INTEGER NOT NULL REFERENCES tasks (seq),
  idx         INTEGER NOT NULL,
  phase       INTEGER NOT NULL,
  status      TEXT NOT NULL,
  attempt     INTEGER NOT NULL DEFAULT 0,
  failures    INTEGER NOT NULL DEFAULT 0,
  losses      INTEGER NOT NULL DEFAULT 0,
  lease_until INTEGER NOT NULL DEFAULT 0,
  node        TEXT NOT NULL DEFAULT '',
  cancel      TEXT NOT NULL DEFAULT '',
  created     INTEGER NOT NULL,
  started     INTEGER NOT NULL DEFAULT 0,
  ended       INTEGER NOT NULL DEFAULT 0,
  summary     TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sessions_next ON sessions (task, phase, idx);
CREATE INDEX sessions_lease ON sessions (lease_until) WHERE phase = 1;
CREATE INDEX sessions_node ON sessions (node) WHERE phase = 1;

CREATE TABLE attempts (
  session INTEGER NOT NULL REFERENCES sessions (seq),
  attempt INTEGER NOT NULL,
  node    TEXT NOT NULL,
  at      INTEGER NOT NULL,
  blob    TEXT NOT NULL,
  failure TEXT NOT NULL,
  PRIMARY KEY (session, attempt)
) WITHOUT ROWID;

CREATE TABLE results (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL UNIQUE REFERENCES sessions (seq),
  task    INTEGER NOT NULL REFERENCES tasks (seq),
  blob    TEXT NOT NULL
);
CREATE INDEX results_task ON results (task);

CREATE TABLE consumers (
  name   TEXT PRIMARY KEY,
  cursor INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE events (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  at   INTEGER NOT NULL,
  type TEXT NOT NULL,
  data TEXT NOT NULL
);

CREATE TABLE deliveries (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  task      INTEGER NOT NULL REFERENCES tasks (seq),
  session   INTEGER REFERENCES sessions (seq),
  host      TEXT NOT NULL,
  state     TEXT NOT NULL DEFAULT 'owed',
  due       INTEGER NOT NULL,
  tries     INTEGER NOT NULL DEFAULT 0,
  first_try INTEGER NOT NULL DEFAULT 0,
  error     TEXT NOT NULL DEFAULT ''
);
CREATE INDEX deliveries_due ON deliveries (due) WHERE state = 'owed';

CREATE TABLE tombstones (
  task  TEXT PRIMARY KEY,
  until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE probes (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  at  INTEGER NOT NULL
);
`

// migrate makes the schema in an empty file and refuses one of another version.
func migrate(ctx context.Context, conn *sql.Conn) error {
	var version int
	if err := conn.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	switch version {
	case schemaVersion:
		return nil
	case 0:
		_, err := conn.ExecContext(ctx, fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA user_version = %d; COMMIT;", schema, schemaVersion))
		return err
	default:
		return fmt.Errorf("made by another version of polar (schema %d, this one reads %d)", version, schemaVersion)
	}
}
