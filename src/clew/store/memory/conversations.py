"""Conversations of sessions that are held as values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from clew.store.base import (
    Blob,
    Cursor,
    LineSlice,
    Moment,
    OpenCall,
    PendingStream,
    QueuedMessage,
    SessionPage,
    SessionQuery,
)
from clew.store.lines import view_line
from clew.store.memory.history_pages import MemoryHistoryPages
from clew.store.memory.paths import MemoryPaths
from clew.store.memory.replicas import MemoryReplicas
from clew.store.memory.session_value import SessionValue
from clew.store.memory.tables import MemoryTables
from clew.store.tail import StreamTail
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Step, Tree, Turn

__all__ = ["MemoryConversations", "MemoryMoment"]

T = TypeVar("T")


class MemoryConversations(MemoryTables):
    """See :class:`clew.store.base.Conversations` for what each method promises."""

    async def find_session(self, session_id: str) -> Session | None:
        value = await self._find(session_id)
        return value.session if value else None

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        await self._list_all()
        wanted = sorted(
            (session for session in self._sessions() if _matches(session, query)),
            key=lambda session: (session.updated_at, session.id),
            reverse=True,
        )
        page = tuple(wanted[: query.limit])
        more = len(wanted) > query.limit
        return SessionPage(page, Cursor(page[-1].updated_at, page[-1].id) if more else None)

    async def list_children(self, parent_id: str) -> tuple[Session, ...]:
        await self._list_all()
        children = (session for session in self._sessions() if session.parent_id == parent_id)
        return tuple(sorted(children, key=lambda session: (session.created_at, session.id)))

    async def load_state(self, session_id: str) -> SessionState:
        return (await self._read(session_id)).state["state"]

    async def load_line(
        self,
        session_id: str,
        *,
        through: str | None = None,
        turns: int | None = None,
        back_to_message: str | None = None,
        keep_damaged: bool = False,
        viewed: bool = False,
    ) -> LineSlice:
        return (await self._read(session_id)).line(through, turns, back_to_message)

    async def find_view(
        self,
        session_id: str,
        *,
        turns: int | None = None,
        keep_damaged: bool = False,
        kept: bool = False,
        near: bool = False,
    ) -> LineSlice | None:
        value = await self._find(session_id)
        if value is None:
            return None
        path = value.path()
        held = {message_id for turn in path for message_id in value.links.get(turn.id, ())}
        line = view_line(value.line, held.__contains__, path[-1].compaction_turn_id if path else None, turns)
        return replace(line, pruned=value.all_pruned())

    async def load_messages(self, session_id: str, *, keep_damaged: bool = False) -> tuple[MessageRow, ...]:
        return (await self._read(session_id)).all_messages()

    async def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        value = await self._read(session_id)
        return value.message(message_id) if message_id in value.messages else None

    async def load_client_messages(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        rows = await self.load_messages(session_id)
        found = (row for row in rows if row.role != "assistant")
        return tuple(row for row in found if row.client_message_id == client_message_id)

    async def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        return (await self._read(session_id)).open_calls()

    async def unsettled_sessions(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        await self._bring_unsettled()
        held = sorted((id_, value) for id_, value in self._values.items() if among is None or id_ in among)
        states = {id_: value.state["state"] for id_, value in held}
        taken = {id_ for id_, state in states.items() if state.open_turn_id is not None or state.runner is not None}
        found = [id_ for id_, value in held if id_ in taken or value.queue]
        return (*found, *(id_ for id_, value in held if id_ not in found and value.open_calls()))

    async def newest_message_at(self, session_id: str) -> int:
        return max((row.created_at for row in (await self._read(session_id)).messages.values()), default=0)

    async def load_tree(self, session_id: str) -> Tree:
        return (await self._read(session_id)).tree()

    async def find_turn(self, turn_id: str) -> Turn | None:
        value = await self._holder(turn_id)
        return value.turns[turn_id] if value else None

    async def load_steps(self, turn_id: str) -> tuple[Step, ...]:
        value = await self._holder(turn_id)
        return value.steps.get(turn_id, ()) if value else ()

    async def _holder(self, turn_id: str) -> SessionValue | None:
        """The session that a turn belongs to."""
        return next((value for value in self._values.values() if turn_id in value.turns), None)

    async def load_calls(self, session_id: str | None) -> tuple[ModelCall, ...]:
        if session_id is not None:
            return (await self._read(session_id)).all_calls()
        gone = (call for calls in self._shared.calls.values() for call in calls)
        return tuple(sorted(gone, key=lambda call: (call.asked_at, call.id)))

    async def open_model_calls(self, session_id: str | None = None) -> tuple[ModelCall, ...]:
        if session_id is not None:
            # Asked before every turn: what other sessions have spent must not make that longer.
            return tuple(call for call in (await self._read(session_id)).all_calls() if call.is_open)
        await self._bring_unsettled()
        calls = (call for value in self._values.values() for call in value.calls.values())
        found = (call for call in calls if call.is_open)
        return tuple(sorted(found, key=lambda call: (call.asked_at, call.id)))

    async def load_pruned(self, session_id: str, messages: Collection[str] | None = None) -> tuple[Pruned, ...]:
        pruned = (await self._read(session_id)).all_pruned()
        return pruned if messages is None else tuple(one for one in pruned if one.message_id in messages)

    async def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        return (await self._read(session_id)).waiting()

    async def find_prompt(self, digest: str) -> str | None:
        return self._shared.prompts.get(digest)

    async def find_blob(self, sha256: str, owner: str | None = None) -> Blob | None:
        blob = self._shared.blobs.get(sha256)
        return blob if owner is None or self._names_blob(owner, sha256) else None

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        return self._shared.rules.get(project, ())

    async def list_projects(self) -> tuple[str, ...]:
        return tuple(sorted(self._shared.rules))

    async def pending_streams(self, session_id: str | None = None) -> tuple[PendingStream, ...]:
        if session_id is not None:
            return (await self._read(session_id)).pending()
        await self._bring_unsettled()
        return tuple(stream for value in self._values.values() for stream in value.pending())

    async def load_tail(self, session_id: str, message_id: str) -> StreamTail:
        value = await self._read(session_id)
        entries = value.journal.get(message_id, ())
        mark = value.marks.get(message_id)
        return StreamTail(entries[0].n - 1 if entries else mark, entries, entries[-1].n if entries else mark or 0)


class MemoryMoment(MemoryConversations, MemoryHistoryPages, MemoryPaths, MemoryReplicas):
    """See :class:`clew.store.base.Moment`."""

    async def at_once(
        self,
        session_id: str,
        ask: Callable[[Moment], Coroutine[Any, Any, T]],
        *,
        hot: bool = False,
        again: str | None = None,
    ) -> T:
        """See :meth:`clew.store.base.Moment.at_once`."""
        value = await self._find(session_id)
        # Reads of memory do not await, so that no write happens in between.
        held = MemoryMoment()
        held._values = {} if value is None else {session_id: value}
        held._shared = self._shared
        return await ask(held)

    async def seals(self, session_id: str) -> dict[str, str]:
        return dict((await self._read(session_id)).seals)


def _matches(session: Session, query: SessionQuery) -> bool:
    cursor = query.cursor
    return (
        (query.archived or session.archived_at is None)
        and (query.ephemeral or not session.ephemeral)
        and (session.pinned or not query.pinned)
        and query.kind in ("any", session.kind)
        and query.agent in (None, session.agent)
        and query.workspace in (None, session.workspace_root)
        and query.parent in (None, session.parent_id)
        and query.owner in (None, session.owner)
        and (query.title is None or query.title.casefold() in (session.title or "").casefold())
        and (cursor is None or (session.updated_at, session.id) < (cursor.updated_at, cursor.id))
    )
