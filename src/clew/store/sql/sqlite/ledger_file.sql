-- The ledger in a separate file, with plain table names. The store is attached as ``store``.
-- Columns that the views lack have the names that other ledgers of this form use.

CREATE TABLE sessions AS SELECT s.*, s.agent AS persona FROM store.ledger_sessions s;

CREATE TABLE turns AS
WITH used (turn_id, input, output, reasoning, cache_read, cache_write) AS (
    SELECT turn_id, input, output, reasoning, cache_read, cache_write FROM store.turn_steps
    UNION ALL
    SELECT l.turn_id, json_extract(p.data_json, '$.data.usage.input'), json_extract(p.data_json, '$.data.usage.output'),
        json_extract(p.data_json, '$.data.usage.reasoning'), json_extract(p.data_json, '$.data.usage.cache_read'),
        json_extract(p.data_json, '$.data.usage.cache_write')
    FROM store.chat_parts p JOIN store.turn_messages l ON l.message_id = p.message_id
    WHERE p.type = 'data-compaction' AND json_valid(p.data_json)
),
sums AS (
    SELECT turn_id, sum(input) AS input, sum(output) AS output, sum(reasoning) AS reasoning,
        sum(cache_read) AS cache_read, sum(cache_write) AS cache_write
    FROM used GROUP BY turn_id
)
SELECT t.*,
    CAST(NULL AS TEXT) AS root_turn_id,
    (
        SELECT e.id FROM store.turn_messages l
        JOIN store.ledger_events e ON e.message_id = l.message_id AND e.direction = 'in'
        WHERE l.turn_id = t.id ORDER BY e.seq LIMIT 1
    ) AS source_event_id,
    ifnull(u.input, 0) AS input_tokens,
    ifnull(u.output, 0) AS output_tokens,
    ifnull(u.reasoning, 0) AS reasoning_tokens,
    ifnull(u.cache_read, 0) AS cache_read_tokens,
    ifnull(u.cache_write, 0) AS cache_write_tokens,
    ifnull(u.input + u.output + u.reasoning + u.cache_read + u.cache_write, 0) AS total_tokens
FROM store.ledger_turns t LEFT JOIN sums u ON u.turn_id = t.id;

CREATE UNIQUE INDEX turns_by_id ON turns (id);
CREATE INDEX turns_by_parent ON turns (parent_turn_id);

UPDATE turns SET root_turn_id = found.root FROM (
    WITH RECURSIVE below (id, root) AS (
        SELECT id, id FROM turns WHERE parent_turn_id IS NULL OR parent_turn_id NOT IN (SELECT id FROM turns)
        UNION ALL
        SELECT t.id, b.root FROM below b CROSS JOIN turns t ON t.parent_turn_id = b.id
    )
    SELECT id, root FROM below
) AS found WHERE found.id = turns.id;

CREATE TABLE messages AS
SELECT m.*,
    iif(t.turn_type = 'compaction', ifnull(t.summary, m.text), m.text) AS content,
    m.position + (t.turn_type = 'compaction') AS sequence
FROM store.ledger_messages m LEFT JOIN turns t ON t.id = m.turn_id;

-- A compaction's request is stored as its figures, so that no reader takes it for a prompt.
INSERT INTO messages (id, turn_id, position, session_id, role, text, metadata_json, created_at, content, sequence)
SELECT t.id || '-query', t.id, NULL, t.session_id, 'user', NULL, '{"synthetic":true}', t.created_at,
    'Summarise the conversation' || ifnull(' through turn ' || t.summarized_through_turn_id, '')
    || ifnull('; pay special attention to: ' || (
        SELECT json_extract(p.data_json, '$.data.focus') FROM store.turn_messages l
        JOIN store.chat_parts p ON p.message_id = l.message_id AND p.type = 'data-compaction'
        WHERE l.turn_id = t.id AND json_valid(p.data_json) LIMIT 1
    ), '') || '.',
    0
FROM turns t WHERE t.turn_type = 'compaction';

CREATE TABLE tool_calls AS
SELECT c.*, c.tool AS tool_name, c.input_json AS parameters FROM store.ledger_tool_calls c;

CREATE TABLE events AS SELECT * FROM store.ledger_events;

CREATE UNIQUE INDEX sessions_by_id ON sessions (id);
CREATE INDEX sessions_by_label ON sessions (label);
CREATE INDEX sessions_by_routing_key ON sessions (routing_key);
CREATE INDEX messages_by_turn ON messages (turn_id, sequence);
CREATE INDEX tool_calls_by_turn ON tool_calls (turn_id);
CREATE INDEX events_by_source ON events (source, source_id);
