-- The whole schema as a new store gets it. A test proves that the migrations, run one by one, end here too.

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

CREATE TABLE session_state (
    session_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    head_turn_id TEXT,
    open_turn_id TEXT,
    epoch INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

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

CREATE TABLE stream_journal (
    n INTEGER PRIMARY KEY NOT NULL,
    data TEXT NOT NULL
);

CREATE TABLE journal_marks (
    message_id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL,
    folded_through INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX journal_marks_by_session ON journal_marks (session_id);

CREATE TABLE message_seals (
    message_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    digest TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE system_prompts (
    digest TEXT PRIMARY KEY NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE blobs (
    sha256 TEXT PRIMARY KEY NOT NULL,
    media_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE blob_links (
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (session_id, sha256)
) WITHOUT ROWID;

CREATE INDEX blob_links_by_blob ON blob_links (sha256);

CREATE TABLE project_rules (
    project TEXT PRIMARY KEY NOT NULL,
    rules_json TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE INDEX chat_sessions_listed ON chat_sessions (updated_at, id)
    WHERE archived_at IS NULL
    AND ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.ephemeral'), 0), 0) IS NOT 1
    AND ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.kind'), 'chat'), 'chat') <> 'subagent';

CREATE INDEX chat_sessions_by_update ON chat_sessions (updated_at, id);

CREATE INDEX chat_messages_by_client_id ON chat_messages (
    session_id, iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL)
) WHERE iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL) IS NOT NULL;

CREATE INDEX chat_parts_open_calls ON chat_parts (session_id, message_id, "index")
    WHERE tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded');

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

CREATE TABLE search_docs (
    id INTEGER PRIMARY KEY NOT NULL,
    part_id TEXT UNIQUE NOT NULL REFERENCES chat_parts (id) ON DELETE CASCADE
);

CREATE TABLE search_marks (
    message_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    digest TEXT NOT NULL
) WITHOUT ROWID;

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
