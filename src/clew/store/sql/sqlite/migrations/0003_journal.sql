-- Streams in flight. One journal row a commit holds the chunks accepted in it, of every stream; a mark says how
-- far a stream's parts have caught up. A row goes when every stream in it has passed it.

CREATE TABLE stream_journal (
    n INTEGER PRIMARY KEY NOT NULL,
    data TEXT NOT NULL
);

CREATE TABLE journal_marks (
    message_id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL,
    folded_through INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX journal_marks_by_session ON journal_marks (session_id);

CREATE TABLE message_seals (
    message_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    digest TEXT NOT NULL
) WITHOUT ROWID;
