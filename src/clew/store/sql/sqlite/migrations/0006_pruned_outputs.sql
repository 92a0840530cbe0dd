-- Tool outputs the model is shown only a stub of, or the ends of. Rows are only ever added; the newest one for a part
-- is the one that holds.

CREATE TABLE pruned_outputs (
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    keep INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (session_id, seq, message_id, part)
) WITHOUT ROWID;

CREATE INDEX pruned_outputs_by_message ON pruned_outputs (message_id);
