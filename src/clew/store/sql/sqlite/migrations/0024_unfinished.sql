-- Sessions that are being copied or deleted, in portions: no read returns them, and what is left of one is deleted.

ALTER TABLE session_state ADD COLUMN unfinished_since INTEGER;
CREATE INDEX session_state_unfinished ON session_state (session_id) WHERE unfinished_since IS NOT NULL;

DROP VIEW ledger_sessions;
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
