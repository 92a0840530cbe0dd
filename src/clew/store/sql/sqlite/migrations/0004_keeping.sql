-- What is kept once and named from many places, and the indexes that listing needs.

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

-- json_valid first: one damaged row must cost itself, not the list.
CREATE INDEX chat_sessions_listed ON chat_sessions (updated_at, id)
    WHERE archived_at IS NULL
    AND ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.ephemeral'), 0), 0) IS NOT 1
    AND ifnull(iif(json_valid(metadata_json), json_extract(metadata_json, '$.kind'), 'chat'), 'chat') <> 'subagent';

CREATE INDEX chat_sessions_by_update ON chat_sessions (updated_at, id);

CREATE INDEX chat_messages_by_client_id ON chat_messages (
    session_id, iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL)
) WHERE iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL) IS NOT NULL;
