-- The whole schema of a new store. A test verifies that running the migrations one by one leads to the same schema.

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
    epoch INTEGER NOT NULL DEFAULT 0,
    runner TEXT,
    owner TEXT,
    alias TEXT,
    unfinished_since INTEGER
) WITHOUT ROWID;

CREATE INDEX session_state_by_owner ON session_state (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX session_state_by_alias ON session_state (alias, ifnull(owner, '')) WHERE alias IS NOT NULL;
CREATE INDEX session_state_unfinished ON session_state (session_id) WHERE unfinished_since IS NOT NULL;

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
    settled_at INTEGER,
    messages INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX chat_turns_by_session ON chat_turns (session_id);
CREATE INDEX chat_turns_by_mile ON chat_turns (session_id, depth) WHERE depth % 64 = 0;
CREATE INDEX chat_turns_elder ON chat_turns (parent_turn_id) WHERE parent_turn_id > id;
CREATE INDEX chat_turns_refused ON chat_turns (session_id, settled_at) WHERE status = 'refused';

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

CREATE INDEX head_moves_rewinds ON head_moves (session_id, seq) WHERE why IN ('rewind', 'unrewind');

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
    data TEXT NOT NULL,
    crc INTEGER
);

CREATE TABLE journal_marks (
    message_id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL,
    folded_through INTEGER NOT NULL,
    crc INTEGER
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

CREATE INDEX chat_sessions_unlisted ON chat_sessions (updated_at, id)
    WHERE (archived_at IS NOT NULL
    OR ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.ephemeral'), 0), 0) IS 1
    OR ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.kind'), 'chat'), 'chat') = 'subagent');

CREATE INDEX chat_messages_by_client_id ON chat_messages (
    session_id, iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL)
) WHERE role <> 'assistant'
AND iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL) IS NOT NULL;

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
    session_id TEXT NOT NULL,
    message_id TEXT,
    turn_id TEXT,
    attempt INTEGER NOT NULL DEFAULT 1,
    type TEXT,
    status TEXT,
    digest TEXT,
    routing_json TEXT NOT NULL DEFAULT '{}',
    data_json TEXT NOT NULL DEFAULT '{}',
    at INTEGER NOT NULL,
    owner TEXT
);

CREATE UNIQUE INDEX ledger_events_once ON ledger_events (source, source_id, direction, attempt);
CREATE INDEX ledger_events_by_session ON ledger_events (session_id, seq);
CREATE INDEX ledger_events_by_source ON ledger_events (source, seq);
CREATE INDEX ledger_events_by_owner ON ledger_events (owner, seq) WHERE owner IS NOT NULL;
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

CREATE VIEW ledger_copies AS
WITH RECURSIVE
told (turn_id, position, word) AS NOT MATERIALIZED (
    SELECT l.turn_id, l.position, CASE t.turn_type WHEN 'compaction' THEN (
        SELECT iif(json_valid(p.data_json), json_extract(p.data_json, '$.data.summary'), p.data_json)
        FROM chat_parts p WHERE p.message_id = l.message_id AND p.type = 'data-compaction' LIMIT 1
    ) ELSE s.digest END
    FROM turn_messages l CROSS JOIN chat_turns t ON t.id = l.turn_id
    LEFT JOIN message_seals s ON s.message_id = l.message_id
),
same (id, parent_turn_id, origin_turn_id) AS (
    SELECT t.id, t.parent_turn_id, t.origin_turn_id
    FROM chat_turns t CROSS JOIN chat_turns o ON o.id = t.origin_turn_id
    LEFT JOIN chat_turns p ON p.id = t.parent_turn_id
    WHERE t.origin_turn_id IS NOT NULL
    AND t.status = o.status
    AND (t.parent_turn_id IS NULL) = (o.parent_turn_id IS NULL)
    AND p.origin_turn_id IS o.parent_turn_id
    AND (SELECT count(*) FROM turn_messages WHERE turn_id = t.id)
        = (SELECT count(*) FROM turn_messages WHERE turn_id = o.id)
    AND NOT EXISTS (
        SELECT 1 FROM told a LEFT JOIN told b ON b.turn_id = o.id AND b.position = a.position
        WHERE a.turn_id = t.id AND a.word IS NOT b.word
    )
),
whole (id, origin_turn_id) AS (
    SELECT id, origin_turn_id FROM same WHERE parent_turn_id IS NULL
    UNION ALL
    SELECT s.id, s.origin_turn_id FROM whole w JOIN same s ON s.parent_turn_id = w.id
),
led (id, turn_id) AS (
    SELECT id, origin_turn_id FROM whole
    UNION ALL
    SELECT l.id, w.origin_turn_id FROM led l JOIN whole w ON w.id = l.turn_id
)
SELECT id, turn_id FROM led WHERE turn_id NOT IN (SELECT id FROM whole);

