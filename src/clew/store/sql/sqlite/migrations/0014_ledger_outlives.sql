-- The events ledger outlives its sessions, says how it was routed, and has what went out for each attempt of a turn.

DROP TRIGGER ledger_events_never_change;
DROP INDEX ledger_events_once;
DROP INDEX ledger_events_by_session;
DROP INDEX ledger_events_by_source;
DROP INDEX ledger_events_by_turn;
DROP INDEX ledger_events_by_message;
ALTER TABLE ledger_events RENAME TO ledger_events_before;

CREATE TABLE ledger_events (
    seq INTEGER PRIMARY KEY NOT NULL,
    id TEXT NOT NULL,
    direction TEXT NOT NULL,
    source TEXT NOT NULL,
    source_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    message_id TEXT,
    turn_id TEXT,
    attempt INTEGER NOT NULL DEFAULT 1,
    type TEXT,
    status TEXT,
    digest TEXT,
    routing_json TEXT NOT NULL DEFAULT '{}',
    data_json TEXT NOT NULL DEFAULT '{}',
    at INTEGER NOT NULL
);

INSERT INTO ledger_events
    (seq, id, direction, source, source_id, session_id, message_id, turn_id, type, status, digest, data_json, at)
SELECT seq, id, direction, source, source_id, session_id, message_id, turn_id, type, status, digest, data_json, at
FROM ledger_events_before;

DROP TABLE ledger_events_before;

CREATE UNIQUE INDEX ledger_events_once ON ledger_events (source, source_id, direction, attempt);
CREATE INDEX ledger_events_by_session ON ledger_events (session_id, seq);
CREATE INDEX ledger_events_by_source ON ledger_events (source, seq);
CREATE INDEX ledger_events_by_turn ON ledger_events (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX ledger_events_by_message ON ledger_events (message_id) WHERE message_id IS NOT NULL;

CREATE TRIGGER ledger_events_never_change BEFORE UPDATE ON ledger_events
WHEN NEW.data_json <> '{}' OR EXISTS (SELECT 1 FROM chat_sessions WHERE id = OLD.session_id)
    OR (NEW.seq, NEW.id, NEW.direction, NEW.source, NEW.source_id, NEW.session_id, NEW.message_id, NEW.turn_id,
        NEW.attempt, NEW.type, NEW.status, NEW.digest, NEW.routing_json, NEW.at)
    IS NOT (OLD.seq, OLD.id, OLD.direction, OLD.source, OLD.source_id, OLD.session_id, OLD.message_id, OLD.turn_id,
        OLD.attempt, OLD.type, OLD.status, OLD.digest, OLD.routing_json, OLD.at)
BEGIN
    SELECT RAISE(ABORT, 'the events ledger only grows');
END;

CREATE TRIGGER ledger_events_outlive_their_session AFTER DELETE ON chat_sessions
BEGIN
    UPDATE ledger_events SET data_json = '{}' WHERE session_id = OLD.id AND data_json <> '{}';
END;
