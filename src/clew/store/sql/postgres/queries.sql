-- All statements of the PostgreSQL store, by name. None of them reads hidden_at: the turn tree decides what is hidden.
-- A parameter has a cast only where its type is not clear from the context. Statements marked "sent" are not awaited
-- one by one: their row count is not needed, or they fail by themselves if it is not one.

-- fragment: exactly_one
-- The result of such a statement is not awaited: it fails by itself where it changes no row, or too many.
SELECT 1 / (count(*) = 1)::integer FROM done

-- fragment: session_columns
s.id, s.agent, s.workspace_root, s.model_json, s.parent_id, s.parent_message_id, s.permissions_json, s.metadata_json,
s.prompt_tokens, s.completion_tokens, s.reasoning_tokens, s.cache_read, s.cache_write, s.total_tokens, s.cost_usd,
s.created_at, s.updated_at, s.archived_at, t.head_turn_id, t.owner, t.alias

-- fragment: is_ephemeral
coalesce(metadata_json -> 'ephemeral' IN ('true', '1'), false)

-- fragment: kind
coalesce(metadata_json ->> 'kind', 'chat')

-- fragment: is_listed
archived_at IS NULL AND NOT {is_ephemeral} AND {kind} <> 'subagent'

-- fragment: is_unlisted
(archived_at IS NOT NULL OR {is_ephemeral} OR {kind} = 'subagent')

-- fragment: found
AND (:title::text IS NULL
    OR contains_text(metadata_json ->> 'title', :title::text))
AND (:agent::text IS NULL OR s.agent = :agent::text)
AND (:workspace::text IS NULL OR s.workspace_root = :workspace::text)
AND (:parent::text IS NULL OR s.parent_id = :parent::text)
AND (NOT :pinned::boolean OR metadata_json -> 'pinned' = 'true')
AND (:owner::text IS NULL OR t.owner = :owner::text)
AND (s.updated_at, s.id) < (:updated_at, :id)
AND {is_shown}

-- fragment: page
{found}
ORDER BY s.updated_at DESC, s.id DESC
LIMIT :limit

-- fragment: flags
(:archived::boolean OR archived_at IS NULL)
AND (:ephemeral::boolean OR NOT {is_ephemeral})
AND (:kind::text = 'any' OR (:kind::text = 'subagent') = ({kind} = 'subagent'))

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
AND (t.data_json::text = '{}' OR (t.data_json::text LIKE '{"chunks":{%'
    AND strpos(t.data_json::text, '}') = length(t.data_json::text) - 1))

-- fragment: message_columns
m.id, m.session_id, m.role, m.metadata_json, m.created_at, m.updated_at

-- fragment: part_columns
p.id, p.message_id, p."index", p.data_json, p.created_at, p.updated_at

-- fragment: view_part_columns
-- The columns that a view needs. Parts as bytes, as they are compared with the seal and decoded.
p.message_id, p."index", convert_to(p.data_json::text, 'UTF8')

-- fragment: turn_columns
id, session_id, parent_turn_id, turn_type, status, depth, compaction_turn_id, origin_turn_id, data_json, created_at,
settled_at


-- Sessions

-- name: insert_session
-- sent
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
-- sent
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
-- Another replica may be copying: it renews the time with every portion.
SELECT session_id FROM session_state
WHERE unfinished_since < {now_ms} - 60000 ORDER BY session_id

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
-- sent
UPDATE chat_sessions SET metadata_json = :metadata_json WHERE id = :id

-- name: set_session_model
-- sent
UPDATE chat_sessions SET model_json = :model_json WHERE id = :id

-- name: set_session_permissions
-- sent
UPDATE chat_sessions SET permissions_json = :permissions_json WHERE id = :id

-- name: set_session_archived
-- sent
UPDATE chat_sessions SET archived_at = :archived_at WHERE id = :id

-- name: touch_session
-- sent
UPDATE chat_sessions SET updated_at = greatest(updated_at, :updated_at) WHERE id = :id

-- fragment: booked
prompt_tokens = prompt_tokens + :input,
completion_tokens = completion_tokens + :output,
reasoning_tokens = reasoning_tokens + :reasoning,
cache_read = cache_read + :cache_read,
cache_write = cache_write + :cache_write,
total_tokens = total_tokens + :total,
cost_usd = cost_usd + :cost_usd

-- name: book_session
-- sent
-- Without updated_at: setting it would rewrite entries of three indexes, even with the same value.
UPDATE chat_sessions SET {booked} WHERE id = :id

-- name: book_session_later
-- sent
UPDATE chat_sessions SET {booked}, updated_at = greatest(updated_at, :updated_at) WHERE id = :id

-- name: delete_parts_of_session
DELETE FROM chat_parts WHERE id IN (SELECT id FROM chat_parts WHERE session_id = :id LIMIT 500)

-- name: delete_messages_of_session
DELETE FROM chat_messages WHERE id IN (SELECT id FROM chat_messages WHERE session_id = :id LIMIT 500)

-- name: delete_turns_of_session
DELETE FROM chat_turns WHERE id IN (SELECT id FROM chat_turns WHERE session_id = :id LIMIT 500)

-- name: delete_moves_of_session
DELETE FROM head_moves WHERE session_id = :id AND seq < (SELECT min(seq) + 500 FROM head_moves WHERE session_id = :id)

-- name: delete_session
-- sent
DELETE FROM chat_sessions WHERE id = :id

-- name: find_session
SELECT {session_columns} FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.id = :id AND {is_shown}

-- name: list_children
SELECT {session_columns} FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.parent_id = :id AND {is_shown} ORDER BY s.created_at, s.id

-- name: list_branches
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.parent_id = :id AND {kind} <> 'subagent' AND {is_shown} ORDER BY s.created_at, s.id

-- name: list_sessions
-- The plain list: the index holds exactly the rows to show. Without the hint the planner would use the index on
-- archived_at and sort everything.
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE {is_listed}
{page}

-- name: list_titled_sessions
-- The list filtered by a plain word; only SQLite needs a different statement.
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE {is_listed}
{page}

-- name: list_flagged_sessions
-- Merges two ordered scans: a session is in one of two indexes by time, and a turn updates only that one.
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE {is_listed} AND {flags}
{found}
UNION ALL
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE {is_unlisted} AND {flags}
{found}
ORDER BY updated_at DESC, id DESC
LIMIT :limit

-- name: list_sessions_of_agent
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.agent = :agent AND {flags}
{page}

-- name: list_sessions_of_workspace
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.workspace_root = :workspace AND {flags}
{page}

-- name: list_sessions_of_parent
SELECT {session_columns}
FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id
WHERE s.parent_id = :parent AND {flags}
{page}

-- name: list_sessions_of_owner
-- Sorts all sessions of the owner; reads no others.
SELECT {session_columns}
FROM session_state t JOIN chat_sessions s ON s.id = t.session_id
WHERE t.owner = :owner AND {flags}
{page}

-- name: find_named
-- The id comes first: no alias hides it.
SELECT session_id FROM (
    SELECT session_id, 0 AS rank FROM session_state
    WHERE session_id = :name AND (:owner::text IS NULL OR owner = :owner::text)
    UNION ALL
    SELECT session_id, 1 FROM session_state WHERE alias = :name AND coalesce(owner, '') = coalesce(:owner::text, '')
) named ORDER BY rank LIMIT 1

-- name: all_session_ids
SELECT s.id FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id WHERE {is_shown} ORDER BY s.id


-- State

-- name: get_state
SELECT head_turn_id, open_turn_id, epoch, runner FROM session_state WHERE session_id = :id

