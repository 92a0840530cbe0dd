"""The floor: a minimal hand-written store with the standard library.

The three tables of the storage format, WAL, plain SQL, orjson. No turn tree, no journal, no checks, and no threads but
the writer of :class:`RawJournal`. It stores less than clew does; that makes it a floor.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import orjson

from bench import talk
from clew.store.sql.statements import read_sql

__all__ = ["RawChunks", "RawJournal", "RawStore", "RawWriter", "Sync", "connect", "raw_id"]

Sync = Literal["NORMAL", "FULL"]

_SESSION = """
INSERT INTO chat_sessions (id, agent, workspace_root, model_json, metadata_json, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_MESSAGE = """
INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)
"""
_PART = """
INSERT INTO chat_parts
    (id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOUCH = "UPDATE chat_sessions SET updated_at = ? WHERE id = ?"
_BOOK = """
UPDATE chat_sessions SET
    prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?,
    reasoning_tokens = reasoning_tokens + ?, cache_read = cache_read + ?, cache_write = cache_write + ?,
    total_tokens = total_tokens + ?, updated_at = ?
WHERE id = ?
"""
_COPIES = """
CREATE TEMP TABLE IF NOT EXISTS copies (old TEXT PRIMARY KEY NOT NULL, new TEXT NOT NULL)
"""
_NAME_COPIES = """
INSERT INTO temp.copies
SELECT id, printf('msg_%026d', :next + row_number() OVER (ORDER BY created_at, rowid))
FROM chat_messages WHERE session_id = :source AND created_at <= :through
"""
_COPY_MESSAGES = """
INSERT INTO chat_messages
SELECT c.new, :session, m.role, m.metadata_json, m.created_at, m.updated_at
FROM temp.copies c CROSS JOIN chat_messages m ON m.id = c.old
"""
_COPY_PARTS = """
INSERT INTO chat_parts
SELECT printf('prt_%022d%04d', :next + c.rowid, p."index"), c.new, :session, p."index", p.type, p.data_json,
    p.tool_call_id, p.tool_state, p.created_at, p.updated_at
FROM temp.copies c CROSS JOIN chat_parts p ON p.message_id = c.old
"""
_HIDE = """
UPDATE chat_messages SET metadata_json = json_set(metadata_json, '$.hidden_at', :at, '$.hidden_by', 'rewind')
WHERE session_id = :session AND created_at >= :since
"""
_SHOW = """
UPDATE chat_messages SET metadata_json = json_remove(metadata_json, '$.hidden_at', '$.hidden_by')
WHERE session_id = :session AND created_at >= :since
"""
_LOAD_MESSAGES = """
SELECT id, role, metadata_json, created_at FROM chat_messages WHERE session_id = ? ORDER BY created_at, rowid
"""
_LOAD_PARTS = "SELECT message_id, data_json FROM chat_parts WHERE session_id = ?"
_LAST_MESSAGES = """
SELECT id, role, metadata_json, created_at FROM chat_messages WHERE session_id = ?
ORDER BY created_at DESC, rowid DESC LIMIT ?
"""
_PARTS_OF = """
SELECT message_id, data_json FROM chat_parts
WHERE message_id IN (SELECT value FROM json_each(?)) ORDER BY message_id, "index"
"""
_NEWEST = """
SELECT id, agent, workspace_root, model_json, parent_id, parent_message_id, permissions_json, metadata_json,
    prompt_tokens, completion_tokens, reasoning_tokens, cache_read, cache_write, total_tokens, cost_usd,
    created_at, updated_at, archived_at
FROM chat_sessions INDEXED BY raw_newest WHERE archived_at IS NULL ORDER BY updated_at DESC LIMIT ?
"""
_SESSION_KEYS = (
    *("id", "agent", "workspace_root", "model", "parent_id", "parent_message_id", "permissions", "metadata"),
    *("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write", "total_tokens"),
    *("cost_usd", "created_at", "updated_at", "archived_at"),
)


def connect(path: Path, sync: Sync, *, checkpoints: bool = True) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {sync}")
    connection.execute("PRAGMA foreign_keys = ON")
    if not checkpoints:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def raw_id(prefix: str, n: int) -> str:
    """Return an id of thirty characters that sorts by creation like clew's, and is cheap to make."""
    return f"{prefix}_{n:026d}"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


class RawStore:
    """The three tables; each turn is appended in two transactions."""

    def __init__(self, path: Path, sync: Sync = "NORMAL") -> None:
        self.path = path
        self.connection = connect(path, sync)
        self.connection.executescript(read_sql("sqlite/migrations/0001_three_tables.sql"))
        self.connection.execute("CREATE INDEX raw_newest ON chat_sessions (updated_at) WHERE archived_at IS NULL")
        self._ids = 0

    def close(self) -> None:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.close()

    def _id(self, prefix: str) -> str:
        self._ids += 1
        return raw_id(prefix, self._ids)

    def add_sessions(self, count: int, metadata: Callable[[int], dict[str, Any]]) -> str:
        """Add sessions in one transaction and return the id of the last."""
        ids = [self._id("ses") for _ in range(count)]
        rows = (
            (
                id_,
                "assistant",
                "/work",
                _json(talk.MODEL_JSON),
                _json(metadata(n)),
                talk.START_MS + n,
                talk.START_MS + n,
            )
            for n, id_ in enumerate(ids)
        )
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_SESSION, rows)
        self.connection.execute("COMMIT")
        return ids[-1]

    def append_turn(self, session_id: str, text: str, parts: list[dict[str, Any]], now: int) -> None:
        self.ask(session_id, text, now)
        self.answer(session_id, parts, now)

    def ask(self, session_id: str, text: str, now: int) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        self._message(session_id, "user", {}, [{"type": "text", "text": text}], now)
        execute(_TOUCH, (now, session_id))
        execute("COMMIT")

    def answer(self, session_id: str, parts: list[dict[str, Any]], now: int) -> None:
        execute = self.connection.execute
        used = [count * 2 for count in talk.USAGE]
        usage = dict(zip(("input", "output", "reasoning", "cache_read", "cache_write"), used, strict=True))
        execute("BEGIN IMMEDIATE")
        self._message(session_id, "assistant", {"usage": usage, "model": talk.MODEL_JSON}, parts, now)
        execute(_BOOK, (*used, sum(used), now, session_id))
        execute("COMMIT")

    def _message(
        self, session_id: str, role: str, metadata: dict[str, Any], parts: list[dict[str, Any]], now: int
    ) -> None:
        message_id = self._id("msg")
        self.connection.execute(_MESSAGE, (message_id, session_id, role, _json(metadata), now, now))
        for index, part in enumerate(parts):
            call = part.get("toolCallId")
            state = part["state"] if call else None
            data = _json(part)
            row = (self._id("prt"), message_id, session_id, index, part["type"], data, call, state, now, now)
            self.connection.execute(_PART, row)

    def fill(self, session_id: str, turns: Iterable[int]) -> None:
        """Add turns in one transaction, for stores that are only read afterwards."""
        self.connection.execute("BEGIN IMMEDIATE")
        for n in turns:
            now = talk.START_MS + n
            usage = {"input": 2400, "output": 400, "reasoning": 0, "cache_read": 600, "cache_write": 0}
            self._message(session_id, "user", {}, [{"type": "text", "text": talk.prompt(n)}], now)
            metadata = {"usage": usage, "model": talk.MODEL_JSON}
            self._message(session_id, "assistant", metadata, talk.assistant_parts(n), now)
        self.connection.execute("COMMIT")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def load(self, session_id: str) -> list[dict[str, Any]]:
        """Return the whole session as plain objects, parts in insertion order."""
        loads = orjson.loads
        parts: dict[str, list[Any]] = {}
        for message_id, data in self.connection.execute(_LOAD_PARTS, (session_id,)):
            parts.setdefault(message_id, []).append(loads(data))
        return [
            {"id": row[0], "role": row[1], "metadata": loads(row[2]), "created_at": row[3], "parts": parts[row[0]]}
            for row in self.connection.execute(_LOAD_MESSAGES, (session_id,))
        ]

    def load_last(self, session_id: str, count: int) -> list[dict[str, Any]]:
        loads = orjson.loads
        rows = self.connection.execute(_LAST_MESSAGES, (session_id, count)).fetchall()
        parts: dict[str, list[Any]] = {}
        for message_id, data in self.connection.execute(_PARTS_OF, (_json([row[0] for row in rows]),)):
            parts.setdefault(message_id, []).append(loads(data))
        rows.reverse()
        return [
            {"id": row[0], "role": row[1], "metadata": loads(row[2]), "created_at": row[3], "parts": parts[row[0]]}
            for row in rows
        ]

    def branch(self, source: str, through: int) -> str:
        """Copy the messages up to that time and their parts to a new session and return its id."""
        execute, session_id = self.connection.execute, self._id("ses")
        next_ = self._ids
        execute(_COPIES)
        execute("BEGIN IMMEDIATE")
        execute(_SESSION, (session_id, "assistant", "/work", _json(talk.MODEL_JSON), "{}", through, through))
        execute("DELETE FROM temp.copies")
        named = {"source": source, "through": through, "next": next_}
        self._ids += execute(_NAME_COPIES, named).rowcount
        execute(_COPY_MESSAGES, {"session": session_id})
        execute(_COPY_PARTS, {"session": session_id, "next": next_})
        execute("COMMIT")
        return session_id

    def hide(self, session_id: str, since: int, at: int) -> int:
        """Mark every message since that time as hidden and return their number."""
        return self._update(_HIDE, {"session": session_id, "since": since, "at": at})

    def show(self, session_id: str, since: int) -> int:
        """Remove the mark."""
        return self._update(_SHOW, {"session": session_id, "since": since})

    def _update(self, statement: str, params: dict[str, Any]) -> int:
        self.connection.execute("BEGIN IMMEDIATE")
        changed = self.connection.execute(statement, params).rowcount
        self.connection.execute("COMMIT")
        return changed

    def newest(self, count: int) -> list[dict[str, Any]]:
        loads = orjson.loads
        found: list[dict[str, Any]] = []
        for row in self.connection.execute(_NEWEST, (count,)):
            session = dict(zip(_SESSION_KEYS, row, strict=True))
            session["model"] = loads(row[3])
            session["permissions"] = loads(row[6])
            session["metadata"] = loads(row[7])
            found.append(session)
        return found


