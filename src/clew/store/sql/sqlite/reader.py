"""Reading: short functions on a connection that cannot write, run in threads, each seeing one state of the store.

A message whose stream is in flight is read as its stored parts plus the chunks the journal holds above its mark,
in the same snapshot; so a reader in another process sees all that was acknowledged, and nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
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
from clew.store.sql.log import to_fact
from clew.store.sql.losses import load_losses, told
from clew.store.sql.sqlite.connection import Connect, SqliteStatements, connect, is_undecodable, translate
from clew.store.sql.sqlite.messages import MISSING, MessageReader, stand_in
from clew.store.sql.sqlite.search import find_hits
from clew.store.sql.sqlite.verify import verify
from clew.transcript.line import LineTurn, end_of_line
from clew.transcript.message import MessageRow
from clew.transcript.metadata import DAMAGED
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
    """A few threads and a connection for each. ``run`` calls a method of :class:`Reader` in one read transaction.

    All connect at once: a file that is moved away later stays readable, whichever thread is asked. Blocks.
    """

    def __init__(self, path: Path, threads: int = 2, connect: Connect = connect) -> None:
        self._path = path
        self._threads = threads
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        with contextlib.ExitStack() as undo:
            for _ in range(threads):
                connection = connect(path, writer=False)
                undo.callback(connection.close)
                self._idle.put(connection)
            undo.pop_all()
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(threads, thread_name_prefix="clew-reader")

    async def run(self, call: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._executor is None:
            raise StoreClosed("the store is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: self._call(call, *args, **kwargs))

    def _call(self, call: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        connection = self._idle.get()
        try:
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
        finally:
            self._idle.put(connection)

    def close(self) -> None:
        """Wait for reads under way, then let go. Blocks; called off the loop."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
            for _ in range(self._threads):
                self._idle.get().close()


