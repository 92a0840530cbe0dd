-- Tool calls without a result are looked for at the start of every run; they are few, the parts are many.

CREATE INDEX chat_parts_open_calls ON chat_parts (session_id, message_id, "index")
    WHERE tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded');
