-- Rows of the journal tell plain words in a shorter form from here on, which an older clew does not read. And only what a
-- client has sent has an id of a client's: of an answer, written again with each step, nobody needs to look for one.

DROP INDEX chat_messages_by_client_id;
CREATE INDEX chat_messages_by_client_id ON chat_messages (
    session_id, iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL)
) WHERE role <> 'assistant'
AND iif(json_valid(metadata_json), json_extract(metadata_json, '$.client_message_id'), NULL) IS NOT NULL;
