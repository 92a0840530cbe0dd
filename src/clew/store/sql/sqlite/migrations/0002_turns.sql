-- The turn tree, which alone says what the conversation is, and what moves while a session lives.

CREATE TABLE session_state (
    session_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    head_turn_id TEXT,
    open_turn_id TEXT,
    epoch INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

INSERT INTO session_state (session_id) SELECT id FROM chat_sessions;

CREATE TABLE chat_turns (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    parent_turn_id TEXT,
    turn_type TEXT NOT NULL DEFAULT 'normal',
    status TEXT NOT NULL,
    depth INTEGER NOT NULL,
    compaction_turn_id TEXT,
    origin_turn_id TEXT,
    data_json TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    settled_at INTEGER
) WITHOUT ROWID;

CREATE INDEX chat_turns_by_session ON chat_turns (session_id);

CREATE TABLE turn_messages (
    turn_id TEXT NOT NULL REFERENCES chat_turns (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    PRIMARY KEY (turn_id, position)
) WITHOUT ROWID;

CREATE INDEX turn_messages_by_message ON turn_messages (message_id);

CREATE TABLE head_moves (
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    from_turn_id TEXT,
    to_turn_id TEXT,
    at INTEGER NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;

CREATE TABLE turn_steps (
    turn_id TEXT NOT NULL REFERENCES chat_turns (id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    model_json TEXT NOT NULL,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    finish_reason TEXT,
    prompt_digest TEXT,
    data_json TEXT NOT NULL DEFAULT '{}',
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    PRIMARY KEY (turn_id, step)
) WITHOUT ROWID;

CREATE TABLE message_queue (
    message_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    queued_at INTEGER NOT NULL,
    interrupt INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX message_queue_by_session ON message_queue (session_id, interrupt DESC, queued_at, message_id);
