-- Statements of the cache beside those of the SQLite store: which files its rows were read from, which rows a unit
-- changed, and the removal of a session whose files are gone.

-- name: make_files
CREATE TABLE IF NOT EXISTS session_files (
    session_id TEXT PRIMARY KEY NOT NULL,
    signature TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    ahead INTEGER NOT NULL DEFAULT 0,
    damages_json TEXT NOT NULL DEFAULT '[]'
) WITHOUT ROWID

-- name: make_folders
CREATE TABLE IF NOT EXISTS shared_folders (name TEXT PRIMARY KEY NOT NULL, signature TEXT NOT NULL) WITHOUT ROWID

-- name: make_marks
CREATE TABLE IF NOT EXISTS cache_marks (kind TEXT NOT NULL, version INTEGER NOT NULL)

-- name: get_mark
SELECT kind, version FROM cache_marks

-- name: set_mark
INSERT INTO cache_marks (kind, version) VALUES (:kind, :version)

-- name: load_files
SELECT session_id, signature, seen_at, ahead, damages_json FROM session_files

-- name: get_file
SELECT signature, ahead FROM session_files WHERE session_id = :id

-- name: load_ahead
SELECT session_id FROM session_files WHERE ahead

-- name: put_file
INSERT INTO session_files (session_id, signature, seen_at, ahead, damages_json)
VALUES (:id, :signature, :seen_at, :ahead, :damages_json)
ON CONFLICT (session_id) DO UPDATE SET signature = excluded.signature, seen_at = excluded.seen_at,
    ahead = excluded.ahead, damages_json = excluded.damages_json

-- name: set_file
UPDATE session_files SET signature = :signature, seen_at = :seen_at, ahead = :ahead WHERE session_id = :id

-- name: see_file
UPDATE session_files SET seen_at = :seen_at WHERE session_id = :id AND signature = :signature

-- name: drop_file
DELETE FROM session_files WHERE session_id = :id

-- name: load_folders
SELECT name, signature FROM shared_folders

-- name: put_folder
INSERT INTO shared_folders (name, signature) VALUES (:name, :signature)
ON CONFLICT (name) DO UPDATE SET signature = excluded.signature

-- name: drop_folder
DELETE FROM shared_folders WHERE name = :name

-- name: has_session
SELECT 1 FROM chat_sessions WHERE id = :id

-- name: drop_foreign_keys_of_schedules
-- The truth is in the files: a schedule outlives the loss of its session's files, as one that reports why it cannot run.
CREATE TABLE unbound_schedules (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT,
    paused INTEGER NOT NULL DEFAULT 0,
    next_fire_at INTEGER,
    data_json TEXT NOT NULL
) WITHOUT ROWID;
DROP TABLE schedules;
ALTER TABLE unbound_schedules RENAME TO schedules;
CREATE INDEX schedules_by_session ON schedules (session_id) WHERE session_id IS NOT NULL;
CREATE TABLE unbound_webhooks (
    name TEXT PRIMARY KEY NOT NULL,
    session_id TEXT,
    secret TEXT NOT NULL,
    data_json TEXT NOT NULL
) WITHOUT ROWID;
DROP TABLE webhooks;
ALTER TABLE unbound_webhooks RENAME TO webhooks;
CREATE INDEX webhooks_by_session ON webhooks (session_id) WHERE session_id IS NOT NULL;
DROP TRIGGER ledger_events_outlive_their_session;
DROP TRIGGER model_calls_outlive_their_session

-- name: make_scratch
CREATE TEMP TABLE touched (name TEXT NOT NULL, key NOT NULL);
CREATE TEMP TABLE modes (mode TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID;
CREATE TEMP TRIGGER session_deleted AFTER DELETE ON chat_sessions
WHEN NOT EXISTS (SELECT 1 FROM modes WHERE mode = 'reading')
BEGIN
    UPDATE ledger_events SET data_json = '{}' WHERE session_id = OLD.id AND data_json <> '{}';
    UPDATE model_calls SET session_id = NULL, turn_id = NULL, message_id = NULL WHERE session_id = OLD.id;
    DELETE FROM schedules WHERE session_id = OLD.id;
    DELETE FROM webhooks WHERE session_id = OLD.id;
END;
CREATE TEMP TRIGGER schedule_of_session BEFORE INSERT ON schedules
WHEN NEW.session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM modes WHERE mode = 'reading')
    AND NOT EXISTS (SELECT 1 FROM chat_sessions WHERE id = NEW.session_id)
BEGIN
    SELECT RAISE(ABORT, 'FOREIGN KEY constraint failed');
END;
CREATE TEMP TRIGGER webhook_of_session BEFORE INSERT ON webhooks
WHEN NEW.session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM modes WHERE mode = 'reading')
    AND NOT EXISTS (SELECT 1 FROM chat_sessions WHERE id = NEW.session_id)
