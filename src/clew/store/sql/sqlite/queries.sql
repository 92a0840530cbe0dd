-- All statements of the SQLite store, by name. None of them reads hidden_at: the turn tree decides what is hidden.
-- The plus before session_id keeps SQLite from using the index by session, which would scan a whole session to find one
-- row.

-- fragment: session_columns
s.id, s.agent, s.workspace_root, s.model_json, s.parent_id, s.parent_message_id, s.permissions_json, s.metadata_json,
s.prompt_tokens, s.completion_tokens, s.reasoning_tokens, s.cache_read, s.cache_write, s.total_tokens, s.cost_usd,
s.created_at, s.updated_at, s.archived_at, t.head_turn_id, t.owner, t.alias

-- fragment: is_ephemeral
ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.ephemeral'), 0), 0)

-- fragment: kind
ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.kind'), 'chat'), 'chat')

-- fragment: is_listed
archived_at IS NULL AND {is_ephemeral} IS NOT 1 AND {kind} <> 'subagent'

-- fragment: is_unlisted
(archived_at IS NOT NULL OR {is_ephemeral} IS 1 OR {kind} = 'subagent')

-- fragment: found
AND (:title IS NULL
    OR contains_text(iif(json_valid(metadata_json), json_extract(metadata_json, '$.title'), NULL), :title))
AND (:agent IS NULL OR s.agent = :agent)
AND (:workspace IS NULL OR s.workspace_root = :workspace)
AND (:parent IS NULL OR s.parent_id = :parent)
-- Few are pinned: most rows are decided without parsing the JSON.
AND (NOT :pinned OR (s.metadata_json LIKE '%"pinned"%'
    AND iif(json_valid(metadata_json), json_type(metadata_json, '$.pinned'), NULL) = 'true'))
AND (:owner IS NULL OR t.owner = :owner)
AND (s.updated_at, s.id) < (:updated_at, :id)
AND {is_shown}

-- fragment: page
{found}
ORDER BY s.updated_at DESC, s.id DESC
LIMIT :limit

-- fragment: may_have_title
-- Decided without parsing the JSON or calling into Python for most rows without a match: plain text is stored
-- unescaped. Rows with escapes or other than ASCII text are checked in full.
(:plain IS NULL OR s.metadata_json LIKE :plain OR s.metadata_json LIKE '%\%'
    OR length(s.metadata_json) <> length(CAST(s.metadata_json AS BLOB)))

-- fragment: flags
(:archived OR archived_at IS NULL)
AND (:ephemeral OR {is_ephemeral} IS NOT 1)
AND (:kind = 'any' OR (:kind = 'subagent') = ({kind} = 'subagent'))

-- fragment: is_shown
-- Reads treat a session that is being copied or deleted as if it did not exist.
({is_taken_in} AND t.unfinished_since IS NULL)

-- fragment: is_taken_in
-- A session has a state, or at least turns; without either, another program wrote it and it was not adopted yet.
(t.session_id IS NOT NULL OR EXISTS (SELECT 1 FROM chat_turns c WHERE c.session_id = s.id))

-- fragment: unfinished
-- The sessions that are being copied or deleted.
(SELECT session_id FROM session_state WHERE unfinished_since IS NOT NULL)

-- fragment: snapshot_columns
id, session_id, workspace, point, state, created_at, message_id, turn_id, step, tree, replica, data_json

-- fragment: call_columns
id, session_id, turn_id, step, message_id, purpose, provider_id, model_id, variant,
input, output, reasoning, cache_read, cache_write, cost_usd,
asked_at, first_chunk_at, ended_at, tools_ms, ended, estimated, workspace, owner

-- fragment: is_plain
-- A turn whose copy differs from it only in its ids and its parent, so that it can be part of a run.
t.turn_type = 'normal' AND t.status IN ('completed', 'aborted', 'failed', 'unanswered')
AND (t.data_json = '{}' OR (t.data_json LIKE '{"chunks":{%' AND instr(t.data_json, '}') = length(t.data_json) - 1))

-- fragment: message_columns
m.id, m.session_id, m.role, m.metadata_json, m.created_at, m.updated_at

-- fragment: part_columns
p.id, p.message_id, p."index", p.data_json, p.created_at, p.updated_at

-- fragment: view_part_columns
-- The columns that a view needs. Parts as bytes, as they are compared with the seal and decoded.
p.message_id, p."index", CAST(p.data_json AS BLOB)

-- fragment: turn_columns
id, session_id, parent_turn_id, turn_type, status, depth, compaction_turn_id, origin_turn_id, data_json, created_at,
settled_at


-- Sessions

-- name: insert_session
INSERT INTO chat_sessions (
    id, agent, workspace_root, model_json, parent_id, parent_message_id, permissions_json, metadata_json,
    prompt_tokens, completion_tokens, reasoning_tokens, cache_read, cache_write, total_tokens, cost_usd,
    created_at, updated_at, archived_at
) VALUES (
    :id, :agent, :workspace_root, :model_json, :parent_id, :parent_message_id, :permissions_json, :metadata_json,
    :prompt_tokens, :completion_tokens, :reasoning_tokens, :cache_read, :cache_write, :total_tokens, :cost_usd,
    :created_at, :updated_at, :archived_at
)

-- name: insert_state
INSERT INTO session_state (session_id, owner, alias) VALUES (:id, :owner, :alias)

-- name: renew_copy
UPDATE session_state SET unfinished_since = {now_ms} WHERE session_id = :id AND unfinished_since > 0

-- name: finish_copy
UPDATE session_state SET unfinished_since = NULL WHERE session_id = :id AND unfinished_since > 0

-- name: begin_copy
UPDATE session_state SET unfinished_since = {now_ms} WHERE session_id = :id

-- name: begin_deletion
-- 0: units no longer find the session.
UPDATE session_state SET
    head_turn_id = NULL, open_turn_id = NULL, runner = NULL, alias = NULL, unfinished_since = 0
WHERE session_id = :id

-- name: unfinished_sessions
-- The owner of the file has no other process that copies.
SELECT session_id FROM session_state
WHERE unfinished_since IS NOT NULL ORDER BY session_id

-- name: names_of_unfinished
-- What the rows of such sessions are named by.
SELECT session_id FROM session_state WHERE unfinished_since IS NOT NULL
UNION SELECT id FROM chat_messages WHERE session_id IN {unfinished}
UNION SELECT id FROM chat_turns WHERE session_id IN {unfinished}
UNION SELECT sha256 FROM blob_links WHERE session_id IN {unfinished}

-- name: is_unfinished
SELECT 1 FROM session_state WHERE session_id = :id AND unfinished_since IS NOT NULL

-- name: delete_queued_of_session
DELETE FROM chat_messages WHERE id IN (SELECT message_id FROM message_queue WHERE session_id = :id)

-- name: delete_schedules_of_session
DELETE FROM schedules WHERE session_id = :id

-- name: delete_webhooks_of_session
DELETE FROM webhooks WHERE session_id = :id

-- name: detach_calls_of_session
UPDATE model_calls SET session_id = NULL, turn_id = NULL, message_id = NULL WHERE session_id = :id

-- name: get_session_metadata
SELECT metadata_json FROM chat_sessions WHERE id = :id

-- name: get_session_permissions
SELECT permissions_json FROM chat_sessions WHERE id = :id

-- name: set_session_metadata
UPDATE chat_sessions SET metadata_json = :metadata_json WHERE id = :id

-- name: set_session_model
UPDATE chat_sessions SET model_json = :model_json WHERE id = :id

-- name: set_session_permissions
UPDATE chat_sessions SET permissions_json = :permissions_json WHERE id = :id

-- name: set_session_archived
UPDATE chat_sessions SET archived_at = :archived_at WHERE id = :id

-- name: touch_session
UPDATE chat_sessions SET updated_at = max(updated_at, :updated_at) WHERE id = :id

-- fragment: booked
prompt_tokens = prompt_tokens + :input,
completion_tokens = completion_tokens + :output,
reasoning_tokens = reasoning_tokens + :reasoning,
cache_read = cache_read + :cache_read,
cache_write = cache_write + :cache_write,
total_tokens = total_tokens + :total,
cost_usd = cost_usd + :cost_usd

-- name: book_session
-- Without updated_at: setting it would rewrite entries of three indexes, even with the same value.
UPDATE chat_sessions SET {booked} WHERE id = :id

-- name: book_session_later
UPDATE chat_sessions SET {booked}, updated_at = max(updated_at, :updated_at) WHERE id = :id

-- name: delete_parts_of_session
-- Deletes in portions: the pages a statement changes are held in memory until it ends, and other writes wait for it.
DELETE FROM chat_parts WHERE rowid IN (SELECT rowid FROM chat_parts WHERE session_id = :id LIMIT 500)

-- name: delete_messages_of_session
DELETE FROM chat_messages WHERE rowid IN (SELECT rowid FROM chat_messages WHERE session_id = :id LIMIT 500)

-- name: delete_turns_of_session
DELETE FROM chat_turns WHERE id IN (SELECT id FROM chat_turns WHERE session_id = :id LIMIT 500)

-- name: delete_moves_of_session
DELETE FROM head_moves WHERE session_id = :id AND seq < (SELECT min(seq) + 500 FROM head_moves WHERE session_id = :id)

-- name: delete_session
DELETE FROM chat_sessions WHERE id = :id

-- name: find_session
SELECT {session_columns} FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.id = :id AND {is_shown}

-- name: list_children
SELECT {session_columns} FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.parent_id = :id AND {is_shown} ORDER BY s.created_at, s.id

-- name: list_branches
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_by_parent LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.parent_id = :id AND {kind} <> 'subagent' AND {is_shown} ORDER BY s.created_at, s.id

-- name: list_sessions
-- The plain list: the index holds exactly the rows to show. Without the hint the planner would use the index on
-- archived_at and sort everything.
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_listed LEFT JOIN session_state t ON t.session_id = s.id
WHERE {may_have_title} AND {is_listed}
{page}

-- name: list_titled_sessions
-- The list filtered by a plain word. If a page or more may match, a page is filled soon; to find out, the table is
-- scanned from its end, at two thirds of the cost of fetching each row through the index.
WITH few (id) AS MATERIALIZED (
    SELECT s.id FROM chat_sessions s NOT INDEXED WHERE {may_have_title} ORDER BY s.rowid DESC LIMIT :limit
)
SELECT {session_columns}
FROM few CROSS JOIN chat_sessions s ON s.id = few.id LEFT JOIN session_state t ON t.session_id = s.id
WHERE (SELECT count(*) FROM few) < :limit AND {is_listed}
{found}
UNION ALL
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_listed LEFT JOIN session_state t ON t.session_id = s.id
WHERE (SELECT count(*) FROM few) >= :limit AND {may_have_title} AND {is_listed}
{found}
ORDER BY updated_at DESC, id DESC
LIMIT :limit

