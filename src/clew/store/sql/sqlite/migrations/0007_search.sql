-- What the search index has taken in. The index itself is made by the first search: a SQLite without FTS5 could not
-- make it, and has to be able to run this.

CREATE TABLE search_docs (
    id INTEGER PRIMARY KEY NOT NULL,
    part_id TEXT UNIQUE NOT NULL REFERENCES chat_parts (id) ON DELETE CASCADE
);

CREATE TABLE search_marks (
    message_id TEXT PRIMARY KEY NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    digest TEXT NOT NULL
) WITHOUT ROWID;