-- name: lock_state
-- A writer of a session holds this lock until the commit: no other process changes the session meanwhile.
SELECT head_turn_id, open_turn_id, epoch, runner FROM session_state
WHERE session_id = :id AND unfinished_since IS DISTINCT FROM 0 FOR UPDATE

-- name: lock_states
-- In a global order, to prevent deadlocks.
SELECT session_id, head_turn_id, open_turn_id, epoch, runner, unfinished_since IS NOT DISTINCT FROM 0
FROM session_state
WHERE session_id IN (SELECT value FROM json_array_elements_text(:ids::json)) ORDER BY session_id FOR UPDATE

-- name: set_state
-- sent
UPDATE session_state SET head_turn_id = :head_turn_id, open_turn_id = :open_turn_id, epoch = :epoch,
    runner = :runner
WHERE session_id = :id

-- name: add_move
-- sent
INSERT INTO head_moves (session_id, seq, from_turn_id, to_turn_id, at, why)
SELECT :session_id, coalesce(max(seq), 0) + 1, :from_turn_id::text, :to_turn_id::text, :at, :why::text
FROM head_moves WHERE session_id = :session_id

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
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves
WHERE session_id = :id AND why IN ('rewind', 'unrewind') AND seq < :before ORDER BY seq DESC LIMIT 50

-- name: was_head
SELECT 1 FROM head_moves m JOIN chat_turns t ON t.id = m.to_turn_id
WHERE m.session_id = :session_id AND m.seq <= :through AND :id IN (t.id, t.parent_turn_id)
ORDER BY m.seq DESC LIMIT 1

-- name: load_moves
SELECT seq, session_id, from_turn_id, to_turn_id, at, why FROM head_moves WHERE session_id = :id ORDER BY seq


-- Messages and parts

-- name: insert_message
-- sent
INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at)
VALUES (:id, :session_id, :role, :metadata_json, :created_at, :updated_at)

-- name: get_message_metadata
SELECT metadata_json FROM chat_messages WHERE id = :id AND session_id = :session_id

-- name: set_message_metadata
-- sent
UPDATE chat_messages SET metadata_json = :metadata_json, updated_at = greatest(updated_at, :updated_at) WHERE id = :id

-- name: set_message_created
-- sent
UPDATE chat_messages SET created_at = :created_at WHERE id = :id

-- name: hide_messages
UPDATE chat_messages SET metadata_json = metadata_json || jsonb_build_object('hidden_at', :at::bigint, 'hidden_by', :by::text)
WHERE id IN (SELECT value FROM json_array_elements_text(:ids::json)) AND session_id = :session_id

-- name: show_messages
UPDATE chat_messages SET metadata_json = metadata_json - 'hidden_at' - 'hidden_by'
WHERE id IN (SELECT value FROM json_array_elements_text(:ids::json)) AND session_id = :session_id

-- name: insert_part
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
SELECT :id, id, session_id, :index, :type, :data_json, :tool_call_id, :tool_state, :created_at, :updated_at
FROM chat_messages WHERE id = :message_id AND session_id = :session_id

-- name: insert_new_part
-- sent
-- For a message that the same unit inserts.
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
VALUES
    (:id, :message_id, :session_id, :index, :type, :data_json, :tool_call_id, :tool_state, :created_at, :updated_at)

-- name: grow_part
UPDATE chat_parts SET data_json = :data_json, updated_at = :updated_at
WHERE message_id = :message_id AND "index" = :index AND session_id = :session_id
AND type = :type AND tool_call_id IS NOT DISTINCT FROM :tool_call_id AND tool_state IS NOT DISTINCT FROM :tool_state

-- name: update_part
UPDATE chat_parts SET
    type = :type, data_json = :data_json, tool_call_id = :tool_call_id, tool_state = :tool_state,
    updated_at = :updated_at
WHERE message_id = :message_id AND "index" = :index AND session_id = :session_id

-- name: find_message
SELECT {message_columns} FROM chat_messages m WHERE m.id = :id AND m.session_id = :session_id

-- name: load_client_messages
SELECT {message_columns} FROM chat_messages m
WHERE m.session_id = :session_id
AND role <> 'assistant'
AND (metadata_json ->> 'client_message_id') IS NOT NULL
AND (metadata_json ->> 'client_message_id') = :client_message_id
ORDER BY m.created_at, m.id

-- name: load_messages
SELECT {message_columns} FROM chat_messages m WHERE m.session_id = :id ORDER BY m.created_at, m.id

-- name: message_ids
SELECT id FROM chat_messages WHERE session_id = :id ORDER BY created_at, id

-- name: load_session_messages
SELECT {message_columns}, s.digest FROM chat_messages m LEFT JOIN message_seals s ON s.message_id = m.id
WHERE m.session_id = :id

-- name: load_session_parts
SELECT {part_columns} FROM chat_parts p WHERE p.session_id = :id

-- name: load_view_of_session
SELECT {view_part_columns} FROM chat_parts p WHERE p.session_id = :id

-- name: load_messages_by_id
SELECT {message_columns}, s.digest FROM chat_messages m LEFT JOIN message_seals s ON s.message_id = m.id
WHERE m.id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: load_parts_by_message
SELECT {part_columns} FROM chat_parts p WHERE p.message_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: load_parts_by_session
SELECT {part_columns} FROM chat_parts p
WHERE p.session_id = :id AND p.message_id = :message_id

-- name: load_view_of_messages
SELECT {view_part_columns} FROM chat_parts p WHERE p.message_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: open_calls
SELECT {part_columns} FROM chat_parts p
WHERE p.session_id = :id
AND p.tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')
ORDER BY p.message_id, p."index"

-- name: unsettled_sessions
SELECT session_id FROM session_state WHERE open_turn_id IS NOT NULL
UNION
SELECT session_id FROM session_state WHERE runner IS NOT NULL
UNION
SELECT session_id FROM chat_parts
WHERE tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')
AND NOT EXISTS (SELECT 1 FROM adopted_messages a WHERE a.message_id = chat_parts.message_id)
-- Without a state, a session of another program has not been adopted; an unfinished one is not there.
AND EXISTS (SELECT 1 FROM session_state s WHERE s.session_id = chat_parts.session_id AND s.unfinished_since IS NULL)
UNION
SELECT session_id FROM message_queue

-- name: unsettled_among
SELECT j.value FROM json_array_elements_text(:ids::json) j
WHERE EXISTS (SELECT 1 FROM session_state t WHERE t.session_id = j.value
    AND (t.open_turn_id IS NOT NULL OR t.runner IS NOT NULL))
OR EXISTS (
    SELECT 1 FROM chat_parts p WHERE p.session_id = j.value
    AND p.tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')
    AND NOT EXISTS (SELECT 1 FROM adopted_messages a WHERE a.message_id = p.message_id)
)
OR EXISTS (SELECT 1 FROM message_queue q WHERE q.session_id = j.value)

-- name: failed_among
SELECT j.value FROM json_array_elements_text(:ids::json) j JOIN session_state t ON t.session_id = j.value
LEFT JOIN chat_turns n ON n.id = t.head_turn_id
WHERE t.open_turn_id IS NULL AND (n.status = 'failed' OR EXISTS (
    SELECT 1 FROM chat_turns r
    WHERE r.session_id = t.session_id AND r.status = 'refused' AND r.settled_at >= coalesce(n.settled_at, 0)
    AND r.parent_turn_id IS NOT DISTINCT FROM t.head_turn_id
))

-- name: has_files
SELECT 1 FROM chat_parts WHERE session_id = :id AND type = 'file' LIMIT 1

-- name: newest_message_at
SELECT max(created_at) FROM chat_messages WHERE session_id = :id