-- name: list_flagged_sessions
-- Merges two ordered scans: a session is in one of two indexes by time, and a turn updates only that one.
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_listed LEFT JOIN session_state t ON t.session_id = s.id
WHERE {may_have_title} AND {is_listed} AND {flags}
{found}
UNION ALL
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_unlisted LEFT JOIN session_state t ON t.session_id = s.id
WHERE {may_have_title} AND {is_unlisted} AND {flags}
{found}
ORDER BY updated_at DESC, id DESC
LIMIT :limit

-- name: list_sessions_of_agent
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_by_agent LEFT JOIN session_state t ON t.session_id = s.id
WHERE {may_have_title} AND s.agent = :agent AND {flags}
{page}

-- name: list_sessions_of_workspace
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_by_workspace LEFT JOIN session_state t ON t.session_id = s.id
WHERE {may_have_title} AND s.workspace_root = :workspace AND {flags}
{page}

-- name: list_sessions_of_parent
SELECT {session_columns}
FROM chat_sessions s INDEXED BY chat_sessions_by_parent LEFT JOIN session_state t ON t.session_id = s.id
WHERE {may_have_title} AND s.parent_id = :parent AND {flags}
{page}

-- name: list_sessions_of_owner
-- Sorts all sessions of the owner; reads no others.
SELECT {session_columns}
FROM session_state t INDEXED BY session_state_by_owner CROSS JOIN chat_sessions s ON s.id = t.session_id
WHERE {may_have_title} AND t.owner = :owner AND {flags}
{page}

-- name: find_named
-- The id comes first: no alias hides it.
SELECT session_id FROM (
    SELECT session_id, 0 AS rank FROM session_state
    WHERE session_id = :name AND unfinished_since IS NULL AND (:owner IS NULL OR owner = :owner)
    UNION ALL
    SELECT session_id, 1 FROM session_state WHERE alias = :name AND ifnull(owner, '') = ifnull(:owner, '')
) named ORDER BY rank LIMIT 1

-- name: all_session_ids
SELECT s.id FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id WHERE {is_shown} ORDER BY s.id


-- State

-- name: get_state
SELECT head_turn_id, open_turn_id, epoch, runner FROM session_state WHERE session_id = :id

-- name: lock_state
-- The writer's read. With a single writer no row lock is needed.
SELECT head_turn_id, open_turn_id, epoch, runner FROM session_state
WHERE session_id = :id AND unfinished_since IS NOT 0

-- name: set_state
UPDATE session_state SET head_turn_id = :head_turn_id, open_turn_id = :open_turn_id, epoch = :epoch,
    runner = :runner
WHERE session_id = :id

-- name: add_move
INSERT INTO head_moves (session_id, seq, from_turn_id, to_turn_id, at, why) VALUES (
    :session_id, ifnull((SELECT max(seq) FROM head_moves WHERE session_id = :session_id), 0) + 1,
    :from_turn_id, :to_turn_id, :at, :why
)

-- name: last_move
SELECT to_turn_id FROM head_moves WHERE session_id = :id ORDER BY seq DESC LIMIT 1

-- name: list_moves
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves
WHERE session_id = :id AND seq < :before ORDER BY seq DESC LIMIT :limit

-- name: newest_move
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves WHERE session_id = :id
ORDER BY seq DESC LIMIT 1

-- name: moves_after
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves
WHERE session_id = :id AND seq > :after ORDER BY seq LIMIT :limit

-- name: rewinds_before
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves INDEXED BY head_moves_rewinds
WHERE session_id = :id AND why IN ('rewind', 'unrewind') AND seq < :before ORDER BY seq DESC LIMIT 50

-- name: was_head
SELECT 1 FROM head_moves m CROSS JOIN chat_turns t ON t.id = m.to_turn_id
WHERE m.session_id = :session_id AND m.seq <= :through AND :id IN (t.id, t.parent_turn_id)
ORDER BY m.seq DESC LIMIT 1

-- name: load_moves
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves WHERE session_id = :id ORDER BY seq


-- Messages and parts

-- name: insert_message
INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at)
VALUES (:id, :session_id, :role, :metadata_json, :created_at, :updated_at)

-- name: get_message_metadata
SELECT metadata_json FROM chat_messages WHERE id = :id AND session_id = :session_id

-- name: set_message_metadata
UPDATE chat_messages SET metadata_json = :metadata_json, updated_at = max(updated_at, :updated_at) WHERE id = :id

-- name: set_message_created
UPDATE chat_messages SET created_at = :created_at WHERE id = :id

-- name: hide_messages
UPDATE chat_messages SET metadata_json = json_set(metadata_json, '$.hidden_at', :at, '$.hidden_by', :by)
WHERE rowid IN (
    SELECT m.rowid FROM json_each(:ids) j CROSS JOIN chat_messages m ON m.id = j.value WHERE +m.session_id = :session_id
)

-- name: show_messages
UPDATE chat_messages SET metadata_json = json_remove(metadata_json, '$.hidden_at', '$.hidden_by')
WHERE rowid IN (
    SELECT m.rowid FROM json_each(:ids) j CROSS JOIN chat_messages m ON m.id = j.value WHERE +m.session_id = :session_id
)

-- name: insert_part
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
SELECT :id, id, session_id, :index, :type, :data_json, :tool_call_id, :tool_state, :created_at, :updated_at
FROM chat_messages WHERE id = :message_id AND session_id = :session_id

-- name: insert_new_part
-- For a message that the same unit inserts.
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
VALUES
    (:id, :message_id, :session_id, :index, :type, :data_json, :tool_call_id, :tool_state, :created_at, :updated_at)

-- name: grow_part
UPDATE chat_parts SET data_json = :data_json, updated_at = :updated_at
WHERE message_id = :message_id AND "index" = :index AND +session_id = :session_id
AND +type = :type AND +tool_call_id IS :tool_call_id AND tool_state IS :tool_state

-- name: update_part
UPDATE chat_parts SET
    type = :type, data_json = :data_json, tool_call_id = :tool_call_id, tool_state = :tool_state,
    updated_at = :updated_at
WHERE message_id = :message_id AND "index" = :index AND +session_id = :session_id

-- name: find_message
SELECT {message_columns} FROM chat_messages m WHERE m.id = :id AND m.session_id = :session_id

-- name: load_client_messages
SELECT {message_columns} FROM chat_messages m INDEXED BY chat_messages_by_client_id
WHERE m.session_id = :session_id
AND role <> 'assistant'
AND iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL) IS NOT NULL
AND iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL) = :client_message_id
ORDER BY m.created_at, m.id

-- name: load_messages
SELECT {message_columns} FROM chat_messages m WHERE m.session_id = :id ORDER BY m.created_at, m.id

-- name: load_session_messages
-- The index only locates rows: it holds their times too, but may be damaged.
SELECT {message_columns}, s.digest FROM chat_messages i CROSS JOIN chat_messages m ON m.rowid = i.rowid
LEFT JOIN message_seals s ON s.message_id = m.id
WHERE i.session_id = :id

-- name: load_session_parts
SELECT {part_columns} FROM chat_parts p WHERE p.session_id = :id

-- name: load_view_of_session
SELECT {view_part_columns} FROM chat_parts p WHERE p.session_id = :id

-- name: load_messages_by_id
SELECT {message_columns}, s.digest FROM chat_messages m LEFT JOIN message_seals s ON s.message_id = m.id
WHERE m.id IN (SELECT value FROM json_each(:ids))

-- name: load_parts_by_message
SELECT {part_columns} FROM chat_parts p WHERE p.message_id IN (SELECT value FROM json_each(:ids))

-- name: load_parts_by_session
SELECT {part_columns} FROM chat_parts p INDEXED BY chat_parts_by_session
WHERE p.session_id = :id AND +p.message_id = :message_id

-- Messages of open turns whose parts one of the indexes misses: they have no seal yet that would show it.
-- name: lost_open_parts
WITH held (session_id, id) AS MATERIALIZED (
    SELECT s.session_id, l.message_id FROM session_state s CROSS JOIN turn_messages l ON l.turn_id = s.open_turn_id
),
numbers (n) AS (
    SELECT p.rowid FROM (SELECT DISTINCT session_id AS id FROM held) s
    CROSS JOIN chat_parts p INDEXED BY chat_parts_by_session ON p.session_id = s.id
    UNION
    SELECT p.rowid FROM held h CROSS JOIN chat_parts p INDEXED BY chat_parts_by_message ON p.message_id = h.id
),
parts AS MATERIALIZED (
    SELECT t.rowid AS n, t.id, t.session_id, t.message_id, t."index", t.tool_state
    FROM numbers CROSS JOIN chat_parts t NOT INDEXED ON t.rowid = numbers.n
    WHERE t.message_id IN (SELECT id FROM held)
)
SELECT t.message_id FROM parts t WHERE NOT EXISTS (
    SELECT 1 FROM chat_parts p INDEXED BY chat_parts_by_session WHERE p.session_id = t.session_id AND p.rowid = t.n
) OR NOT EXISTS (
    SELECT 1 FROM chat_parts p INDEXED BY chat_parts_by_message
    WHERE p.message_id = t.message_id AND p."index" = t."index" AND p.rowid = t.n
) OR NOT EXISTS (
    SELECT 1 FROM chat_parts p WHERE p.id = t.id AND +p.rowid = t.n
) OR t.tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded') AND NOT EXISTS (
    SELECT 1 FROM chat_parts p INDEXED BY chat_parts_open_calls
    WHERE p.session_id = t.session_id AND p.message_id = t.message_id AND p."index" = t."index"
    AND p.tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded') AND p.rowid = t.n
)

-- name: load_view_of_messages
SELECT {view_part_columns} FROM json_each(:ids) j CROSS JOIN chat_parts p ON p.message_id = j.value

-- name: open_calls
SELECT {part_columns} FROM chat_parts p INDEXED BY chat_parts_open_calls
WHERE p.session_id = :id
AND p.tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')
ORDER BY p.message_id, p."index"

-- name: unsettled_sessions
SELECT session_id FROM session_state WHERE open_turn_id IS NOT NULL OR runner IS NOT NULL
UNION
SELECT session_id FROM chat_parts INDEXED BY chat_parts_open_calls
WHERE tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')
AND NOT EXISTS (SELECT 1 FROM adopted_messages a WHERE a.message_id = chat_parts.message_id)
-- Without a state, a session of another program has not been adopted; an unfinished one is not there.
AND EXISTS (SELECT 1 FROM session_state s WHERE s.session_id = chat_parts.session_id AND s.unfinished_since IS NULL)
UNION
SELECT session_id FROM message_queue

-- name: unsettled_among
SELECT j.value FROM json_each(:ids) j
WHERE EXISTS (SELECT 1 FROM session_state t WHERE t.session_id = j.value
    AND (t.open_turn_id IS NOT NULL OR t.runner IS NOT NULL))
