-- What comes in from outside and what goes out for it, what fires by itself, and the doors for other programs. Rows of
-- the ledger are added and go with their session; nothing ever changes one.

CREATE TABLE ledger_events (
    seq INTEGER PRIMARY KEY NOT NULL,
    id TEXT NOT NULL,
    direction TEXT NOT NULL,
    source TEXT NOT NULL,
    source_id TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    message_id TEXT,
    turn_id TEXT,
    type TEXT,
    status TEXT,
    digest TEXT,
    data_json TEXT NOT NULL DEFAULT '{}',
    at INTEGER NOT NULL
);

CREATE UNIQUE INDEX ledger_events_once ON ledger_events (source, source_id, direction);
CREATE INDEX ledger_events_by_session ON ledger_events (session_id, seq);
CREATE INDEX ledger_events_by_source ON ledger_events (source, seq);
CREATE INDEX ledger_events_by_turn ON ledger_events (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX ledger_events_by_message ON ledger_events (message_id) WHERE message_id IS NOT NULL;

CREATE TRIGGER ledger_events_never_change BEFORE UPDATE ON ledger_events
BEGIN
    SELECT RAISE(ABORT, 'the events ledger only grows');
END;

CREATE TABLE schedules (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT REFERENCES chat_sessions (id) ON DELETE CASCADE,
    paused INTEGER NOT NULL DEFAULT 0,
    next_fire_at INTEGER,
    data_json TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX schedules_by_session ON schedules (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE webhooks (
    name TEXT PRIMARY KEY NOT NULL,
    session_id TEXT REFERENCES chat_sessions (id) ON DELETE CASCADE,
    secret TEXT NOT NULL,
    data_json TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX webhooks_by_session ON webhooks (session_id) WHERE session_id IS NOT NULL;

CREATE INDEX chat_sessions_by_label ON chat_sessions (
    iif(json_valid(metadata_json), json_extract(metadata_json, '$.label'), NULL)
) WHERE iif(json_valid(metadata_json), json_extract(metadata_json, '$.label'), NULL) IS NOT NULL;

CREATE INDEX chat_sessions_by_routing_key ON chat_sessions (
    iif(json_valid(metadata_json), json_extract(metadata_json, '$.routing_key'), NULL)
) WHERE iif(json_valid(metadata_json), json_extract(metadata_json, '$.routing_key'), NULL) IS NOT NULL;