-- name: put_seal
-- sent
WITH done AS (
    INSERT INTO message_seals (message_id, digest)
    SELECT id, :digest FROM chat_messages WHERE id = :message_id AND session_id = :session_id
    ON CONFLICT (message_id) DO UPDATE SET digest = excluded.digest
    RETURNING 1
)
{exactly_one}

-- name: insert_seal
-- sent
-- For a message that the same unit inserts.
INSERT INTO message_seals (message_id, digest) VALUES (:message_id, :digest)

-- name: settled_among
-- Those of some messages that cannot grow any more: user messages in a turn or the queue, others in a settled turn.
-- Messages that another program added are in neither and have no seal; adopted ones may grow until they are sealed.
SELECT message_id FROM (
SELECT DISTINCT l.message_id FROM turn_messages l JOIN chat_turns t ON t.id = l.turn_id
JOIN chat_messages m ON m.id = l.message_id
WHERE l.message_id IN (SELECT value FROM json_array_elements_text(:ids::json))
AND (m.role = 'user' OR t.status NOT IN ('running', 'retrying', 'compacting', 'waiting'))
UNION
SELECT message_id FROM message_queue WHERE message_id IN (SELECT value FROM json_array_elements_text(:ids::json))
) AS settled WHERE NOT EXISTS (SELECT 1 FROM adopted_messages a WHERE a.message_id = settled.message_id)

-- name: load_seals
SELECT s.message_id, s.digest FROM message_seals s JOIN chat_messages m ON m.id = s.message_id WHERE m.session_id = :id


-- Turns

-- name: insert_turn
-- sent
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
-- sent
UPDATE chat_turns SET turn_type = :turn_type, status = :status, settled_at = :settled_at, data_json = :data_json
WHERE id = :id

-- name: load_turns
SELECT {turn_columns}, messages FROM chat_turns WHERE session_id = :id

-- name: has_more_turns
SELECT 1 FROM chat_turns WHERE session_id = :id LIMIT 1 OFFSET :turns

-- name: has_longer_view
SELECT 1 FROM session_state s JOIN chat_turns t ON t.id = coalesce(s.open_turn_id, s.head_turn_id)
LEFT JOIN chat_turns c ON c.id = t.compaction_turn_id
WHERE s.session_id = :id AND t.depth - coalesce(c.depth, 0) > :turns

-- name: load_path
-- Walks up from a turn towards the root, for at most :turns turns and not above :depth. Every step must lead to a lower
-- depth, because damaged turns may form a cycle.
WITH RECURSIVE path AS (
    SELECT {turn_columns}, messages, 1::bigint AS place FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.session_id, u.parent_turn_id, u.turn_type, u.status, u.depth, u.compaction_turn_id,
        u.origin_turn_id, u.data_json, u.created_at, u.settled_at, u.messages, path.place + 1
    FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE u.depth >= :depth AND u.depth < path.depth AND path.place < :turns
)
SELECT {turn_columns}, messages FROM path ORDER BY place

-- name: load_viewed_path
-- The same with the messages of each turn, where they exist, and their seals.
WITH RECURSIVE path AS (
    SELECT {turn_columns}, messages, 1::bigint AS place FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.session_id, u.parent_turn_id, u.turn_type, u.status, u.depth, u.compaction_turn_id,
        u.origin_turn_id, u.data_json, u.created_at, u.settled_at, u.messages, path.place + 1
    FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE u.depth >= :depth AND u.depth < path.depth AND path.place < :turns
)
SELECT t.id, t.session_id, t.parent_turn_id, t.turn_type, t.status, t.depth, t.compaction_turn_id,
    t.origin_turn_id, t.data_json, t.created_at, t.settled_at, t.messages, l.position, l.message_id,
    m.session_id, m.role, m.metadata_json, m.created_at, m.updated_at, s.digest
FROM path t
LEFT JOIN turn_messages l ON l.turn_id = t.id
LEFT JOIN chat_messages m ON m.id = l.message_id
LEFT JOIN message_seals s ON s.message_id = m.id
ORDER BY t.place, l.position


-- name: load_run
-- Merges a run of turns that only hold messages into one row: the parent and depth of the first turn, the number of
-- messages when last written, the number that exist, the number with a valid position, and their ids in the order of
-- the walk, from the end up, with a semicolon before the first message of a turn and a comma before the others.
-- Positions are unique, so if all three numbers are equal, no turn has lost a message.
WITH RECURSIVE path (id, parent_turn_id, depth, messages, total) AS (
    SELECT id, parent_turn_id, depth, messages, messages FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth, u.messages, path.total + u.messages
    FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE path.depth > :depth AND u.depth = path.depth - 1
    AND u.turn_type = 'normal' AND u.status <> 'refused' AND u.id IS DISTINCT FROM :apart
)
SELECT (array_agg(p.parent_turn_id ORDER BY p.depth))[1], min(p.depth), max(p.total), count(l.position),
    count(*) FILTER (WHERE l.position >= 0 AND l.position < p.messages),
    string_agg(CASE l.position WHEN 0 THEN ';' ELSE ',' END || l.message_id, '' ORDER BY p.depth DESC, l.position)
FROM path p LEFT JOIN turn_messages l ON l.turn_id = p.id

-- name: find_meeting
-- Walks up from two turns at :depth until both are the same, a root is reached, or a turn is misplaced.
WITH RECURSIVE climb (one, other, depth) AS (
    SELECT :one::text COLLATE "C", :other::text COLLATE "C", :depth::bigint
    UNION ALL
    SELECT a.parent_turn_id, b.parent_turn_id, climb.depth - 1
    FROM climb JOIN chat_turns a ON a.id = climb.one JOIN chat_turns b ON b.id = climb.other
    WHERE climb.one <> climb.other AND climb.depth > 0 AND a.depth = climb.depth AND b.depth = climb.depth
)
SELECT one, other, depth FROM climb ORDER BY depth LIMIT 1

-- name: holders_of
SELECT t.id, t.session_id, t.parent_turn_id, t.turn_type, t.status, t.depth, t.compaction_turn_id, t.origin_turn_id,
    t.data_json, t.created_at, t.settled_at, t.messages, l.position
FROM turn_messages l JOIN chat_turns t ON t.id = l.turn_id
WHERE l.message_id = :message_id AND t.session_id = :session_id

