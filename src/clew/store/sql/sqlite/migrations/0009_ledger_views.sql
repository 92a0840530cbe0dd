-- The turn ledger: the same turns for people who ask in SQL. A turn that was copied and is still what it was copied from
-- is not shown again: whoever names it is led to the first one, so a fork and its origin are one tree.

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
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id LEFT JOIN ledger_copies h ON h.id = t.head_turn_id;

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