BEGIN
    SELECT RAISE(ABORT, 'FOREIGN KEY constraint failed');
END;
CREATE TEMP TRIGGER prompt_of_damaged BEFORE DELETE ON system_prompts
WHEN EXISTS (SELECT 1 FROM modes WHERE mode = 'damaged')
BEGIN
    SELECT RAISE(IGNORE);
END;
CREATE TEMP TRIGGER blob_of_damaged BEFORE DELETE ON blobs
WHEN EXISTS (SELECT 1 FROM modes WHERE mode = 'damaged')
BEGIN
    SELECT RAISE(IGNORE);
END

-- name: touch
-- Without a unique key: a statement with ON CONFLICT decides about the conflicts in its triggers, too.
CREATE TEMP TRIGGER {trigger} AFTER {event} ON {table}
WHEN NOT EXISTS (SELECT 1 FROM modes WHERE mode = 'reading')
BEGIN
    INSERT INTO touched (name, key) VALUES ('{name}', {key});
END

-- name: begin_mode
INSERT OR IGNORE INTO modes (mode) VALUES (:mode)

-- name: end_mode
DELETE FROM modes WHERE mode = :mode

-- name: load_touched
SELECT DISTINCT name, key FROM touched

-- name: empty_touched
DELETE FROM touched

-- name: empty_session
DELETE FROM chat_messages WHERE session_id = :id;
DELETE FROM chat_turns WHERE session_id = :id;
DELETE FROM head_moves WHERE session_id = :id;
DELETE FROM message_queue WHERE session_id = :id;
DELETE FROM blob_links WHERE session_id = :id;
DELETE FROM pruned_outputs WHERE session_id = :id;
DELETE FROM model_calls WHERE session_id = :id;
DELETE FROM workspace_snapshots WHERE session_id = :id;
DELETE FROM session_state WHERE session_id = :id

-- name: drop_session
DELETE FROM chat_sessions WHERE id = :id

-- name: restore_state
INSERT INTO session_state (session_id, head_turn_id, open_turn_id, epoch, runner, owner, alias)
VALUES (:id, :head_turn_id, :open_turn_id, :epoch, :runner, :owner, :alias)

-- name: get_move
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves WHERE session_id = :id AND seq = :seq

-- name: get_seal
SELECT digest FROM message_seals WHERE message_id = :message_id

-- name: get_pruned
SELECT seq, message_id, part, tokens, keep, at FROM pruned_outputs
WHERE session_id = :id AND seq = :seq AND message_id = :message_id AND part = :part

-- name: has_blob_link
SELECT 1 FROM blob_links WHERE session_id = :id AND sha256 = :sha256

-- name: load_blob_links
SELECT sha256 FROM blob_links WHERE session_id = :id ORDER BY sha256

-- name: load_calls_of_day
SELECT id FROM model_calls WHERE session_id IS NULL AND asked_at BETWEEN :first AND :last ORDER BY asked_at, id

-- name: empty_blob
UPDATE blobs SET data = x'' WHERE sha256 = :sha256

-- name: get_event
SELECT seq, id, direction, source, source_id, session_id, message_id, turn_id, attempt, type, status, digest,
    routing_json, data_json, at, owner
FROM ledger_events
WHERE direction = :direction AND source = :source AND source_id = :source_id AND attempt = :attempt

-- name: newest_event
SELECT seq, id, direction, source, source_id, session_id, message_id, turn_id, attempt, type, status, digest,
    routing_json, data_json, at, owner
FROM ledger_events ORDER BY seq DESC LIMIT 1

-- name: named_blobs
SELECT DISTINCT sha256 FROM blob_links

-- name: get_schedule
SELECT id, data_json FROM schedules WHERE id = :id

-- name: get_webhook
SELECT name, secret, data_json FROM webhooks WHERE name = :name

-- name: get_prompt
SELECT body FROM system_prompts WHERE digest = :digest

-- name: get_blob
SELECT sha256, media_type, data FROM blobs WHERE sha256 = :sha256

-- name: get_rules
SELECT rules_json FROM project_rules WHERE project = :project

-- name: restore_event
INSERT INTO ledger_events (
    seq, id, direction, source, source_id, session_id, message_id, turn_id, attempt, type, status, digest,
    routing_json, data_json, at, owner
) VALUES (
    :seq, :id, :direction, :source, :source_id, :session_id, :message_id, :turn_id, :attempt, :type, :status, :digest,
    :routing_json, :data_json, :at, :owner
)

-- name: empty_calls
DELETE FROM model_calls WHERE session_id IS NULL

-- name: empty_events
DELETE FROM ledger_events

-- name: empty_schedules
DELETE FROM schedules

-- name: empty_webhooks
DELETE FROM webhooks

-- name: empty_prompts
DELETE FROM system_prompts

-- name: empty_blobs
DELETE FROM blobs

-- name: empty_rules
DELETE FROM project_rules

-- name: empty_replicas
DELETE FROM replicas
