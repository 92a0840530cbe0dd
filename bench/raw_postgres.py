"""The floor on PostgreSQL: three tables and a journal in plain SQL on psycopg, one round trip per transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
import psycopg

from bench import talk
from bench.raw import raw_id

__all__ = ["RawPostgres"]

_TABLES = """
CREATE TABLE sessions (id text PRIMARY KEY, model json NOT NULL, metadata json NOT NULL,
    tokens bigint NOT NULL DEFAULT 0, created_at bigint NOT NULL, updated_at bigint NOT NULL);
CREATE INDEX newest ON sessions (updated_at);
CREATE TABLE messages (id text PRIMARY KEY, session_id text NOT NULL REFERENCES sessions (id), role text NOT NULL,
    metadata jsonb NOT NULL, created_at bigint NOT NULL);
CREATE INDEX by_session ON messages (session_id, created_at);
CREATE TABLE parts (id text PRIMARY KEY, message_id text NOT NULL REFERENCES messages (id), session_id text NOT NULL,
    index int NOT NULL, data json NOT NULL);
CREATE INDEX parts_by_message ON parts (message_id, index);
CREATE INDEX parts_by_session ON parts (session_id);
CREATE TABLE journal (n bigint PRIMARY KEY, message_id text NOT NULL, data text NOT NULL);
"""
_SESSION = b"INSERT INTO sessions (id, model, metadata, created_at, updated_at) VALUES (%s, %s, %s, %s, %s)"
_MESSAGE = b"INSERT INTO messages VALUES (%s, %s, %s, %s, %s)"
_PART = b"INSERT INTO parts VALUES (%s, %s, %s, %s, %s)"
_TOUCH = b"UPDATE sessions SET updated_at = %s, tokens = tokens + %s WHERE id = %s"
_CHUNK = b"INSERT INTO journal VALUES (%s, %s, %s)"
_LOAD_MESSAGES = (
    b"SELECT id, role, metadata::text, created_at FROM messages WHERE session_id = %s ORDER BY created_at, id"
)
_LOAD_PARTS = b"SELECT message_id, data::text FROM parts WHERE session_id = %s ORDER BY message_id, index"
_LAST = b"""
SELECT id, role, metadata::text, created_at FROM messages WHERE session_id = %s
ORDER BY created_at DESC, id DESC LIMIT %s
"""
_PARTS_OF = b"SELECT message_id, data::text FROM parts WHERE message_id = ANY(%s) ORDER BY message_id, index"
_NEWEST = b"""
SELECT id, model::text, metadata::text, tokens, created_at, updated_at FROM sessions ORDER BY updated_at DESC LIMIT %s
"""
_COPY = b"""
WITH copies AS (
    SELECT id, 'msg_' || lpad((%(next)s + row_number() OVER (ORDER BY created_at, id))::text, 26, '0') AS new
    FROM messages WHERE session_id = %(source)s AND created_at <= %(through)s
), copied AS (
    INSERT INTO messages SELECT c.new, %(session)s, m.role, m.metadata, m.created_at
    FROM copies c JOIN messages m USING (id)
)
INSERT INTO parts SELECT 'prt_' || right(c.new, 22) || lpad(p.index::text, 4, '0'), c.new, %(session)s, p.index, p.data
FROM copies c JOIN parts p ON p.message_id = c.id
"""
_HIDE = b"""
UPDATE messages SET metadata = metadata || jsonb_build_object('hidden_at', %s::bigint, 'hidden_by', 'rewind')
WHERE session_id = %s AND created_at >= %s
"""
_SHOW = (
    b"UPDATE messages SET metadata = metadata - 'hidden_at' - 'hidden_by' WHERE session_id = %s AND created_at >= %s"
)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


class RawPostgres:
    """One connection, without pooling or checks."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url)
        with self.connection.transaction():
            self.connection.execute(_TABLES.encode())
        self.connection.commit()
        self._ids = 0

    def close(self) -> None:
        self.connection.close()

    def _id(self, prefix: str) -> str:
        self._ids += 1
        return raw_id(prefix, self._ids)

    def add_sessions(self, count: int, metadata: Callable[[int], dict[str, Any]]) -> str:
        ids = [self._id("ses") for _ in range(count)]
        model = _json(talk.MODEL_JSON)
        with self.connection.transaction(), self.connection.cursor() as cursor:
            at = talk.START_MS
            cursor.executemany(
                _SESSION, [(id_, model, _json(metadata(n)), at + n, at + n) for n, id_ in enumerate(ids)]
            )
        return ids[-1]

    def append_turn(self, session_id: str, text: str, parts: list[dict[str, Any]], now: int) -> None:
        execute = self.connection.execute
        with self.connection.pipeline(), self.connection.transaction():
            self._message(session_id, "user", {}, [{"type": "text", "text": text}], now)
            execute(_TOUCH, (now, 0, session_id))
        with self.connection.pipeline(), self.connection.transaction():
            self._message(session_id, "assistant", {"model": talk.MODEL_JSON}, parts, now)
            execute(_TOUCH, (now, sum(talk.USAGE) * 2, session_id))

    def _message(
        self, session_id: str, role: str, metadata: dict[str, Any], parts: Sequence[dict[str, Any]], now: int
    ) -> None:
        message_id, execute = self._id("msg"), self.connection.execute
        execute(_MESSAGE, (message_id, session_id, role, _json(metadata), now))
        for index, part in enumerate(parts):
            execute(_PART, (self._id("prt"), message_id, session_id, index, _json(part)))

    def fill(self, session_id: str, turns: Iterable[int]) -> None:
        with self.connection.pipeline(), self.connection.transaction():
            for n in turns:
                now = talk.START_MS + n
                self._message(session_id, "user", {}, [{"type": "text", "text": talk.prompt(n)}], now)
                self._message(session_id, "assistant", {"model": talk.MODEL_JSON}, talk.assistant_parts(n), now)
        self._analyze()

    def _analyze(self) -> None:
        self.connection.execute("ANALYZE")
        self.connection.commit()

    def append_chunks(self, rows: list[tuple[int, str, str]]) -> None:
        """Commit the chunks of several streams together."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(_CHUNK, rows)

    def _read(self, statement: bytes, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        rows = self.connection.execute(statement, values).fetchall()
        self.connection.commit()
        return rows

    def load(self, session_id: str) -> list[dict[str, Any]]:
        return _messages(self._read(_LOAD_MESSAGES, (session_id,)), self._read(_LOAD_PARTS, (session_id,)))

    def load_last(self, session_id: str, count: int) -> list[dict[str, Any]]:
        rows = self._read(_LAST, (session_id, count))[::-1]
        return _messages(rows, self._read(_PARTS_OF, ([row[0] for row in rows],)))

    def newest(self, count: int) -> list[dict[str, Any]]:
        keys = ("id", "model", "metadata", "tokens", "created_at", "updated_at")
        found = [dict(zip(keys, row, strict=True)) for row in self._read(_NEWEST, (count,))]
        return [
            {**one, "model": orjson.loads(one["model"]), "metadata": orjson.loads(one["metadata"])} for one in found
        ]

    def branch(self, source: str, through: int) -> str:
        session_id = self._id("ses")
        with self.connection.transaction():
            self.connection.execute(_SESSION, (session_id, _json(talk.MODEL_JSON), "{}", through, through))
            named = {"next": self._ids, "source": source, "through": through, "session": session_id}
            # There are more parts than messages, so their count is enough for the ids of both.
            self._ids += self.connection.execute(_COPY, named).rowcount
        return session_id

    def hide(self, session_id: str, since: int) -> int:
        with self.connection.transaction():
            return self.connection.execute(_HIDE, (since, session_id, since)).rowcount

    def show(self, session_id: str, since: int) -> int:
        with self.connection.transaction():
            return self.connection.execute(_SHOW, (session_id, since)).rowcount


def _messages(rows: Sequence[tuple[Any, ...]], parts: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    loads = orjson.loads
    of: dict[str, list[Any]] = {}
    for message_id, data in parts:
        of.setdefault(message_id, []).append(loads(data))
    return [
        {"id": row[0], "role": row[1], "metadata": loads(row[2]), "created_at": row[3], "parts": of[row[0]]}
        for row in rows
    ]
