"""Another program that stores sessions in the three tables: a writer and a reader based only on their description.

It uses neither clew's code nor its other tables, and follows the description: a prompt is stored before its answer, an
answer grows in place, a rewind hides messages, and a queued prompt is marked.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import string
import time
from pathlib import Path
from typing import Any

__all__ = ["Program002", "make_plain"]

SCHEMA = """
CREATE TABLE chat_sessions (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, workspace_root TEXT, model_json TEXT NOT NULL, parent_id TEXT,
    parent_message_id TEXT, permissions_json TEXT NOT NULL DEFAULT '[]', metadata_json TEXT NOT NULL DEFAULT '{}',
    prompt_tokens INTEGER NOT NULL DEFAULT 0, completion_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0, cache_read INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0, total_tokens INTEGER NOT NULL DEFAULT 0, cost_usd REAL NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, archived_at INTEGER
);
CREATE INDEX s1 ON chat_sessions (agent, updated_at);
CREATE INDEX s2 ON chat_sessions (workspace_root, updated_at);
CREATE INDEX s3 ON chat_sessions (parent_id);
CREATE INDEX s4 ON chat_sessions (archived_at);
CREATE TABLE chat_messages (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
    role TEXT NOT NULL, metadata_json TEXT NOT NULL DEFAULT '{}', created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX m1 ON chat_messages (session_id, created_at);
CREATE TABLE chat_parts (
    id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL, "index" INTEGER NOT NULL, type TEXT NOT NULL, data_json TEXT NOT NULL, tool_call_id TEXT,
    tool_state TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
);
CREATE INDEX p1 ON chat_parts (message_id, "index");
CREATE INDEX p2 ON chat_parts (session_id);
CREATE INDEX p3 ON chat_parts (tool_call_id);
"""
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_USED = ("input", "output", "reasoning", "cache_read", "cache_write")
_SUMS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write")


def make_plain(path: Path) -> None:
    """Create a database with only the three tables."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA)
    connection.close()


class Program002:
    """A process of that program, with its connection."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 5000", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {pragma}")
        self._stamp = 0

    def close(self) -> None:
        self._db.close()

    # Writing

    def open_session(self, id_: str | None = None, *, agent: str = "assistant", **metadata: Any) -> str:
        id_, now = id_ or self._mint("ses_"), self._now()
        model = json.dumps({"provider_id": "test", "model_id": "model"})
        self._db.execute(
            "INSERT INTO chat_sessions (id, agent, model_json, metadata_json, created_at, updated_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (id_, agent, model, json.dumps(metadata), now, now),
        )
        return id_

    def say(self, session_id: str, text: str, id_: str | None = None, **metadata: Any) -> str:
        """Store a prompt without an answer."""
        return self.add(session_id, "user", [{"type": "text", "text": text}], id_, **metadata)

    def queue(self, session_id: str, text: str) -> str:
        return self.say(session_id, text, queued_at=self._now())

    def fire(self, message_id: str) -> None:
        """Move a prompt from the queue to the conversation."""
        metadata = self._metadata(message_id)
        metadata.pop("queued_at")
        session_id = self._one("SELECT session_id FROM chat_messages WHERE id = ?", message_id)
        at = self._after(session_id)
        self._db.execute("UPDATE chat_messages SET created_at = ? WHERE id = ?", (at, message_id))
        self._set_metadata(message_id, metadata)

    def answer(self, session_id: str, text: str, *, tool: bool = False, usage: int = 7) -> str:
        """Store an answer chunk by chunk."""
        message_id = self.begin_answer(session_id)
        if tool:
            call = {
                "type": "tool-look",
                "toolCallId": secrets.token_hex(4),
                "state": "input-available",
                "input": {"at": 1},
            }
            part_id = self.put_part(message_id, call)
            self.put_part(message_id, {**call, "state": "output-available", "output": "seen"}, part_id)
        part_id = self.put_part(message_id, {"type": "text", "text": text[:1]})
        self.put_part(message_id, {"type": "text", "text": text}, part_id)
        self.finish(message_id, usage)
        return message_id

    def begin_answer(self, session_id: str) -> str:
        return self.add(session_id, "assistant", [])

    def finish(self, message_id: str, usage: int) -> None:
        """End a step: store its usage and update the sums of the session."""
        used = dict.fromkeys(_USED, 0) | {"input": usage, "output": 1}
        self._set_metadata(message_id, self._metadata(message_id) | {"usage": used})
        session_id = self._one("SELECT session_id FROM chat_messages WHERE id = ?", message_id)
        total = dict.fromkeys(_USED, 0)
        for (text,) in self._db.execute(
            "SELECT metadata_json FROM chat_messages WHERE session_id = ? AND role = 'assistant'", (session_id,)
        ).fetchall():
            for key, count in json.loads(text).get("usage", {}).items():
                total[key] = total.get(key, 0) + int(count)
        sums = [total[key] for key in _USED]
        sets = ", ".join(f"{name} = ?" for name in (*_SUMS, "total_tokens", "updated_at"))
        values = (*sums, sum(sums), self._now(), session_id)
        self._db.execute(f"UPDATE chat_sessions SET {sets} WHERE id = ?", values)

    def compact(self, session_id: str, summary: str, tail_start_id: str) -> str:
        """Replace the messages before this one by a summary and hide them."""
        for message in self.conversation(session_id):
            if message["id"] == tail_start_id:
                break
            self._hide(message["id"], self._now())
        data = {"summary": summary, "tail_start_id": tail_start_id, "auto": False, "summary_tokens": 3}
        return self.add(session_id, "assistant", [{"type": "data-compaction", "data": data}])

    def rewind(self, session_id: str, message_id: str, *, keep_first: bool = False) -> None:
        """Hide a message and all after it; with ``keep_first``, only those after it."""
        shown = [message["id"] for message in self.conversation(session_id)]
        now, first = self._now(), shown.index(message_id) + keep_first
        for id_ in shown[first:]:
            self._hide(id_, now)

    def hide(self, message_id: str) -> None:
        self._hide(message_id, self._now())

    def archive(self, session_id: str) -> None:
        self._db.execute("UPDATE chat_sessions SET archived_at = ? WHERE id = ?", (self._now(), session_id))

    def delete(self, session_id: str) -> None:
        self._db.execute("DELETE FROM chat_sessions WHERE id = ?", (session_id,))

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, as in a shell."""
        return self._db.execute(statement, values).fetchall()

    def add(
        self, session_id: str, role: str, parts: list[dict[str, Any]], id_: str | None = None, **metadata: Any
    ) -> str:
        id_, at = id_ or self._mint("msg_"), self._after(session_id)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (id_, session_id, role, json.dumps(metadata), at, at),
        )
        for part in parts:
            self.put_part(id_, part)
        self._db.execute("UPDATE chat_sessions SET updated_at = ? WHERE id = ?", (at, session_id))
        self._db.execute("COMMIT")
        return id_

    def put_part(self, message_id: str, part: dict[str, Any], id_: str | None = None) -> str:
        """Append a part, or rewrite one that has grown."""
        now, data = self._now(), json.dumps(part)
        if id_ is None:
            id_ = self._mint("prt_")
            index = self._one('SELECT ifnull(max("index"), -1) + 1 FROM chat_parts WHERE message_id = ?', message_id)
            session_id = self._one("SELECT session_id FROM chat_messages WHERE id = ?", message_id)
            hoisted = (part.get("toolCallId"), part.get("state") if "toolCallId" in part else None)
            row = (id_, message_id, session_id, index, part["type"], data, *hoisted, now, now)
            columns = 'id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state'
            columns += ", created_at, updated_at"
            self._db.execute(f"INSERT INTO chat_parts ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        else:
            self._db.execute(
                "UPDATE chat_parts SET data_json = ?, tool_state = iif(tool_call_id IS NULL, NULL, ?), updated_at = ?"
                " WHERE id = ?",
                (data, part.get("state"), now, id_),
            )
        return id_

    # Reading

    def sessions(self) -> list[str]:
        """Return the sessions that are not archived."""
        return [
            row[0] for row in self._db.execute("SELECT id FROM chat_sessions WHERE archived_at IS NULL ORDER BY id")
        ]

    def conversation(self, session_id: str) -> list[dict[str, Any]]:
        """Return the messages in order, without hidden and queued ones."""
        shown = [message for message in self.messages(session_id) if "queued_at" not in message["metadata"]]
        return [message for message in shown if "hidden_at" not in message["metadata"]]

    def queued(self, session_id: str) -> list[str]:
        waiting = [message for message in self.messages(session_id) if "queued_at" in message["metadata"]]
        return [message["id"] for message in waiting if "hidden_at" not in message["metadata"]]

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        parts: dict[str, list[Any]] = {}
        for message_id, data in self._db.execute(
            'SELECT message_id, data_json FROM chat_parts WHERE session_id = ? ORDER BY "index"', (session_id,)
        ):
            parts.setdefault(message_id, []).append(json.loads(data))
        return [
            {"id": id_, "role": role, "metadata": json.loads(metadata), "parts": parts.get(id_, [])}
            for id_, role, metadata in self._db.execute(
                "SELECT id, role, metadata_json FROM chat_messages WHERE session_id = ? ORDER BY created_at, id",
                (session_id,),
            )
        ]

    # Helpers

    def _hide(self, message_id: str, at: int) -> None:
        self._set_metadata(message_id, self._metadata(message_id) | {"hidden_at": at})

    def _metadata(self, message_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._one("SELECT metadata_json FROM chat_messages WHERE id = ?", message_id)
        )
        return found

    def _set_metadata(self, message_id: str, metadata: dict[str, Any]) -> None:
        values = (json.dumps(metadata), self._now(), message_id)
        self._db.execute("UPDATE chat_messages SET metadata_json = ?, updated_at = ? WHERE id = ?", values)

    def _one(self, statement: str, *values: Any) -> Any:
        return self._db.execute(statement, values).fetchone()[0]

    def _now(self) -> int:
        return time.time_ns() // 1_000_000

    def _after(self, session_id: str) -> int:
        """Return a time after every message of the session."""
        newest = self._one("SELECT max(created_at) FROM chat_messages WHERE session_id = ?", session_id)
        return max(self._now(), (newest or 0) + 1)

    def _mint(self, prefix: str) -> str:
        self._stamp = max(self._stamp + 1, self._now() * 4096)
        return prefix + f"{self._stamp % (1 << 48):012x}" + "".join(secrets.choice(_BASE62) for _ in range(14))
