"""The memory store: one value per session, nothing on disk.

It is the contract in its plainest form, and the ground the file stores build on: a session's value can be loaded
and let go of alone, and a unit touches exactly one. Every change goes through a :class:`_Change`, which remembers
how to undo it, so a unit that fails half-way leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from clew.errors import InternalError, NotSupported, StoreClosed
from clew.store import unit as u
from clew.store.base import (
    Blob,
    Capabilities,
    Cursor,
    Damage,
    LineSlice,
    PendingStream,
    QueuedMessage,
    SessionPage,
    SessionQuery,
)
from clew.store.guards import refusal
from clew.store.tail import with_tail
from clew.transcript.line import LineTurn, end_of_line, path_to
from clew.transcript.message import MessageRow
from clew.transcript.rollup import booked_message, booked_session, merged
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import HeadMove, Step, Tree, Turn, placed
from clew.transcript.turn_state import OPEN, check_transition

__all__ = ["MemoryStore", "SessionValue"]

K = TypeVar("K")
V = TypeVar("V")


class SessionValue:
    """Everything one session is made of."""

    def __init__(self, session: Session) -> None:
        self.row: dict[str, Session] = {"session": session}
        self.state: dict[str, SessionState] = {"state": SessionState()}
        self.messages: dict[str, MessageRow] = {}
        self.turns: dict[str, Turn] = {}
        self.links: dict[str, tuple[str, ...]] = {}
        self.moves: dict[int, HeadMove] = {}
        self.steps: dict[str, tuple[Step, ...]] = {}
        self.queue: dict[str, u.Enqueue] = {}
        self.journal: dict[str, tuple[u.JournalEntry, ...]] = {}
        self.marks: dict[str, int] = {}
        self.seals: dict[str, str] = {}
        self.blobs: dict[str, None] = {}

    @property
    def session(self) -> Session:
        return msgspec.structs.replace(self.row["session"], head_turn_id=self.state["state"].head_turn_id)

    def message(self, message_id: str) -> MessageRow:
        """The message with the tail of its stream."""
        return with_tail(self.messages[message_id], self.journal.get(message_id, ()))

    def tree(self) -> Tree:
        state = self.state["state"]
        moves = tuple(self.moves[seq] for seq in sorted(self.moves))
        return Tree(state.head_turn_id, state.open_turn_id, dict(self.turns), dict(self.links), moves)


class _Change:
    """The writes of one unit, each with the way back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.__delitem__(key))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        if key in table:
            old = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, old))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