-- name: turn_above
-- The turn at :depth on the path up from :id. The walk begins at the next milestone below :depth that has a single
-- turn: every path as deep passes it. So its length is the same in a session of 200 turns and of 20,000.
WITH RECURSIVE path (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns
    WHERE session_id = :session_id AND id = coalesce((
        SELECT max(m.id) FROM chat_turns m
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
    SELECT id, parent_turn_id, depth FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE u.depth >= :depth AND u.depth < path.depth
)
SELECT id FROM path

-- name: path_every
WITH RECURSIVE path (id, parent_turn_id, depth) AS (
    SELECT id, parent_turn_id, depth FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE u.depth = path.depth - 1
)
SELECT id FROM path WHERE depth % :every::bigint = 0 ORDER BY depth

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
WHERE id IN (SELECT value FROM json_array_elements_text(:ids::json)) AND session_id = :session_id

-- name: telling_messages
-- The messages that describe turns to users: the user's, and for a compaction all of them.
SELECT l.turn_id, l.message_id FROM json_array_elements_text(:ids::json) j JOIN chat_turns t ON t.id = j.value
JOIN turn_messages l ON l.turn_id = t.id JOIN chat_messages m ON m.id = l.message_id
WHERE m.role = 'user' OR t.turn_type = 'compaction' OR t.compaction_turn_id = t.id
ORDER BY l.turn_id, l.position

-- name: has_child
-- Children are newer than their parent, the first of them soon after it; except a compaction that made room for an open
-- turn, and turns created after the clock was set back.
SELECT 1 FROM (
    SELECT parent_turn_id, status FROM chat_turns
    WHERE parent_turn_id = :id AND parent_turn_id > id AND session_id = :session_id
    UNION ALL
    SELECT parent_turn_id, status FROM chat_turns
    WHERE session_id = :session_id AND id > :id
) c WHERE parent_turn_id = :id AND (:refused::boolean OR status <> 'refused') LIMIT 1

-- name: load_marked
-- The turns from the root down to :id that are not plain, and both ends.
WITH RECURSIVE path (id, parent_turn_id, depth, marked) AS (
    SELECT id, parent_turn_id, depth, true FROM chat_turns WHERE id = :id AND session_id = :session_id
    UNION ALL
    SELECT t.id, t.parent_turn_id, t.depth, t.depth = 0 OR NOT ({is_plain})
    FROM path JOIN chat_turns t ON t.id = path.parent_turn_id
    WHERE t.depth = path.depth - 1
)
SELECT {turn_columns}, messages FROM chat_turns WHERE id IN (SELECT id FROM path WHERE marked) ORDER BY depth

-- name: load_refused
SELECT {turn_columns}, messages FROM chat_turns
WHERE session_id = :id AND status = 'refused' AND settled_at >= :since ORDER BY settled_at, id

-- name: link_message
-- sent
WITH done AS (
    INSERT INTO turn_messages (turn_id, position, message_id)
    SELECT t.id, (SELECT coalesce(max(position), -1) + 1 FROM turn_messages WHERE turn_id = t.id), m.id
    FROM chat_turns t, chat_messages m
    WHERE t.id = :turn_id AND t.session_id = :session_id AND m.id = :message_id AND m.session_id = :session_id
    RETURNING 1
)
{exactly_one}

-- name: insert_link
-- sent
-- For a message that the same unit inserts, in a turn whose messages are counted.
INSERT INTO turn_messages (turn_id, position, message_id) VALUES (:turn_id, :position, :message_id)

-- name: load_links
SELECT l.turn_id, l.message_id FROM chat_turns t JOIN turn_messages l ON l.turn_id = t.id
WHERE t.session_id = :id ORDER BY l.turn_id, l.position

-- name: load_links_of_session
SELECT l.turn_id, l.message_id, l.position, t.created_at FROM chat_turns t JOIN turn_messages l ON l.turn_id = t.id
WHERE t.session_id = :id

-- name: load_links_of_turns
SELECT turn_id, message_id, position FROM turn_messages WHERE turn_id IN (SELECT value FROM json_array_elements_text(:ids::json))
ORDER BY turn_id, position

-- name: insert_step
-- sent
INSERT INTO turn_steps (
    turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
) VALUES (
    :turn_id, :step, :message_id, :model_json, :input, :output, :reasoning, :cache_read, :cache_write, :cost_usd,
    :finish_reason, :prompt_digest, :data_json, :started_at, :finished_at
)

-- name: finish_step
-- sent
WITH done AS (
    UPDATE turn_steps SET finished_at = :finished_at WHERE turn_id = :turn_id AND step = :step
    RETURNING 1
)
{exactly_one}

-- name: load_steps
SELECT turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
FROM turn_steps WHERE turn_id = :id ORDER BY step

-- name: load_session_steps
SELECT s.turn_id, s.step, s.message_id, s.model_json, s.input, s.output, s.reasoning, s.cache_read, s.cache_write,
    s.cost_usd, s.finish_reason, s.prompt_digest, s.data_json, s.started_at, s.finished_at
FROM chat_turns t JOIN turn_steps s ON s.turn_id = t.id WHERE t.session_id = :id ORDER BY t.id, s.step


-- name: blob_bytes
SELECT coalesce(sum(size), 0) FROM blobs


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
SELECT {snapshot_columns} FROM workspace_snapshots 
WHERE workspace = :workspace AND created_at >= :since ORDER BY created_at, id

-- name: open_snapshots
SELECT {snapshot_columns} FROM workspace_snapshots 
WHERE tree IS NULL AND state IN ('taking', 'late') ORDER BY created_at, id

-- name: load_snapshot_trees
SELECT DISTINCT workspace, tree FROM workspace_snapshots WHERE tree IS NOT NULL


-- Model calls

-- name: put_call
-- sent
INSERT INTO model_calls ({call_columns}) VALUES (
    :id, :session_id, :turn_id, :step, :message_id, :purpose, :provider_id, :model_id, :variant,
    :input, :output, :reasoning, :cache_read, :cache_write, :cost_usd,
    :asked_at, :first_chunk_at, :ended_at, :tools_ms, :ended, :estimated, :workspace, :owner
)
ON CONFLICT (id) DO UPDATE SET
    session_id = excluded.session_id, turn_id = excluded.turn_id, step = excluded.step,
    message_id = excluded.message_id, purpose = excluded.purpose, provider_id = excluded.provider_id,
    model_id = excluded.model_id, variant = excluded.variant, input = excluded.input, output = excluded.output,
    reasoning = excluded.reasoning, cache_read = excluded.cache_read, cache_write = excluded.cache_write,
    cost_usd = excluded.cost_usd, asked_at = excluded.asked_at, first_chunk_at = excluded.first_chunk_at,
    ended_at = excluded.ended_at, tools_ms = excluded.tools_ms, ended = excluded.ended,
    estimated = excluded.estimated, workspace = excluded.workspace, owner = excluded.owner

-- name: change_call
-- sent
-- Everything except asked_at, which is in two indexes.
UPDATE model_calls SET
    session_id = :session_id, turn_id = :turn_id, step = :step, message_id = :message_id, purpose = :purpose,
    provider_id = :provider_id, model_id = :model_id, variant = :variant, input = :input, output = :output,
    reasoning = :reasoning, cache_read = :cache_read, cache_write = :cache_write, cost_usd = :cost_usd,
    first_chunk_at = :first_chunk_at, ended_at = :ended_at, tools_ms = :tools_ms, ended = :ended,
    estimated = :estimated, workspace = :workspace, owner = :owner
WHERE id = :id

-- name: set_tools_ms
-- sent
UPDATE model_calls SET tools_ms = :tools_ms WHERE id = :id

-- name: find_call
SELECT {call_columns} FROM model_calls WHERE id = :id

-- name: load_calls
-- IS NOT DISTINCT FROM cannot use an index.
SELECT {call_columns} FROM model_calls WHERE session_id = :id OR (:id::text IS NULL AND session_id IS NULL)
ORDER BY asked_at, id

-- name: open_model_calls
SELECT {call_columns} FROM model_calls
WHERE ended = 'asked' AND session_id IS NOT NULL AND (:id::text IS NULL OR session_id = :id::text) ORDER BY asked_at, id

-- name: load_usage
-- Costs in billionths, so that sums do not depend on the order.
SELECT CASE :by::text
        WHEN 'day' THEN to_char(to_timestamp(asked_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')
        WHEN 'model' THEN provider_id || '/' || model_id
        WHEN 'session' THEN session_id
        WHEN 'workspace' THEN workspace
        WHEN 'owner' THEN owner
    END AS key,
    count(*), sum(input)::bigint, sum(output)::bigint, sum(reasoning)::bigint, sum(cache_read)::bigint,
    sum(cache_write)::bigint, sum(floor(cost_usd * 1e9 + 0.5)::bigint)::bigint, count(*) FILTER (WHERE estimated),
    count(*) FILTER (WHERE cost_usd = 0 AND input + output + reasoning + cache_read + cache_write > 0)
FROM model_calls
WHERE asked_at >= :since AND asked_at < :until AND (:owner::text IS NULL OR owner = :owner::text)
GROUP BY 1 ORDER BY 1 NULLS LAST

-- name: load_spend
-- One index lookup each (OFFSET 0): the planner overestimates the size of a family and would scan both tables.
WITH RECURSIVE family (asked, id) AS (
    SELECT value COLLATE "C", value COLLATE "C" FROM json_array_elements_text(:ids::json)
    UNION
    SELECT f.asked, s.id
    FROM family f CROSS JOIN LATERAL (SELECT id, metadata_json FROM chat_sessions WHERE parent_id = f.id OFFSET 0) s
    WHERE {kind} = 'subagent'
)
SELECT f.asked, count(c.id), coalesce(sum(c.input + c.output + c.reasoning + c.cache_read + c.cache_write), 0)::bigint,
    coalesce(sum(floor(c.cost_usd * 1e9 + 0.5)::bigint), 0)::bigint, count(DISTINCT f.id) - 1
FROM family f LEFT JOIN LATERAL (SELECT * FROM model_calls WHERE session_id = f.id OFFSET 0) c ON true
GROUP BY f.asked


-- Prunes

-- name: newest_prune
SELECT coalesce(max(seq), 0) FROM pruned_outputs WHERE session_id = :id

-- name: add_pruned
-- sent
WITH done AS (
    INSERT INTO pruned_outputs (session_id, seq, message_id, part, tokens, keep, at)
    SELECT session_id, :seq, id, :part, :tokens, :keep, :at
    FROM chat_messages WHERE id = :message_id AND session_id = :session_id
    RETURNING 1
)
{exactly_one}

-- name: load_pruned_of_messages
SELECT seq, message_id, part, tokens, keep, at FROM pruned_outputs
WHERE message_id IN (SELECT value FROM json_array_elements_text(:ids::json)) AND session_id = :id ORDER BY seq, message_id, part

-- name: load_pruned
SELECT seq, message_id, part, tokens, keep, at FROM pruned_outputs WHERE session_id = :id
ORDER BY seq, message_id, part


-- Copies of a line. The messages to copy are in a temporary table of the transaction, in the order of the line; it is
-- emptied before and after, so that copies do not see each other's.

-- name: make_copied
-- sent
CREATE TEMP TABLE IF NOT EXISTS copied (
    source_id TEXT COLLATE "C" PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL,
    inserted BOOLEAN NOT NULL,
    turn_id TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    origin_turn_id TEXT COLLATE "C"
) ON COMMIT DROP

-- name: make_copied_turns
-- sent
CREATE TEMP TABLE IF NOT EXISTS copied_turns (
    n BIGINT PRIMARY KEY,
    source_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL
) ON COMMIT DROP

-- name: empty_copied_turns
-- sent
DELETE FROM pg_temp.copied_turns

-- name: add_copied_turns
-- A run of turns, from its end up. Ids have the usual format and order: the timestamp of a minted id, a count, and the
-- end of its random part.
INSERT INTO pg_temp.copied_turns (n, source_id, id)
WITH RECURSIVE path (id, parent_turn_id, depth, n) AS (
    SELECT id, parent_turn_id, depth, :count::bigint - 1 FROM chat_turns WHERE id = :through AND session_id = :source
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.depth, path.n - 1 FROM path JOIN chat_turns u ON u.id = path.parent_turn_id
    WHERE path.n > 0 AND u.depth = path.depth - 1
)
SELECT n, id, substr(:turn::text, 1, 16) || lpad(to_hex(n), 6, '0') || substr(:turn::text, 23) FROM path ORDER BY n

-- name: copy_turns
INSERT INTO chat_turns ({turn_columns})
SELECT c.id, :session_id,
    CASE WHEN c.n > 0 THEN substr(:turn::text, 1, 16) || lpad(to_hex(c.n - 1), 6, '0') || substr(:turn::text, 23)
        ELSE :parent::text END,
    t.turn_type, t.status, :depth::bigint + c.n, :compaction::text, t.id, t.data_json, t.created_at,
    coalesce(t.settled_at, :now::bigint)
FROM pg_temp.copied_turns c JOIN chat_turns t ON t.id = c.source_id
WHERE {is_plain}
ORDER BY c.n

-- name: count_copied
SELECT coalesce(sum(t.messages), 0)::bigint FROM pg_temp.copied_turns c JOIN chat_turns t ON t.id = c.source_id

-- name: add_copied_run
INSERT INTO pg_temp.copied (source_id, id, inserted, turn_id, position, origin_turn_id)
SELECT l.message_id, substr(:message::text, 1, 16) || lpad(to_hex(c.n), 6, '0') || lpad(to_hex(l.position), 4, '0')
        || substr(:message::text, 27),
    false, c.id, l.position, c.source_id
FROM pg_temp.copied_turns c JOIN turn_messages l ON l.turn_id = c.source_id
ORDER BY c.n, l.position

-- name: copied_ids
SELECT id FROM pg_temp.copied

-- name: empty_copied
-- sent
DELETE FROM pg_temp.copied

-- name: add_copied
INSERT INTO pg_temp.copied (source_id, id, inserted, turn_id, position, origin_turn_id)
VALUES (:source_id, :id, :inserted, :turn_id, :position, :origin_turn_id)

-- name: count_inserted
SELECT count(*) FROM pg_temp.copied c
JOIN chat_messages s ON s.id = c.source_id AND s.session_id = :source
JOIN chat_messages m ON m.id = c.id AND m.session_id = :session_id
WHERE c.inserted

-- name: copy_messages
INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at)
SELECT c.id, :session_id, m.role, m.metadata_json - 'hidden_at' - 'hidden_by' - 'snapshot_id', m.created_at,
    m.updated_at
FROM pg_temp.copied c JOIN chat_messages m ON m.id = c.source_id AND m.session_id = :source
WHERE NOT c.inserted

-- name: copy_parts
-- sent
-- Ids have the usual format and order: the timestamp of a minted id, a count, and the end of its random part.
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
SELECT substr(:minted::text, 1, 16)
        || substr(lpad(to_hex(c.n), 6, '0') || lpad(to_hex(p."index"), 4, '0') || substr(:minted::text, 27), 1, 14),
    c.id, :session_id, p."index", p.type, p.data_json, p.tool_call_id, p.tool_state, p.created_at, p.updated_at
FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM pg_temp.copied) c
JOIN chat_parts p ON p.message_id = c.source_id
WHERE NOT c.inserted

-- name: copy_seals
-- sent
INSERT INTO message_seals (message_id, digest)
SELECT c.id, s.digest FROM pg_temp.copied c JOIN message_seals s ON s.message_id = c.source_id
WHERE NOT c.inserted

-- name: copy_links
-- sent
INSERT INTO turn_messages (turn_id, position, message_id) SELECT turn_id, position, id FROM pg_temp.copied

-- name: copy_steps
-- sent
INSERT INTO turn_steps (
    turn_id, step, message_id, model_json, input, output, reasoning, cache_read, cache_write, cost_usd,
    finish_reason, prompt_digest, data_json, started_at, finished_at
)
SELECT c.turn_id, s.step, c.id, s.model_json, s.input, s.output, s.reasoning, s.cache_read, s.cache_write, s.cost_usd,
    s.finish_reason, s.prompt_digest, s.data_json, s.started_at, s.finished_at
FROM pg_temp.copied c JOIN turn_steps s ON s.turn_id = c.origin_turn_id AND s.message_id = c.source_id

-- name: copy_pruned
-- sent
-- A copy inserted by the unit may end before a part that was pruned.
INSERT INTO pruned_outputs (session_id, seq, message_id, part, tokens, keep, at)
SELECT :session_id, o.seq, c.id, o.part, o.tokens, o.keep, o.at
FROM pg_temp.copied c JOIN pruned_outputs o ON o.message_id = c.source_id
WHERE o.session_id = :source AND EXISTS (
    SELECT 1 FROM chat_parts p
    WHERE p.message_id = c.id AND p."index" = o.part AND p.tool_state = 'output-available'
)

-- name: copy_blob_links
-- sent
-- A session links every blob its parts name, so the parts are searched only if the source links any.
INSERT INTO blob_links (session_id, sha256)
SELECT :session_id, l.sha256 FROM blob_links l
WHERE l.session_id = :source AND '/api/blobs/' || l.sha256 IN (
    SELECT p.data_json ->> 'url' FROM pg_temp.copied c JOIN chat_parts p ON p.message_id = c.id WHERE p.type = 'file'
)
ON CONFLICT (session_id, sha256) DO NOTHING

-- name: sum_session
-- sent
UPDATE chat_sessions SET
    prompt_tokens = u.input,
    completion_tokens = u.output,
    reasoning_tokens = u.reasoning,
    cache_read = u.cache_read,
    cache_write = u.cache_write,
    total_tokens = u.input + u.output + u.reasoning + u.cache_read + u.cache_write,
    cost_usd = u.cost_usd
FROM (
    SELECT coalesce(sum((used ->> 'input')::bigint), 0)::bigint AS input,
        coalesce(sum((used ->> 'output')::bigint), 0)::bigint AS output,
        coalesce(sum((used ->> 'reasoning')::bigint), 0)::bigint AS reasoning,
        coalesce(sum((used ->> 'cache_read')::bigint), 0)::bigint AS cache_read,
        coalesce(sum((used ->> 'cache_write')::bigint), 0)::bigint AS cache_write, coalesce((
            SELECT sum(s.cost_usd ORDER BY t.id, s.step) FROM chat_turns t JOIN turn_steps s ON s.turn_id = t.id
            WHERE t.session_id = :session_id
        ), 0) + coalesce(sum((used ->> 'broken_off_usd')::double precision), 0) AS cost_usd
    FROM (
        SELECT metadata_json -> 'usage' AS used FROM chat_messages
        WHERE session_id = :session_id AND role = 'assistant'
    ) m
) AS u
WHERE id = :session_id


-- Queue

-- name: enqueue
-- sent
INSERT INTO message_queue (message_id, session_id, queued_at, interrupt)
VALUES (:message_id, :session_id, :queued_at, :interrupt)

-- name: dequeue
-- sent
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
SELECT convert_to(s.id::text, 'UTF8') FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id WHERE NOT {is_taken_in}
ORDER BY s.created_at, s.id

-- name: find_shared_session
SELECT {session_columns} FROM chat_sessions s LEFT JOIN session_state t ON t.session_id = s.id WHERE s.id = :id

-- name: copied_growing
SELECT c.id FROM pg_temp.copied c JOIN adopted_messages a ON a.message_id = c.source_id WHERE NOT c.inserted


-- Journal. A row holds chunks of one stream; its number is that of the last of them.

-- name: append_chunks
-- sent
-- The parts hold everything before the first journalled chunk: a missing mark is set accordingly.
WITH mark AS (
    INSERT INTO journal_marks (message_id, session_id, folded_through, crc)
    VALUES (:message_id, :session_id, :before, :mark_crc)
    ON CONFLICT (message_id) DO NOTHING
), done AS (
    INSERT INTO stream_journal (message_id, n, session_id, data, crc)
    SELECT m.id, :n, m.session_id, :data::text, :crc::bigint FROM chat_messages m
    WHERE m.id = :message_id AND m.session_id = :session_id
    RETURNING 1
)
{exactly_one}

-- name: fold_journal
-- sent
-- Deletes rows that the parts hold completely. The mark stays as long as the session, for readers that follow the
-- stream from another process.
WITH gone AS (
    DELETE FROM stream_journal WHERE message_id = :message_id AND n <= :through
)
INSERT INTO journal_marks (message_id, session_id, folded_through, crc)
VALUES (:message_id, :session_id, :through, :crc)
ON CONFLICT (message_id) DO UPDATE SET folded_through = excluded.folded_through, crc = excluded.crc

-- name: delete_journal_of_session
-- sent
WITH marks AS (
    DELETE FROM journal_marks WHERE session_id = :id
)
DELETE FROM stream_journal WHERE session_id = :id

-- name: load_journal
SELECT n, convert_to(data, 'UTF8'), crc FROM stream_journal
WHERE (:id::text IS NULL OR session_id = :id::text) ORDER BY message_id, n

-- name: get_mark
SELECT folded_through FROM journal_marks WHERE message_id = :message_id

-- fragment: marks_of_rows
-- The streams that the journal holds something of: a mark stays when the parts hold all of its stream.
SELECT k.message_id, k.session_id, k.folded_through, k.crc FROM journal_marks k
WHERE k.message_id IN (SELECT j.message_id FROM stream_journal j

-- name: load_marks
{marks_of_rows})

-- name: load_marks_of_session
{marks_of_rows} WHERE j.session_id = :id)

-- name: messages_ending
-- User messages are never streamed.
SELECT id FROM chat_messages WHERE role <> 'user' AND right(id, 8) IN (SELECT value FROM json_array_elements_text(:ends::json))


-- Kept once, named from many places

-- name: put_prompt
-- sent
INSERT INTO system_prompts (digest, body, created_at) VALUES (:digest, :body, :created_at)
-- Replaces a damaged row.
ON CONFLICT (digest) DO UPDATE SET body = excluded.body WHERE system_prompts.body IS DISTINCT FROM excluded.body

-- name: delete_unnamed_prompts
-- sent
DELETE FROM system_prompts
WHERE digest NOT IN (SELECT prompt_digest FROM turn_steps WHERE prompt_digest IS NOT NULL)
AND digest NOT IN (SELECT data_json ->> 'tools' FROM turn_steps WHERE data_json ->> 'tools' IS NOT NULL)

-- name: delete_facts_of_prompts
-- sent
-- The facts of deleted prompts. The bounds are all names that begin with 'prompt '.
DELETE FROM event_log
WHERE stream_id >= 'prompt ' AND stream_id < 'prompt!' AND substr(stream_id, 8) NOT IN (SELECT digest FROM system_prompts)

-- name: find_prompt
SELECT body FROM system_prompts WHERE digest = :digest

-- name: put_blob
-- sent
INSERT INTO blobs (sha256, media_type, size, data, created_at)
VALUES (:sha256, :media_type, :size, :data, :created_at)
ON CONFLICT (sha256) DO UPDATE SET size = excluded.size, data = excluded.data
WHERE blobs.data IS DISTINCT FROM excluded.data

-- name: link_blob
-- sent
INSERT INTO blob_links (session_id, sha256) SELECT :session_id, sha256 FROM blobs WHERE sha256 = :sha256
ON CONFLICT (session_id, sha256) DO NOTHING

-- name: has_blob
SELECT 1 FROM blobs WHERE sha256 = :sha256

-- name: delete_unnamed_blobs
DELETE FROM blobs
WHERE sha256 IN (SELECT sha256 FROM blob_links WHERE session_id = :id)
AND NOT EXISTS (SELECT 1 FROM blob_links l WHERE l.sha256 = blobs.sha256 AND l.session_id <> :id)

-- name: find_blob
SELECT sha256, media_type, data FROM blobs WHERE sha256 = :sha256

-- name: find_linked_blob
-- A blob that a session links but the index does not find: the index may be damaged, so the table is searched.
SELECT b.sha256, b.media_type, b.data FROM blobs b
WHERE EXISTS (SELECT 1 FROM blob_links WHERE sha256 = :sha256) AND b.sha256 = :sha256

-- name: is_blob_of
SELECT 1 FROM blob_links l JOIN session_state t ON t.session_id = l.session_id
WHERE l.sha256 = :sha256 AND t.owner = :owner LIMIT 1

-- name: put_project_rules
-- sent
INSERT INTO project_rules (project, rules_json, updated_at) VALUES (:project, :rules_json, :updated_at)
ON CONFLICT (project) DO UPDATE SET rules_json = excluded.rules_json, updated_at = excluded.updated_at

-- name: load_project_rules
SELECT rules_json FROM project_rules WHERE project = :project


-- Search. An index of words, which are derived from the text as in SQLite's index (see search_words.py).

-- name: lock_search
-- sent
-- One process at a time indexes what is missing; others wait and then find it complete.
SELECT pg_advisory_xact_lock(:key)

-- name: hold_name
-- sent
-- A row that does not exist cannot be locked, so writers of the same name take an advisory lock on it.
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))

