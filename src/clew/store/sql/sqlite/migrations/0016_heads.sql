-- What was refused of late, and which rewind can be undone, are found without a walk over all of a session.

CREATE INDEX chat_turns_refused ON chat_turns (session_id, settled_at) WHERE status = 'refused';
CREATE INDEX head_moves_rewinds ON head_moves (session_id, seq) WHERE why IN ('rewind', 'unrewind');