OR EXISTS (
    SELECT 1 FROM chat_parts p INDEXED BY chat_parts_open_calls WHERE p.session_id = j.value
    AND p.tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')
    AND NOT EXISTS (SELECT 1 FROM adopted_messages a WHERE a.message_id = p.message_id)
)
OR EXISTS (SELECT 1 FROM message_queue q WHERE q.session_id = j.value)

-- name: failed_among
SELECT j.value FROM json_each(:ids) j CROSS JOIN session_state t ON t.session_id = j.value
LEFT JOIN chat_turns n ON n.id = t.head_turn_id
WHERE t.open_turn_id IS NULL AND (n.status = 'failed' OR EXISTS (
    SELECT 1 FROM chat_turns r INDEXED BY chat_turns_refused
    WHERE r.session_id = t.session_id AND r.status = 'refused' AND r.settled_at >= coalesce(n.settled_at, 0)
    AND r.parent_turn_id IS t.head_turn_id
))

-- name: has_files
SELECT 1 FROM chat_parts INDEXED BY chat_parts_files WHERE session_id = :id AND type = 'file' LIMIT 1

-- name: newest_message_at
-- Values that are not numbers sort above all numbers; another program may have written them.
SELECT max(created_at) FROM chat_messages WHERE session_id = :id AND created_at <= 0x7fffffffffffffff

-- name: put_seal
INSERT INTO message_seals (message_id, digest)
SELECT id, :digest FROM chat_messages WHERE id = :message_id AND session_id = :session_id
ON CONFLICT (message_id) DO UPDATE SET digest = excluded.digest

-- name: insert_seal
-- For a message that the same unit inserts.
INSERT INTO message_seals (message_id, digest) VALUES (:message_id, :digest)

-- name: settled_among
-- Those of some messages that cannot grow any more: user messages in a turn or the queue, others in a settled turn.
-- Messages that another program added are in neither and have no seal; adopted ones may grow until they are sealed.
SELECT message_id FROM (
SELECT DISTINCT l.message_id FROM turn_messages l JOIN chat_turns t ON t.id = l.turn_id
JOIN chat_messages m ON m.id = l.message_id
WHERE l.message_id IN (SELECT value FROM json_each(:ids))
AND (m.role = 'user' OR t.status NOT IN ('running', 'retrying', 'compacting', 'waiting'))
UNION
SELECT message_id FROM message_queue WHERE message_id IN (SELECT value FROM json_each(:ids))
) AS settled WHERE NOT EXISTS (SELECT 1 FROM adopted_messages a WHERE a.message_id = settled.message_id)

-- name: load_seals
SELECT s.message_id, s.digest FROM message_seals s JOIN chat_messages m ON m.id = s.message_id WHERE m.session_id = :id


-- Turns

-- name: insert_turn
INSERT INTO chat_turns ({turn_columns}) VALUES (
    :id, :session_id, :parent_turn_id, :turn_type, :status, :depth, :compaction_turn_id, :origin_turn_id, :data_json,
    :created_at, :settled_at
)

-- name: get_turn
SELECT {turn_columns} FROM chat_turns WHERE id = :id AND session_id = :session_id

-- name: find_turn
-- Not one of a session that is being copied or deleted.
SELECT {turn_columns} FROM chat_turns WHERE id = :id
AND NOT EXISTS (SELECT 1 FROM session_state WHERE session_id = chat_turns.session_id AND unfinished_since IS NOT NULL)

-- name: place_turn
UPDATE chat_turns SET parent_turn_id = :parent_turn_id, depth = :depth, compaction_turn_id = :compaction_turn_id
WHERE id = :id AND session_id = :session_id

-- name: set_turn
UPDATE chat_turns SET turn_type = :turn_type, status = :status, settled_at = :settled_at, data_json = :data_json
WHERE id = :id

-- name: load_turns
SELECT {turn_columns}, messages FROM chat_turns WHERE session_id = :id

-- name: has_more_turns
SELECT 1 FROM chat_turns WHERE session_id = :id LIMIT 1 OFFSET :turns

-- name: has_longer_view
SELECT 1 FROM session_state s JOIN chat_turns t ON t.id = ifnull(s.open_turn_id, s.head_turn_id)
LEFT JOIN chat_turns c ON c.id = t.compaction_turn_id
WHERE s.session_id = :id AND t.depth - ifnull(c.depth, 0) > :turns

-- name: load_path
-- Walks up from a turn towards the root, for at most :turns turns and not above :depth. Every step must lead to a lower
-- depth, because damaged turns may form a cycle. Turns are fetched only after the walk.
WITH RECURSIVE way (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM way JOIN chat_turns u ON u.id = way.parent_turn_id
    WHERE u.depth >= :depth AND u.depth < way.depth
    LIMIT :turns
)
SELECT t.id, t.session_id, t.parent_turn_id, t.turn_type, t.status, t.depth, t.compaction_turn_id,
    t.origin_turn_id, t.data_json, t.created_at, t.settled_at, t.messages
FROM way CROSS JOIN chat_turns t ON t.id = way.id

-- name: load_viewed_path
-- The same with the messages of each turn, where they exist, and their seals. Turns are ordered as walked, messages by
-- their key.
WITH RECURSIVE way (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM way JOIN chat_turns u ON u.id = way.parent_turn_id
    WHERE u.depth >= :depth AND u.depth < way.depth
    LIMIT :turns
)
SELECT t.id, t.session_id, t.parent_turn_id, t.turn_type, t.status, t.depth, t.compaction_turn_id,
    t.origin_turn_id, t.data_json, t.created_at, t.settled_at, t.messages, l.position, l.message_id,
    m.session_id, m.role, m.metadata_json, m.created_at, m.updated_at, s.digest
FROM way CROSS JOIN chat_turns t ON t.id = way.id
LEFT JOIN turn_messages l ON l.turn_id = t.id
LEFT JOIN chat_messages m ON m.id = l.message_id
LEFT JOIN message_seals s ON s.message_id = m.id


-- name: load_run
-- Merges a run of turns that only hold messages into one row: the parent and depth of the first turn (both from the row
-- with the least depth), the number of messages when last written, the number that exist, the number with a valid
-- position, and their ids in the order of the walk, from the end up, with a semicolon before the first message of a
-- turn and a comma before the others. Positions are unique, so if all three numbers are equal, no turn has lost a
-- message.
WITH RECURSIVE path (id, parent_turn_id, depth, messages, total) AS (
    SELECT id, parent_turn_id, depth, messages, messages FROM chat_turns WHERE id = :id AND +session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth, u.messages, path.total + u.messages
    FROM path CROSS JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE path.depth > :depth AND u.depth = path.depth - 1
    AND u.turn_type = 'normal' AND u.status <> 'refused' AND u.id IS NOT :apart
)
SELECT p.parent_turn_id, min(p.depth), p.total, count(l.position),
    ifnull(sum(l.position >= 0 AND l.position < p.messages), 0),
    group_concat(iif(l.position = 0, ';', ',') || l.message_id, '')
FROM path p LEFT JOIN turn_messages l ON l.turn_id = p.id

-- name: find_meeting
-- Walks up from two turns at :depth until both are the same, a root is reached, or a turn is misplaced.
WITH RECURSIVE climb (one, other, depth) AS (
    SELECT :one, :other, :depth
    UNION ALL
    SELECT a.parent_turn_id, b.parent_turn_id, climb.depth - 1
    FROM climb CROSS JOIN chat_turns a ON a.id = climb.one CROSS JOIN chat_turns b ON b.id = climb.other
    WHERE climb.one <> climb.other AND climb.depth > 0 AND a.depth = climb.depth AND b.depth = climb.depth
)
SELECT one, other, depth FROM climb ORDER BY depth LIMIT 1

-- name: holders_of
SELECT t.id, t.session_id, t.parent_turn_id, t.turn_type, t.status, t.depth, t.compaction_turn_id, t.origin_turn_id,
    t.data_json, t.created_at, t.settled_at, t.messages, l.position
FROM turn_messages l CROSS JOIN chat_turns t ON t.id = l.turn_id
WHERE l.message_id = :message_id AND t.session_id = :session_id

-- name: turn_above
-- The turn at :depth on the path up from :id. The walk begins at the next milestone below :depth that has a single
-- turn: every path as deep passes it. So its length is the same in a session of 200 turns and of 20,000.
WITH RECURSIVE path (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns
    WHERE +session_id = :session_id AND id = ifnull((
        SELECT max(m.id) FROM chat_turns m INDEXED BY chat_turns_by_mile
        WHERE m.session_id = :session_id AND m.depth % 64 = 0 AND m.depth >= :depth
        AND m.depth <= (SELECT depth FROM chat_turns WHERE id = :id)
        GROUP BY m.depth HAVING count(*) = 1 ORDER BY m.depth LIMIT 1
    ), :id)
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE path.depth > :depth AND u.depth < path.depth
)
SELECT id FROM path WHERE depth = :depth

-- name: path_ids
WITH RECURSIVE path (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns WHERE id = :id AND +session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE u.depth >= :depth AND u.depth < path.depth
)
SELECT id FROM path

-- name: path_every
WITH RECURSIVE path (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns WHERE id = :id AND +session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE u.depth = path.depth - 1
)
SELECT id FROM path WHERE depth % :every = 0 ORDER BY depth

-- name: compactions_above
-- Walks from one compaction to the next, not turn by turn; each once, because damaged ones may form a cycle.
WITH RECURSIVE above (id) AS (
    SELECT p.compaction_turn_id FROM chat_turns t JOIN chat_turns p ON p.id = t.parent_turn_id WHERE t.id = :id
    UNION
    SELECT p.compaction_turn_id FROM above JOIN chat_turns t ON t.id = above.id
    JOIN chat_turns p ON p.id = t.parent_turn_id
)
SELECT count(id) FROM above

-- name: list_turns
SELECT {turn_columns}, messages FROM chat_turns WHERE session_id = :id AND id < :before ORDER BY id DESC LIMIT :limit

-- name: load_turns_by_id
SELECT {turn_columns}, messages FROM chat_turns
WHERE id IN (SELECT value FROM json_each(:ids)) AND +session_id = :session_id

-- name: telling_messages
-- The messages that describe turns to users: the user's, and for a compaction all of them.
SELECT l.turn_id, l.message_id FROM json_each(:ids) j CROSS JOIN chat_turns t ON t.id = j.value
CROSS JOIN turn_messages l ON l.turn_id = t.id CROSS JOIN chat_messages m ON m.id = l.message_id
WHERE m.role = 'user' OR t.turn_type = 'compaction' OR t.compaction_turn_id = t.id
ORDER BY l.turn_id, l.position

-- name: has_child
-- Children are newer than their parent, the first of them soon after it; except a compaction that made room for an open
-- turn, and turns created after the clock was set back.
SELECT 1 FROM (
    SELECT parent_turn_id, status FROM chat_turns INDEXED BY chat_turns_elder
    WHERE parent_turn_id = :id AND parent_turn_id > id AND +session_id = :session_id
    UNION ALL
    SELECT parent_turn_id, status FROM chat_turns INDEXED BY chat_turns_by_session
    WHERE session_id = :session_id AND id > :id
) WHERE parent_turn_id = :id AND (:refused OR status <> 'refused') LIMIT 1

