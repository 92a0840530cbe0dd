-- What hangs below a turn was made after it, and is found among those; the few that were made before it stand here.

CREATE INDEX chat_turns_elder ON chat_turns (parent_turn_id) WHERE parent_turn_id > id;
