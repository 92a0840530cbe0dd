-- Saved states of workspaces, and the points of the conversation that they belong to.

CREATE TABLE workspace_snapshots (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    workspace TEXT COLLATE "C" NOT NULL,
    point TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    message_id TEXT COLLATE "C",
    turn_id TEXT COLLATE "C",
    step BIGINT,
    tree TEXT COLLATE "C",
    replica TEXT COLLATE "C",
    data_json JSON NOT NULL DEFAULT '{}'
);

CREATE INDEX workspace_snapshots_by_session ON workspace_snapshots (session_id, created_at);
CREATE INDEX workspace_snapshots_by_workspace ON workspace_snapshots (workspace, created_at);
CREATE INDEX workspace_snapshots_open ON workspace_snapshots (session_id)
    WHERE tree IS NULL AND state IN ('taking', 'late');