-- name: forget_searched
-- sent
WITH gone AS (
    DELETE FROM search_marks WHERE message_id = :id RETURNING message_id
), docs AS (
    DELETE FROM search_docs WHERE message_id IN (SELECT message_id FROM gone)
)
INSERT INTO search_stale (message_id) SELECT message_id FROM gone ON CONFLICT (message_id) DO NOTHING

-- name: take_stale
-- Before their parts are read: a process that seals one of them again meanwhile waits, and notes it again.
DELETE FROM search_stale WHERE message_id IN (SELECT message_id FROM search_stale ORDER BY message_id LIMIT :limit)
RETURNING message_id

-- name: put_back_stale
-- sent
INSERT INTO search_stale (message_id) SELECT value FROM json_array_elements_text(:ids::json)
ON CONFLICT (message_id) DO NOTHING

-- name: any_stale
SELECT 1 FROM search_stale LIMIT 1

-- name: sizes_of_messages
SELECT message_id, sum(length(data_json::text))::bigint FROM chat_parts
WHERE message_id IN (SELECT value FROM json_array_elements_text(:ids::json)) GROUP BY message_id

-- name: delete_searched
-- sent
WITH marks AS (
    DELETE FROM search_marks WHERE message_id IN (SELECT value FROM json_array_elements_text(:ids::json))
)
DELETE FROM search_docs WHERE message_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: load_searched_parts
SELECT p.id, p.message_id, p.type, p.data_json FROM chat_parts p
WHERE p.message_id IN (SELECT value FROM json_array_elements_text(:ids::json))
AND (p.type IN ('text', 'reasoning', 'data-compaction', 'dynamic-tool') OR substr(p.type, 1, 5) = 'tool-')
ORDER BY p.message_id, p."index"

