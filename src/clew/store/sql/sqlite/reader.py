"""Reading: short functions on a connection that cannot write, run in threads, each seeing one state of the store.

A message whose stream is in flight is read as its stored parts plus the chunks the journal holds above its mark,
in the same snapshot; so a reader in another process sees all that was acknowledged, and nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from clew.errors import RowUndecodable, StoreClosed
from clew.store.base import (
    Blob,
    Cursor,
    Damage,
    LineSlice,
    OpenCall,
    PendingStream,
    QueuedMessage,
    SessionPage,
    SessionQuery,
    Whole,
)
from clew.store.facts import Fact
from clew.store.lines import view_line
from clew.store.search import SearchPage, SearchPlan
from clew.store.sql import rows, triggers
from clew.store.sql.journal import decode_entries
from clew.store.sql.log import to_fact
from clew.store.sql.sqlite.connection import Connect, SqliteStatements, connect, is_undecodable, translate
from clew.store.sql.sqlite.search import find_hits
from clew.store.tail import with_tail
from clew.store.unit import JournalEntry
from clew.transcript.line import LineTurn, end_of_line
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Step, Tree, Turn
from clew.triggers.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.routing import RouteKind
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

__all__ = ["Reader", "ReaderPool"]

log = logging.getLogger("clew.store")

P = ParamSpec("P")
T = TypeVar("T")

_END: Final = Cursor(2**63 - 1, "")


class ReaderPool:
    """A few threads with a connection each. ``run`` calls a method of :class:`Reader` in one read transaction.

    ``check`` refuses a file that is not the one the others are connected to.
    """

    def __init__(
        self, path: Path, threads: int = 2, connect: Connect = connect, check: Callable[[], object] | None = None
    ) -> None:
        self._path = path
        self._check = check
        self._connect = connect
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(threads, thread_name_prefix="clew-reader")

    async def run(self, call: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._executor is None:
            raise StoreClosed("the store is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: self._call(call, *args, **kwargs))

    def _call(self, call: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            connection = self._connection()
            # Explicitly deferred: it pins one state for several statements and can never take the write lock.
            connection.execute("BEGIN DEFERRED")
            try:
                return call(Reader(connection), *args, **kwargs)
            except sqlite3.OperationalError as error:
                if not is_undecodable(error):
                    raise
                # Once more: what is no UTF-8 comes as \x and two digits, which no JSON has: its row is found damaged.
                connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
                try:
                    return call(Reader(connection), *args, **kwargs)
                finally:
                    connection.text_factory = str
            finally:
                # Nothing was written; a COMMIT would repeat the error of a statement that met a damaged page.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, self._path) from error
        except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            # A column holds what no unit can have written there, such as NULL where the schema forbids it.
            raise RowUndecodable(f"a row of {self._path} is not readable: {error!r}") from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            if self._check is not None:
                self._check()
            connection = self._connect(self._path, writer=False)
            self._local.connection = connection
            with self._lock:
                self._open.append(connection)
        return connection

    def close(self) -> None:
        """Wait for reads under way, then let go. Blocks; called off the loop."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
            for connection in self._open:
                connection.close()