-- name: load_marked
-- The turns from the root down to :id that are not plain, and both ends.
WITH RECURSIVE path (id, parent_turn_id, depth, marked) AS (
    SELECT id, parent_turn_id, depth, 1 FROM chat_turns WHERE id = :id AND +session_id = :session_id
    UNION ALL
    SELECT t.id, t.parent_turn_id, t.depth, t.depth = 0 OR NOT ({is_plain})
    FROM path CROSS JOIN chat_turns t ON t.id = path.parent_turn_id
    WHERE t.depth = path.depth - 1
)
SELECT {turn_columns}, messages FROM chat_turns WHERE id IN (SELECT id FROM path WHERE marked) ORDER BY depth

-- name: load_refused
SELECT {turn_columns}, messages FROM chat_turns INDEXED BY chat_turns_refused
WHERE session_id = :id AND status = 'refused' AND settled_at >= :since ORDER BY settled_at, id

-- name: link_message
INSERT INTO turn_messages (turn_id, position, message_id)
SELECT t.id, (SELECT ifnull(max(position), -1) + 1 FROM turn_messages WHERE turn_id = t.id), m.id
FROM chat_turns t, chat_messages m
WHERE t.id = :turn_id AND t.session_id = :session_id AND m.id = :message_id AND m.session_id = :session_id

-- name: insert_link
-- For a message that the same unit inserts, in a turn whose messages are counted.
INSERT INTO turn_messages (turn_id, position, message_id) VALUES (:turn_id, :position, :message_id)

-- name: load_links
SELECT l.turn_id, l.message_id FROM chat_turns t JOIN turn_messages l ON l.turn_id = t.id
WHERE t.session_id = :id ORDER BY l.turn_id, l.position

-- name: load_links_of_session
SELECT l.turn_id, l.message_id, l.position, t.created_at FROM chat_turns t CROSS JOIN turn_messages l ON l.turn_id = t.id
WHERE t.session_id = :id

-- name: load_links_of_turns
SELECT turn_id, message_id, position FROM turn_messages WHERE turn_id IN (SELECT value FROM json_each(:ids))
ORDER BY turn_id, position

-- name: insert_step
INSERT INTO turn_steps (
    turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
) VALUES (
    :turn_id, :step, :message_id, :model_json, :input, :output, :reasoning, :cache_read, :cache_write, :cost_usd,
    :finish_reason, :prompt_digest, :data_json, :started_at, :finished_at
)

-- name: finish_step
UPDATE turn_steps SET finished_at = :finished_at WHERE turn_id = :turn_id AND step = :step

-- name: load_steps
SELECT turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
FROM turn_steps WHERE turn_id = :id ORDER BY step

-- name: load_session_steps
SELECT s.turn_id, s.step, s.message_id, s.model_json, s.input, s.output, s.reasoning, s.cache_read, s.cache_write,
    s.cost_usd, s.finish_reason, s.prompt_digest, s.data_json, s.started_at, s.finished_at
FROM chat_turns t CROSS JOIN turn_steps s ON s.turn_id = t.id WHERE t.session_id = :id ORDER BY t.id, s.step


-- name: blob_bytes
SELECT ifnull(sum(size), 0) FROM blobs


-- Snapshots of workspaces

-- name: put_snapshot
INSERT INTO workspace_snapshots ({snapshot_columns}) VALUES (
    :id, :session_id, :workspace, :point, :state, :created_at, :message_id, :turn_id, :step, :tree, :replica, :data_json
)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, tree = excluded.tree, data_json = excluded.data_json, turn_id = excluded.turn_id
WHERE workspace_snapshots.session_id = excluded.session_id

-- name: find_snapshot
SELECT {snapshot_columns} FROM workspace_snapshots WHERE id = :id

-- name: load_snapshots
SELECT {snapshot_columns} FROM workspace_snapshots WHERE session_id = :id ORDER BY created_at, id

-- name: load_workspace_snapshots
SELECT {snapshot_columns} FROM workspace_snapshots INDEXED BY workspace_snapshots_by_workspace 
WHERE workspace = :workspace AND created_at >= :since ORDER BY created_at, id

-- name: open_snapshots
SELECT {snapshot_columns} FROM workspace_snapshots INDEXED BY workspace_snapshots_open 
WHERE tree IS NULL AND state IN ('taking', 'late') ORDER BY created_at, id

-- name: load_snapshot_trees
SELECT DISTINCT workspace, tree FROM workspace_snapshots WHERE tree IS NOT NULL


-- Model calls

-- name: put_call
INSERT OR REPLACE INTO model_calls ({call_columns}) VALUES (
    :id, :session_id, :turn_id, :step, :message_id, :purpose, :provider_id, :model_id, :variant,
    :input, :output, :reasoning, :cache_read, :cache_write, :cost_usd,
    :asked_at, :first_chunk_at, :ended_at, :tools_ms, :ended, :estimated, :workspace, :owner
)

-- name: change_call
-- Everything except asked_at, which is in two indexes.
UPDATE model_calls SET
    session_id = :session_id, turn_id = :turn_id, step = :step, message_id = :message_id, purpose = :purpose,
    provider_id = :provider_id, model_id = :model_id, variant = :variant, input = :input, output = :output,
    reasoning = :reasoning, cache_read = :cache_read, cache_write = :cache_write, cost_usd = :cost_usd,
    first_chunk_at = :first_chunk_at, ended_at = :ended_at, tools_ms = :tools_ms, ended = :ended,
    estimated = :estimated, workspace = :workspace, owner = :owner
WHERE id = :id

-- name: set_tools_ms
UPDATE model_calls SET tools_ms = :tools_ms WHERE id = :id

-- name: find_call
SELECT {call_columns} FROM model_calls WHERE id = :id

-- name: load_calls
SELECT {call_columns} FROM model_calls WHERE session_id IS :id ORDER BY asked_at, id

-- name: open_model_calls
SELECT {call_columns} FROM model_calls INDEXED BY model_calls_open
WHERE ended = 'asked' AND session_id IS NOT NULL AND (:id IS NULL OR session_id = :id) ORDER BY asked_at, id

-- name: load_usage
-- Costs in billionths, so that sums do not depend on the order.
SELECT CASE :by
        WHEN 'day' THEN date(asked_at / 1000, 'unixepoch')
        WHEN 'model' THEN provider_id || '/' || model_id
        WHEN 'session' THEN session_id
        WHEN 'workspace' THEN workspace
        WHEN 'owner' THEN owner
    END AS key,
    count(*), sum(input), sum(output), sum(reasoning), sum(cache_read), sum(cache_write),
    sum(CAST(round(cost_usd * 1e9) AS INTEGER)), sum(estimated),
    sum(cost_usd = 0 AND input + output + reasoning + cache_read + cache_write > 0)
FROM model_calls
WHERE asked_at >= :since AND asked_at < :until AND (:owner IS NULL OR owner = :owner)
GROUP BY key ORDER BY key IS NULL, key

-- name: load_spend
WITH RECURSIVE family (asked, id) AS (
    SELECT value, value FROM json_each(:ids)
    UNION
    SELECT f.asked, s.id FROM family f CROSS JOIN chat_sessions s ON s.parent_id = f.id WHERE {kind} = 'subagent'
)
SELECT f.asked, count(c.id), ifnull(sum(c.input + c.output + c.reasoning + c.cache_read + c.cache_write), 0),
    ifnull(sum(CAST(round(c.cost_usd * 1e9) AS INTEGER)), 0), count(DISTINCT f.id) - 1
FROM family f LEFT JOIN model_calls c ON c.session_id = f.id
GROUP BY f.asked


-- Prunes

-- name: newest_prune
SELECT ifnull(max(seq), 0) FROM pruned_outputs WHERE session_id = :id

-- name: add_pruned
INSERT INTO pruned_outputs (session_id, seq, message_id, part, tokens, keep, at)
SELECT session_id, :seq, id, :part, :tokens, :keep, :at
FROM chat_messages WHERE id = :message_id AND session_id = :session_id

-- name: load_pruned_of_messages
SELECT seq, message_id, part, tokens, keep, at FROM pruned_outputs
WHERE message_id IN (SELECT value FROM json_each(:ids)) AND +session_id = :id ORDER BY seq, message_id, part

-- name: load_pruned
SELECT seq, message_id, part, tokens, keep, at FROM pruned_outputs WHERE session_id = :id
ORDER BY seq, message_id, part


-- Copies of a line. The messages to copy are in a temporary table of the connection, in the order of the line; it is
-- emptied before and after, so that copies do not see each other's. CROSS JOIN makes the planner keep that order, so
-- that rows are appended at the end of an index.

-- name: make_copied
CREATE TEMP TABLE IF NOT EXISTS copied (
    source_id TEXT PRIMARY KEY NOT NULL,
    id TEXT NOT NULL,
    inserted INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    origin_turn_id TEXT
)

-- name: make_copied_turns
CREATE TEMP TABLE IF NOT EXISTS copied_turns (n INTEGER PRIMARY KEY NOT NULL, source_id TEXT NOT NULL, id TEXT NOT NULL)

-- name: empty_copied_turns
DELETE FROM temp.copied_turns

-- name: add_copied_turns
-- A run of turns, from its end up. Ids have the usual format and order: the timestamp of a minted id, a count, and the
-- end of its random part.
INSERT INTO temp.copied_turns (n, source_id, id)
WITH RECURSIVE path (id, parent_turn_id, depth, n) AS (
    SELECT id, parent_turn_id, depth, :count - 1 FROM chat_turns WHERE id = :through AND +session_id = :source
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth, path.n - 1 FROM path CROSS JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE path.n > 0 AND u.depth = path.depth - 1
)
SELECT n, id, substr(:turn, 1, 16) || printf('%06x', n) || substr(:turn, 23) FROM path ORDER BY n

-- name: copy_turns
INSERT INTO chat_turns ({turn_columns})
SELECT c.id, :session_id, iif(c.n, substr(:turn, 1, 16) || printf('%06x', c.n - 1) || substr(:turn, 23), :parent),
    t.turn_type, t.status, :depth + c.n, :compaction, t.id, t.data_json, t.created_at, ifnull(t.settled_at, :now)
FROM temp.copied_turns c CROSS JOIN chat_turns t ON t.id = c.source_id
WHERE {is_plain}
ORDER BY c.n

-- name: count_copied
SELECT ifnull(sum(t.messages), 0) FROM temp.copied_turns c CROSS JOIN chat_turns t ON t.id = c.source_id

-- name: add_copied_run
INSERT INTO temp.copied (source_id, id, inserted, turn_id, position, origin_turn_id)
SELECT l.message_id, substr(:message, 1, 16) || printf('%06x%04x', c.n, l.position) || substr(:message, 27), 0, c.id,
    l.position, c.source_id