class MemoryStore:
    """The contract held in dictionaries. What it acknowledges lives as long as the process."""

    def __init__(self) -> None:
        self._values: dict[str, SessionValue] = {}
        self._prompts: dict[str, str] = {}
        self._blobs: dict[str, Blob] = {}
        self._project_rules: dict[str, tuple[dict[str, Any], ...]] = {}
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
        value = self._values.get(unit.session_id)
        refused = refusal(
            unit, value.state["state"] if value else None, lambda id_: value is not None and id_ in value.queue
        )
        if refused is not None:
            return refused
        change = _Change()
        try:
            for write in unit.writes:
                _APPLY[type(write)](self, change, unit.session_id, write)
        except BaseException:
            change.undo()
            raise
        return u.Committed()

    def _value(self, session_id: str) -> SessionValue:
        return self._values[session_id]

    def _insert_session(self, change: _Change, session_id: str, write: u.InsertSession) -> None:
        change.put(self._values, session_id, SessionValue(write.session))

    def _patch_session(self, change: _Change, session_id: str, write: u.PatchSession) -> None:
        value = self._value(session_id)
        row = value.row["session"]
        changes: dict[str, Any] = {"metadata": merged(row.metadata, write.metadata, write.drop)}
        if write.model is not None:
            changes["model"] = write.model
        if write.permissions is not None:
            changes["permissions"] = list(write.permissions)
        if write.archived_at is not msgspec.UNSET:
            changes["archived_at"] = write.archived_at
        if write.updated_at is not None:
            changes["updated_at"] = max(row.updated_at, write.updated_at)
        change.put(value.row, "session", msgspec.structs.replace(row, **changes))

    def _delete_session(self, change: _Change, session_id: str, write: u.DeleteSession) -> None:
        named = self._value(session_id).blobs
        change.drop(self._values, session_id)
        for sha256 in named:
            if not any(sha256 in other.blobs for other in self._values.values()):
                change.drop(self._blobs, sha256)

    def _insert_message(self, change: _Change, session_id: str, write: u.InsertMessage) -> None:
        messages = self._value(session_id).messages
        if write.message.id in messages:
            raise InternalError("a message was inserted twice", message_id=write.message.id)
        change.put(messages, write.message.id, write.message)

    def _put_parts(self, change: _Change, session_id: str, write: u.PutParts) -> None:
        messages = self._value(session_id).messages
        row = messages[write.message_id]
        parts = list(row.parts)
        for part in write.parts:
            if part.index < len(parts):
                old = parts[part.index]
                parts[part.index] = msgspec.structs.replace(part, id=old.id, created_at=old.created_at)
            elif part.index == len(parts):
                parts.append(part)
            else:
                raise InternalError("a part would leave a gap", message_id=write.message_id, index=part.index)
        change.put(messages, row.id, msgspec.structs.replace(row, parts=tuple(parts)))

    def _patch_message(self, change: _Change, session_id: str, write: u.PatchMessage) -> None:
        messages = self._value(session_id).messages
        row = messages[write.message_id]
        row = msgspec.structs.replace(
            row,
            metadata=merged(row.metadata, write.metadata, write.drop),
            updated_at=max(row.updated_at, write.updated_at),
            created_at=row.created_at if write.created_at is None else write.created_at,
        )
        change.put(messages, row.id, row)

    def _set_hidden(self, change: _Change, session_id: str, write: u.SetHidden) -> None:
        messages = self._value(session_id).messages
        for message_id, hidden in write.hidden.items():
            row = messages[message_id]
            if hidden is None:
                metadata = merged(row.metadata, {}, ("hidden_at", "hidden_by"))
            else:
                metadata = merged(row.metadata, {"hidden_at": hidden.at, "hidden_by": hidden.by})
            change.put(messages, message_id, msgspec.structs.replace(row, metadata=metadata))

    def _seal_message(self, change: _Change, session_id: str, write: u.SealMessage) -> None:
        change.put(self._value(session_id).seals, write.message_id, write.digest)

    def _open_turn(self, change: _Change, session_id: str, write: u.OpenTurn) -> None:
        value, turn = self._value(session_id), write.turn
        check_transition(None, turn.status)
        parent = value.turns[turn.parent_turn_id] if turn.parent_turn_id is not None else None
        change.put(value.turns, turn.id, placed(turn, parent))
        if turn.status in OPEN:
            self._set_state(change, value, open_turn_id=turn.id)

    def _set_turn(self, change: _Change, session_id: str, write: u.SetTurn) -> None:
        value = self._value(session_id)
        turn = value.turns[write.turn_id]
        check_transition(turn.status, write.status)
        settled_at = None if write.status in OPEN else write.settled_at or turn.settled_at
        turn = msgspec.structs.replace(
            turn, status=write.status, settled_at=settled_at, data={**turn.data, **write.data}
        )
        change.put(value.turns, turn.id, turn)
        if write.status in OPEN:
            self._set_state(change, value, open_turn_id=turn.id)
        elif value.state["state"].open_turn_id == turn.id:
            self._set_state(change, value, open_turn_id=None)

    def _link_message(self, change: _Change, session_id: str, write: u.LinkMessage) -> None:
        value = self._value(session_id)
        if write.turn_id not in value.turns or write.message_id not in value.messages:
            raise InternalError("a link names what is not there", **msgspec.structs.asdict(write))
        held = value.links.get(write.turn_id, ())
        change.put(value.links, write.turn_id, (*held, write.message_id))

    def _move_head(self, change: _Change, session_id: str, write: u.MoveHead) -> None:
        value = self._value(session_id)
        if write.to_turn_id is not None and write.to_turn_id not in value.turns:
            raise InternalError("the head would point at nothing", turn_id=write.to_turn_id)
        old = value.state["state"].head_turn_id
        seq = len(value.moves) + 1
        change.put(value.moves, seq, HeadMove(seq, session_id, old, write.to_turn_id, write.at, write.why))
        self._set_state(change, value, head_turn_id=write.to_turn_id)

    def _set_epoch(self, change: _Change, session_id: str, write: u.SetEpoch) -> None:
        self._set_state(change, self._value(session_id), epoch=write.epoch)

    def _set_state(self, change: _Change, value: SessionValue, **changes: Any) -> None:
        change.put(value.state, "state", msgspec.structs.replace(value.state["state"], **changes))

    def _end_step(self, change: _Change, session_id: str, write: u.EndStep) -> None:
        value, step = self._value(session_id), write.step
        row = value.messages[step.message_id]
        row = msgspec.structs.replace(
            row, metadata=booked_message(row.metadata, step), updated_at=max(row.updated_at, step.finished_at)
        )
        change.put(value.messages, row.id, row)
        change.put(value.row, "session", booked_session(value.row["session"], step))
        change.put(value.steps, step.turn_id, (*value.steps.get(step.turn_id, ()), step))

    def _append_chunks(self, change: _Change, session_id: str, write: u.AppendChunks) -> None:
        value = self._value(session_id)
        held = value.journal.get(write.message_id, ())
        change.put(value.journal, write.message_id, (*held, *write.entries))

    def _mark_folded(self, change: _Change, session_id: str, write: u.MarkFolded) -> None:
        value = self._value(session_id)
        left = tuple(entry for entry in value.journal.get(write.message_id, ()) if entry.n > write.through)
        change.put(value.journal, write.message_id, left)
        change.put(value.marks, write.message_id, write.through)
        if not left:
            change.drop(value.journal, write.message_id)
            change.drop(value.marks, write.message_id)

    def _enqueue(self, change: _Change, session_id: str, write: u.Enqueue) -> None:
        value = self._value(session_id)
        row = value.messages[write.message_id]
        row = msgspec.structs.replace(
            row,
            metadata=merged(row.metadata, {"queued_at": write.queued_at}),
            updated_at=max(row.updated_at, write.queued_at),
        )
        change.put(value.messages, row.id, row)
        change.put(value.queue, write.message_id, write)

    def _dequeue(self, change: _Change, session_id: str, write: u.Dequeue) -> None:
        value = self._value(session_id)
        row = value.messages[write.message_id]
        metadata = merged(row.metadata, {}, ("queued_at",))
        change.put(value.messages, row.id, msgspec.structs.replace(row, metadata=metadata))
        change.drop(value.queue, write.message_id)

    def _put_prompt(self, change: _Change, session_id: str, write: u.PutPrompt) -> None:
        if write.digest not in self._prompts:
            change.put(self._prompts, write.digest, write.body)

    def _put_blob(self, change: _Change, session_id: str, write: u.PutBlob) -> None:
        if write.sha256 not in self._blobs:
            change.put(self._blobs, write.sha256, Blob(write.sha256, write.media_type, write.data))
        change.put(self._value(session_id).blobs, write.sha256, None)

    def _link_blob(self, change: _Change, session_id: str, write: u.LinkBlob) -> None:
        if write.sha256 not in self._blobs:
            raise InternalError("a link names a blob that is not there", sha256=write.sha256)
        change.put(self._value(session_id).blobs, write.sha256, None)

    def _put_project_rules(self, change: _Change, session_id: str, write: u.PutProjectRules) -> None:
        change.put(self._project_rules, write.project, write.rules)

    # Reading

    def _find(self, session_id: str) -> SessionValue | None:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._values.get(session_id)

    async def find_session(self, session_id: str) -> Session | None:
        value = self._find(session_id)
        return value.session if value else None

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        wanted = sorted(
            (value.session for value in self._values.values() if _matches(value.session, query)),
            key=lambda session: (session.updated_at, session.id),
            reverse=True,
        )
        page = tuple(wanted[: query.limit])
        more = len(wanted) > query.limit
        return SessionPage(page, Cursor(page[-1].updated_at, page[-1].id) if more else None)

    async def list_children(self, parent_id: str) -> tuple[Session, ...]:
        children = (value.session for value in self._values.values() if value.session.parent_id == parent_id)
        return tuple(sorted(children, key=lambda session: (session.created_at, session.id)))

    async def load_state(self, session_id: str) -> SessionState:
        value = self._find(session_id)
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
        value = self._find(session_id)
        if value is None:
            return LineSlice((), complete=True)
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

    async def load_messages(self, session_id: str, *, keep_damaged: bool = False) -> tuple[MessageRow, ...]:
        value = self._find(session_id)
        rows: Iterable[MessageRow] = (value.message(id_) for id_ in value.messages) if value else ()
        return tuple(sorted(rows, key=lambda row: (row.created_at, row.id)))

    async def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        value = self._find(session_id)
        return value.message(message_id) if value and message_id in value.messages else None

    async def find_client_message(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        rows = await self.load_messages(session_id)
        return tuple(row for row in rows if row.metadata.get("client_message_id") == client_message_id)

    async def load_tree(self, session_id: str) -> Tree:
        value = self._find(session_id)
        return value.tree() if value else Tree(None, None, {}, {}, ())

    async def load_steps(self, turn_id: str) -> tuple[Step, ...]:
        for value in self._values.values():
            if turn_id in value.steps:
                return value.steps[turn_id]
        return ()

    async def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        value = self._find(session_id)
        if value is None:
            return ()
        waiting = sorted(value.queue.values(), key=lambda row: (not row.interrupt, row.queued_at, row.message_id))
        return tuple(QueuedMessage(value.message(w.message_id), w.queued_at, w.interrupt) for w in waiting)

    async def find_prompt(self, digest: str) -> str | None:
        return self._prompts.get(digest)

    async def find_blob(self, sha256: str) -> Blob | None:
        return self._blobs.get(sha256)

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        return self._project_rules.get(project, ())

    async def pending_streams(self, session_id: str | None = None) -> tuple[PendingStream, ...]:
        ids = tuple(self._values) if session_id is None else (session_id,)
        return tuple(
            PendingStream(id_, value.messages[message_id], entries)
            for id_ in ids
            if (value := self._find(id_)) is not None
            for message_id, entries in value.journal.items()
        )

    async def stream_mark(self, message_id: str) -> int:
        for value in self._values.values():
            if message_id in value.messages:
                held = value.journal.get(message_id, ())
                return max(value.marks.get(message_id, 0), held[-1].n if held else 0)
        return 0

    async def session_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._values))

    async def seals(self, session_id: str) -> dict[str, str]:
        value = self._find(session_id)
        return dict(value.seals) if value else {}

    async def verify(self) -> Sequence[Damage]:
        return ()

    async def backup(self, target: Path) -> None:
        raise NotSupported("a memory store has nothing to back up; open a sqlite: store to keep sessions")

    async def close(self) -> None:
        self._closed = True


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