CREATE VIEW ledger_sessions AS
SELECT s.id AS id,
    iif(json_valid(s.metadata_json), json_extract(s.metadata_json, '$.label'), NULL) AS label,
    iif(json_valid(s.metadata_json), json_extract(s.metadata_json, '$.routing_key'), NULL) AS routing_key,
    iif(json_valid(s.metadata_json), json_extract(s.metadata_json, '$.title'), NULL) AS title,
    ifnull(iif(json_valid(s.metadata_json), json_extract(s.metadata_json, '$.kind'), NULL), 'chat') AS kind,
    ifnull(h.turn_id, t.head_turn_id) AS current_turn_id,
    t.open_turn_id AS open_turn_id,
    s.parent_id AS parent_session_id,
    s.agent AS agent,
    s.created_at AS created_at,
    s.updated_at AS updated_at,
    s.archived_at AS archived_at
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id LEFT JOIN ledger_copies h ON h.id = t.head_turn_id
WHERE t.unfinished_since IS NULL;

CREATE VIEW ledger_turns AS
WITH RECURSIVE
marks (turn_id, session_id, data) AS (
    SELECT t.id, t.session_id, json_extract(p.data_json, '$.data')
    FROM chat_turns t CROSS JOIN turn_messages l ON l.turn_id = t.id
    CROSS JOIN chat_parts p ON p.message_id = l.message_id
    WHERE t.turn_type = 'compaction' AND p.type = 'data-compaction' AND json_valid(p.data_json)
    GROUP BY t.id HAVING min(l.position * 1000000 + p."index") NOT NULL
),
named (turn_id, session_id, what, message_id) AS (
    SELECT turn_id, session_id, 'through', json_extract(data, '$.range.through_message_id') FROM marks
    UNION ALL
    SELECT turn_id, session_id, 'kept', json_extract(data, '$.tail_start_id') FROM marks
),
holders (turn_id, what, holder) AS (
    SELECT n.turn_id, n.what, l.turn_id
    FROM named n CROSS JOIN turn_messages l ON l.message_id = n.message_id
    CROSS JOIN chat_turns t ON t.id = l.turn_id AND t.session_id = n.session_id
    WHERE l.turn_id <> n.turn_id
),
doubtful (turn_id, holder) AS (
    SELECT DISTINCT h.turn_id, h.holder FROM holders h
    WHERE (h.turn_id, h.what) IN (SELECT turn_id, what FROM holders GROUP BY turn_id, what HAVING count(*) > 1)
),
way (turn_id, holder, upper, depth, id) AS (
    SELECT d.turn_id, d.holder, iif(t.depth > h.depth, h.id, t.id), min(t.depth, h.depth),
        iif(t.depth > h.depth, t.id, h.id)
    FROM doubtful d CROSS JOIN chat_turns t ON t.id = d.turn_id CROSS JOIN chat_turns h ON h.id = d.holder
    UNION
    SELECT w.turn_id, w.holder, w.upper, w.depth, t.parent_turn_id FROM way w CROSS JOIN chat_turns t ON t.id = w.id
    WHERE t.depth > w.depth AND t.parent_turn_id IS NOT NULL
),
places (turn_id, what, holder, rank) AS (
    SELECT h.turn_id, h.what, h.holder, row_number() OVER (
        PARTITION BY h.turn_id, h.what ORDER BY w.id IS NULL, h.holder DESC
    )
    FROM holders h LEFT JOIN way w ON w.turn_id = h.turn_id AND w.holder = h.holder AND w.id = w.upper
)
SELECT t.id AS id,
    t.session_id AS session_id,
    ifnull(p.turn_id, t.parent_turn_id) AS parent_turn_id,
    t.turn_type AS turn_type,
    t.status AS status,
    t.depth AS depth,
    json_extract(m.data, '$.summary') AS summary,
    ifnull(tc.turn_id, th.holder) AS summarized_through_turn_id,
    ifnull(kc.turn_id, kh.holder) AS first_kept_turn_id,
    json_extract(m.data, '$.tokens_before') AS tokens_before,
    json_extract(m.data, '$.tokens_after') AS tokens_after,
    t.created_at AS created_at,
    t.settled_at AS settled_at
