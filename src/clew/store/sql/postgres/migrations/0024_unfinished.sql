-- Sessions that are being copied or deleted, in portions: no read returns them, and what is left of one is deleted.

ALTER TABLE session_state ADD COLUMN unfinished_since BIGINT;
CREATE INDEX session_state_unfinished ON session_state (session_id) WHERE unfinished_since IS NOT NULL;