-- name: add_search_doc
-- sent
INSERT INTO search_docs (part_id, message_id, words) VALUES (:part_id, :message_id, :words::tsvector)

-- name: mark_searched
-- sent
INSERT INTO search_marks (message_id, digest)
SELECT message_id, digest FROM message_seals
WHERE message_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: make_search_anew
-- sent
WITH docs AS (
    DELETE FROM search_docs
), marks AS (
    DELETE FROM search_marks
)
INSERT INTO search_stale (message_id) SELECT message_id FROM message_seals ON CONFLICT (message_id) DO NOTHING

-- fragment: is_owners
AND p.session_id NOT IN (SELECT session_id FROM session_state WHERE unfinished_since IS NOT NULL)
AND (:owner::text IS NULL OR EXISTS (
    SELECT 1 FROM session_state o WHERE o.session_id = p.session_id AND o.owner = :owner::text
))

-- fragment: hits
FROM search_docs d JOIN chat_parts p ON p.id = d.part_id
WHERE d.words @@ :match::tsquery AND (:session_id::text IS NULL OR p.session_id = :session_id::text)
{is_owners}

-- fragment: hit_columns
p.session_id, p.message_id, p.id, m.role, m.created_at, m.metadata_json, s.metadata_json, p.type, p.data_json

-- name: count_hits
SELECT count(*) FROM (SELECT 1 {hits} LIMIT :most::bigint + 1) h

