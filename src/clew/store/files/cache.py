"""The cache: a disposable SQLite store with the content of a folder's files, in which units are applied and read.

The files are the source of truth. A session's rows are valid as long as its files have the signature stored with them;
otherwise they are read again. Triggers record which rows a unit changes, so that the writer knows what to add to the
files, whatever the unit was.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
import orjson
from msgspec.structs import replace

from clew.convert import convert_json
from clew.store import unit as u
from clew.store.base import Blob, Damage
from clew.store.files.session_value import ABSENT, Entries, SessionValue
from clew.store.files.shared import event_key
from clew.store.sql import rows, triggers
from clew.store.sql.line_reader import load_calls, load_pruned, load_snapshots, load_state, load_tree
from clew.store.sql.messages import MessageReader
from clew.store.sql.sqlite.connection import SqliteStatements
from clew.store.sql.statements import load_queries
from clew.transcript.damage import DAMAGED
from clew.transcript.message import PartRow
from clew.transcript.pruned import Pruned
from clew.transcript.session import SessionState
from clew.transcript.turn import HeadMove
from clew.transcript.turn_state import OPEN
from clew.triggers.values.ledger import LedgerEvent

__all__ = ["CACHE_VERSION", "SHARED_ENTRIES", "TOUCHES", "Cache", "CachedFile"]

CACHE_VERSION: Final = 2
_QUERIES: Final = load_queries("cache.sql", "clew.store.files")
_DAY_MS: Final = 86_400_000

TOUCHES: Final = (
    ("chat_sessions", "row", "'session'"),
    ("session_state", "row", "'session'"),
    ("session_state", "state", "'state'"),
    ("chat_messages", "messages", "{row}.id"),
    ("chat_parts", "messages", "{row}.message_id"),
    ("chat_turns", "turns", "{row}.id"),
    ("turn_messages", "links", "{row}.turn_id"),
    ("head_moves", "moves", "{row}.seq"),
    ("turn_steps", "steps", "{row}.turn_id"),
    ("message_queue", "queue", "{row}.message_id"),
    ("message_seals", "seals", "{row}.message_id"),
    ("blob_links", "blobs", "{row}.sha256"),
    ("pruned_outputs", "pruned", "json_array({row}.seq, {row}.message_id, {row}.part)"),
    ("model_calls", "calls", "{row}.id"),
    ("workspace_snapshots", "snapshots", "{row}.id"),
    ("system_prompts", "prompts", "{row}.digest"),
    ("blobs", "blob_files", "{row}.sha256"),
    ("project_rules", "rules", "{row}.project"),
    ("ledger_events", "events", "json_array({row}.direction, {row}.source, {row}.source_id, {row}.attempt)"),
    ("schedules", "schedules", "{row}.id"),
    ("webhooks", "webhooks", "{row}.name"),
)
"""The entries that a changed row belongs to: its table, and the table and key of the entry."""

SHARED_ENTRIES: Final = frozenset({"prompts", "blob_files", "rules", "events", "schedules", "webhooks"})


class CachedFile(msgspec.Struct, frozen=True):
    """The files that a session's rows were read from. ``ahead``: the rows have more than the files.

    ``seen_at`` is when the files last were seen with this signature, in nanoseconds.
    """

    signature: str
    seen_at: int
    ahead: bool = False
    damages: tuple[Damage, ...] = ()


class Cache:
    """The cache's rows, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.sql = SqliteStatements(connection)

    def create(self, kind: str) -> None:
        """Create what a store of its own does not have."""
        for name in ("make_files", "make_folders", "make_marks", "drop_foreign_keys_of_schedules"):
            self._script(name)
        self._run("set_mark", kind=kind, version=CACHE_VERSION)

    def is_of(self, kind: str) -> bool:
        """Return whether this version of clew made the cache, for this kind of files."""
        return self._rows("get_mark") == [(kind, CACHE_VERSION)]

    def watch(self) -> None:
        """Begin to record which rows are changed on this connection."""
        self._script("make_scratch")
        for number, (table, name, key) in enumerate(TOUCHES):
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                values = {"trigger": f"touch_{number}_{event}", "event": event, "table": table, "name": name}
                self.connection.execute(_QUERIES["touch"].format(key=key.format(row=row), **values))

    @contextlib.contextmanager
    def mode(self, name: Literal["reading", "damaged"], *, on: bool = True) -> Iterator[None]:
        """``reading``: rows are filled from files. ``damaged``: nothing shared is collected, since a session that
        cannot be read may name it."""
        if on:
            self._run("begin_mode", mode=name)
        try:
            yield
        finally:
            if on:
                self._run("end_mode", mode=name)

    # Files

    def files(self) -> dict[str, CachedFile]:
        return {
            id_: CachedFile(signature, seen_at, bool(ahead), convert_json(damages.encode(), tuple[Damage, ...]))
            for id_, signature, seen_at, ahead, damages in self._rows("load_files")
        }

    def signature(self, session_id: str) -> tuple[str, bool] | None:
        """Return the signature of the files that the rows of a session are from, and whether they have more."""
        found = self._first("get_file", id=session_id)
        return None if found is None else (found[0], bool(found[1]))

    def ahead(self) -> list[str]:
        """Return the sessions whose rows have more than their files."""
        return [id_ for (id_,) in self._rows("load_ahead")]

    def put_file(self, session_id: str, file: CachedFile) -> None:
        damages = msgspec.json.encode(file.damages).decode()
        values = {"signature": file.signature, "seen_at": file.seen_at, "ahead": file.ahead, "damages_json": damages}
        self._run("put_file", id=session_id, **values)

    def set_file(self, session_id: str, signature: str, seen_at: int, *, ahead: bool) -> bool:
        """Store the signature of files that a unit was just written to; return whether the session is known."""
        values = {"signature": signature, "seen_at": seen_at, "ahead": ahead}
        return self._run("set_file", id=session_id, **values) > 0

    def see_file(self, session_id: str, signature: str, seen_at: int) -> None:
        self._run("see_file", id=session_id, signature=signature, seen_at=seen_at)

    def folders(self) -> dict[str, str]:
        return dict(self._rows("load_folders"))

    def set_folder(self, name: str, signature: str | None) -> None:
        if signature is None:
            self._run("drop_folder", name=name)
        else:
            self._run("put_folder", name=name, signature=signature)

    # Sessions

    def put(self, value: SessionValue) -> None:
        """Replace the rows of a session by what its files say. The chunks of its streams are added by the writer."""
        sql, session = self.sql, value.row["session"]
        id_, state = session.id, value.state["state"]
        self._script("empty_session", id=id_)
        sql.run("restore_session", rows.session_params(session))
        self._run("restore_state", id=id_, owner=session.owner, alias=session.alias, **msgspec.structs.asdict(state))
        messages = value.messages.values()
        sql.many("restore_message", map(rows.message_params, messages))
        sql.many("restore_part", (rows.part_params(part, row.id, id_) for row in messages for part in row.parts))
        seals = _seals(value).items()
        sql.many("insert_seal", ({"message_id": key, "digest": digest} for key, digest in seals))
        sql.many("restore_turn", map(rows.turn_params, value.turns.values()))
        links = (
            {"turn_id": turn_id, "position": position, "message_id": message_id}
            for turn_id, ids in value.links.items()
            for position, message_id in enumerate(ids)
        )
        sql.many("restore_link", links)
        sql.many("restore_step", (rows.step_params(step) for steps in value.steps.values() for step in steps))
        sql.many("restore_move", map(msgspec.structs.asdict, value.moves.values()))
        sql.many("restore_queued", ({**msgspec.structs.asdict(one), "session_id": id_} for one in value.queue.values()))
        sql.many("restore_blob_link", ({"session_id": id_, "sha256": sha256} for sha256 in value.blobs))
        pruned = value.pruned.values()
        sql.many("restore_pruned", ({**msgspec.structs.asdict(one), "session_id": id_} for one in pruned))
        sql.many("put_call", map(rows.call_params, value.calls.values()))
        sql.many("put_snapshot", map(rows.snapshot_params, value.snapshots.values()))

    def drop(self, session_id: str) -> None:
        """Remove a session whose files are gone; what outlives it has files of its own."""
        self._script("empty_session", id=session_id)
        self._run("drop_session", id=session_id)
        self._run("drop_file", id=session_id)

    def forget_file(self, session_id: str) -> None:
        self._run("drop_file", id=session_id)

    def read(self, session_id: str) -> SessionValue | None:
        """Return all rows of a session as a value."""
        sql, asked = self.sql, {"id": session_id}
        row = sql.first("find_session", asked)
        if row is None:
            return None
        parts: dict[str, list[PartRow]] = {}
        for part in sql.rows("load_session_parts", asked):
            parts.setdefault(part[1], []).append(rows.to_part(part, keep_damaged=False))
        found = [
            rows.to_message(one, _ordered(parts.get(one[0], ())), False) for one in sql.rows("load_messages", asked)
        ]
        tree = load_tree(sql, session_id)
        steps: dict[str, tuple[Any, ...]] = {}
        for step in map(rows.to_step, sql.rows("load_session_steps", asked)):
            steps[step.turn_id] = (*steps.get(step.turn_id, ()), step)
        pending = MessageReader(sql).pending(session_id)
        queue = (u.Enqueue(one[0], one[1], bool(one[2])) for one in sql.rows("load_queue", asked))
        return SessionValue(
            row={"session": replace(rows.to_session(row), head_turn_id=None)},
            state={"state": load_state(sql, session_id)},
            messages={one.id: one for one in found},
            turns=dict(tree.turns),
            links=dict(tree.links),
            moves={move.seq: move for move in tree.moves},
            steps=steps,
            queue={one.message_id: one for one in queue},
            journal={one.message.id: tuple(one.entries) for one in pending if one.entries},
            marks={one.message.id: one.entries[0].n - 1 for one in pending if one.entries and one.entries[0].n > 1},
            seals=dict(sql.rows("load_seals", asked)),
            blobs=dict.fromkeys(sha256 for (sha256,) in self._rows("load_blob_links", id=session_id)),
            pruned={(one.seq, one.message_id, one.part): one for one in load_pruned(sql, session_id)},
            calls={call.id: call for call in load_calls(sql, session_id)},
            snapshots={one.id: one for one in load_snapshots(sql, session_id)},
        )

    # Changes

    def changes(self, session_id: str, value: SessionValue | None) -> tuple[Entries, Entries]:
        """Return what was changed since the last call: entries of a session, beginning with its files' ``value``, and
        shared ones."""
        touched = self._rows("load_touched")
        self._run("empty_touched")
        own: dict[tuple[str, Any], tuple[Any, Any]] = {}
        shared: dict[tuple[str, Any], tuple[Any, Any]] = {}
        days: set[str] = set()
        for name, key in touched:
            if name in SHARED_ENTRIES:
                table = "blobs" if name == "blob_files" else name
                shared_key, entry = self._shared_entry(name, key)
                shared[table, shared_key] = (ABSENT, entry)
            elif name == "calls" and (call := self._call(key)) is not None and call.session_id is None:
                days.add(call.day)
            elif value is not None:
                decoded = _decode_key(name, key)
                before = getattr(value, name).get(decoded, ABSENT)
                after = self._entry(session_id, name, decoded)
                if before is not after and before != after:
                    own[name, decoded] = (before, after)
        shared |= {("calls", day): (ABSENT, self._calls_of(day)) for day in days}
        return own, shared

    def _entry(self, session_id: str, name: str, key: Any) -> Any:
        """Return an entry of a session as its rows are now; ``ABSENT`` if there is none."""
        sql = self.sql
        match name:
            case "row":
                row = sql.first("find_session", {"id": session_id})
                return ABSENT if row is None else replace(rows.to_session(row), head_turn_id=None)
            case "state":
                row = sql.first("get_state", {"id": session_id})
                return ABSENT if row is None else SessionState(*row)
            case "messages":
                return self._message(session_id, key)
            case "turns":
                row = sql.first("get_turn", {"id": key, "session_id": session_id})
                return ABSENT if row is None else rows.to_turn(row)
            case "links":
                found = sql.rows("load_links_of_turns", {"ids": rows.encode([key])})
                return tuple(row[1] for row in found) or ABSENT
            case "moves":
                row = self._first("get_move", id=session_id, seq=key)
                return ABSENT if row is None else HeadMove(*row)
            case "steps":
                return tuple(map(rows.to_step, sql.rows("load_steps", {"id": key}))) or ABSENT
            case "queue":
                row = sql.first("get_queued", {"message_id": key, "session_id": session_id})
                return ABSENT if row is None else u.Enqueue(row[0], row[1], bool(row[2]))
            case "seals":
                row = self._first("get_seal", message_id=key)
                return ABSENT if row is None else row[0]
            case "blobs":
                row = self._first("has_blob_link", id=session_id, sha256=key)
                return ABSENT if row is None else None
            case "pruned":
                row = self._first("get_pruned", id=session_id, seq=key[0], message_id=key[1], part=key[2])
                return ABSENT if row is None else Pruned(*row)
            case "snapshots":
                row = sql.first("find_snapshot", {"id": key})
                return ABSENT if row is None else rows.to_snapshot(row)
            case _:
                call = self._call(key)
                return ABSENT if call is None else call

    def _message(self, session_id: str, message_id: str) -> Any:
        row = self.sql.first("get_message_and_seal", {"id": message_id, "session_id": session_id})
        if row is None:
            return ABSENT
        found = self.sql.rows("load_parts_of", {"message_id": message_id, "session_id": session_id})
        return rows.to_message(row, tuple(rows.to_part(part, keep_damaged=False) for part in found), False)

    def _call(self, call_id: str) -> Any:
        row = self.sql.first("find_call", {"id": call_id})
        return None if row is None else rows.to_call(row)

    # Shared tables

    def fill(self, name: str, table: Mapping[Any, Any]) -> None:
        """Replace a shared table by what its files say."""
        self._run(f"empty_{name}")
        sql = self.sql
        for key, entry in table.items():
            match name:
                case "prompts":
                    sql.run("put_prompt", {"digest": key, "body": entry, "created_at": 0})
                case "blobs":
                    values = {"sha256": key, "media_type": entry.media_type, "size": 0, "data": b"", "created_at": 0}
                    sql.run("put_blob", values)
                case "rules":
                    values = {"project": key, "rules_json": rows.encode(list(entry)), "updated_at": 0}
                    sql.run("put_project_rules", values)
                case "events":
                    self._run("restore_event", **triggers.event_params(entry))
                case "schedules":
                    sql.run("put_schedule", triggers.schedule_params(entry))
                case "webhooks":
                    sql.run("put_webhook", triggers.webhook_params(entry))
                case "calls":
                    sql.many("put_call", map(rows.call_params, entry))

    def empty_blob(self, sha256: str) -> None:
        """Remove the bytes of a blob, which are in a file."""
        with self.mode("reading"):
            self._run("empty_blob", sha256=sha256)

    def newest_event(self) -> LedgerEvent | None:
        row = self._first("newest_event")
        return None if row is None else triggers.to_event(row)

    def has_message(self, session_id: str, message_id: str) -> bool:
        return self.sql.first("find_message", {"id": message_id, "session_id": session_id}) is not None

    def named_blobs(self) -> set[str]:
        """Return the blobs that sessions name."""
        return {sha256 for (sha256,) in self._rows("named_blobs")}

    def empty_replicas(self) -> None:
        self._run("empty_replicas")

    def _shared_entry(self, name: str, key: Any) -> tuple[Any, Any]:
        match name:
            case "prompts":
                row = self._first("get_prompt", digest=key)
                return key, ABSENT if row is None else row[0]
            case "blob_files":
                row = self._first("get_blob", sha256=key)
                return key, ABSENT if row is None else Blob(*row)
            case "rules":
                row = self._first("get_rules", project=key)
                return key, ABSENT if row is None else tuple(rows.decode(row[0], "rules of a project", project=key))
            case "events":
                direction, source, source_id, attempt = orjson.loads(key)
                values = {"direction": direction, "source": source, "source_id": source_id, "attempt": attempt}
                row = self._first("get_event", **values)
                return event_key(direction, source, source_id, attempt), (
                    ABSENT if row is None else triggers.to_event(row)
                )
            case "schedules":
                row = self._first("get_schedule", id=key)
                return key, ABSENT if row is None else triggers.to_schedule(row)
            case _:
                row = self._first("get_webhook", name=key)
                return key, ABSENT if row is None else triggers.to_webhook(row)

    def _calls_of(self, day: str) -> tuple[Any, ...]:
        first = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
        found = self._rows("load_calls_of_day", first=first, last=first + _DAY_MS - 1)
        return tuple(self._call(id_) for (id_,) in found)

    # Statements

    def _script(self, query: str, /, **params: Any) -> None:
        statement = ""
        for piece in _QUERIES[query].split(";"):
            statement += piece + ";"
            if sqlite3.complete_statement(statement):  # a trigger has semicolons inside
                self.connection.execute(statement, params)
                statement = ""

    def _run(self, query: str, /, **params: Any) -> int:
        return self.connection.execute(_QUERIES[query], params).rowcount

    def _first(self, query: str, /, **params: Any) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.connection.execute(_QUERIES[query], params).fetchone()
        return row

    def _rows(self, query: str, /, **params: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(_QUERIES[query], params).fetchall()


def _decode_key(name: str, key: Any) -> Any:
    if name == "pruned":
        return tuple(orjson.loads(key))
    return int(key) if name == "moves" else key


def _ordered(parts: Iterable[PartRow]) -> tuple[PartRow, ...]:
    return tuple(sorted(parts, key=lambda part: part.index))


def _seals(value: SessionValue) -> dict[str, str]:
    """Return the seals of a session's messages. A settled message of another program, which has none, gets one; a
    damaged one, which says so itself, has that of what is left."""
    settled = {id_ for turn in value.turns.values() if turn.status not in OPEN for id_ in value.links.get(turn.id, ())}
    return {
        id_: row.seal if DAMAGED in row.metadata or id_ not in value.seals else value.seals[id_]
        for id_, row in value.messages.items()
        if id_ in value.seals or (id_ in settled and not value.journal.get(id_))
    }
