-- Every 64th turn of a path by its depth, so that a place in the middle of a long line is found without walking to it.

CREATE INDEX chat_turns_by_mile ON chat_turns (session_id, depth) WHERE depth % 64 = 0;