-- name: search_words
-- The newest hits, ranked: those that have the last word before those where it begins a longer one.
SELECT {hit_columns}
FROM (
    SELECT d.id AS id, d.part_id AS part_id, ts_rank(d.words, :match::tsquery, 1) AS score,
        d.words @@ :exact::tsquery AS is_exact {hits}
    ORDER BY d.id DESC LIMIT :most
) AS h
JOIN chat_parts p ON p.id = h.part_id
JOIN chat_messages m ON m.id = p.message_id
JOIN chat_sessions s ON s.id = p.session_id
ORDER BY h.is_exact DESC, h.score DESC, m.created_at DESC, h.id DESC
LIMIT :limit OFFSET :offset

-- name: search_older_words
-- The hits after those, by age.
SELECT {hit_columns}
FROM (
    SELECT d.id AS id, d.part_id AS part_id {hits} ORDER BY d.id DESC LIMIT :limit OFFSET :offset
) AS h
JOIN chat_parts p ON p.id = h.part_id
JOIN chat_messages m ON m.id = p.message_id
JOIN chat_sessions s ON s.id = p.session_id
ORDER BY h.id DESC

-- name: search_texts_themselves
-- Newest first, by when they were indexed, so that the scan ends with the page.
SELECT {hit_columns}, d.id FROM search_docs d
JOIN chat_parts p ON p.id = d.part_id
JOIN chat_messages m ON m.id = p.message_id
JOIN chat_sessions s ON s.id = p.session_id
WHERE (:session_id::text IS NULL OR p.session_id = :session_id::text) AND d.id < :before
{is_owners}
ORDER BY d.id DESC LIMIT :limit


-- Triggers

-- fragment: event_columns
e.seq, e.id, e.direction, e.source, e.source_id, e.session_id, e.message_id,
coalesce(e.turn_id, (SELECT min(l.turn_id) FROM turn_messages l WHERE l.message_id = e.message_id)),
e.attempt, e.type, e.status, e.digest, e.routing_json, e.data_json, e.at, e.owner

-- name: load_labelled
SELECT {session_columns} FROM chat_sessions s
LEFT JOIN session_state t ON t.session_id = s.id
WHERE (metadata_json ->> 'label') IS NOT NULL
AND (metadata_json ->> 'label') = :name
AND s.archived_at IS NULL AND {kind} <> 'subagent' AND {is_shown}
AND t.owner IS NOT DISTINCT FROM :owner::text
ORDER BY s.created_at, s.id LIMIT 20

-- name: load_keyed
SELECT {session_columns} FROM chat_sessions s
LEFT JOIN session_state t ON t.session_id = s.id
WHERE (metadata_json ->> 'routing_key') IS NOT NULL
AND (metadata_json ->> 'routing_key') = :name
AND s.archived_at IS NULL AND {kind} <> 'subagent' AND {is_shown}
AND t.owner IS NOT DISTINCT FROM :owner::text
ORDER BY s.created_at, s.id LIMIT 20

-- name: has_event
SELECT 1 FROM ledger_events
WHERE source = :source AND source_id = :source_id AND direction = :direction AND attempt = :attempt

-- name: add_event
INSERT INTO ledger_events
    (id, direction, source, source_id, session_id, message_id, turn_id, attempt, type, status, digest, routing_json,
    data_json, at, owner)
SELECT :id, :direction, :source, :source_id, :session_id::text, :message_id, :turn_id, :attempt, :type, :status,
    :digest, :routing_json::json, :data_json::json, :at,
    coalesce((SELECT owner FROM session_state WHERE session_id = :session_id::text), :owner::text)
