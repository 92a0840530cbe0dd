-- The ledger in a separate file, with plain table names. The store is attached as ``store``.

CREATE TABLE sessions AS SELECT * FROM store.ledger_sessions;

CREATE TABLE turns AS SELECT * FROM store.ledger_turns;

CREATE TABLE messages AS SELECT * FROM store.ledger_messages;

CREATE TABLE tool_calls AS SELECT * FROM store.ledger_tool_calls;

CREATE TABLE events AS SELECT * FROM store.ledger_events;

CREATE UNIQUE INDEX sessions_by_id ON sessions (id);
CREATE INDEX sessions_by_label ON sessions (label);
CREATE INDEX sessions_by_routing_key ON sessions (routing_key);
CREATE UNIQUE INDEX turns_by_id ON turns (id);
CREATE INDEX turns_by_parent ON turns (parent_turn_id);
CREATE INDEX messages_by_turn ON messages (turn_id, position);
CREATE INDEX tool_calls_by_turn ON tool_calls (turn_id);
CREATE INDEX events_by_source ON events (source, source_id);
