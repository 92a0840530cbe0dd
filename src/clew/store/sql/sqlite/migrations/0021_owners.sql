-- Whose a session is, and what they call it; whose its calls and its events are, which outlive it. Empty where nobody says.

ALTER TABLE session_state ADD COLUMN owner TEXT;
ALTER TABLE session_state ADD COLUMN alias TEXT;
ALTER TABLE model_calls ADD COLUMN owner TEXT;
ALTER TABLE ledger_events ADD COLUMN owner TEXT;

CREATE INDEX session_state_by_owner ON session_state (owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX session_state_by_alias ON session_state (alias, ifnull(owner, '')) WHERE alias IS NOT NULL;
CREATE INDEX ledger_events_by_owner ON ledger_events (owner, seq) WHERE owner IS NOT NULL;
