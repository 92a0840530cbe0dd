"""One session as one value, and what each write of the vocabulary does to it.

The memory store holds these, and the file stores read and write them one at a time. Every change goes through a
:class:`Change`, which remembers how to undo it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from math import fsum
from typing import Any

import msgspec
from msgspec.structs import replace

from clew.errors import InternalError
from clew.store import unit as u
from clew.store.base import LineSlice, OpenCall, PendingStream, QueuedMessage
from clew.store.copies import NOT_COPIED, Copying, expand
from clew.store.guards import Waiting
from clew.store.memory.change import Change
from clew.store.paths import PathTurn
from clew.store.tail import with_tail
from clew.transcript.line import LineTurn, end_of_line, path_to
from clew.transcript.message import MessageRow
from clew.transcript.metadata import broken_off_usd, merge, named
from clew.transcript.model_call import ModelCall, brought_up_to_date
from clew.transcript.part import blob_url, url_of
from clew.transcript.pruned import Pruned
from clew.transcript.rollup import book_message, book_session, book_usage, sum_usage, with_usage
from clew.transcript.session import Session, SessionState, Spend
from clew.transcript.spend import add_costs
from clew.transcript.turn import HeadMove, Step, Tree, Turn, with_parent, with_status
from clew.transcript.turn_state import OPEN, check_transition, is_run

__all__ = ["SessionValue"]


class SessionValue(msgspec.Struct, eq=True, dict=True):
    """Everything one session is made of. Each field is a table, which file stores write and read by its name."""

    row: dict[str, Session]
    state: dict[str, SessionState]
    messages: dict[str, MessageRow] = {}
    turns: dict[str, Turn] = {}
    links: dict[str, tuple[str, ...]] = {}
    moves: dict[int, HeadMove] = {}
    steps: dict[str, tuple[Step, ...]] = {}
    queue: dict[str, u.Enqueue] = {}
    journal: dict[str, tuple[u.JournalEntry, ...]] = {}
    marks: dict[str, int] = {}
    seals: dict[str, str] = {}
    blobs: dict[str, None] = {}
    pruned: dict[tuple[int, str, int], Pruned] = {}
    calls: dict[str, ModelCall] = {}

    @classmethod
    def of(cls, session: Session) -> SessionValue:
        """A session that holds nothing yet."""
        return cls({"session": session}, {"state": SessionState()})

    def tables(self) -> dict[str, dict[Any, Any]]:
        """The tables by name."""
        return msgspec.structs.asdict(self)

    def copy(self) -> SessionValue:
        """The same entries in tables of their own; an entry itself never changes."""
        return SessionValue(**{name: dict(table) for name, table in self.tables().items()})

    # Reading

    @property
    def session(self) -> Session:
        return replace(self.row["session"], head_turn_id=self.state["state"].head_turn_id)

    def message(self, message_id: str) -> MessageRow:
        """The message with the tail of its stream."""
        return with_tail(self.messages[message_id], self.journal.get(message_id, ()))

    def all_messages(self) -> tuple[MessageRow, ...]:
        rows = (self.message(id_) for id_ in self.messages)
        return tuple(sorted(rows, key=lambda row: (row.created_at, row.id)))

    def waiting(self) -> tuple[QueuedMessage, ...]:
        """The queue, in firing order."""
        queue = sorted(self.queue.values(), key=lambda row: (not row.interrupt, row.queued_at, row.message_id))
        return tuple(QueuedMessage(self.message(w.message_id), w.queued_at, w.interrupt) for w in queue)

    def find_queued(self, message_id: str) -> Waiting | None:
        place = self.queue.get(message_id)
        return None if place is None else (place.interrupt, place.queued_at, self.seals.get(message_id))

    def open_calls(self) -> tuple[OpenCall, ...]:
        return tuple(
            OpenCall(row.id, part)
            for row in sorted(self.messages.values(), key=lambda row: row.id)
            for part in row.parts
            if part.tool_state is not None and not part.tool_state.startswith("output-")
        )

    @property
    def has_failed(self) -> bool:
        """Whether its line ends with a turn that failed, or one was refused after that."""
        state = self.state["state"]
        if state.open_turn_id is not None:
            return False
        head = self.turns.get(state.head_turn_id or "")
        since = (head.settled_at or 0) if head is not None else 0
        refused = (one for one in self.turns.values() if one.status == "refused" and (one.settled_at or 0) >= since)
        return (head is not None and head.status == "failed") or any(
            one.parent_turn_id == state.head_turn_id for one in refused
        )

    @property
    def is_unsettled(self) -> bool:
        """Whether something of the session is still to be ended."""
        open_turn = any(turn.status in OPEN for turn in self.turns.values())
        asking = any(call.is_open for call in self.calls.values())
        waiting = self.journal or self.queue or self.state["state"].open_turn_id
        return bool(waiting or open_turn or asking or self.open_calls())

    def pending(self) -> tuple[PendingStream, ...]:
        held = [(self.messages[id_], entries) for id_, entries in self.journal.items()]
        return tuple(PendingStream(row.session_id, row, entries) for row, entries in held)

    def path(self, through: str | None = None) -> tuple[Turn, ...]:
        """The turns up to this one, or to the end of the line."""
        state = self.state["state"]
        return path_to(self.turns, through or end_of_line(state.head_turn_id, state.open_turn_id))

    def held(self, turns: Iterable[Turn]) -> tuple[PathTurn, ...]:
        """Turns with what they hold."""
        return tuple(PathTurn(turn, self.links.get(turn.id, ())) for turn in turns)

    def line(self, through: str | None, turns: int | None, back_to_message: str | None) -> LineSlice:
        """See ``Conversations.load_line``."""
        path = self.path(through)
        start = 0
        if back_to_message is not None:
            holders = [place for place, t in enumerate(path) if back_to_message in self.links.get(t.id, ())]
            start = holders[0] if holders else 0
        if turns is not None:
            start = max(start, len(path) - turns)
        return LineSlice(tuple(map(self._entry, path[start:])), complete=start == 0)

    def _entry(self, turn: Turn) -> LineTurn:
        """The turn with its messages: the same value, with what is noted in it, as long as both are the same."""
        messages = tuple(map(self.message, self.links.get(turn.id, ())))
        known = self._entries.get(turn.id)
        if known is None or known.turn is not turn or [*map(id, known.messages)] != [*map(id, messages)]:
            known = self._entries[turn.id] = LineTurn(turn, messages)
        return known

    @functools.cached_property
    def _entries(self) -> dict[str, LineTurn]:
        return {}

    def prompts(self) -> frozenset[str]:
        """The digests of the prompts that its steps name."""
        return frozenset(digest for steps in self.steps.values() for step in steps for digest in step.prompts)

    def all_pruned(self) -> tuple[Pruned, ...]:
        return tuple(self.pruned[key] for key in sorted(self.pruned))

    def all_calls(self) -> tuple[ModelCall, ...]:
        return tuple(sorted(self.calls.values(), key=lambda call: (call.asked_at, call.id)))

    @property
    def spend(self) -> Spend:
        """The session's own spend, without its subagents."""
        calls = self.calls.values()
        cost = add_costs(call.cost_usd for call in calls)
        return Spend(len(calls), sum(call.usage.total for call in calls), cost, 0)

    def tree(self) -> Tree:
        state = self.state["state"]
        moves = tuple(self.moves[seq] for seq in sorted(self.moves))
        return Tree(state.head_turn_id, state.open_turn_id, dict(self.turns), dict(self.links), moves)

    # Writing

    def apply(self, change: Change, write: u.Write) -> None:
        """Carry out a write that touches nothing but this session."""
        match write:
            case u.AppendChunks(message_id, entries):
                held = self.journal.get(self.messages[message_id].id, ())
                change.put(self.journal, message_id, (*held, *entries))
            case u.MarkFolded(message_id, through):
                left = tuple(entry for entry in self.journal.get(message_id, ()) if entry.n > through)
                change.put(self.journal, message_id, left)
                change.put(self.marks, message_id, through)
                if not left:
                    change.drop(self.journal, message_id)
                    change.drop(self.marks, message_id)
            case u.PutParts():
                self._put_parts(change, write)
            case u.InsertMessage(message):
                if message.id in self.messages:
                    raise InternalError("a message was inserted twice", message_id=message.id)
                change.put(self.messages, message.id, message)
            case u.PatchMessage(id_, updated_at, metadata, drop, created_at):
                self._set_message(change, id_, merge(self.messages[id_].metadata, metadata, drop), updated_at)
                if created_at is not None:
                    row = replace(self.messages[id_], created_at=created_at)
                    change.put(self.messages, id_, row)
            case u.SetHidden(hidden):
                for id_, why in hidden.items():
                    known = {} if why is None else {"hidden_at": why.at, "hidden_by": why.by}
                    drop = ("hidden_at", "hidden_by") if why is None else ()
                    self._set_message(change, id_, merge(self.messages[id_].metadata, known, drop))
            case u.SealMessage(message_id, digest):
                change.put(self.seals, self.messages[message_id].id, digest)
            case u.Enqueue(id_, queued_at):
                metadata = merge(self.messages[id_].metadata, {"queued_at": queued_at})
                self._set_message(change, id_, metadata, queued_at)
                change.put(self.queue, id_, write)
            case u.Dequeue(id_):
                self._set_message(change, id_, merge(self.messages[id_].metadata, {}, ("queued_at",)))
                change.drop(self.queue, id_)
            case u.OpenTurn() | u.SetTurn() | u.MoveTurn() | u.LinkMessage() | u.MoveHead():
                self._grow_tree(change, write)
            case u.RecordStep() | u.FinishStep() | u.RecordUsage() | u.PutCall():
                self._book(change, write)
            case u.SetEpoch(epoch):
                self._set_state(change, epoch=epoch)
            case u.SetRunner(replica_id):
                self._set_state(change, runner=replica_id)
            case u.AddPruned(pruned):
                seq = max((seq for seq, _, _ in self.pruned), default=0) + 1
                for one in pruned:
                    key = (seq, self.messages[one.message_id].id, one.part)
                    if key in self.pruned:
                        ids = {"message_id": one.message_id, "part": one.part}
                        raise InternalError("an output was pruned twice at once", **ids)
                    change.put(self.pruned, key, replace(one, seq=seq))
            case u.PatchSession():
                self._patch_session(change, write)
            case u.SetTitle(title, by, tries):
                self._patch_session(change, u.PatchSession(named(self.row["session"].metadata, title, by, tries)))
            case _:
                raise InternalError(f"unknown kind of write: {type(write).__name__}")

    def _grow_tree(
        self, change: Change, write: u.OpenTurn | u.SetTurn | u.MoveTurn | u.LinkMessage | u.MoveHead
    ) -> None:
        """Turns, what they hold, and where the head is."""
        match write:
            case u.OpenTurn(turn):
                check_transition(None, turn.status)
                parent = self.turns[turn.parent_turn_id] if turn.parent_turn_id is not None else None
                change.put(self.turns, turn.id, with_parent(turn, parent))
                if turn.status in OPEN:
                    self._set_state(change, open_turn_id=turn.id)
            case u.SetTurn():
                self._set_turn(change, write)
            case u.MoveTurn(turn_id, parent_id):
                if turn_id != self.state["state"].open_turn_id or turn_id == parent_id:
                    raise InternalError("only the open turn moves, and below another", turn_id=turn_id)
                parent = self.turns[parent_id] if parent_id is not None else None
                change.put(self.turns, turn_id, with_parent(self.turns[turn_id], parent))
            case u.LinkMessage(turn_id, message_id):
                if turn_id not in self.turns or message_id not in self.messages:
                    raise InternalError("a link names what is not there", turn_id=turn_id, message_id=message_id)
                change.put(self.links, turn_id, (*self.links.get(turn_id, ()), message_id))
            case u.MoveHead(to, at, why):
                if to is not None and to not in self.turns:
                    raise InternalError("the head would point at nothing", turn_id=to)
                seq, old = next(reversed(self.moves), 0) + 1, self.state["state"].head_turn_id
                change.put(self.moves, seq, HeadMove(seq, self.row["session"].id, old, to, at, why))
                self._set_state(change, head_turn_id=to)

    def _book(self, change: Change, write: u.RecordStep | u.FinishStep | u.RecordUsage | u.PutCall) -> None:
        """Steps and model calls, and what they used."""
        match write:
            case u.RecordStep(step):
                metadata = book_message(self.messages[step.message_id].metadata, step)
                self._set_message(change, step.message_id, metadata, step.finished_at)
                booked = book_session(self.row["session"], step.usage, step.cost_usd, step.finished_at)
                change.put(self.row, "session", booked)
                change.put(self.steps, step.turn_id, (*self.steps.get(step.turn_id, ()), step))
            case u.FinishStep(turn_id, index, at):
                if all(step.index != index for step in self.steps[turn_id]):
                    raise InternalError("a step that was not booked is finished", turn_id=turn_id, index=index)
                steps = (replace(one, finished_at=at) if one.index == index else one for one in self.steps[turn_id])
                change.put(self.steps, turn_id, tuple(steps))
                self._patch_session(change, u.PatchSession(updated_at=at))
            case u.RecordUsage(id_, usage, cost_usd, at, estimated):
                metadata = book_usage(self.messages[id_].metadata, usage, estimated=estimated, broken_off=cost_usd)
                self._set_message(change, id_, metadata, at)
                change.put(self.row, "session", book_session(self.row["session"], usage, cost_usd))
            case u.PutCall(call):
                if call.session_id != self.row["session"].id:
                    raise InternalError("a model call is of another session", call_id=call.id)
                change.put(self.calls, call.id, brought_up_to_date(self.calls.get(call.id), call))

    def _set_state(self, change: Change, **changes: Any) -> None:
        change.put(self.state, "state", replace(self.state["state"], **changes))

    def _set_message(self, change: Change, message_id: str, metadata: dict[str, Any], at: int = 0) -> None:
        row = self.messages[message_id]
        row = replace(row, metadata=metadata, updated_at=max(row.updated_at, at))
        change.put(self.messages, message_id, row)

    def _patch_session(self, change: Change, write: u.PatchSession) -> None:
        row = self.row["session"]
        changes: dict[str, Any] = {"metadata": merge(row.metadata, write.metadata, write.drop)}
        if write.model is not None:
            changes["model"] = write.model
        if write.permissions is not None:
            changes["permissions"] = list(write.permissions)
        if write.archived_at is not msgspec.UNSET:
            changes["archived_at"] = write.archived_at
        if write.updated_at is not None:
            changes["updated_at"] = max(row.updated_at, write.updated_at)
        change.put(self.row, "session", replace(row, **changes))

    def _put_parts(self, change: Change, write: u.PutParts) -> None:
        messages = self.messages
        row = messages[write.message_id]
        parts = list(row.parts)
        for part in write.parts:
            if part.index < len(parts):
                old = parts[part.index]
                parts[part.index] = replace(part, id=old.id, created_at=old.created_at)
            elif part.index == len(parts):
                parts.append(part)
            else:
                raise InternalError("a part would leave a gap", message_id=write.message_id, index=part.index)
        change.put(messages, row.id, replace(row, parts=tuple(parts)))

    def _set_turn(self, change: Change, write: u.SetTurn) -> None:
        turn = self.turns[write.turn_id]
        turn = with_status(turn, write.status or turn.status, write.settled_at, write.data)
        change.put(self.turns, turn.id, turn)
        state = self.state["state"]
        if turn.status in OPEN:
            self._set_state(change, open_turn_id=turn.id)
        elif state.open_turn_id == turn.id:
            self._set_state(change, open_turn_id=None)
        if state.runner is not None and state.open_turn_id == turn.id and not is_run(turn.status):
            self._set_state(change, runner=None)

    # Copying

    def with_runs(self, plan: Copying, session_id: str) -> Copying:
        """The plan for a copy of a line of this session with the turns and messages of its runs."""
        turns, messages = list(plan.turns), list(plan.messages)
        for placed in plan.runs:
            path = path_to(self.turns, placed.run.through)[-placed.run.count :]
            more = expand(placed, self.held(path), session_id)
            turns += more.turns
            messages += more.messages
        turns.sort(key=lambda turn: turn.depth)
        place = {turn.id: turn.depth for turn in turns}
        messages.sort(key=lambda copied: (place[copied.turn_id], copied.position))
        return Copying(tuple(turns), tuple(messages))

    def copy_line(self, change: Change, source: SessionValue, plan: Copying, new_part_id: Callable[[], str]) -> None:
        """Fill this session, which was just inserted, with a line of another."""
        session = self.row["session"]
        for copied in plan.messages:
            original = source.messages[copied.source_id]
            if copied.inserted:
                if copied.id not in self.messages:
                    raise InternalError("a copy names a message that is not in its session", message_id=copied.id)
                continue
            message = replace(
                original,
                id=copied.id,
                session_id=session.id,
                metadata=merge(original.metadata, {}, NOT_COPIED),
                parts=tuple(replace(part, id=new_part_id()) for part in original.parts),
            )
            self.apply(change, u.InsertMessage(message))
            if original.id in source.seals:
                change.put(self.seals, copied.id, source.seals[original.id])
        for turn in plan.turns:
            if turn.id in self.turns:
                raise InternalError("a turn was inserted twice", turn_id=turn.id)
            change.put(self.turns, turn.id, turn)
        for copied in plan.messages:
            change.put(self.links, copied.turn_id, (*self.links.get(copied.turn_id, ()), copied.id))
            steps = [
                replace(step, turn_id=copied.turn_id, message_id=copied.id)
                for step in source.steps.get(copied.origin_turn_id or "", ())
                if step.message_id == copied.source_id
            ]
            if steps:
                held = (*self.steps.get(copied.turn_id, ()), *steps)
                change.put(self.steps, copied.turn_id, tuple(sorted(held, key=lambda step: step.index)))
        # A call that broke off is in its message's usage and is no step.
        used = sum_usage(self.messages.values())
        broken_off = (broken_off_usd(row.metadata) for row in self.messages.values())
        cost = fsum((*(step.cost_usd for held in self.steps.values() for step in held), *broken_off))
        change.put(self.row, "session", replace(with_usage(session, used), cost_usd=cost))
        ids = {copied.source_id: copied.id for copied in plan.messages}
        for one in source.pruned.values():
            row = self.messages.get(ids.get(one.message_id, ""))
            # A copy that the unit made by itself may end before a part that was pruned.
            if row and one.part < len(row.parts) and row.parts[one.part].tool_state == "output-available":
                copy = replace(one, message_id=row.id)
                change.put(self.pruned, (one.seq, row.id, one.part), copy)
        named = {url_of(part.data) for row in self.messages.values() for part in row.parts if part.type == "file"}
        for sha256 in source.blobs:
            if blob_url(sha256) in named:
                change.put(self.blobs, sha256, None)
