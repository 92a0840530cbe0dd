"""The memory store: one value per session, nothing on disk.

It is the contract in its plainest form, and the ground the file stores build on: a session's value can be loaded
and let go of alone, and a unit touches exactly one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clew.clock import Clock, SystemClock
from clew.errors import InternalError, NotSupported, StoreClosed
from clew.ids import Mint
from clew.store import unit as u
from clew.store.base import (
    Blob,
    Capabilities,
    Cursor,
    Damage,
    LineSlice,
    OpenCall,
    PendingStream,
    QueuedMessage,
    Rebuilt,
    SearchPage,
    SearchQuery,
    SessionPage,
    SessionQuery,
    Whole,
)
from clew.store.copies import plan_copy
from clew.store.facts import PROMPT_STREAM, Fact, facts_of
from clew.store.guards import refusal
from clew.store.lines import view_line
from clew.store.memory_present import ValuePresent
from clew.store.session_value import Change, SessionValue
from clew.transcript.line import LineTurn, end_of_line, path_to
from clew.transcript.message import MessageRow
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Step, Tree, Turn
from clew.triggers.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.routing import RouteKind
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

__all__ = ["MemoryStore"]


EventKey = tuple[Direction, str, str]
"""What makes an event of the ledger one of its kind: direction, source and source id."""


class MemoryStore:
    """The contract held in dictionaries. What it acknowledges lives as long as the process."""

    def __init__(self, *, event_log: bool = False, clock: Clock | None = None) -> None:
        self._mint = Mint()
        self._clock = clock or SystemClock()
        self._log: dict[str, tuple[Fact, ...]] | None = {} if event_log else None
        self._values: dict[str, SessionValue] = {}
        self._prompts: dict[str, str] = {}
        self._blobs: dict[str, Blob] = {}
        self._project_rules: dict[str, tuple[dict[str, Any], ...]] = {}
        self._events: dict[EventKey, LedgerEvent] = {}
        self._schedules: dict[str, Schedule] = {}
        self._webhooks: dict[str, Webhook] = {}
        self._closed = False

    @property
    def url(self) -> str:
        return "memory:"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(chunk_durable=True, search=False, many_processes=False)

    # Writing

    def submit(self, unit: u.Unit) -> asyncio.Future[u.Outcome]:
        future: asyncio.Future[u.Outcome] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._commit(unit))
        except Exception as error:
            future.set_exception(error)
        return future

    async def commit(self, unit: u.Unit) -> u.Outcome:
        return self._commit(unit)

    def _commit(self, unit: u.Unit) -> u.Outcome:
        if self._closed:
            raise StoreClosed("the store is closed")
        outcome = self._apply(unit)
        return u.Committed() if isinstance(outcome, Change) else outcome

    def _apply(self, unit: u.Unit) -> Change | u.Refused:
        """Carry out a unit; what it changed, or why it must not be."""
        value = self._values.get(unit.session_id)
        refused = refusal(
            unit,
            value.state["state"] if value else None,
            lambda id_: value is not None and id_ in value.queue,
            lambda guard: (guard.direction, guard.source, guard.source_id) in self._events,
        )
        if refused is not None:
            return refused
        change = Change()
        try:
            for write in unit.writes:
                shared = _SHARED.get(type(write))
                if shared is not None:
                    shared(self, change, unit.session_id, write)
                else:
                    self._values[unit.session_id].apply(change, write)
            if self._log is not None:
                self._tell(change, unit, self._log)
        except KeyError as error:
            change.undo()
            raise InternalError(f"a write names what is not there: {error}", session_id=unit.session_id) from error
        except BaseException:
            change.undo()
            raise
        return change

    def _tell(self, change: Change, unit: u.Unit, log: dict[str, tuple[Fact, ...]]) -> None:
        """Add what the unit has settled to the log, as part of it."""
        for told in facts_of(unit, ValuePresent(self._values, self._blobs)):
            held = log.get(told.stream_id, ())
            if told.once and held:
                continue
            seq = held[-1].seq + 1 if held else 1
            kept = () if told.type == "session.deleted" else held
            fact = Fact(told.stream_id, seq, self._clock.now_ms(), told.type, told.data)
            change.put(log, told.stream_id, (*kept, fact))

    def _insert_session(self, change: Change, session_id: str, write: u.InsertSession) -> None:
        change.put(self._values, session_id, SessionValue(write.session))

    def _delete_session(self, change: Change, session_id: str, write: u.DeleteSession) -> None:
        named = self._values[session_id].blobs
        change.drop(self._values, session_id)
        for key in [key for key, event in self._events.items() if event.session_id == session_id]:
            change.drop(self._events, key)
        for id_ in [id_ for id_, one in self._schedules.items() if one.routing.session_id == session_id]:
            change.drop(self._schedules, id_)
        for name in [name for name, one in self._webhooks.items() if one.routing.session_id == session_id]:
            change.drop(self._webhooks, name)
        if self._may_collect():
            for sha256 in named:
                if not self._is_named(sha256):
                    change.drop(self._blobs, sha256)
            for digest in self._prompts.keys() - self._named_prompts():
                change.drop(self._prompts, digest)
                if self._log is not None and f"{PROMPT_STREAM}{digest}" in self._log:
                    change.drop(self._log, f"{PROMPT_STREAM}{digest}")

    def _may_collect(self) -> bool:
        """Whether it is known of everything that is there what names what."""
        return True

    def _is_named(self, sha256: str) -> bool:
        """Whether a session names this blob."""
        return any(sha256 in value.blobs for value in self._values.values())

    def _named_prompts(self) -> set[str]:
        """The prompts that sessions name."""
        return {digest for value in self._values.values() for digest in value.prompts()}

    def _copy_line(self, change: Change, session_id: str, write: u.CopyLine) -> None:
        source = self._values[write.source_session_id]
        self._values[session_id].copy_line(change, source, plan_copy(session_id, write), self._mint.part)

    def _put_prompt(self, change: Change, session_id: str, write: u.PutPrompt) -> None:
        if write.digest not in self._prompts:
            change.put(self._prompts, write.digest, write.body)

    def _put_blob(self, change: Change, session_id: str, write: u.PutBlob) -> None:
        if write.sha256 not in self._blobs:
            change.put(self._blobs, write.sha256, Blob(write.sha256, write.media_type, write.data))
        change.put(self._values[session_id].blobs, write.sha256, None)

    def _link_blob(self, change: Change, session_id: str, write: u.LinkBlob) -> None:
        if write.sha256 not in self._blobs:
            raise InternalError("a link names a blob that is not there", sha256=write.sha256)
        change.put(self._values[session_id].blobs, write.sha256, None)

    def _put_project_rules(self, change: Change, session_id: str, write: u.PutProjectRules) -> None:
        change.put(self._project_rules, write.project, write.rules)

    def _add_event(self, change: Change, session_id: str, write: u.AddEvent) -> None:
        event = write.event
        key: EventKey = (event.direction, event.source, event.source_id)
        if key in self._events or event.session_id != session_id:
            raise InternalError("an event is in the ledger already, or of another session", event_id=event.id)
        seq = max((held.seq for held in self._events.values()), default=0) + 1
        change.put(self._events, key, msgspec.structs.replace(event, seq=seq))

    def _put_schedule(self, change: Change, session_id: str, write: u.PutSchedule) -> None:
        self._must_be_there(write.schedule.routing.session_id)
        change.put(self._schedules, write.schedule.id, write.schedule)

    def _drop_schedule(self, change: Change, session_id: str, write: u.DropSchedule) -> None:
        change.drop(self._schedules, write.schedule_id)

    def _put_webhook(self, change: Change, session_id: str, write: u.PutWebhook) -> None:
        self._must_be_there(write.webhook.routing.session_id)
        change.put(self._webhooks, write.webhook.name, write.webhook)

    def _drop_webhook(self, change: Change, session_id: str, write: u.DropWebhook) -> None:
        change.drop(self._webhooks, write.name)

    def _is_there(self, session_id: str) -> bool:
        return session_id in self._values

    def _must_be_there(self, session_id: str | None) -> None:
        if session_id is not None and not self._is_there(session_id):
            raise InternalError("a write names a session that is not there", session_id=session_id)

    # Reading

    async def _find(self, session_id: str) -> SessionValue | None:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._values.get(session_id)

    def _sessions(self) -> Iterable[Session]:
        return (value.session for value in self._values.values())

    async def find_session(self, session_id: str) -> Session | None:
        value = await self._find(session_id)
        return value.session if value else None

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        wanted = sorted(
            (session for session in self._sessions() if _matches(session, query)),
            key=lambda session: (session.updated_at, session.id),
            reverse=True,
        )
        page = tuple(wanted[: query.limit])
        more = len(wanted) > query.limit
        return SessionPage(page, Cursor(page[-1].updated_at, page[-1].id) if more else None)

    async def list_children(self, parent_id: str) -> tuple[Session, ...]:
        children = (session for session in self._sessions() if session.parent_id == parent_id)
        return tuple(sorted(children, key=lambda session: (session.created_at, session.id)))

    async def find_routed(self, kind: RouteKind, name: str) -> Session | None:
        found = [session for session in self._sessions() if session.metadata.get(kind) == name]
        named = [session for session in found if session.archived_at is None and session.kind == "chat"]
        return min(named, key=lambda session: (session.created_at, session.id), default=None)

    async def load_state(self, session_id: str) -> SessionState:
        value = await self._find(session_id)
        return value.state["state"] if value else SessionState()

    async def load_line(
        self,
        session_id: str,
        *,
        through: str | None = None,
        turns: int | None = None,
        back_to_message: str | None = None,
        keep_damaged: bool = False,
    ) -> LineSlice:
        value = await self._find(session_id)
        return LineSlice((), complete=True) if value is None else self._line(value, through, turns, back_to_message)

    def _line(
        self, value: SessionValue, through: str | None, turns: int | None, back_to_message: str | None
    ) -> LineSlice:
        state = value.state["state"]
        path = path_to(value.turns, through or end_of_line(state.head_turn_id, state.open_turn_id))
        start = 0
        if back_to_message is not None:
            holders = [place for place, t in enumerate(path) if back_to_message in value.links.get(t.id, ())]
            start = holders[0] if holders else 0
        if turns is not None:
            start = max(start, len(path) - turns)
        kept = tuple(
            LineTurn(turn, tuple(value.message(message_id) for message_id in value.links.get(turn.id, ())))
            for turn in path[start:]
        )
        return LineSlice(kept, complete=start == 0)

    async def load_view(
        self, session_id: str, *, turns: int | None = None, keep_damaged: bool = False
    ) -> LineSlice | None:
        value = await self._find(session_id)
        if value is None:
            return None
        state = value.state["state"]
        path = path_to(value.turns, end_of_line(state.head_turn_id, state.open_turn_id))
        line = view_line(
            lambda through, turns, back_to: self._line(value, through, turns, back_to),
            lambda message_id: any(message_id in value.links.get(turn.id, ()) for turn in path),
            turns,
        )
        return msgspec.structs.replace(line, pruned=value.all_pruned())

    async def load_messages(self, session_id: str, *, keep_damaged: bool = False) -> tuple[MessageRow, ...]:
        return _messages(await self._find(session_id))

    async def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        value = await self._find(session_id)
        return value.message(message_id) if value and message_id in value.messages else None

    async def find_client_message(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        rows = await self.load_messages(session_id)
        return tuple(row for row in rows if row.metadata.get("client_message_id") == client_message_id)

    async def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        value = await self._find(session_id)
        return tuple(
            OpenCall(row.id, part)
            for row in sorted(value.messages.values() if value else (), key=lambda row: row.id)
            for part in row.parts
            if part.tool_state is not None and not part.tool_state.startswith("output-")
        )

    async def unsettled_sessions(self) -> tuple[str, ...]:
        found = [id_ for id_ in sorted(self._values) if (await self.load_state(id_)).open_turn_id is not None]
        return (*found, *[id_ for id_ in sorted(self._values) if id_ not in found and await self.open_calls(id_)])

    async def newest_message_at(self, session_id: str) -> int:
        value = await self._find(session_id)
        return max((row.created_at for row in value.messages.values()), default=0) if value else 0

    async def load_tree(self, session_id: str) -> Tree:
        value = await self._find(session_id)
        return value.tree() if value else Tree(None, None, {}, {}, ())

    async def find_turn(self, turn_id: str) -> Turn | None:
        return next((value.turns[turn_id] for value in self._values.values() if turn_id in value.turns), None)

    async def load_steps(self, turn_id: str) -> tuple[Step, ...]:
        for value in self._values.values():
            if turn_id in value.steps:
                return value.steps[turn_id]
        return ()

    async def load_pruned(self, session_id: str) -> tuple[Pruned, ...]:
        value = await self._find(session_id)
        return value.all_pruned() if value else ()

    async def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        return _queue(await self._find(session_id))

    async def find_prompt(self, digest: str) -> str | None:
        return self._prompts.get(digest)

    async def find_blob(self, sha256: str) -> Blob | None:
        return self._blobs.get(sha256)

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        return self._project_rules.get(project, ())

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        found = self._events.get((direction, source, source_id))
        return await self._with_turn(found) if found is not None else None

    async def list_events(self, query: EventQuery) -> EventPage:
        held = sorted([await self._with_turn(event) for event in self._events.values()], key=lambda one: -one.seq)
        wanted = [event for event in held if _is_asked_for(event, query)]
        page = tuple(wanted[: query.limit])
        return EventPage(page, page[-1].seq if len(wanted) > query.limit else None)

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        answered = {(event.source, event.source_id) for event in self._events.values() if event.direction == "out"}
        found = [
            await self._with_turn(event)
            for event in self._events.values()
            if event.direction == "in"
            and (event.source, event.source_id) not in answered
            and session_id in (None, event.session_id)
        ]
        return tuple(sorted(found, key=lambda event: event.seq))

    async def _with_turn(self, event: LedgerEvent) -> LedgerEvent:
        value = None if event.turn_id is not None else await self._find(event.session_id)
        if value is None:
            return event
        holders = [turn_id for turn_id, held in value.links.items() if event.message_id in held]
        return msgspec.structs.replace(event, turn_id=min(holders, default=None))

    async def list_schedules(self) -> tuple[Schedule, ...]:
        return tuple(self._schedules[id_] for id_ in sorted(self._schedules))

    async def list_webhooks(self) -> tuple[Webhook, ...]:
        return tuple(self._webhooks[name] for name in sorted(self._webhooks))

    async def pending_streams(self, session_id: str | None = None) -> tuple[PendingStream, ...]:
        if session_id is not None:
            return _pending(session_id, await self._find(session_id))
        return tuple(stream for id_, value in self._values.items() for stream in _pending(id_, value))

    async def stream_mark(self, message_id: str) -> int:
        for value in self._values.values():
            if message_id in value.messages:
                held = value.journal.get(message_id, ())
                return max(value.marks.get(message_id, 0), held[-1].n if held else 0)
        return 0

    async def load_whole(self, session_id: str) -> Whole | None:
        value = await self._find(session_id)
        if value is None:
            return None
        return Whole(
            value.session,
            _messages(value),
            value.tree(),
            _queue(value),
            dict(value.seals),
            _pending(session_id, value),
            pruned=value.all_pruned(),
        )

    async def session_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._values))

    async def seals(self, session_id: str) -> dict[str, str]:
        value = await self._find(session_id)
        return dict(value.seals) if value else {}

    async def search(self, query: SearchQuery) -> SearchPage:
        raise NotSupported(f"a {self.url.partition(':')[0]}: store cannot search; a sqlite: one can (see clew convert)")

    async def rebuild_search(self) -> None:
        raise NotSupported(f"a {self.url.partition(':')[0]}: store cannot search; a sqlite: one can (see clew convert)")

    async def verify(self) -> Sequence[Damage]:
        return ()

    async def losses(self) -> tuple[Damage, ...]:
        return ()

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        return False

    async def load_facts(self, stream_id: str) -> tuple[Fact, ...]:
        return self._log.get(stream_id, ()) if self._log is not None else ()

    async def rebuild(self, target: Path) -> Rebuilt:
        raise NotSupported(
            f"a {self.url.partition(':')[0]}: store keeps no event log to rebuild from; a sqlite: one does"
        )

    async def backup(self, target: Path) -> None:
        raise NotSupported("a memory store has nothing to back up; open a sqlite: store to keep sessions")

    async def release(self, session_id: str) -> None:
        pass

    async def close(self) -> None:
        self._closed = True


def _messages(value: SessionValue | None) -> tuple[MessageRow, ...]:
    rows: Iterable[MessageRow] = (value.message(id_) for id_ in value.messages) if value else ()
    return tuple(sorted(rows, key=lambda row: (row.created_at, row.id)))


def _queue(value: SessionValue | None) -> tuple[QueuedMessage, ...]:
    if value is None:
        return ()
    waiting = sorted(value.queue.values(), key=lambda row: (not row.interrupt, row.queued_at, row.message_id))
    return tuple(QueuedMessage(value.message(w.message_id), w.queued_at, w.interrupt) for w in waiting)


def _pending(session_id: str, value: SessionValue | None) -> tuple[PendingStream, ...]:
    if value is None:
        return ()
    return tuple(
        PendingStream(session_id, value.messages[message_id], entries) for message_id, entries in value.journal.items()
    )


def _matches(session: Session, query: SessionQuery) -> bool:
    if session.archived_at is not None and not query.archived:
        return False
    if session.ephemeral and not query.ephemeral:
        return False
    if query.kind != "any" and session.kind != query.kind:
        return False
    if query.title is not None and query.title.casefold() not in (session.title or "").casefold():
        return False
    wanted = (
        (query.agent, session.agent),
        (query.workspace, session.workspace_root),
        (query.parent, session.parent_id),
    )
    if any(value is not None and value != actual for value, actual in wanted):
        return False
    cursor = query.cursor
    return cursor is None or (session.updated_at, session.id) < (cursor.updated_at, cursor.id)


def _is_asked_for(event: LedgerEvent, query: EventQuery) -> bool:
    wanted = (
        (query.session_id, event.session_id),
        (query.source, event.source),
        (query.turn_id, event.turn_id),
        (query.direction, event.direction),
    )
    before = query.before is None or event.seq < query.before
    return before and not any(value is not None and value != actual for value, actual in wanted)


_SHARED: dict[type, Callable[[MemoryStore, Change, str, Any], None]] = {
    u.InsertSession: MemoryStore._insert_session,
    u.DeleteSession: MemoryStore._delete_session,
    u.CopyLine: MemoryStore._copy_line,
    u.PutPrompt: MemoryStore._put_prompt,
    u.PutBlob: MemoryStore._put_blob,
    u.LinkBlob: MemoryStore._link_blob,
    u.PutProjectRules: MemoryStore._put_project_rules,
    u.AddEvent: MemoryStore._add_event,
    u.PutSchedule: MemoryStore._put_schedule,
    u.DropSchedule: MemoryStore._drop_schedule,
    u.PutWebhook: MemoryStore._put_webhook,
    u.DropWebhook: MemoryStore._drop_webhook,
}
"""Writes that reach beyond one session's value."""
