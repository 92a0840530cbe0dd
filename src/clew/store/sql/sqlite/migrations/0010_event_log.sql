-- The event log, kept only where it was asked for: one row for each settled fact, numbered inside its stream.

CREATE TABLE event_log (
    n INTEGER PRIMARY KEY NOT NULL,
    stream_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    data_json TEXT NOT NULL
);

CREATE UNIQUE INDEX event_log_by_stream ON event_log (stream_id, seq);