FROM chat_turns t
LEFT JOIN ledger_copies c ON c.id = t.id
LEFT JOIN ledger_copies p ON p.id = t.parent_turn_id
LEFT JOIN marks m ON m.turn_id = t.id
LEFT JOIN places th ON th.turn_id = t.id AND th.what = 'through' AND th.rank = 1
LEFT JOIN places kh ON kh.turn_id = t.id AND kh.what = 'kept' AND kh.rank = 1
LEFT JOIN ledger_copies tc ON tc.id = th.holder
LEFT JOIN ledger_copies kc ON kc.id = kh.holder
WHERE c.id IS NULL;

CREATE VIEW ledger_messages AS
SELECT m.id AS id,
    l.turn_id AS turn_id,
    l.position AS position,
    m.session_id AS session_id,
    m.role AS role,
    (
        SELECT group_concat(text, char(10)) FROM (
            SELECT json_extract(p.data_json, '$.text') AS text FROM chat_parts p
            WHERE p.message_id = m.id AND p.type = 'text' AND json_valid(p.data_json) ORDER BY p."index"
        )
    ) AS text,
    m.metadata_json AS metadata_json,
    m.created_at AS created_at
FROM turn_messages l CROSS JOIN chat_messages m ON m.id = l.message_id LEFT JOIN ledger_copies c ON c.id = l.turn_id
WHERE c.id IS NULL;

CREATE VIEW ledger_tool_calls AS
SELECT p.tool_call_id AS id,
    l.turn_id AS turn_id,
    p.message_id AS message_id,
    p."index" AS position,
    p.session_id AS session_id,
    iif(p.type = 'dynamic-tool', json_extract(p.data_json, '$.toolName'), substr(p.type, 6)) AS tool,
    p.tool_state AS state,
    CASE
        WHEN json_type(p.data_json, '$.input') IS NOT NULL THEN json_quote(json_extract(p.data_json, '$.input'))
        WHEN json_type(p.data_json, '$.rawInput') IS NOT NULL THEN json_quote(json_extract(p.data_json, '$.rawInput'))
    END AS input_json,
    CASE
        WHEN json_type(p.data_json, '$.output') IS NOT NULL THEN json_quote(json_extract(p.data_json, '$.output'))
    END AS output_json,
    json_extract(p.data_json, '$.errorText') AS error,
    p.created_at AS created_at,
    p.updated_at AS updated_at
FROM turn_messages l CROSS JOIN chat_parts p ON p.message_id = l.message_id LEFT JOIN ledger_copies c ON c.id = l.turn_id
WHERE c.id IS NULL AND p.tool_call_id IS NOT NULL AND json_valid(p.data_json);

CREATE TABLE event_log (
    n INTEGER PRIMARY KEY NOT NULL,
    stream_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    data_json TEXT NOT NULL
);

CREATE UNIQUE INDEX event_log_by_stream ON event_log (stream_id, seq);

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

INSERT INTO store_marks (store_id, commits, sealed_since) VALUES (lower(hex(randomblob(16))), 0, 0);

CREATE TABLE store_losses (
    id INTEGER PRIMARY KEY NOT NULL,
    found_at INTEGER NOT NULL,
    held INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL,
    sessions_json TEXT NOT NULL DEFAULT '[]',
    accepted_at INTEGER
);

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
    workspace TEXT,
    owner TEXT
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

CREATE TABLE adopted_messages (
    session_id TEXT NOT NULL,
    message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    PRIMARY KEY (session_id, message_id)
) WITHOUT ROWID;

CREATE INDEX adopted_messages_by_message ON adopted_messages (message_id);

CREATE INDEX chat_parts_files ON chat_parts (session_id) WHERE type = 'file';

CREATE TABLE replicas (
    id TEXT PRIMARY KEY NOT NULL,
    url TEXT,
    version TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    draining INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE workspace_snapshots (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    workspace TEXT NOT NULL,
    point TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    message_id TEXT,
    turn_id TEXT,
    step INTEGER,
    tree TEXT,
    replica TEXT,
    data_json TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;

CREATE INDEX workspace_snapshots_by_session ON workspace_snapshots (session_id, created_at);
CREATE INDEX workspace_snapshots_by_workspace ON workspace_snapshots (workspace, created_at);
CREATE INDEX workspace_snapshots_open ON workspace_snapshots (session_id)
    WHERE tree IS NULL AND state IN ('taking', 'late');

CREATE TABLE clew_schema (version INTEGER PRIMARY KEY NOT NULL);