class Reader:
    """The read side of the contract, on one connection inside one read transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sql = SqliteStatements(connection)

    # Sessions

    def find_session(self, session_id: str) -> Session | None:
        row = self._sql.first("find_session", {"id": session_id})
        return rows.to_session(row) if row else None

    def list_sessions(self, query: SessionQuery) -> SessionPage:
        cursor = query.cursor or _END
        params: dict[str, Any] = {
            "agent": query.agent,
            "workspace": query.workspace,
            "parent": query.parent,
            "title": query.title,
            "kind": query.kind,
            "archived": query.archived,
            "ephemeral": query.ephemeral,
            "updated_at": cursor.updated_at,
            "id": cursor.id,
            "limit": query.limit + 1,
        }
        found = list(self._sql.rows(_list_statement(query), params))
        page = tuple(rows.to_session(row, keep_damaged=True) for row in found[: query.limit])
        more = len(found) > query.limit
        return SessionPage(page, Cursor(page[-1].updated_at, page[-1].id) if more else None)

    def list_children(self, parent_id: str) -> tuple[Session, ...]:
        found = self._sql.rows("list_children", {"id": parent_id})
        return tuple(rows.to_session(row, keep_damaged=True) for row in found)

    def find_routed(self, kind: RouteKind, name: str) -> Session | None:
        row = self._sql.first("find_labelled" if kind == "label" else "find_keyed", {"name": name})
        return rows.to_session(row) if row else None

    def load_state(self, session_id: str) -> SessionState:
        row = self._sql.first("get_state", {"id": session_id})
        return SessionState(*row) if row else SessionState()

    def session_ids(self) -> tuple[str, ...]:
        return tuple(row[0] for row in self._sql.rows("all_session_ids", {}))

    # Messages

    def load_line(
        self,
        session_id: str,
        through: str | None,
        turns: int | None,
        back_to_message: str | None,
        keep_damaged: bool,
    ) -> LineSlice:
        end = through or self._end(session_id)
        depth = 0 if back_to_message is None else self._holder_depth(session_id, end, back_to_message) or 0
        params = {"id": end, "session_id": session_id, "depth": depth, "turns": -1 if turns is None else turns}
        path = [rows.to_turn(row) for row in self._sql.rows("load_path", params)]
        path.reverse()
        complete = not path or path[0].parent_turn_id is None
        whole = complete and turns is None and back_to_message is None
        ids = rows.encode([turn.id for turn in path])
        links: dict[str, list[str]] = {turn.id: [] for turn in path}
        for turn_id, message_id in self._sql.rows("load_links_of_turns", {"ids": ids}):
            links.setdefault(turn_id, []).append(message_id)
        wanted = {message_id for held in links.values() for message_id in held}
        messages = self._messages(session_id, wanted, whole=whole, keep_damaged=keep_damaged)
        if not keep_damaged and len(messages) < len(wanted):
            missing = min(wanted - messages.keys())
            raise RowUndecodable("a turn holds a message that is not there", session_id=session_id, message_id=missing)
        return LineSlice(
            tuple(LineTurn(turn, tuple(messages[id_] for id_ in links[turn.id] if id_ in messages)) for turn in path),
            complete,
        )

    def _end(self, session_id: str) -> str | None:
        state = self.load_state(session_id)
        return end_of_line(state.head_turn_id, state.open_turn_id)

    def _holder_depth(self, session_id: str, end: str | None, message_id: str) -> int | None:
        row = self._sql.first("holder_depth", {"message_id": message_id, "session_id": session_id, "id": end})
        return row[0] if row else None

    def load_view(self, session_id: str, turns: int | None, keep_damaged: bool) -> LineSlice | None:
        if self._sql.first("get_state", {"id": session_id}) is None:
            return None

        def load(through: str | None, turns: int | None, back_to: str | None) -> LineSlice:
            return self.load_line(session_id, through, turns, back_to, keep_damaged)

        def holds(message_id: str) -> bool:
            return self._holder_depth(session_id, self._end(session_id), message_id) is not None

        return msgspec.structs.replace(view_line(load, holds, turns), pruned=self.load_pruned(session_id))

    def load_messages(self, session_id: str, keep_damaged: bool) -> tuple[MessageRow, ...]:
        return tuple(self._messages(session_id, None, whole=True, keep_damaged=keep_damaged).values())

    def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        if self._sql.first("find_message", {"id": message_id, "session_id": session_id}) is None:
            return None
        return self._messages(session_id, {message_id}, whole=False, keep_damaged=False)[message_id]

    def find_client_message(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        params = {"session_id": session_id, "client_message_id": client_message_id}
        ids = [row[0] for row in self._sql.rows("find_client_messages", params)]
        messages = self._messages(session_id, set(ids), whole=False, keep_damaged=False)
        return tuple(messages[id_] for id_ in ids)

    def _messages(
        self, session_id: str, wanted: set[str] | None, *, whole: bool, keep_damaged: bool
    ) -> dict[str, MessageRow]:
        """Messages with their parts and tails; by session when most of it is wanted, else one by one."""
        if whole:
            found = self._sql.rows("load_messages", {"id": session_id})
            part_rows = self._sql.rows("load_session_parts", {"id": session_id})
        else:
            ids = rows.encode(list(wanted or ()))
            found = self._sql.rows("load_messages_by_id", {"ids": ids})
            part_rows = self._sql.rows("load_parts_by_message", {"ids": ids})
        parts = _by_message(part_rows, wanted, keep_damaged)
        tails = self._tails(session_id)
        messages: dict[str, MessageRow] = {}
        for row in found:
            if wanted is None or row[0] in wanted:
                message = rows.to_message(row, tuple(parts.get(row[0], ())), keep_damaged)
                messages[message.id] = with_tail(message, tails[message.id]) if message.id in tails else message
        return messages

    def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        found = self._sql.rows("open_calls", {"id": session_id})
        return tuple(OpenCall(row[1], rows.to_part(row, keep_damaged=False)) for row in found)

    def unsettled_sessions(self) -> tuple[str, ...]:
        return tuple(row[0] for row in self._sql.rows("unsettled_sessions", {}))

    def newest_message_at(self, session_id: str) -> int:
        row = self._sql.first("newest_message_at", {"id": session_id})
        return row[0] or 0 if row else 0

    # Streams in flight

    def _tails(self, session_id: str | None) -> Mapping[str, list[JournalEntry]]:
        """Chunks above their mark, by message, of one session or of all."""
        name = "load_marks" if session_id is None else "load_marks_of_session"
        marks = {row[0]: row[2] for row in self._sql.rows(name, {"id": session_id})}
        tails: dict[str, list[JournalEntry]] = {}
        if not marks:
            return tails
        for _, data in self._sql.rows("load_journal", {}):
            for message_id, entries in decode_entries(data).items():
                if message_id in marks:
                    above = [entry for entry in entries if entry.n > marks[message_id]]
                    if above:
                        tails.setdefault(message_id, []).extend(above)
        return tails

    def pending_streams(self, session_id: str | None) -> tuple[PendingStream, ...]:
        pending: list[PendingStream] = []
        for message_id, entries in self._tails(session_id).items():
            ids = rows.encode([message_id])
            found = list(self._sql.rows("load_messages_by_id", {"ids": ids}))
            if found:
                parts = _by_message(self._sql.rows("load_parts_by_message", {"ids": ids}), None, keep_damaged=False)
                message = rows.to_message(found[0], tuple(parts.get(message_id, ())), keep_damaged=False)
                pending.append(PendingStream(message.session_id, message, tuple(entries)))
        return tuple(pending)

    def stream_mark(self, message_id: str) -> int:
        row = self._sql.first("get_mark", {"message_id": message_id})
        if row is None:
            return 0
        last: int = row[0]
        for _, data in self._sql.rows("load_journal", {}):
            for entry in decode_entries(data).get(message_id, ()):
                last = max(last, entry.n)
        return last

    def load_whole(self, session_id: str) -> Whole | None:
        row = self._sql.first("find_session", {"id": session_id})
        if row is None:
            return None
        damaged: list[Damage] = []
        try:
            messages = self.load_messages(session_id, keep_damaged=False)
        except RowUndecodable as error:
            id_ = error.ids.get("part_id") or error.ids.get("message_id")
            damaged.append(Damage(str(error), session_id, str(id_)))
            messages = self.load_messages(session_id, keep_damaged=True)
        return Whole(
            rows.to_session(row),
            messages,
            self.load_tree(session_id),
            self.load_queue(session_id),
            self.seals(session_id),
            self.pending_streams(session_id) if not damaged else (),
            tuple(damaged),
            self.load_pruned(session_id),
        )

    # The tree

    def load_tree(self, session_id: str) -> Tree:
        state = self.load_state(session_id)
        turns = {row[0]: rows.to_turn(row) for row in self._sql.rows("load_turns", {"id": session_id})}
        links: dict[str, list[str]] = {}
        for turn_id, message_id in self._sql.rows("load_links", {"id": session_id}):
            links.setdefault(turn_id, []).append(message_id)
        moves = tuple(rows.to_move(row) for row in self._sql.rows("load_moves", {"id": session_id}))
        held = {turn_id: tuple(ids) for turn_id, ids in links.items()}
        return Tree(state.head_turn_id, state.open_turn_id, turns, held, moves)

    def find_turn(self, turn_id: str) -> Turn | None:
        row = self._sql.first("find_turn", {"id": turn_id})
        return rows.to_turn(row) if row else None

    def load_steps(self, turn_id: str) -> tuple[Step, ...]:
        return tuple(rows.to_step(row) for row in self._sql.rows("load_steps", {"id": turn_id}))

    def load_pruned(self, session_id: str) -> tuple[Pruned, ...]:
        return tuple(rows.to_pruned(row) for row in self._sql.rows("load_pruned", {"id": session_id}))

    def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        waiting = list(self._sql.rows("load_queue", {"id": session_id}))
        messages = self._messages(session_id, {row[0] for row in waiting}, whole=False, keep_damaged=False)
        if len(messages) < len(waiting):
            missing = next(row[0] for row in waiting if row[0] not in messages)
            raise RowUndecodable("a message in the queue is not there", session_id=session_id, message_id=missing)
        return tuple(QueuedMessage(messages[row[0]], row[1], bool(row[2])) for row in waiting)

    def search(self, plan: SearchPlan) -> SearchPage | None:
        return find_hits(self._sql, plan)

    # Kept once

    def find_prompt(self, digest: str) -> str | None:
        row = self._sql.first("find_prompt", {"digest": digest})
        return row[0] if row else None

    def find_blob(self, sha256: str) -> Blob | None:
        row = self._sql.first("find_blob", {"sha256": sha256})
        return Blob(*row) if row else None

    def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        row = self._sql.first("load_project_rules", {"project": project})
        return tuple(rows.decode(row[0], "rules of a project", project=project)) if row else ()

    # Triggers

    def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        params = {"direction": direction, "source": source, "source_id": source_id}
        row = self._sql.first("find_event", params)
        return triggers.to_event(row) if row else None

    def list_events(self, query: EventQuery) -> EventPage:
        name = "list_events"
        # The narrowest first: what else is asked for is looked at row by row.
        for asked, of in ((query.turn_id, "turn"), (query.session_id, "session"), (query.source, "source")):
            if asked is not None:
                name = f"list_events_of_{of}"
                break
        found = [triggers.to_event(row) for row in self._sql.rows(name, triggers.query_params(query))]
        page = tuple(found[: query.limit])
        return EventPage(page, page[-1].seq if len(found) > query.limit else None)

    def open_events(self, session_id: str | None) -> tuple[LedgerEvent, ...]:
        name = "open_events" if session_id is None else "open_events_of_session"
        return tuple(triggers.to_event(row) for row in self._sql.rows(name, {"session_id": session_id}))

    def list_schedules(self) -> tuple[Schedule, ...]:
        return tuple(_readable(triggers.to_schedule, self._sql.rows("list_schedules", {})))

    def list_webhooks(self) -> tuple[Webhook, ...]:
        return tuple(_readable(triggers.to_webhook, self._sql.rows("list_webhooks", {})))

    def seals(self, session_id: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self._sql.rows("load_seals", {"id": session_id})}

    def load_facts(self, stream_id: str) -> tuple[Fact, ...]:
        return tuple(to_fact(row) for row in self._sql.rows("load_facts", {"stream_id": stream_id}))

    def verify(self) -> tuple[Damage, ...]:
        found: list[Damage] = []
        for look in (self._verify_pages, self._verify_references, self._verify_journal, self._verify_triggers):
            try:
                found += look()
            except (sqlite3.DatabaseError, RowUndecodable) as error:
                # One look that the damage itself cuts short must not cost what the others found.
                found.append(Damage(str(error)))
        return tuple(found)

    def _verify_pages(self) -> Iterable[Damage]:
        return [Damage(row[0]) for row in self._connection.execute("PRAGMA integrity_check") if row[0] != "ok"]

    def _verify_references(self) -> Iterable[Damage]:
        return [
            Damage(f"row {rowid} of {table} names a row of {parent} that is not there")
            for table, rowid, parent, _ in self._connection.execute("PRAGMA foreign_key_check")
        ]

    def _verify_journal(self) -> Iterable[Damage]:
        """Every stream in the journal has a mark, and every mark a stream."""
        marks = {row[0] for row in self._sql.rows("load_marks", {})}
        held = {id_ for _, data in self._sql.rows("load_journal", {}) for id_ in decode_entries(data)}
        for message_id in sorted(held - marks):
            yield Damage("the journal holds a stream that has no mark", id=message_id)
        for message_id in sorted(marks - held):
            yield Damage("a mark names a stream that the journal does not hold", id=message_id)

    def _verify_triggers(self) -> Iterable[Damage]:
        """Every schedule and every webhook can be read."""
        for name, read in (("list_schedules", triggers.to_schedule), ("list_webhooks", triggers.to_webhook)):
            for row in self._sql.rows(name, {}):
                try:
                    read(row)
                except RowUndecodable as error:
                    yield Damage(str(error), id=row[0])


def _readable(read: Callable[[tuple[Any, ...]], T], found: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """What can be read. A row that cannot costs itself; ``verify`` names it."""
    for row in found:
        try:
            yield read(row)
        except RowUndecodable as error:
            log.error("%s", error)


def _list_statement(query: SessionQuery) -> str:
    if query.parent is not None:
        return "list_sessions_of_parent"
    if query.agent is not None:
        return "list_sessions_of_agent"
    if query.workspace is not None:
        return "list_sessions_of_workspace"
    if query.archived or query.ephemeral or query.kind != "chat":
        return "list_flagged_sessions"
    return "list_sessions"


def _by_message(
    part_rows: Iterable[tuple[Any, ...]], wanted: set[str] | None, keep_damaged: bool
) -> dict[str, list[PartRow]]:
    parts: dict[str, list[PartRow]] = {}
    for row in part_rows:
        message_id = row[1]
        if wanted is None or message_id in wanted:
            held = parts.setdefault(message_id, [])
            held.append(rows.to_part(row, keep_damaged))
            if row[2] != len(held) - 1:
                # Rows come in the order they were inserted, which is the order of the parts but for rare cases.
                held.sort(key=lambda part: part.index)
    return parts