FROM temp.copied_turns c CROSS JOIN turn_messages l ON l.turn_id = c.source_id
ORDER BY c.n, l.position

-- name: copied_ids
SELECT id FROM temp.copied

-- name: empty_copied
DELETE FROM temp.copied

-- name: add_copied
INSERT INTO temp.copied (source_id, id, inserted, turn_id, position, origin_turn_id)
VALUES (:source_id, :id, :inserted, :turn_id, :position, :origin_turn_id)

-- name: count_inserted
SELECT count(*) FROM temp.copied c
CROSS JOIN chat_messages s ON s.id = c.source_id AND s.session_id = :source
CROSS JOIN chat_messages m ON m.id = c.id AND m.session_id = :session_id
WHERE c.inserted

-- name: copy_messages
-- Most have nothing to leave out, which a text search shows faster. json_valid: a damaged row is copied unchanged.
INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at)
SELECT c.id, :session_id, m.role,
    iif((instr(m.metadata_json, 'hidden_') OR instr(m.metadata_json, 'snapshot_id')) AND json_valid(m.metadata_json),
        json_remove(m.metadata_json, '$.hidden_at', '$.hidden_by', '$.snapshot_id'), m.metadata_json),
    m.created_at, m.updated_at
FROM temp.copied c CROSS JOIN chat_messages m ON m.id = c.source_id AND m.session_id = :source
WHERE NOT c.inserted

-- name: copy_parts
-- Ids have the usual format and order: the timestamp of a minted id, a count, and the end of its random part.
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
SELECT substr(:minted, 1, 16) || substr(printf('%06x%04x', c.rowid, p."index") || substr(:minted, 27), 1, 14),
    c.id, :session_id, p."index", p.type, p.data_json, p.tool_call_id, p.tool_state, p.created_at, p.updated_at
FROM temp.copied c CROSS JOIN chat_parts p ON p.message_id = c.source_id
WHERE NOT c.inserted

-- name: copy_seals
INSERT INTO message_seals (message_id, digest)
SELECT c.id, s.digest FROM temp.copied c CROSS JOIN message_seals s ON s.message_id = c.source_id
WHERE NOT c.inserted

-- name: copy_links
INSERT INTO turn_messages (turn_id, position, message_id) SELECT turn_id, position, id FROM temp.copied

-- name: copy_steps
INSERT INTO turn_steps (
    turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
)
SELECT c.turn_id, s.step, c.id, s.model_json, s.input, s.output, s.reasoning, s.cache_read, s.cache_write, s.cost_usd,
    s.finish_reason, s.prompt_digest, s.data_json, s.started_at, s.finished_at
FROM temp.copied c CROSS JOIN turn_steps s ON s.turn_id = c.origin_turn_id AND s.message_id = c.source_id

-- name: copy_pruned
-- A copy inserted by the unit may end before a part that was pruned.
INSERT INTO pruned_outputs (session_id, seq, message_id, part, tokens, keep, at)
SELECT :session_id, o.seq, c.id, o.part, o.tokens, o.keep, o.at
FROM temp.copied c CROSS JOIN pruned_outputs o INDEXED BY pruned_outputs_by_message ON o.message_id = c.source_id
WHERE +o.session_id = :source AND EXISTS (
    SELECT 1 FROM chat_parts p
    WHERE p.message_id = c.id AND p."index" = o.part AND p.tool_state = 'output-available'
)

-- name: copy_blob_links
-- A session links every blob its parts name, so the parts are searched only if the source links any.
INSERT INTO blob_links (session_id, sha256)
SELECT :session_id, l.sha256 FROM blob_links l
WHERE l.session_id = :source AND '/api/blobs/' || l.sha256 IN (
    SELECT iif(json_valid(p.data_json), json_extract(p.data_json, '$.url'), NULL)
    FROM temp.copied c CROSS JOIN chat_parts p ON p.message_id = c.id WHERE p.type = 'file'
)
ON CONFLICT (session_id, sha256) DO NOTHING

-- name: sum_session
UPDATE chat_sessions SET
    prompt_tokens = u.input,
    completion_tokens = u.output,
    reasoning_tokens = u.reasoning,
    cache_read = u.cache_read,
    cache_write = u.cache_write,
    total_tokens = u.input + u.output + u.reasoning + u.cache_read + u.cache_write,
    cost_usd = u.cost_usd
FROM (
    SELECT ifnull(sum(metadata_json ->> '$.usage.input'), 0) AS input,
        ifnull(sum(metadata_json ->> '$.usage.output'), 0) AS output,
        ifnull(sum(metadata_json ->> '$.usage.reasoning'), 0) AS reasoning,
        ifnull(sum(metadata_json ->> '$.usage.cache_read'), 0) AS cache_read,
        ifnull(sum(metadata_json ->> '$.usage.cache_write'), 0) AS cache_write, (
            SELECT total(s.cost_usd) FROM chat_turns t CROSS JOIN turn_steps s ON s.turn_id = t.id
            WHERE t.session_id = :session_id
        ) + total(metadata_json ->> '$.usage.broken_off_usd') AS cost_usd
    FROM chat_messages WHERE session_id = :session_id AND role = 'assistant' AND json_valid(metadata_json)
) AS u
WHERE id = :session_id


-- Queue

-- name: enqueue
INSERT INTO message_queue (message_id, session_id, queued_at, interrupt)
VALUES (:message_id, :session_id, :queued_at, :interrupt)

-- name: dequeue
DELETE FROM message_queue WHERE message_id = :message_id

-- name: find_queued
SELECT q.interrupt, q.queued_at, s.digest FROM message_queue q LEFT JOIN message_seals s ON s.message_id = q.message_id
WHERE q.message_id = :message_id AND q.session_id = :session_id

-- name: load_queue
SELECT message_id, queued_at, interrupt FROM message_queue
WHERE session_id = :id ORDER BY interrupt DESC, queued_at, message_id


-- Other programs' rows

-- name: untaken_sessions
-- As bytes: one id that is not text must not hide the others.
SELECT CAST(s.id AS BLOB) FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id WHERE NOT {is_taken_in}
ORDER BY s.created_at, s.id

-- name: find_shared_session
SELECT {session_columns} FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id WHERE s.id = :id

-- name: loose_messages
-- Sealed messages were clew's: a missing turn is damage.
SELECT m.id FROM chat_messages m WHERE m.session_id = :id
AND NOT EXISTS (SELECT 1 FROM turn_messages l WHERE l.message_id = m.id)
AND NOT EXISTS (SELECT 1 FROM message_queue q WHERE q.message_id = m.id)
AND NOT EXISTS (SELECT 1 FROM message_seals d WHERE d.message_id = m.id)

-- name: print_messages
-- Read from the index alone, whatever the rows contain.
SELECT count(*), sum(rowid), sum(created_at) FROM chat_messages INDEXED BY chat_messages_by_session
WHERE session_id = :id

-- name: any_loose_message
SELECT 1 FROM chat_messages m
WHERE NOT EXISTS (SELECT 1 FROM turn_messages l WHERE l.message_id = m.id)
AND NOT EXISTS (SELECT 1 FROM message_queue q WHERE q.message_id = m.id)
AND NOT EXISTS (SELECT 1 FROM message_seals d WHERE d.message_id = m.id)
LIMIT 1

-- name: adopted_messages
SELECT message_id FROM adopted_messages WHERE session_id = :id

-- name: ends_of_line
-- The metadata of the last message of the turn that ends a line, and of the marker it begins with.
SELECT m.metadata_json FROM chat_turns t CROSS JOIN turn_messages l ON l.turn_id = t.id AND l.position = t.messages - 1
CROSS JOIN chat_messages m ON m.id = l.message_id WHERE t.id = :turn_id
UNION ALL
SELECT m.metadata_json FROM chat_turns t CROSS JOIN turn_messages l ON l.turn_id = t.compaction_turn_id
CROSS JOIN chat_messages m ON m.id = l.message_id WHERE t.id = :turn_id

-- name: ends_after_head
-- The metadata of the last message of turns that continue the head, or its messages. They are newer than its parent.
SELECT m.metadata_json FROM chat_turns t INDEXED BY chat_turns_by_session
CROSS JOIN turn_messages l ON l.turn_id = t.id AND l.position = t.messages - 1
CROSS JOIN chat_messages m ON m.id = l.message_id
WHERE t.session_id = :id AND t.id > ifnull(:parent, '') AND t.id IS NOT :head AND t.status <> 'refused'
AND (t.parent_turn_id IS :head OR t.parent_turn_id IS :parent)
AND NOT EXISTS (SELECT 1 FROM turn_messages h WHERE h.turn_id = :head AND h.message_id = l.message_id)

-- name: queued_metadata
SELECT m.metadata_json, q.queued_at FROM message_queue q JOIN chat_messages m ON m.id = q.message_id
WHERE q.session_id = :id

-- name: add_adopted
INSERT INTO adopted_messages (session_id, message_id) VALUES (:session_id, :message_id)

-- name: drop_adopted
DELETE FROM adopted_messages WHERE session_id = :session_id AND message_id = :message_id

-- name: number_part
UPDATE chat_parts SET "index" = :index WHERE id = :id

-- name: set_session_sums
UPDATE chat_sessions SET prompt_tokens = :input, completion_tokens = :output, reasoning_tokens = :reasoning,
    cache_read = :cache_read, cache_write = :cache_write, total_tokens = :total
WHERE id = :id

-- name: copied_growing
SELECT c.id FROM temp.copied c JOIN adopted_messages a ON a.message_id = c.source_id WHERE NOT c.inserted


-- Journal

-- name: insert_journal_row
INSERT INTO stream_journal (n, data, crc) VALUES (:n, :data, :crc)

-- name: replace_journal_row
UPDATE stream_journal SET data = :data, crc = :crc WHERE n = :n

-- name: get_journal_row
SELECT n, CAST(data AS BLOB), crc FROM stream_journal WHERE n = :n

-- name: delete_journal_rows
DELETE FROM stream_journal WHERE n BETWEEN :first AND :last

-- name: load_journal
-- As bytes: a row with invalid UTF-8 fails its checksum like any other damage.
SELECT n, CAST(data AS BLOB), crc FROM stream_journal ORDER BY n

-- name: add_mark
INSERT INTO journal_marks (message_id, session_id, folded_through, crc)
VALUES (:message_id, :session_id, :folded_through, :crc)

-- name: set_mark
UPDATE journal_marks SET folded_through = :folded_through, crc = :crc WHERE message_id = :message_id

-- name: delete_mark
DELETE FROM journal_marks WHERE message_id = :message_id

-- name: get_mark
SELECT folded_through FROM journal_marks WHERE message_id = :message_id

-- name: load_marks
SELECT message_id, session_id, folded_through, crc FROM journal_marks