_APPLY: dict[type, Callable[[MemoryStore, _Change, str, Any], None]] = {
    u.InsertSession: MemoryStore._insert_session,
    u.PatchSession: MemoryStore._patch_session,
    u.DeleteSession: MemoryStore._delete_session,
    u.InsertMessage: MemoryStore._insert_message,
    u.PutParts: MemoryStore._put_parts,
    u.PatchMessage: MemoryStore._patch_message,
    u.SetHidden: MemoryStore._set_hidden,
    u.SealMessage: MemoryStore._seal_message,
    u.OpenTurn: MemoryStore._open_turn,
    u.SetTurn: MemoryStore._set_turn,
    u.LinkMessage: MemoryStore._link_message,
    u.MoveHead: MemoryStore._move_head,
    u.SetEpoch: MemoryStore._set_epoch,
    u.EndStep: MemoryStore._end_step,
    u.AppendChunks: MemoryStore._append_chunks,
    u.MarkFolded: MemoryStore._mark_folded,
    u.Enqueue: MemoryStore._enqueue,
    u.Dequeue: MemoryStore._dequeue,
    u.PutPrompt: MemoryStore._put_prompt,
    u.PutBlob: MemoryStore._put_blob,
    u.LinkBlob: MemoryStore._link_blob,
    u.PutProjectRules: MemoryStore._put_project_rules,
}
