-- Messages of other programs that may still grow, and a cancelled prompt as other readers know it: hidden.

CREATE TABLE adopted_messages (
    session_id TEXT NOT NULL,
    message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    PRIMARY KEY (session_id, message_id)
) WITHOUT ROWID;

CREATE INDEX adopted_messages_by_message ON adopted_messages (message_id);

UPDATE chat_messages SET metadata_json = json_set(
    metadata_json, '$.hidden_at', json_extract(metadata_json, '$.cancelled_at'), '$.hidden_by', 'cancelled'
) WHERE iif(json_valid(metadata_json), json_type(metadata_json, '$.cancelled_at'), NULL) = 'integer';
