-- A session that every list shows is in one index by time, not in two: a turn writes an entry less.

DROP INDEX chat_sessions_by_update;

CREATE INDEX chat_sessions_unlisted ON chat_sessions (updated_at, id)
    WHERE (archived_at IS NOT NULL
    OR ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.ephemeral'), 0), 0) IS 1
    OR ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.kind'), 'chat'), 'chat') = 'subagent');
