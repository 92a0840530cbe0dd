-- Damage is seen: a checksum on what streams left behind, how many messages each turn holds, and what was acknowledged.

ALTER TABLE stream_journal ADD COLUMN crc INTEGER;

ALTER TABLE journal_marks ADD COLUMN crc INTEGER;

ALTER TABLE chat_turns ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;

UPDATE chat_turns SET messages = (SELECT count(*) FROM turn_messages WHERE turn_id = chat_turns.id);

CREATE TRIGGER turn_messages_linked AFTER INSERT ON turn_messages
BEGIN
    UPDATE chat_turns SET messages = messages + 1 WHERE id = NEW.turn_id;
END;

CREATE TRIGGER turn_messages_unlinked AFTER DELETE ON turn_messages
BEGIN
    UPDATE chat_turns SET messages = messages - 1 WHERE id = OLD.turn_id;
END;

CREATE TABLE store_marks (
    store_id TEXT PRIMARY KEY NOT NULL,
    commits INTEGER NOT NULL,
    sealed_since INTEGER NOT NULL
) WITHOUT ROWID;

-- Messages that were there before may have settled without a seal, whatever the clock said when they were written.
INSERT INTO store_marks (store_id, commits, sealed_since)
SELECT lower(hex(randomblob(16))), (SELECT ifnull(max(n), 0) FROM stream_journal), max(
    CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), (SELECT ifnull(max(created_at), 0) FROM chat_messages)
) + 1;

CREATE TABLE store_losses (
    id INTEGER PRIMARY KEY NOT NULL,
    found_at INTEGER NOT NULL,
    held INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL,
    sessions_json TEXT NOT NULL DEFAULT '[]',
    accepted_at INTEGER
);