WHERE :of_session::text = CASE WHEN EXISTS (SELECT 1 FROM chat_sessions WHERE id = :session_id::text)
    THEN :session_id::text ELSE '' END

-- name: find_event
SELECT {event_columns} FROM ledger_events e
WHERE e.source = :source AND e.source_id = :source_id AND e.direction = :direction
ORDER BY CASE e.direction WHEN 'in' THEN e.attempt ELSE -e.attempt END LIMIT 1

-- name: find_repeated
-- Reads only rows after the newest one before the window.
SELECT {event_columns} FROM ledger_events e
WHERE e.source = :source AND e.direction = 'in' AND e.attempt = 1 AND e.status IS NULL
AND e.digest = :digest AND e.at >= :since
AND e.seq > coalesce(
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
AND (:direction::text IS NULL OR e.direction = :direction::text)
AND (:owner::text IS NULL OR e.owner = :owner::text)
ORDER BY e.seq DESC LIMIT :limit

-- name: list_events_of_source
SELECT {event_columns} FROM ledger_events e
WHERE e.source = :source AND e.seq < :before
AND (:direction::text IS NULL OR e.direction = :direction::text)
AND (:owner::text IS NULL OR e.owner = :owner::text)
ORDER BY e.seq DESC LIMIT :limit

-- name: list_events_of_session
SELECT {event_columns} FROM ledger_events e
WHERE e.session_id = :session_id AND e.seq < :before
AND (:source::text IS NULL OR e.source = :source::text)
AND (:direction::text IS NULL OR e.direction = :direction::text)
AND (:owner::text IS NULL OR e.owner = :owner::text)
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
AND (:session_id::text IS NULL OR e.session_id = :session_id::text)
AND (:source::text IS NULL OR e.source = :source::text)
AND (:direction::text IS NULL OR e.direction = :direction::text)
AND (:owner::text IS NULL OR e.owner = :owner::text)
ORDER BY e.seq DESC LIMIT :limit

-- name: open_events
-- Inbound and outbound events of a message are adjacent in the index; an event is open while its newest attempt has no
-- answer.
SELECT {event_columns} FROM (
    SELECT source, source_id, max(CASE direction WHEN 'in' THEN attempt ELSE 0 END) AS attempt
    FROM ledger_events
    GROUP BY source, source_id
    HAVING max(CASE direction WHEN 'in' THEN attempt ELSE 0 END) > max(CASE direction WHEN 'out' THEN attempt ELSE 0 END)
) o JOIN ledger_events e
ON e.source = o.source AND e.source_id = o.source_id AND e.direction = 'in' AND e.attempt = o.attempt
WHERE EXISTS (SELECT 1 FROM chat_sessions s WHERE s.id = e.session_id)
ORDER BY e.seq

-- name: open_events_of_session
SELECT {event_columns} FROM ledger_events e
WHERE e.session_id = :session_id AND e.direction = 'in'
AND NOT EXISTS (
    SELECT 1 FROM ledger_events o
    WHERE o.source = e.source AND o.source_id = e.source_id AND o.direction = 'out' AND o.attempt >= e.attempt
)
AND EXISTS (SELECT 1 FROM chat_sessions s WHERE s.id = e.session_id)
ORDER BY e.seq

-- name: change_schedule
UPDATE schedules SET paused = :paused, next_fire_at = :next_fire_at, data_json = :data_json
WHERE id = :id AND session_id IS NOT DISTINCT FROM :session_id

-- name: put_schedule
-- sent
INSERT INTO schedules (id, session_id, paused, next_fire_at, data_json)
VALUES (:id, :session_id, :paused, :next_fire_at, :data_json)
ON CONFLICT (id) DO UPDATE SET session_id = excluded.session_id, paused = excluded.paused,
    next_fire_at = excluded.next_fire_at, data_json = excluded.data_json

-- name: drop_schedule
-- sent
DELETE FROM schedules WHERE id = :schedule_id

-- name: list_schedules
SELECT id, data_json FROM schedules ORDER BY id

-- name: hold_schedule
-- The process that fires it holds this lock until the commit, so it fires once among all processes.
SELECT id, data_json FROM schedules WHERE id = :id FOR UPDATE

-- name: change_webhook
UPDATE webhooks SET secret = :secret, data_json = :data_json WHERE name = :name AND session_id IS NOT DISTINCT FROM :session_id

-- name: put_webhook
-- sent
INSERT INTO webhooks (name, session_id, secret, data_json) VALUES (:name, :session_id, :secret, :data_json)
ON CONFLICT (name) DO UPDATE SET session_id = excluded.session_id, secret = excluded.secret,
    data_json = excluded.data_json

-- name: drop_webhook
-- sent
DELETE FROM webhooks WHERE name = :name

-- name: list_webhooks
SELECT name, secret, data_json FROM webhooks ORDER BY name


-- The event log, which PostgreSQL stores do not have.

-- name: load_facts
SELECT stream_id, seq, at, type, data_json FROM event_log WHERE stream_id = :stream_id ORDER BY seq


-- name: all_project_rules
SELECT project, rules_json, updated_at FROM project_rules ORDER BY project


-- The store itself

-- name: get_store_mark
SELECT store_id, sealed_since FROM store_marks

-- name: bound_waits
-- sent
-- For this transaction alone. A process stopped in the middle of it must not block others from its sessions, and one
-- that waits for another's session waits in short intervals, in which other units of its group continue.
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), set_config('lock_timeout', '5s', true)

-- name: begin_writer
-- sent
INSERT INTO writer_marks (id, n) VALUES (:id, 0) ON CONFLICT (id) DO NOTHING

-- name: mark_writer
-- sent
-- Part of every commit. It fails where the number was invalidated: a writer that was cut off has done so by then.
WITH done AS (
    UPDATE writer_marks SET n = :n::bigint / (n < :n::bigint)::integer, at = now() WHERE id = :id
    RETURNING 1
)
{exactly_one}

-- name: lock_writer
-- Waits for a transaction of a lost connection, if it is still running.
SELECT n FROM writer_marks WHERE id = :id FOR UPDATE

-- name: end_writer
-- sent
DELETE FROM writer_marks WHERE id = :id OR at < now() - interval '30 days'

-- name: share_kept
-- sent
-- Prompts and blobs are stored once, and deleted with the last session that names them: this keeps them while they are
-- being named.
SELECT pg_advisory_xact_lock_shared(:key)

-- name: hold_kept
-- sent
SELECT pg_advisory_xact_lock(:key)


-- Replicas, by the clock of the database

-- fragment: now_ms
(extract(epoch FROM statement_timestamp()) * 1000)::bigint

-- fragment: replica_columns
r.id, r.url, r.version, r.started_at, r.beat_at, r.lease_until, r.draining, r.lease_until > {now_ms}

-- name: join_replica
INSERT INTO replicas (id, url, version, started_at, beat_at, lease_until)
VALUES (:replica_id, :url, :version, {now_ms}, {now_ms}, {now_ms} + :lease_ms)

-- name: beat_replica
UPDATE replicas SET beat_at = {now_ms}, lease_until = {now_ms} + :lease_ms, draining = :draining WHERE id = :replica_id

-- name: leave_replica
-- sent
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


-- Checks of the whole store

-- name: miscounted_turns
SELECT t.session_id, t.id, t.messages, count(l.turn_id) FROM chat_turns t LEFT JOIN turn_messages l ON l.turn_id = t.id
GROUP BY t.id HAVING t.messages <> count(l.turn_id)

-- name: load_prompts
SELECT digest, convert_to(body::text, 'UTF8') FROM system_prompts

-- name: load_blob_digests
SELECT sha256 FROM blobs
