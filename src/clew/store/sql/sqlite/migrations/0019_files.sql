-- Most sessions hold no file; whether one does is asked when it changes its model.

CREATE INDEX chat_parts_files ON chat_parts (session_id) WHERE type = 'file';