_CHUNK_TABLE = "CREATE TABLE chunks (n INTEGER PRIMARY KEY, message_id TEXT NOT NULL, seq INTEGER NOT NULL, data TEXT)"
_CHUNK = "INSERT INTO chunks (message_id, seq, data) VALUES (?, ?, ?)"


def _chunk_json(delta: str) -> str:
    return _json({"type": "text-delta", "id": "t1", "delta": delta})


class RawWriter:
    """A store behind a writer thread, for an event loop: a queue of work, and a callback per commit."""

    def __init__(self, store: RawStore) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def append_turn(self, session_id: str, text: str, parts: list[dict[str, Any]], now: int) -> None:
        await self._do(lambda: self._store.ask(session_id, text, now))
        await self._do(lambda: self._store.answer(session_id, parts, now))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._store.close()

    async def _do(self, work: Callable[[], None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((work, done))
        await done

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            item[0]()
            self._loop.call_soon_threadsafe(item[1].set_result, None)


class RawChunks:
    """A table of chunks, each a row in its own commit."""

    def __init__(self, path: Path, sync: Sync = "NORMAL", *, checkpoints: bool = True) -> None:
        self.path = path
        self.connection = connect(path, sync, checkpoints=checkpoints)
        self.connection.execute(_CHUNK_TABLE)

    def append(self, message_id: str, n: int, delta: str) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute(_CHUNK, (message_id, n, _chunk_json(delta)))
        execute("COMMIT")

    def close(self) -> None:
        self.connection.close()


class RawJournal:
    """A writer thread that commits all queued chunks as one row, with one callback to the event loop for all of them.

    The cheapest known way to make many streams durable, without what a reader would need.
    """

    def __init__(self, path: Path, sync: Sync = "NORMAL") -> None:
        self._connection = connect(path, sync)
        self._connection.execute("CREATE TABLE journal (n INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._queue: queue.SimpleQueue[tuple[int, int, str, float] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._written = 0
        self._durable = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latencies: list[float] = []
        self._thread.start()

    def write(self, stream: int, n: int, delta: str = talk.DELTA) -> None:
        self._written += 1
        self._queue.put((stream, n, delta, time.perf_counter()))

    async def durable(self) -> None:
        """Wait for the next durable commit."""
        await self._durable

    async def drain(self) -> None:
        """Wait until everything that was written is acknowledged as durable."""
        while len(self.latencies) < self._written:
            await self._durable

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            group: list[tuple[int, int, str, float]] = []
            while item is not None:
                group.append(item)
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            if group:
                self._commit(group)
            if item is None:
                return

    def _commit(self, group: list[tuple[int, int, str, float]]) -> None:
        row = orjson.dumps([(stream, n, delta) for stream, n, delta, _ in group])
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO journal (data) VALUES (?)", (row,))
        self._connection.execute("COMMIT")
        self._loop.call_soon_threadsafe(self._acknowledge, [arrived for *_, arrived in group])

    def _acknowledge(self, arrivals: list[float]) -> None:
        now = time.perf_counter()
        self.latencies += [now - arrived for arrived in arrivals]
        durable, self._durable = self._durable, self._loop.create_future()
        durable.set_result(None)
