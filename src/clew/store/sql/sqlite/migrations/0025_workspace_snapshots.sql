-- Saved states of workspaces, and the points of the conversation that they belong to.

CREATE TABLE workspace_snapshots (
    id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    workspace TEXT NOT NULL,
    point TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    message_id TEXT,
    turn_id TEXT,
    step INTEGER,
    tree TEXT,
    replica TEXT,
    data_json TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;

CREATE INDEX workspace_snapshots_by_session ON workspace_snapshots (session_id, created_at);
CREATE INDEX workspace_snapshots_by_workspace ON workspace_snapshots (workspace, created_at);
CREATE INDEX workspace_snapshots_open ON workspace_snapshots (session_id)
    WHERE tree IS NULL AND state IN ('taking', 'late');