class Reader:
    """The read side of the contract, on one connection inside one read transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sql = SqliteStatements(connection)
        self._messages = MessageReader(self._sql)
        self._ends: dict[str, str | None] = {}

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
        found = list(self._sql.rows("load_path", params))
        found.reverse()
        path = [rows.to_turn(row) for row in found]
        _check_path(session_id, end, path, through_root=turns is None and back_to_message is None)
        complete = not path or path[0].parent_turn_id is None
        whole = complete and turns is None and back_to_message is None
        ids = rows.encode([turn.id for turn in path])
        links: dict[str, list[tuple[str, int]]] = {turn.id: [] for turn in path}
        for turn_id, message_id, position in self._sql.rows("load_links_of_turns", {"ids": ids}):
            links.setdefault(turn_id, []).append((message_id, position))
        wanted = {message_id for held in links.values() for message_id, _ in held}
        messages = self._messages.load(session_id, wanted, whole=whole, keep_damaged=keep_damaged)
        line: list[LineTurn] = []
        for turn, row in zip(path, found, strict=True):
            named = links[turn.id]
            held = [
                messages.get(message_id)
                or stand_in(message_id, session_id, "assistant" if position else "user", turn.created_at, MISSING)
                for message_id, position in named
            ]
            # Positions are in order and none comes twice: as many as there were, the first and the last in place.
            if len(named) != row[11] or (named and (named[0][1], named[-1][1]) != (0, row[11] - 1)):
                held.append(stand_in(turn.id, session_id, "assistant", turn.created_at, LOST))
            lost = None if keep_damaged else next((one for one in held if one.damage is not None), None)
            if lost is not None:
                raise RowUndecodable(
                    f"a turn holds a message that cannot be had: {lost.damage}",
                    session_id=session_id,
                    turn_id=turn.id,
                    message_id=lost.id,
                )
            line.append(LineTurn(turn, tuple(held)))
        return LineSlice(tuple(line), complete)

    def _end(self, session_id: str) -> str | None:
        if session_id in self._ends:
            return self._ends[session_id]
        state = self.load_state(session_id)
        moved = self._sql.first("last_move", {"id": session_id})
        if state.head_turn_id != (moved[0] if moved else None):
            raise RowUndecodable("the session does not point where its head was moved last", session_id=session_id)
        self._ends[session_id] = end = end_of_line(state.head_turn_id, state.open_turn_id)
        return end

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
        return tuple(self._messages.load(session_id, None, whole=True, keep_damaged=keep_damaged).values())

    def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        if self._sql.first("find_message", {"id": message_id, "session_id": session_id}) is None:
            return None
        return self._messages.load(session_id, {message_id}, keep_damaged=True)[message_id]

    def find_client_message(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        params = {"session_id": session_id, "client_message_id": client_message_id}
        ids = [row[0] for row in self._sql.rows("find_client_messages", params)]
        messages = self._messages.load(session_id, set(ids), keep_damaged=True)
        return tuple(messages[id_] for id_ in ids if id_ in messages)

    def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        found = self._sql.rows("open_calls", {"id": session_id})
        calls = (OpenCall(row[1], rows.to_part(row, keep_damaged=True)) for row in found)
        return tuple(call for call in calls if call.part.tool_call_id is not None)

    def unsettled_sessions(self) -> tuple[str, ...]:
        return tuple(row[0] for row in self._sql.rows("unsettled_sessions", {}))

    def newest_message_at(self, session_id: str) -> int:
        row = self._sql.first("newest_message_at", {"id": session_id})
        return row[0] or 0 if row else 0

    # Streams in flight

    def pending_streams(self, session_id: str | None) -> tuple[PendingStream, ...]:
        return self._messages.pending(session_id)

    def stream_mark(self, message_id: str) -> int:
        tail = self._messages.tails(None).get(message_id)
        if tail is not None:
            return tail.last
        row = self._sql.first("get_mark", {"message_id": message_id})
        return row[0] if row else 0

    def load_whole(self, session_id: str) -> Whole | None:
        row = self._sql.first("find_session", {"id": session_id})
        if row is None:
            return None
        damaged: list[Damage] = []
        try:
            messages = self.load_messages(session_id, keep_damaged=False)
        except RowUndecodable as error:
            if "part_id" in error.ids:
                damaged.append(Damage(str(error), session_id, str(error.ids["part_id"])))
            messages = self.load_messages(session_id, keep_damaged=True)
            damaged += [Damage(row.damage, session_id, row.id) for row in messages if row.damage is not None]
            damaged += [
                Damage("its metadata is not readable", session_id, row.id)
                for row in messages
                if row.metadata.get(DAMAGED) is True
            ]
        return Whole(
            rows.to_session(row),
            messages,
            self.load_tree(session_id),
            self.load_queue(session_id),
            self.seals(session_id),
            self.pending_streams(session_id),
            tuple(damaged),
            self.load_pruned(session_id),
        )

    # The tree

    def load_tree(self, session_id: str) -> Tree:
        state = self.load_state(session_id)
        found = list(self._sql.rows("load_turns", {"id": session_id}))
        turns = {row[0]: rows.to_turn(row) for row in found}
        links: dict[str, list[str]] = {}
        for turn_id, message_id in self._sql.rows("load_links", {"id": session_id}):
            links.setdefault(turn_id, []).append(message_id)
        for row in found:
            if len(links.get(row[0], ())) != row[11]:
                raise RowUndecodable(LOST, session_id=session_id, turn_id=row[0])
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
        messages = self._messages.load(session_id, {row[0] for row in waiting}, keep_damaged=True)
        return tuple(
            QueuedMessage(
                messages.get(row[0]) or stand_in(row[0], session_id, "user", row[1], MISSING), row[1], bool(row[2])
            )
            for row in waiting
        )

    def search(self, plan: SearchPlan) -> SearchPage | None:
        page = find_hits(self._sql, plan)
        if page is None:
            return None
        held: dict[str, set[str]] = {}
        for hit in page.hits:
            held.setdefault(hit.session_id, set()).add(hit.message_id)
        found = [self._messages.load(id_, wanted, keep_damaged=True) for id_, wanted in held.items()]
        damaged = {row.id for rows_ in found for row in rows_.values() if row.damage is not None}
        hits = (
            msgspec.structs.replace(hit, snippet=f"[damaged] {hit.snippet}") if hit.message_id in damaged else hit
            for hit in page.hits
        )
        return msgspec.structs.replace(page, hits=tuple(hits))

    # Kept once

    def find_prompt(self, digest: str) -> str | None:
        row = self._sql.first("find_prompt", {"digest": digest})
        if row is not None and sha256(row[0].encode("utf-8", "surrogatepass")).hexdigest() != digest:
            raise RowUndecodable("a system prompt is damaged: it is not what its digest says", digest=digest)
        return row[0] if row else None

    def find_blob(self, digest: str) -> Blob | None:
        row = self._sql.first("find_blob", {"sha256": digest})
        if row is not None and sha256(row[2]).hexdigest() != digest:
            raise RowUndecodable("a blob is damaged: it is not what its digest says", sha256=digest)
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
        return tuple(verify(self._connection))

    def losses(self) -> tuple[Damage, ...]:
        return tuple(told(loss) for loss in load_losses(self._sql) if loss.accepted_at is None)

    def counted(self) -> tuple[str, int]:
        """The store's own id, and the number of its newest commit."""
        mark, commits = self._sql.first("get_store_mark", {}), self._sql.first("get_commits", {})
        if mark is None or commits is None:
            raise RowUndecodable("the row that counts the commits of the store is not there")
        return mark[0], commits[0]


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


LOST: Final = "this turn does not hold the messages it held: some are missing, or out of place"


def _check_path(session_id: str, end: str | None, path: Sequence[Turn], *, through_root: bool) -> None:
    """A line that has lost a turn is not shown as if it were whole."""
    ids: dict[str, object] = {"session_id": session_id}
    if end is not None and not path:
        raise RowUndecodable("the turn this session points at is not there", turn_id=end, **ids)
    for above, turn in pairwise(path):
        if turn.depth != above.depth + 1:
            raise RowUndecodable("a turn is not where it belongs", turn_id=turn.id, **ids)
    if path and (path[0].depth == 0) != (path[0].parent_turn_id is None):
        raise RowUndecodable("a turn is not where it belongs", turn_id=path[0].id, **ids)
    if path and through_root and path[0].parent_turn_id is not None:
        raise RowUndecodable("the turn above this one is not there", turn_id=path[0].id, **ids)