-- name: load_marks_of_session
SELECT message_id, session_id, folded_through, crc FROM journal_marks WHERE session_id = :id

-- name: messages_ending
-- User messages are never streamed.
SELECT id FROM chat_messages WHERE role <> 'user' AND substr(id, -8) IN (SELECT value FROM json_each(:ends))


-- Kept once, named from many places

-- name: put_prompt
INSERT INTO system_prompts (digest, body, created_at) VALUES (:digest, :body, :created_at)
-- Replaces a damaged row.
ON CONFLICT (digest) DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body

-- name: delete_unnamed_prompts
-- A step that cannot be decoded may name any of them.
DELETE FROM system_prompts
WHERE digest NOT IN (SELECT prompt_digest FROM turn_steps WHERE prompt_digest IS NOT NULL)
AND digest NOT IN (
    SELECT data_json ->> '$.tools' FROM turn_steps WHERE json_valid(data_json) AND data_json ->> '$.tools' IS NOT NULL
)
AND NOT EXISTS (SELECT 1 FROM turn_steps WHERE NOT json_valid(data_json))

-- name: delete_facts_of_prompts
-- The facts of deleted prompts. The bounds are all names that begin with 'prompt '.
DELETE FROM event_log
WHERE stream_id >= 'prompt ' AND stream_id < 'prompt!' AND substr(stream_id, 8) NOT IN (SELECT digest FROM system_prompts)

-- name: find_prompt
SELECT body FROM system_prompts WHERE digest = :digest

-- name: put_blob
INSERT INTO blobs (sha256, media_type, size, data, created_at)
VALUES (:sha256, :media_type, :size, :data, :created_at)
ON CONFLICT (sha256) DO UPDATE SET size = excluded.size, data = excluded.data WHERE data IS NOT excluded.data

-- name: link_blob
INSERT INTO blob_links (session_id, sha256) SELECT :session_id, sha256 FROM blobs WHERE sha256 = :sha256
ON CONFLICT (session_id, sha256) DO NOTHING

-- name: has_blob
SELECT 1 FROM blobs WHERE sha256 = :sha256

-- name: delete_unnamed_blobs
-- A few at a time, because they may be large.
DELETE FROM blobs WHERE sha256 IN (
    SELECT b.sha256 FROM blob_links o CROSS JOIN blobs b ON b.sha256 = o.sha256 WHERE o.session_id = :id
    AND NOT EXISTS (SELECT 1 FROM blob_links l WHERE l.sha256 = b.sha256 AND l.session_id <> :id) LIMIT 4
)

-- name: find_blob
SELECT sha256, media_type, data FROM blobs WHERE sha256 = :sha256

-- name: find_linked_blob
-- A blob that a session links but the index does not find: the index may be damaged, so the table is searched.
SELECT b.sha256, b.media_type, b.data FROM blobs b NOT INDEXED
WHERE EXISTS (SELECT 1 FROM blob_links WHERE sha256 = :sha256) AND b.sha256 = :sha256

-- name: is_blob_of
SELECT 1 FROM blob_links l JOIN session_state t ON t.session_id = l.session_id
WHERE l.sha256 = :sha256 AND t.owner = :owner AND t.unfinished_since IS NULL LIMIT 1

-- name: put_project_rules
INSERT INTO project_rules (project, rules_json, updated_at) VALUES (:project, :rules_json, :updated_at)
ON CONFLICT (project) DO UPDATE SET rules_json = excluded.rules_json, updated_at = excluded.updated_at

-- name: load_project_rules
SELECT rules_json FROM project_rules WHERE project = :project


-- Search. The index holds no text: it reads the view. Removing a row from it requires the original text, so that
-- happens before a part changes or is deleted. The text of the two CREATE statements is compared with the file: an
-- index created by other statements is rebuilt.

-- name: make_search_texts
-- Only strings and whole numbers: the format of fractions depends on the version of SQLite.
CREATE VIEW search_texts AS
SELECT d.id AS id, CASE
    WHEN NOT json_valid(p.data_json) THEN NULL
    WHEN p.type IN ('text', 'reasoning') THEN substr(json_extract(p.data_json, '$.text'), 1, 1000000)
    WHEN p.type = 'data-compaction' THEN substr(json_extract(p.data_json, '$.data.summary'), 1, 1000000)
    ELSE (
        SELECT substr(group_concat(t.atom, char(10)), 1, 1000000)
        FROM json_tree(json_extract(p.data_json, '$.input', '$.rawInput', '$.output', '$.errorText')) t
        WHERE t.type IN ('text', 'integer')
    )
END AS text
FROM search_docs d JOIN chat_parts p ON p.id = d.part_id

-- name: make_search_index
CREATE VIRTUAL TABLE search_index USING fts5(
    text, content='search_texts', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
)

-- name: load_search_schema
SELECT name, sql FROM sqlite_master WHERE name IN ('search_texts', 'search_index')

-- name: drop_search_texts
DROP VIEW IF EXISTS search_texts

-- name: drop_search_index
DROP TABLE IF EXISTS search_index

-- name: empty_search_data
-- These bypass FTS5, where it is missing, or its tables are so damaged that it cannot drop them.
DELETE FROM search_index_data

-- name: fill_search_data
-- The two records of an empty index, without which FTS5 cannot open it.
INSERT INTO search_index_data (id, block) VALUES (1, x''), (10, x'00000000000000')

-- name: empty_search_idx
DELETE FROM search_index_idx

-- name: empty_search_docsize
DELETE FROM search_index_docsize

-- name: empty_search_docs
DELETE FROM search_docs

-- name: empty_search_marks
DELETE FROM search_marks

-- name: any_search_mark
SELECT 1 FROM search_marks LIMIT 1

-- name: has_search_mark
SELECT 1 FROM search_marks WHERE message_id = :id

-- name: next_seals
SELECT s.message_id, s.digest, k.digest FROM message_seals s LEFT JOIN search_marks k ON k.message_id = s.message_id
WHERE s.message_id > :after ORDER BY s.message_id LIMIT :limit

-- name: seals_of
SELECT s.message_id, s.digest, k.digest FROM message_seals s LEFT JOIN search_marks k ON k.message_id = s.message_id
WHERE s.message_id IN (SELECT value FROM json_each(:ids)) ORDER BY s.message_id

-- name: sizes_of_messages
SELECT message_id, sum(length(data_json)) FROM chat_parts WHERE message_id IN (SELECT value FROM json_each(:ids))
GROUP BY message_id

-- name: any_unfindable_part
-- Found by message and not by its id: one of the two indexes is damaged.
SELECT 1 FROM chat_parts p WHERE p.message_id IN (SELECT value FROM json_each(:ids))
AND NOT EXISTS (SELECT 1 FROM chat_parts q WHERE q.id = p.id AND +q.rowid = p.rowid) LIMIT 1

-- name: any_unsearched
SELECT 1 FROM message_seals s LEFT JOIN search_marks k ON k.message_id = s.message_id
WHERE k.digest IS NOT s.digest LIMIT 1

-- name: any_lost_search_doc
SELECT 1 FROM search_docs d WHERE NOT EXISTS (SELECT 1 FROM chat_parts p WHERE p.id = d.part_id) LIMIT 1

-- name: delete_lost_search_docs
DELETE FROM search_docs WHERE NOT EXISTS (SELECT 1 FROM chat_parts p WHERE p.id = search_docs.part_id)

-- name: last_search_doc
-- Checks the index too: another program may have deleted parts, and their numbers must not be reused.
SELECT max(ifnull((SELECT max(id) FROM search_docs), 0), ifnull((SELECT max(id) FROM search_index_docsize), 0))

-- name: add_search_docs
INSERT INTO search_docs (id, part_id)
SELECT :last + row_number() OVER (ORDER BY p.message_id, p."index"), p.id FROM chat_parts p
WHERE p.message_id IN (SELECT value FROM json_each(:ids))
AND (p.type IN ('text', 'reasoning', 'data-compaction', 'dynamic-tool') OR substr(p.type, 1, 5) = 'tool-')

-- name: index_search_docs
INSERT INTO search_index (rowid, text) SELECT id, text FROM search_texts WHERE id > :last

-- name: mark_searched
INSERT INTO search_marks (message_id, digest)
SELECT message_id, digest FROM message_seals WHERE message_id IN (SELECT value FROM json_each(:ids))
ON CONFLICT (message_id) DO UPDATE SET digest = excluded.digest

-- name: unindex_messages
INSERT INTO search_index (search_index, rowid, text)
SELECT 'delete', t.id, t.text
FROM chat_parts p CROSS JOIN search_docs d ON d.part_id = p.id CROSS JOIN search_texts t ON t.id = d.id
WHERE p.message_id IN (SELECT value FROM json_each(:ids))

-- name: next_search_docs
SELECT d.id FROM chat_parts p CROSS JOIN search_docs d ON d.part_id = p.id WHERE p.session_id = :id LIMIT 500

-- name: unindex_docs
INSERT INTO search_index (search_index, rowid, text)
SELECT 'delete', t.id, t.text FROM search_texts t WHERE t.id IN (SELECT value FROM json_each(:docs))

-- name: delete_docs
DELETE FROM search_docs WHERE id IN (SELECT value FROM json_each(:docs))

-- name: merge_search_index
INSERT INTO search_index (search_index, rank) VALUES ('merge', :pages)

-- name: delete_search_docs
DELETE FROM search_docs WHERE part_id IN (
    SELECT id FROM chat_parts WHERE message_id IN (SELECT value FROM json_each(:ids))
)

-- name: delete_search_marks
DELETE FROM search_marks WHERE message_id IN (SELECT value FROM json_each(:ids))

-- fragment: is_owners
AND p.session_id NOT IN (SELECT session_id FROM session_state WHERE unfinished_since IS NOT NULL)
AND (:owner IS NULL OR EXISTS (
    SELECT 1 FROM session_state o WHERE o.session_id = p.session_id AND o.owner = :owner
))

-- fragment: hits
FROM search_index CROSS JOIN search_docs d ON d.id = search_index.rowid
CROSS JOIN chat_parts p ON p.id = d.part_id
WHERE search_index MATCH :match AND (:session_id IS NULL OR p.session_id = :session_id)
{is_owners}

-- name: count_hits
SELECT count(*) FROM (SELECT 1 {hits} LIMIT :most + 1)

-- name: search_words
-- The newest hits, ranked: those that have the last word before those where it begins a longer one. Without snippets,
-- which would be built for every row before the best are known.
SELECT h.id, p.session_id, p.message_id, p.id, m.role, m.created_at, m.metadata_json, s.metadata_json
FROM (
    SELECT d.id AS id, d.part_id AS part_id, bm25(search_index) AS score {hits}
    ORDER BY search_index.rowid DESC LIMIT :most
) AS h
CROSS JOIN chat_parts p ON p.id = h.part_id
CROSS JOIN chat_messages m ON m.id = p.message_id
CROSS JOIN chat_sessions s ON s.id = p.session_id
ORDER BY h.id NOT IN (SELECT rowid FROM search_index WHERE search_index MATCH :exact), h.score, m.created_at DESC,
    h.id DESC
