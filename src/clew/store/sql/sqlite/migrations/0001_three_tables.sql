-- The three tables that any reader of the format knows. Nothing is ever added to them but indexes.

CREATE TABLE chat_sessions (
    id TEXT PRIMARY KEY NOT NULL,
    agent TEXT NOT NULL,
    workspace_root TEXT,
    model_json TEXT NOT NULL,
    parent_id TEXT,
    parent_message_id TEXT,
    permissions_json TEXT NOT NULL DEFAULT '[]',
    metadata_json TEXT NOT NULL DEFAULT '{}',
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0,
    total_tokens INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER
);

CREATE INDEX chat_sessions_by_agent ON chat_sessions (agent, updated_at);
CREATE INDEX chat_sessions_by_workspace ON chat_sessions (workspace_root, updated_at);
CREATE INDEX chat_sessions_by_parent ON chat_sessions (parent_id);
CREATE INDEX chat_sessions_by_archived ON chat_sessions (archived_at);

CREATE TABLE chat_messages (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    metadata_json TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE INDEX chat_messages_by_session ON chat_messages (session_id, created_at);

CREATE TABLE chat_parts (
    id TEXT PRIMARY KEY NOT NULL,
    message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    type TEXT NOT NULL,
    data_json TEXT NOT NULL,
    tool_call_id TEXT,
    tool_state TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE INDEX chat_parts_by_message ON chat_parts (message_id, "index");
CREATE INDEX chat_parts_by_session ON chat_parts (session_id);
CREATE INDEX chat_parts_by_tool_call ON chat_parts (tool_call_id);
