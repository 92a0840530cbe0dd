-- Model calls: one row for each time a model was asked, whatever for; all spend is the sum over them.

CREATE TABLE model_calls (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT,
    turn_id TEXT,
    step INTEGER,
    message_id TEXT,
    purpose TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    model_id TEXT NOT NULL,
    variant TEXT,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    asked_at INTEGER NOT NULL,
    first_chunk_at INTEGER,
    ended_at INTEGER,
    tools_ms INTEGER NOT NULL DEFAULT 0,
    ended TEXT NOT NULL,
    estimated INTEGER NOT NULL DEFAULT 0,
    workspace TEXT
) WITHOUT ROWID;

CREATE INDEX model_calls_by_session ON model_calls (
    session_id, asked_at, input, output, reasoning, cache_read, cache_write, cost_usd
);
CREATE INDEX model_calls_by_time ON model_calls (asked_at);
CREATE INDEX model_calls_open ON model_calls (session_id) WHERE ended = 'asked';

CREATE TRIGGER model_calls_outlive_their_session AFTER DELETE ON chat_sessions
BEGIN
    UPDATE model_calls SET session_id = NULL, turn_id = NULL, message_id = NULL WHERE session_id = OLD.id;
END;