LIMIT :limit OFFSET :offset

-- name: search_older_words
-- The hits after those, by age.
SELECT h.id, p.session_id, p.message_id, p.id, m.role, m.created_at, m.metadata_json, s.metadata_json
FROM (
    SELECT d.id AS id, d.part_id AS part_id {hits} ORDER BY search_index.rowid DESC LIMIT :limit OFFSET :offset
) AS h
CROSS JOIN chat_parts p ON p.id = h.part_id
CROSS JOIN chat_messages m ON m.id = p.message_id
CROSS JOIN chat_sessions s ON s.id = p.session_id
ORDER BY h.id DESC

-- name: search_snippets
-- The plus keeps the ids out of the index lookup, which would look up all words again for each.
SELECT rowid, snippet(search_index, 0, '**', '**', '…', 20) FROM search_index
WHERE search_index MATCH :match AND +rowid IN (SELECT value FROM json_each(:ids))

-- name: search_texts_themselves
-- Newest first, by when they were indexed, so that the scan ends with the page.
SELECT t.text, p.session_id, p.message_id, p.id, m.role, m.created_at, m.metadata_json, s.metadata_json
FROM search_docs d CROSS JOIN search_texts t ON t.id = d.id
CROSS JOIN chat_parts p ON p.id = d.part_id
CROSS JOIN chat_messages m ON m.id = p.message_id
CROSS JOIN chat_sessions s ON s.id = p.session_id
WHERE (:session_id IS NULL OR p.session_id = :session_id)
AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE NOT contains_text(t.text, w.value))
{is_owners}
ORDER BY d.id DESC
LIMIT :limit OFFSET :offset


-- Triggers

-- fragment: event_columns
e.seq, e.id, e.direction, e.source, e.source_id, e.session_id, e.message_id,
ifnull(e.turn_id, (SELECT min(l.turn_id) FROM turn_messages l WHERE l.message_id = e.message_id)),
e.attempt, e.type, e.status, e.digest, e.routing_json, e.data_json, e.at, e.owner

-- name: load_labelled
SELECT {session_columns} FROM chat_sessions s INDEXED BY chat_sessions_by_label
LEFT JOIN session_state t ON t.session_id = s.id
WHERE iif(json_valid(metadata_json), json_extract(metadata_json, '$.label'), NULL) IS NOT NULL
AND iif(json_valid(metadata_json), json_extract(metadata_json, '$.label'), NULL) = :name
AND s.archived_at IS NULL AND {kind} <> 'subagent' AND {is_shown}
AND t.owner IS :owner
ORDER BY s.created_at, s.id LIMIT 20

-- name: load_keyed
SELECT {session_columns} FROM chat_sessions s INDEXED BY chat_sessions_by_routing_key
LEFT JOIN session_state t ON t.session_id = s.id
WHERE iif(json_valid(metadata_json), json_extract(metadata_json, '$.routing_key'), NULL) IS NOT NULL
AND iif(json_valid(metadata_json), json_extract(metadata_json, '$.routing_key'), NULL) = :name
AND s.archived_at IS NULL AND {kind} <> 'subagent' AND {is_shown}
AND t.owner IS :owner
ORDER BY s.created_at, s.id LIMIT 20

-- name: has_event
SELECT 1 FROM ledger_events
WHERE source = :source AND source_id = :source_id AND direction = :direction AND attempt = :attempt

-- name: add_event
INSERT INTO ledger_events
    (id, direction, source, source_id, session_id, message_id, turn_id, attempt, type, status, digest, routing_json,
    data_json, at, owner)
SELECT :id, :direction, :source, :source_id, :session_id, :message_id, :turn_id, :attempt, :type, :status, :digest,
    :routing_json, :data_json, :at,
    ifnull((SELECT owner FROM session_state WHERE session_id = :session_id), :owner)
WHERE :of_session = iif(EXISTS (SELECT 1 FROM chat_sessions WHERE id = :session_id), :session_id, '')

-- name: find_event
SELECT {event_columns} FROM ledger_events e
WHERE e.source = :source AND e.source_id = :source_id AND e.direction = :direction
ORDER BY iif(e.direction = 'in', e.attempt, -e.attempt) LIMIT 1

-- name: find_repeated
-- Reads only rows after the newest one before the window.
SELECT {event_columns} FROM ledger_events e INDEXED BY ledger_events_by_source
WHERE e.source = :source AND e.direction = 'in' AND e.attempt = 1 AND e.status IS NULL
AND e.digest = :digest AND e.at >= :since
AND e.seq > ifnull(
    (SELECT o.seq FROM ledger_events o WHERE o.source = :source AND o.at < :since ORDER BY o.seq DESC LIMIT 1), 0
)
ORDER BY e.seq LIMIT 1

-- name: find_event_of_message
SELECT {event_columns} FROM ledger_events e
WHERE e.message_id = :message_id AND e.session_id = :session_id AND e.direction = 'in'
ORDER BY e.attempt DESC LIMIT 1

-- name: list_events
SELECT {event_columns} FROM ledger_events e
WHERE e.seq < :before
AND (:direction IS NULL OR e.direction = :direction)
AND (:owner IS NULL OR e.owner = :owner)
ORDER BY e.seq DESC LIMIT :limit

-- name: list_events_of_source
SELECT {event_columns} FROM ledger_events e INDEXED BY ledger_events_by_source
WHERE e.source = :source AND e.seq < :before
AND (:direction IS NULL OR e.direction = :direction)
AND (:owner IS NULL OR e.owner = :owner)
ORDER BY e.seq DESC LIMIT :limit

-- name: list_events_of_session
SELECT {event_columns} FROM ledger_events e INDEXED BY ledger_events_by_session
WHERE e.session_id = :session_id AND e.seq < :before
AND (:source IS NULL OR e.source = :source)
AND (:direction IS NULL OR e.direction = :direction)
AND (:owner IS NULL OR e.owner = :owner)
ORDER BY e.seq DESC LIMIT :limit

-- name: list_events_of_turn
-- Events that name the turn, and those whose message began it.
SELECT {event_columns} FROM ledger_events e
WHERE e.seq IN (
    SELECT seq FROM ledger_events WHERE turn_id = :turn_id
    UNION
    SELECT i.seq FROM turn_messages l JOIN ledger_events i ON i.message_id = l.message_id
    WHERE l.turn_id = :turn_id AND i.turn_id IS NULL
    AND l.turn_id = (SELECT min(f.turn_id) FROM turn_messages f WHERE f.message_id = l.message_id)
)
AND e.seq < :before
AND (:session_id IS NULL OR e.session_id = :session_id)
AND (:source IS NULL OR e.source = :source)
AND (:direction IS NULL OR e.direction = :direction)
AND (:owner IS NULL OR e.owner = :owner)
ORDER BY e.seq DESC LIMIT :limit

-- name: open_events
-- Inbound and outbound events of a message are adjacent in the index; an event is open while its newest attempt has no
-- answer.
SELECT {event_columns} FROM (
    SELECT source, source_id, max(iif(direction = 'in', attempt, 0)) AS attempt
    FROM ledger_events INDEXED BY ledger_events_once
    GROUP BY source, source_id
    HAVING max(iif(direction = 'in', attempt, 0)) > max(iif(direction = 'out', attempt, 0))
) o CROSS JOIN ledger_events e
ON e.source = o.source AND e.source_id = o.source_id AND e.direction = 'in' AND e.attempt = o.attempt
WHERE EXISTS (SELECT 1 FROM chat_sessions s WHERE s.id = e.session_id)
ORDER BY e.seq

-- name: open_events_of_session
SELECT {event_columns} FROM ledger_events e INDEXED BY ledger_events_by_session
WHERE e.session_id = :session_id AND e.direction = 'in'
AND NOT EXISTS (
    SELECT 1 FROM ledger_events o
    WHERE o.source = e.source AND o.source_id = e.source_id AND o.direction = 'out' AND o.attempt >= e.attempt
)
AND EXISTS (SELECT 1 FROM chat_sessions s WHERE s.id = e.session_id)
ORDER BY e.seq

-- name: change_schedule
UPDATE schedules SET paused = :paused, next_fire_at = :next_fire_at, data_json = :data_json
WHERE id = :id AND session_id IS :session_id

-- name: put_schedule
INSERT INTO schedules (id, session_id, paused, next_fire_at, data_json)
VALUES (:id, :session_id, :paused, :next_fire_at, :data_json)
ON CONFLICT (id) DO UPDATE SET session_id = excluded.session_id, paused = excluded.paused,
    next_fire_at = excluded.next_fire_at, data_json = excluded.data_json

-- name: drop_schedule
DELETE FROM schedules WHERE id = :schedule_id

-- name: list_schedules
SELECT id, data_json FROM schedules ORDER BY id

-- name: hold_schedule
SELECT id, data_json FROM schedules WHERE id = :id

-- name: change_webhook
UPDATE webhooks SET secret = :secret, data_json = :data_json WHERE name = :name AND session_id IS :session_id

-- name: put_webhook
INSERT INTO webhooks (name, session_id, secret, data_json) VALUES (:name, :session_id, :secret, :data_json)
ON CONFLICT (name) DO UPDATE SET session_id = excluded.session_id, secret = excluded.secret,
    data_json = excluded.data_json

-- name: drop_webhook
DELETE FROM webhooks WHERE name = :name

-- name: list_webhooks
SELECT name, secret, data_json FROM webhooks ORDER BY name


-- The event log. Subjects are read as of when the unit was applied.

-- name: add_fact
INSERT INTO event_log (n, stream_id, seq, at, type, data_json)
VALUES (:n, :stream_id, :seq, :at, :type, :data_json)

-- name: last_n
SELECT ifnull(max(n), 0) FROM event_log

-- name: last_fact
SELECT seq, type FROM event_log WHERE stream_id = :stream_id ORDER BY seq DESC LIMIT 1

-- name: load_facts
SELECT stream_id, seq, at, type, data_json FROM event_log WHERE stream_id = :stream_id ORDER BY seq

-- name: load_all_facts
SELECT stream_id, seq, at, type, data_json, n FROM event_log ORDER BY n

-- name: calls_told
SELECT data_json FROM event_log WHERE stream_id = :stream_id AND type = 'call.noted' ORDER BY seq

-- name: delete_facts
DELETE FROM event_log WHERE stream_id = :stream_id

-- name: streams_without_session
-- Skips from stream to stream along the key, without reading their contents.
WITH RECURSIVE streams (id) AS (
    SELECT min(stream_id) FROM event_log
    UNION ALL
    SELECT (SELECT min(e.stream_id) FROM event_log e WHERE e.stream_id > o.id) FROM streams o WHERE o.id IS NOT NULL
)
SELECT o.id FROM streams o
WHERE o.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chat_sessions s WHERE s.id = o.id)

