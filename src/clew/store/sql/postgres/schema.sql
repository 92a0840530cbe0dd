-- The whole schema of a new store. PostgreSQL support begins with version 20 of the format, and migrations continue
-- from there with SQLite's numbers. A test verifies that they lead to the same schema.
-- Ids and names are compared by their bytes: COLLATE "C". Records are JSON, which preserves their text; only metadata,
-- small and queried by its keys, is JSONB.

CREATE TABLE schema_versions (
    number BIGINT PRIMARY KEY,
    additive BOOLEAN NOT NULL,
    made_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- The newest transaction of each writing connection, so that one that was cut off can find out whether it committed.
CREATE TABLE writer_marks (
    id TEXT COLLATE "C" PRIMARY KEY,
    n BIGINT NOT NULL,
    at TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE chat_sessions (
    id TEXT COLLATE "C" PRIMARY KEY,
    agent TEXT COLLATE "C" NOT NULL,
    workspace_root TEXT COLLATE "C",
    model_json JSON NOT NULL,
    parent_id TEXT COLLATE "C",
    parent_message_id TEXT COLLATE "C",
    permissions_json JSON NOT NULL DEFAULT '[]',
    metadata_json JSONB NOT NULL DEFAULT '{}',
    prompt_tokens BIGINT NOT NULL DEFAULT 0,
    completion_tokens BIGINT NOT NULL DEFAULT 0,
    reasoning_tokens BIGINT NOT NULL DEFAULT 0,
    cache_read BIGINT NOT NULL DEFAULT 0,
    cache_write BIGINT NOT NULL DEFAULT 0,
    total_tokens BIGINT NOT NULL DEFAULT 0,
    cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    archived_at BIGINT
);

CREATE INDEX chat_sessions_by_agent ON chat_sessions (agent, updated_at);
CREATE INDEX chat_sessions_by_workspace ON chat_sessions (workspace_root, updated_at);
CREATE INDEX chat_sessions_by_parent ON chat_sessions (parent_id);
CREATE INDEX chat_sessions_by_archived ON chat_sessions (archived_at);

CREATE TABLE chat_messages (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    role TEXT COLLATE "C" NOT NULL,
    metadata_json JSONB NOT NULL DEFAULT '{}',
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX chat_messages_by_session ON chat_messages (session_id, created_at);

CREATE TABLE chat_parts (
    id TEXT COLLATE "C" PRIMARY KEY,
    message_id TEXT COLLATE "C" NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C" NOT NULL,
    "index" BIGINT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    data_json JSON NOT NULL,
    tool_call_id TEXT COLLATE "C",
    tool_state TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX chat_parts_by_message ON chat_parts (message_id, "index");
CREATE INDEX chat_parts_by_session ON chat_parts (session_id);
CREATE INDEX chat_parts_by_tool_call ON chat_parts (tool_call_id);

CREATE TABLE session_state (
    session_id TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_sessions (id) ON DELETE CASCADE,
    head_turn_id TEXT COLLATE "C",
    open_turn_id TEXT COLLATE "C",
    epoch BIGINT NOT NULL DEFAULT 0,
    runner TEXT COLLATE "C",
    owner TEXT COLLATE "C",
    alias TEXT COLLATE "C",
    unfinished_since BIGINT
) WITH (fillfactor = 70);

CREATE INDEX session_state_by_runner ON session_state (runner) WHERE runner IS NOT NULL;
CREATE INDEX session_state_open ON session_state (session_id) WHERE open_turn_id IS NOT NULL;

CREATE INDEX session_state_by_owner ON session_state (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX session_state_by_alias ON session_state (alias, coalesce(owner, '')) WHERE alias IS NOT NULL;
CREATE INDEX session_state_unfinished ON session_state (session_id) WHERE unfinished_since IS NOT NULL;

CREATE TABLE chat_turns (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    parent_turn_id TEXT COLLATE "C",
    turn_type TEXT COLLATE "C" NOT NULL DEFAULT 'normal',
    status TEXT COLLATE "C" NOT NULL,
    depth BIGINT NOT NULL,
    compaction_turn_id TEXT COLLATE "C",
    origin_turn_id TEXT COLLATE "C",
    data_json JSON NOT NULL DEFAULT '{}',
    created_at BIGINT NOT NULL,
    settled_at BIGINT,
    messages BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX chat_turns_by_session ON chat_turns (session_id);
CREATE INDEX chat_turns_by_mile ON chat_turns (session_id, depth) WHERE depth % 64 = 0;
CREATE INDEX chat_turns_elder ON chat_turns (parent_turn_id) WHERE parent_turn_id > id;
CREATE INDEX chat_turns_refused ON chat_turns (session_id, settled_at) WHERE status = 'refused';

CREATE TABLE turn_messages (
    turn_id TEXT COLLATE "C" NOT NULL REFERENCES chat_turns (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    PRIMARY KEY (turn_id, position)
);

CREATE INDEX turn_messages_by_message ON turn_messages (message_id);

CREATE TABLE head_moves (
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    from_turn_id TEXT COLLATE "C",
    to_turn_id TEXT COLLATE "C",
    at BIGINT NOT NULL,
    why TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, seq)
);

CREATE INDEX head_moves_rewinds ON head_moves (session_id, seq) WHERE why IN ('rewind', 'unrewind');

CREATE TABLE turn_steps (
    turn_id TEXT COLLATE "C" NOT NULL REFERENCES chat_turns (id) ON DELETE CASCADE,
    step BIGINT NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    model_json JSON NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    reasoning BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION NOT NULL,
    finish_reason TEXT COLLATE "C",
    prompt_digest TEXT COLLATE "C",
    data_json JSON NOT NULL DEFAULT '{}',
    started_at BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    PRIMARY KEY (turn_id, step)
);

CREATE TABLE message_queue (
    message_id TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_messages (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    queued_at BIGINT NOT NULL,
    interrupt BOOLEAN NOT NULL DEFAULT false
);

CREATE INDEX message_queue_by_session ON message_queue (session_id, interrupt DESC, queued_at, message_id);

CREATE TABLE stream_journal (
    message_id TEXT COLLATE "C" NOT NULL,
    n BIGINT NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    data TEXT COLLATE "C" NOT NULL,
    crc BIGINT NOT NULL,
    PRIMARY KEY (message_id, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX stream_journal_by_session ON stream_journal (session_id);

CREATE TABLE journal_marks (
    message_id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL,
    folded_through BIGINT NOT NULL,
    crc BIGINT NOT NULL
);

CREATE INDEX journal_marks_by_session ON journal_marks (session_id);

CREATE TABLE message_seals (
    message_id TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_messages (id) ON DELETE CASCADE,
    digest TEXT COLLATE "C" NOT NULL
);

CREATE TABLE system_prompts (
    digest TEXT COLLATE "C" PRIMARY KEY,
    body TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE blobs (
    sha256 TEXT COLLATE "C" PRIMARY KEY,
    media_type TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    data BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE blob_links (
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    sha256 TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, sha256)
);

CREATE INDEX blob_links_by_blob ON blob_links (sha256);

CREATE TABLE project_rules (
    project TEXT COLLATE "C" PRIMARY KEY,
    rules_json JSON NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX chat_sessions_listed ON chat_sessions (updated_at, id)
    WHERE archived_at IS NULL
    AND NOT coalesce(metadata_json -> 'ephemeral' IN ('true', '1'), false)
    AND coalesce(metadata_json ->> 'kind', 'chat') <> 'subagent';

CREATE INDEX chat_sessions_unlisted ON chat_sessions (updated_at, id)
    WHERE (archived_at IS NOT NULL
    OR coalesce(metadata_json -> 'ephemeral' IN ('true', '1'), false)
    OR coalesce(metadata_json ->> 'kind', 'chat') = 'subagent');

CREATE INDEX chat_messages_by_client_id ON chat_messages (
    session_id, (metadata_json ->> 'client_message_id')
) WHERE (metadata_json ->> 'client_message_id') IS NOT NULL;

CREATE INDEX chat_parts_open_calls ON chat_parts (session_id, message_id, "index")
    WHERE tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded');

CREATE TABLE pruned_outputs (
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    part BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    keep BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (session_id, seq, message_id, part)
);

CREATE INDEX pruned_outputs_by_message ON pruned_outputs (message_id);

CREATE TABLE search_docs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    part_id TEXT COLLATE "C" UNIQUE NOT NULL REFERENCES chat_parts (id) ON DELETE CASCADE,
    message_id TEXT COLLATE "C" NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    words TSVECTOR NOT NULL
);

CREATE INDEX search_docs_by_message ON search_docs (message_id);
CREATE INDEX search_docs_words ON search_docs USING gin (words);

CREATE TABLE search_marks (
    message_id TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_messages (id) ON DELETE CASCADE,
    digest TEXT COLLATE "C" NOT NULL
);

CREATE TABLE search_stale (
    message_id TEXT COLLATE "C" PRIMARY KEY REFERENCES chat_messages (id) ON DELETE CASCADE
);

CREATE FUNCTION note_stale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The row is taken even where it is there: whoever indexes it just now waits, and reads what is new.
    INSERT INTO search_stale (message_id) VALUES (NEW.message_id)
    ON CONFLICT (message_id) DO UPDATE SET message_id = excluded.message_id;
    RETURN NULL;
END $$;

CREATE TRIGGER message_seals_stale AFTER INSERT OR UPDATE ON message_seals
FOR EACH ROW EXECUTE FUNCTION note_stale();

CREATE TABLE ledger_events (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL,
    direction TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    source_id TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C",
    turn_id TEXT COLLATE "C",
    attempt BIGINT NOT NULL DEFAULT 1,
    type TEXT COLLATE "C",
    status TEXT COLLATE "C",
    digest TEXT COLLATE "C",
    routing_json JSON NOT NULL DEFAULT '{}',
    data_json JSON NOT NULL DEFAULT '{}',
    at BIGINT NOT NULL,
    owner TEXT COLLATE "C"
);

CREATE UNIQUE INDEX ledger_events_once ON ledger_events (source, source_id, direction, attempt);
CREATE INDEX ledger_events_by_session ON ledger_events (session_id, seq);
CREATE INDEX ledger_events_by_source ON ledger_events (source, seq);
CREATE INDEX ledger_events_by_owner ON ledger_events (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX ledger_events_by_turn ON ledger_events (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX ledger_events_by_message ON ledger_events (message_id) WHERE message_id IS NOT NULL;

CREATE FUNCTION refuse_to_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.data_json::text <> '{}' OR EXISTS (SELECT 1 FROM chat_sessions WHERE id = OLD.session_id)
        OR (NEW.seq, NEW.id, NEW.direction, NEW.source, NEW.source_id, NEW.session_id, NEW.message_id, NEW.turn_id,
            NEW.attempt, NEW.type, NEW.status, NEW.digest, NEW.routing_json::text, NEW.at)
        IS DISTINCT FROM (OLD.seq, OLD.id, OLD.direction, OLD.source, OLD.source_id, OLD.session_id, OLD.message_id,
            OLD.turn_id, OLD.attempt, OLD.type, OLD.status, OLD.digest, OLD.routing_json::text, OLD.at)
    THEN
        RAISE EXCEPTION 'the events ledger only grows';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER ledger_events_never_change BEFORE UPDATE ON ledger_events
FOR EACH ROW EXECUTE FUNCTION refuse_to_change();

CREATE TABLE schedules (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" REFERENCES chat_sessions (id) ON DELETE CASCADE,
    paused BOOLEAN NOT NULL DEFAULT false,
    next_fire_at BIGINT,
    data_json JSON NOT NULL
);

CREATE INDEX schedules_by_session ON schedules (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE webhooks (
    name TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" REFERENCES chat_sessions (id) ON DELETE CASCADE,
    secret TEXT COLLATE "C" NOT NULL,
    data_json JSON NOT NULL
);

CREATE INDEX webhooks_by_session ON webhooks (session_id) WHERE session_id IS NOT NULL;

CREATE INDEX chat_sessions_by_label ON chat_sessions (
    (metadata_json ->> 'label')
) WHERE (metadata_json ->> 'label') IS NOT NULL;

CREATE INDEX chat_sessions_by_routing_key ON chat_sessions (
    (metadata_json ->> 'routing_key')
) WHERE (metadata_json ->> 'routing_key') IS NOT NULL;

CREATE TABLE event_log (
    n BIGINT PRIMARY KEY,
    stream_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    data_json JSON NOT NULL
);

CREATE UNIQUE INDEX event_log_by_stream ON event_log (stream_id, seq);

CREATE FUNCTION count_links() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE chat_turns SET messages = messages + 1 WHERE id = NEW.turn_id;
    ELSE
        UPDATE chat_turns SET messages = messages - 1 WHERE id = OLD.turn_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER turn_messages_counted AFTER INSERT OR DELETE ON turn_messages
FOR EACH ROW EXECUTE FUNCTION count_links();

CREATE TABLE workspace_snapshots (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    workspace TEXT COLLATE "C" NOT NULL,
    point TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    message_id TEXT COLLATE "C",
    turn_id TEXT COLLATE "C",
    step BIGINT,
    tree TEXT COLLATE "C",
    replica TEXT COLLATE "C",
    data_json JSON NOT NULL DEFAULT '{}'
);

CREATE INDEX workspace_snapshots_by_session ON workspace_snapshots (session_id, created_at);
CREATE INDEX workspace_snapshots_by_workspace ON workspace_snapshots (workspace, created_at);
CREATE INDEX workspace_snapshots_open ON workspace_snapshots (session_id)
    WHERE tree IS NULL AND state IN ('taking', 'late');

CREATE TABLE store_marks (
    store_id TEXT COLLATE "C" PRIMARY KEY,
    sealed_since BIGINT NOT NULL
);

INSERT INTO store_marks (store_id, sealed_since) VALUES (replace(gen_random_uuid()::text, '-', ''), 0);

CREATE TABLE model_calls (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C",
    turn_id TEXT COLLATE "C",
    step BIGINT,
    message_id TEXT COLLATE "C",
    purpose TEXT COLLATE "C" NOT NULL,
    provider_id TEXT COLLATE "C" NOT NULL,
    model_id TEXT COLLATE "C" NOT NULL,
    variant TEXT COLLATE "C",
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    reasoning BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION NOT NULL,
    asked_at BIGINT NOT NULL,
    first_chunk_at BIGINT,
    ended_at BIGINT,
    tools_ms BIGINT NOT NULL DEFAULT 0,
    ended TEXT COLLATE "C" NOT NULL,
    estimated BOOLEAN NOT NULL DEFAULT false,
    workspace TEXT COLLATE "C",
    owner TEXT COLLATE "C"
);

CREATE INDEX model_calls_by_session ON model_calls (
    session_id, asked_at, input, output, reasoning, cache_read, cache_write, cost_usd
);
CREATE INDEX model_calls_by_time ON model_calls (asked_at);
CREATE INDEX model_calls_open ON model_calls (session_id) WHERE ended = 'asked';

CREATE FUNCTION outlive_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_events SET data_json = '{}' WHERE session_id = OLD.id AND data_json::text <> '{}';
    UPDATE model_calls SET session_id = NULL, turn_id = NULL, message_id = NULL WHERE session_id = OLD.id;
    RETURN NULL;
END $$;

CREATE TRIGGER chat_sessions_outlived AFTER DELETE ON chat_sessions
FOR EACH ROW EXECUTE FUNCTION outlive_session();

CREATE TABLE adopted_messages (
    session_id TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    PRIMARY KEY (session_id, message_id)
);

CREATE INDEX adopted_messages_by_message ON adopted_messages (message_id);

CREATE INDEX chat_parts_files ON chat_parts (session_id) WHERE type = 'file';

CREATE TABLE replicas (
    id TEXT COLLATE "C" PRIMARY KEY,
    url TEXT COLLATE "C",
    version TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    beat_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    draining BOOLEAN NOT NULL DEFAULT false
);

-- Case-insensitive. PostgreSQL 18 has case folding; before that, a Unicode collation defines which letters have two
-- cases, under whatever name the server has one.
DO $$
DECLARE
    found TEXT;
    folded TEXT;
BEGIN
    SELECT quote_ident(collname) INTO found FROM pg_collation
    WHERE collname IN ('pg_unicode_fast', 'pg_c_utf8', 'und-x-icu', 'unicode', 'C.utf8')
    AND collencoding IN (-1, pg_char_to_encoding('UTF8'))
    ORDER BY array_position(ARRAY['pg_unicode_fast', 'pg_c_utf8', 'und-x-icu', 'unicode', 'C.utf8'], collname::text)
    LIMIT 1;
    IF current_setting('server_version_num')::integer >= 180000 THEN
        folded := 'casefold(%s COLLATE pg_unicode_fast)';
    ELSE
        folded := 'replace(lower(%s COLLATE ' || coalesce(found, '"default"') || '), ''ß'', ''ss'')';
    END IF;
    EXECUTE 'CREATE FUNCTION contains_text(value TEXT, wanted TEXT) RETURNS boolean LANGUAGE sql IMMUTABLE AS $f$ '
        || 'SELECT position(' || format(folded, 'wanted') || ' IN ' || format(folded, 'value') || ') > 0 $f$';
END $$;
