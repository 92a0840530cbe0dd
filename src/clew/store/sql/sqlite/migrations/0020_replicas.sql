-- Who runs a session, where more than one process may; a file with one owner leaves both empty.

ALTER TABLE session_state ADD COLUMN runner TEXT;

CREATE TABLE replicas (
    id TEXT PRIMARY KEY NOT NULL,
    url TEXT,
    version TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    draining INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