-- name: get_message_and_seal
SELECT {message_columns}, s.digest FROM chat_messages m LEFT JOIN message_seals s ON s.message_id = m.id
WHERE m.id = :id AND m.session_id = :session_id

-- name: load_parts_at
SELECT {part_columns} FROM chat_parts p INDEXED BY chat_parts_by_message
WHERE p.message_id = :message_id AND p.session_id = :session_id
AND p."index" IN (SELECT value FROM json_each(:indexes)) ORDER BY p."index"

-- name: load_parts_of
SELECT {part_columns} FROM chat_parts p INDEXED BY chat_parts_by_message
WHERE p.message_id = :message_id AND p.session_id = :session_id ORDER BY p."index"

-- name: load_growing
-- Searches the text, which is faster than parsing it. A quote inside a string is escaped, so a match is a key; a false
-- match only costs a row.
SELECT p.message_id, p."index" FROM json_each(:ids) i
CROSS JOIN chat_parts p INDEXED BY chat_parts_by_message ON p.message_id = i.value
WHERE p.session_id = :session_id AND (
    (p.tool_call_id IS NULL AND instr(p.data_json, '"state":"streaming"'))
    OR (substr(p.type, 1, 5) = 'data-' AND json_valid(p.data_json) AND json_type(p.data_json, '$.id') IS NOT NULL)
    OR (p.tool_call_id IS NOT NULL
        AND (substr(ifnull(p.tool_state, ''), 1, 7) <> 'output-' OR instr(p.data_json, '"preliminary":true')))
)

-- name: turns_holding
SELECT l.turn_id FROM turn_messages l JOIN chat_turns t ON t.id = l.turn_id
WHERE l.message_id = :message_id AND t.session_id = :session_id

-- name: newest_moves
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM (
    SELECT * FROM head_moves WHERE session_id = :id ORDER BY seq DESC LIMIT :count
) ORDER BY seq

-- name: newest_pruned
SELECT seq, message_id, part, tokens, keep, at FROM pruned_outputs
WHERE session_id = :id AND seq > (SELECT max(seq) FROM pruned_outputs WHERE session_id = :id) - :count
ORDER BY seq, message_id, part

-- name: get_queued
SELECT message_id, queued_at, interrupt FROM message_queue WHERE message_id = :message_id AND session_id = :session_id

-- name: blobs_of_session
SELECT b.sha256, b.media_type, b.size FROM blob_links l JOIN blobs b ON b.sha256 = l.sha256
WHERE l.session_id = :id ORDER BY b.sha256

-- name: message_ids
SELECT id FROM chat_messages WHERE session_id = :id ORDER BY created_at, id

-- name: turn_ids
SELECT id FROM chat_turns WHERE session_id = :id ORDER BY depth, created_at, id

-- name: all_prompts
SELECT digest, body, created_at FROM system_prompts ORDER BY digest

-- name: all_project_rules
SELECT project, rules_json, updated_at FROM project_rules ORDER BY project


-- Restoring a store from its log: each fact has the full state of its subject and may be repeated.

-- name: restore_session
INSERT INTO chat_sessions (
    id, agent, workspace_root, model_json, parent_id, parent_message_id, permissions_json, metadata_json,
    prompt_tokens, completion_tokens, reasoning_tokens, cache_read, cache_write, total_tokens, cost_usd,
    created_at, updated_at, archived_at
) VALUES (
    :id, :agent, :workspace_root, :model_json, :parent_id, :parent_message_id, :permissions_json, :metadata_json,
    :prompt_tokens, :completion_tokens, :reasoning_tokens, :cache_read, :cache_write, :total_tokens, :cost_usd,
    :created_at, :updated_at, :archived_at
)
ON CONFLICT (id) DO UPDATE SET
    agent = excluded.agent, workspace_root = excluded.workspace_root, model_json = excluded.model_json,
    parent_id = excluded.parent_id, parent_message_id = excluded.parent_message_id,
    permissions_json = excluded.permissions_json, metadata_json = excluded.metadata_json,
    prompt_tokens = excluded.prompt_tokens, completion_tokens = excluded.completion_tokens,
    reasoning_tokens = excluded.reasoning_tokens, cache_read = excluded.cache_read,
    cache_write = excluded.cache_write, total_tokens = excluded.total_tokens, cost_usd = excluded.cost_usd,
    created_at = excluded.created_at, updated_at = excluded.updated_at, archived_at = excluded.archived_at

-- name: restore_epoch
INSERT INTO session_state (session_id, epoch, owner, alias) VALUES (:id, :epoch, :owner, :alias)
ON CONFLICT (session_id) DO UPDATE SET epoch = excluded.epoch

-- name: restore_message
INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at)
VALUES (:id, :session_id, :role, :metadata_json, :created_at, :updated_at)
ON CONFLICT (id) DO UPDATE SET
    metadata_json = excluded.metadata_json, created_at = excluded.created_at, updated_at = excluded.updated_at

-- name: restore_part
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
VALUES
    (:id, :message_id, :session_id, :index, :type, :data_json, :tool_call_id, :tool_state, :created_at, :updated_at)
ON CONFLICT (id) DO UPDATE SET
    type = excluded.type, data_json = excluded.data_json, tool_call_id = excluded.tool_call_id,
    tool_state = excluded.tool_state, created_at = excluded.created_at, updated_at = excluded.updated_at

-- name: restore_turn
INSERT INTO chat_turns ({turn_columns}) VALUES (
    :id, :session_id, :parent_turn_id, :turn_type, :status, :depth, :compaction_turn_id, :origin_turn_id, :data_json,
    :created_at, :settled_at
)
ON CONFLICT (id) DO UPDATE SET
    parent_turn_id = excluded.parent_turn_id, status = excluded.status, depth = excluded.depth,
    compaction_turn_id = excluded.compaction_turn_id, data_json = excluded.data_json,
    settled_at = excluded.settled_at

-- name: restore_open_turn
UPDATE session_state SET open_turn_id = :id WHERE session_id = :session_id

-- name: restore_settled_turn
UPDATE session_state SET open_turn_id = NULL WHERE session_id = :session_id AND open_turn_id = :id

-- name: delete_links
DELETE FROM turn_messages WHERE turn_id = :turn_id

-- name: restore_link
INSERT INTO turn_messages (turn_id, position, message_id) VALUES (:turn_id, :position, :message_id)

-- name: restore_step
INSERT OR REPLACE INTO turn_steps (
    turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
) VALUES (
    :turn_id, :step, :message_id, :model_json, :input, :output, :reasoning, :cache_read, :cache_write, :cost_usd,
    :finish_reason, :prompt_digest, :data_json, :started_at, :finished_at
)

-- name: restore_move
INSERT OR REPLACE INTO head_moves (session_id, seq, from_turn_id, to_turn_id, at, why)
VALUES (:session_id, :seq, :from_turn_id, :to_turn_id, :at, :why)

-- name: restore_head
UPDATE session_state SET head_turn_id = :to_turn_id WHERE session_id = :session_id

-- name: restore_pruned
INSERT OR REPLACE INTO pruned_outputs (session_id, seq, message_id, part, tokens, keep, at)
VALUES (:session_id, :seq, :message_id, :part, :tokens, :keep, :at)

-- name: restore_queued
INSERT OR REPLACE INTO message_queue (message_id, session_id, queued_at, interrupt)
VALUES (:message_id, :session_id, :queued_at, :interrupt)

-- name: restore_blob_link
INSERT OR IGNORE INTO blob_links (session_id, sha256) VALUES (:session_id, :sha256)

-- name: parts_in_flow
SELECT p.message_id, p."index", p.data_json FROM session_state s
JOIN chat_turns t ON t.id = s.open_turn_id AND t.status <> 'waiting'
JOIN turn_messages l ON l.turn_id = t.id JOIN chat_parts p ON p.message_id = l.message_id

-- name: get_blob_row
SELECT sha256, media_type, size, data, created_at FROM blobs WHERE sha256 = :sha256


-- Replicas, by the clock of the database

-- fragment: now_ms
CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)

-- fragment: replica_columns
r.id, r.url, r.version, r.started_at, r.beat_at, r.lease_until, r.draining, r.lease_until > {now_ms}

-- name: join_replica
INSERT INTO replicas (id, url, version, started_at, beat_at, lease_until)
VALUES (:replica_id, :url, :version, {now_ms}, {now_ms}, {now_ms} + :lease_ms)

-- name: beat_replica
UPDATE replicas SET beat_at = {now_ms}, lease_until = {now_ms} + :lease_ms, draining = :draining WHERE id = :replica_id

-- name: leave_replica
DELETE FROM replicas WHERE id = :replica_id

-- name: find_replica
SELECT {replica_columns} FROM replicas r WHERE r.id = :id

-- name: list_replicas
SELECT {replica_columns} FROM replicas r ORDER BY r.started_at, r.id

-- name: run_by
SELECT session_id FROM session_state WHERE runner = :replica_id ORDER BY session_id

-- name: orphaned_sessions
SELECT t.session_id FROM session_state t
WHERE t.runner IS NOT NULL AND (
    t.runner = :replica_id
    OR NOT EXISTS (SELECT 1 FROM replicas r WHERE r.id = t.runner AND r.lease_until > {now_ms})
)
UNION
SELECT q.session_id FROM message_queue q JOIN session_state t ON t.session_id = q.session_id
WHERE t.runner IS NULL AND t.open_turn_id IS NULL
ORDER BY 1


-- Acknowledged commits

-- name: get_commits
SELECT max(commits, (SELECT ifnull(max(n), 0) FROM stream_journal)) FROM store_marks

-- name: set_commits
UPDATE store_marks SET commits = :commits

-- name: get_store_mark
SELECT store_id, sealed_since FROM store_marks

-- name: name_store_anew
UPDATE store_marks SET store_id = lower(hex(randomblob(16)))

-- name: set_sealed_since
UPDATE store_marks SET sealed_since = ?

-- name: add_loss
INSERT INTO store_losses (found_at, held, acknowledged, sessions_json)
VALUES (:found_at, :held, :acknowledged, :sessions_json)

-- name: open_losses
SELECT held, acknowledged, sessions_json FROM store_losses WHERE accepted_at IS NULL ORDER BY id

-- name: accept_loss
UPDATE store_losses SET accepted_at = :at WHERE held = :held AND accepted_at IS NULL


-- Checks of the whole store

-- name: verify_pages
PRAGMA integrity_check

-- name: verify_references
PRAGMA foreign_key_check

-- name: miscounted_turns
SELECT t.session_id, t.id, t.messages, count(l.turn_id) FROM chat_turns t LEFT JOIN turn_messages l ON l.turn_id = t.id
GROUP BY t.id HAVING t.messages <> count(l.turn_id)

-- name: load_prompts
SELECT digest, CAST(body AS BLOB) FROM system_prompts

-- name: load_blob_digests
SELECT sha256 FROM blobs
