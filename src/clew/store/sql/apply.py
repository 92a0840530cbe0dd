"""Applying units in SQL: carrying out each kind of write in an open transaction.

Knows statements by name only; the given :class:`Statements` run them on an engine. Guards are checked before the first
write, so a refused unit leaves no changes in its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from clew.errors import InternalError
from clew.ids import Mint
from clew.store import unit as u
from clew.store.guards import Waiting, holds_epoch, refusal
from clew.store.sql import rows, triggers
from clew.store.sql.copying import copy_line
from clew.store.sql.deletion import begin_deletion, delete_portion
from clew.store.sql.shared import write_shared
from clew.store.sql.statements import Statements, must
from clew.store.sql.write_buffer import Turns, WriteBuffer
from clew.transcript.metadata import VARIANT_KEY, merge, named
from clew.transcript.model_call import book_message, book_usage, brought_up_to_date
from clew.transcript.projection import Hidden
from clew.transcript.session import SessionState
from clew.transcript.turn import with_parent, with_status
from clew.transcript.turn_state import OPEN, check_transition, is_run
from clew.triggers.values.schedule import Schedule

__all__ = ["Index", "Journal", "Log", "UnitWriter", "set_hidden"]


class Index(Protocol):
    """The notifications a search index needs while units are applied."""

    def note(self, message_ids: Iterable[str]) -> None:
        """Record that these messages were sealed."""
        ...

    def forget_message(self, message_id: str) -> None:
        """Remove a message from the index before its parts change."""
        ...

    def forget_session(self, session_id: str) -> bool:
        """Remove some parts of a session from the index before they are deleted; return whether there are more."""
        ...


class Log(Protocol):
    """The notifications an event log needs while units are applied."""

    def note(self, unit: u.Unit) -> None:
        """Record the unit that was just applied."""
        ...

    def restate(self, session_id: str) -> None:
        """Record all of a session that was changed by something other than a unit."""
        ...

    def reset(self) -> None:
        """Forget cached numbers after a rollback."""
        ...


class Journal(Protocol):
    """The store of chunks until the parts hold them."""

    def reset(self) -> None:
        """Forget cached state: the transaction was rolled back, or another process may have written."""
        ...

    def knows(self, message_id: str) -> bool:
        """Return whether the message of this stream need not be looked up."""
        ...

    def accept(self, session_id: str, message_id: str, entries: Sequence[u.JournalEntry]) -> None:
        """Add the chunks of a unit whose guards hold."""
        ...

    def fold(self, session_id: str, message_id: str, through: int) -> None:
        """Record that the stream's parts hold everything through this chunk."""
        ...

    def delete_session(self, session_id: str) -> None: ...

    def flush(self) -> None:
        """Write what the unit added, at its end."""
        ...

    def finish(self) -> None:
        """Write what the transaction added, before it commits; called only if something was written."""
        ...


class UnitWriter:
    """Applies units one after another; ``finish`` writes what they share."""

    def __init__(
        self, statements: Statements, mint: Mint, index: Index, journal: Journal, log: Log | None = None
    ) -> None:
        self._sql = statements
        self._index = index
        self._journal = journal
        self._log = log
        self._mint = mint
        self._pending = WriteBuffer(statements)
        self._states: dict[str, SessionState | None] = {}
        self._turns = Turns(statements, self._pending)
        self._wrote = False

    def reset(self) -> None:
        """Forget cached state; required after every rollback."""
        self._states.clear()
        self._turns.forget()
        self._pending.reset()
        if self._log is not None:
            self._log.reset()
        self._journal.reset()
        self._wrote = False

    def forget(self, session_id: str) -> None:
        """Forget cached state of a session whose rows were replaced by something other than a unit."""
        self._states.pop(session_id, None)
        self._turns.forget()

    def begin(self, states: Mapping[str, SessionState | None]) -> None:
        """Begin a transaction of a store that other processes write to: replace all cached state with ``states``."""
        self.reset()
        self._states.update(states)

    def apply(self, unit: u.Unit) -> u.Outcome:
        state = self._state(unit.session_id)
        refused = None if holds_epoch(unit, state) else self._refusal(unit, state)
        if refused is not None:
            return refused
        self._wrote = self._wrote or bool(unit.writes)
        for write in unit.writes:
            self._apply_write(unit.session_id, write)
        self._pending.flush(unit.session_id)
        self._journal.flush()
        if self._log is not None:
            self._log.note(unit)
        return u.Committed()

    def _refusal(self, unit: u.Unit, state: SessionState | None) -> u.Refused | None:
        return refusal(
            unit,
            state,
            lambda id_: self._find_queued(unit.session_id, id_),
            self._has_event,
            lambda guard: self._sql.first("find_repeated", msgspec.structs.asdict(guard)) is not None,
            self._is_alive,
            self._find_schedule,
            lambda id_: self._count_sent(unit.session_id, id_),
            lambda guard: triggers.load_routed(self._sql, guard.kind, guard.name, guard.owner),
            lambda project: self._load_rules(unit.session_id, project),
            lambda name, owner: triggers.find_named(self._sql, name, owner),
        )

    def adopt(self, session_id: str, writes: Iterable[u.Write], *, is_new: bool) -> None:
        """Apply the writes that adopt another program's changes to a session; the log gets a restatement of it."""
        self._wrote = True
        if is_new:
            self._sql.run("insert_state", {"id": session_id, "owner": None, "alias": None})
            self._states[session_id] = SessionState()
        for write in writes:
            self._apply_write(session_id, write)
        self._pending.flush(session_id)
        if self._log is not None:
            self._log.restate(session_id)

    def finish(self) -> None:
        """Write what the units share, before the commit."""
        if self._wrote:
            self._journal.finish()
            self._wrote = False

    # State, cached because one writer owns it

    def _state(self, session_id: str) -> SessionState | None:
        try:
            return self._states[session_id]
        except KeyError:
            row = self._sql.first("lock_state", {"id": session_id})
            state = SessionState(*row) if row else None
            if len(self._states) > 10_000:
                self._states.clear()
            self._states[session_id] = state
            return state

    def _set_state(self, session_id: str, **changes: Any) -> None:
        state = replace(self._state(session_id) or SessionState(), **changes)
        self._states[session_id] = state
        self._pending.set_state(state)

    def _find_queued(self, session_id: str, message_id: str) -> Waiting | None:
        row = self._sql.first("find_queued", {"session_id": session_id, "message_id": message_id})
        return None if row is None else (bool(row[0]), row[1], row[2])

    def _count_sent(self, session_id: str, client_message_id: str) -> int:
        params = {"session_id": session_id, "client_message_id": client_message_id}
        return sum(1 for _ in self._sql.rows("load_client_messages", params))

    def _has_event(self, guard: u.EventIsNew) -> bool:
        return self._sql.first("has_event", msgspec.structs.asdict(guard)) is not None

    def _is_alive(self, replica_id: str) -> bool:
        row = self._sql.first("find_replica", {"id": replica_id})
        return row is not None and rows.to_replica(row).alive

    def _find_schedule(self, schedule_id: str) -> Schedule | None:
        row = self._sql.first("hold_schedule", {"id": schedule_id})
        return triggers.to_schedule(row) if row is not None else None

    def _load_rules(self, session_id: str, project: str | None) -> Sequence[dict[str, Any]]:
        of_session = self._sql.first("get_session_permissions", {"id": session_id}) if project is None else None
        row = of_session if project is None else self._sql.first("load_project_rules", {"project": project})
        return rows.decode(row[0], "rules", session_id=session_id, project=project) if row is not None else ()

    def _apply_write(self, session_id: str, write: u.Write) -> None:
        """Apply one write: the kinds that chunks, steps and turns consist of by lookup, the others after flushing."""
        handler = _HANDLERS.get(type(write))
        if handler is not None:
            handler(self, session_id, write)
        else:
            # The other kinds may read rows that are not written yet.
            self._pending.flush(session_id)
            self._apply_other(session_id, write)

    def _append_chunks(self, session_id: str, write: u.AppendChunks) -> None:
        if not self._journal.knows(write.message_id):
            self._metadata(session_id, write.message_id)
        self._journal.accept(session_id, write.message_id, write.entries)

    def _mark_folded(self, session_id: str, write: u.MarkFolded) -> None:
        self._journal.fold(session_id, write.message_id, write.through)

    def _book_step(self, session_id: str, write: u.RecordStep) -> None:
        step, pending = write.step, self._pending
        booked = book_message(self._metadata(session_id, step.message_id), step)
        pending.set_metadata(step.message_id, booked, step.finished_at)
        pending.book_step(step)
        pending.book(session_id, step.usage, step.cost_usd)
        pending.touch(step.finished_at)

    def _finish_step(self, session_id: str, write: u.FinishStep) -> None:
        turn_id, index, at = write.turn_id, write.index, write.finished_at
        self._turns.get(session_id, turn_id)
        if not self._pending.finish_step(turn_id, index, at):
            must(self._sql, "finish_step", {"turn_id": turn_id, "step": index, "finished_at": at})
        self._pending.touch(at)

    def _book_usage(self, session_id: str, write: u.RecordUsage) -> None:
        old = self._metadata(session_id, write.message_id)
        booked = book_usage(old, write.usage, estimated=write.estimated, broken_off=write.cost_usd)
        self._pending.set_metadata(write.message_id, booked, write.at)
        self._pending.book(session_id, write.usage, write.cost_usd)

    def _insert_message(self, session_id: str, write: u.InsertMessage) -> None:
        message = write.message
        if message.session_id != session_id:
            raise InternalError("a message is of another session", message_id=message.id)
        parts = [rows.part_params(part, message.id, session_id) for part in message.parts]
        for params in parts:
            params["id"] = params["id"] or self._mint.part()
        self._pending.insert_message(message, parts)

    def _patch_message(self, session_id: str, write: u.PatchMessage) -> None:
        merged = merge(self._metadata(session_id, write.message_id), write.metadata, write.drop)
        self._pending.set_metadata(write.message_id, merged, write.updated_at)
        if write.created_at is not None:
            self._pending.set_created(write.message_id, write.created_at)

    def _seal_message(self, session_id: str, write: u.SealMessage) -> None:
        message_id, digest = write.message_id, write.digest
        if self._pending.find_message(message_id) is not None:
            self._pending.seal(message_id, digest)
        else:
            must(self._sql, "put_seal", {"session_id": session_id, "message_id": message_id, "digest": digest})
        self._index.note([message_id])

    def _open_turn(self, session_id: str, write: u.OpenTurn) -> None:
        check_transition(None, write.turn.status)
        parent_id = write.turn.parent_turn_id
        turn = with_parent(write.turn, self._turns.get(session_id, parent_id) if parent_id is not None else None)
        self._pending.insert_turn(turn, self._turns.keep(turn, new=True))
        if turn.status in OPEN:
            self._set_state(session_id, open_turn_id=turn.id)

    def _set_epoch(self, session_id: str, write: u.SetEpoch) -> None:
        self._set_state(session_id, epoch=write.epoch)

    def _set_runner(self, session_id: str, write: u.SetRunner) -> None:
        self._set_state(session_id, runner=write.replica_id)

    def _apply_other(self, session_id: str, write: u.Write) -> None:
        """Apply a write that reads tables of its session."""
        sql = self._sql
        match write:
            case u.PutParts(message_id, parts):
                self._index.forget_message(message_id)
                for part in parts:
                    params = rows.part_params(part, message_id, session_id)
                    # Usually only the text grew; setting the other columns would rewrite their indexes.
                    if sql.run("grow_part", params) == 0 and sql.run("update_part", params) == 0:
                        must(sql, "insert_part", {**params, "id": params["id"] or self._mint.part()})
            case u.SetHidden(hidden):
                if set_hidden(sql, session_id, hidden) != len(hidden):
                    raise InternalError("a message to hide or show is not in this session", session_id=session_id)
            case u.MoveTurn():
                self._move_turn(session_id, write)
            case u.Enqueue(message_id, queued_at, interrupt):
                entry = {"message_id": message_id, "queued_at": queued_at, "interrupt": interrupt}
                sql.run("enqueue", {"session_id": session_id, **entry})
                metadata = merge(self._metadata(session_id, message_id), {"queued_at": queued_at})
                self._pending.set_metadata(message_id, metadata, queued_at)
            case u.Dequeue(message_id):
                sql.run("dequeue", {"message_id": message_id})
                metadata = merge(self._metadata(session_id, message_id), {}, ("queued_at",))
                self._pending.set_metadata(message_id, metadata, 0)
            case u.PutSnapshot(snapshot):
                if snapshot.session_id != session_id:
                    raise InternalError("a snapshot is of another session", snapshot_id=snapshot.id)
                must(sql, "put_snapshot", rows.snapshot_params(snapshot))
            case u.AddPruned(pruned):
                newest = sql.first("newest_prune", {"id": session_id})
                seq = (newest[0] if newest else 0) + 1
                for one in pruned:
                    must(sql, "add_pruned", {**msgspec.structs.asdict(one), "session_id": session_id, "seq": seq})
            case u.InsertSession(session, unfinished):
                sql.run("insert_session", rows.session_params(session))
                sql.run("insert_state", {"id": session_id, "owner": session.owner, "alias": session.alias})
                if unfinished:
                    sql.run("begin_copy", {"id": session_id})
                self._states[session_id] = SessionState()
            case u.SetTitle(title, by, tries):
                metadata = named(self._session_metadata(session_id), title, by, tries)
                self._patch_session(session_id, u.PatchSession(metadata))
            case u.DeleteSession():
                while delete_portion(sql, session_id, self._index.forget_session):
                    pass
                self._forget_session(session_id)
            case u.BeginDeletion():
                begin_deletion(sql, session_id)
                self._forget_session(session_id)
            case u.DeletePortion():
                is_unfinished = sql.first("is_unfinished", {"id": session_id}) is not None
                if is_unfinished and not delete_portion(sql, session_id, self._index.forget_session):
                    self._forget_session(session_id)
            case u.FinishCopy():
                sql.run("sum_session", {"session_id": session_id})
                must(sql, "finish_copy", {"id": session_id})
            case u.CopyLine():
                copy_line(sql, session_id, write, self._mint.part(), self._index.note)
            case _:
                write_shared(sql, session_id, write)

    # Sessions

    def _session_metadata(self, session_id: str) -> Any:
        row = self._sql.first("get_session_metadata", {"id": session_id})
        return rows.decode(row[0] if row else None, "metadata of a session", session_id=session_id)

    def _patch_session(self, session_id: str, write: u.PatchSession) -> None:
        if write.metadata or write.drop or write.model is not None:
            old = self._session_metadata(session_id)
            # A model that is picked does not have the variant of the turn before.
            is_picked = write.model is not None and VARIANT_KEY not in write.metadata
            new = merge(old, write.metadata, (*write.drop, VARIANT_KEY) if is_picked else write.drop)
            if new != old:
                self._sql.run("set_session_metadata", {"id": session_id, "metadata_json": rows.encode(new)})
            if write.model is not None:
                model = rows.encode_model(rows.with_variant(write.model, new))
                self._sql.run("set_session_model", {"id": session_id, "model_json": model})
        if write.permissions is not None:
            permissions = rows.encode(list(write.permissions))
            self._sql.run("set_session_permissions", {"id": session_id, "permissions_json": permissions})
        if write.archived_at is not msgspec.UNSET:
            self._sql.run("set_session_archived", {"id": session_id, "archived_at": write.archived_at})
        if write.updated_at is not None:
            self._pending.touch(write.updated_at)

    def _forget_session(self, session_id: str) -> None:
        self._states[session_id] = None
        self._turns.forget()
        self._pending.forget_session(session_id)
        self._journal.delete_session(session_id)

    # Messages and turns

    def _metadata(self, session_id: str, message_id: str) -> dict[str, Any]:
        waiting = self._pending.find_metadata(message_id)
        if waiting is not None:
            return waiting
        row = self._sql.first("get_message_metadata", {"id": message_id, "session_id": session_id})
        if row is None:
            raise InternalError("a write names a message that does not exist", message_id=message_id)
        value: dict[str, Any] = rows.decode(row[0], "metadata of a message", message_id=message_id)
        return value

    def _put_call(self, session_id: str, write: u.PutCall) -> None:
        call = write.call
        if (call.session_id or u.STORE_WIDE) != session_id:
            raise InternalError("a model call is of another session", call_id=call.id)
        row = self._sql.first("find_call", {"id": call.id})
        held = rows.to_call(row) if row else None
        updated = brought_up_to_date(held, call)
        if held is None or held.asked_at != updated.asked_at:
            must(self._sql, "put_call", rows.call_params(updated))
        elif updated != held:
            must(self._sql, "change_call" if held.is_open else "set_tools_ms", rows.call_params(updated))

    def _link(self, session_id: str, write: u.LinkMessage) -> None:
        turn_id, message_id = write.turn_id, write.message_id
        self._turns.get(session_id, turn_id)
        position = self._turns.link(turn_id)
        if position is not None and self._pending.is_new(message_id):
            self._pending.link(turn_id, position, message_id)
            return
        self._pending.flush(session_id)
        must(self._sql, "link_message", {"session_id": session_id, "turn_id": turn_id, "message_id": message_id})

    def _set_turn(self, session_id: str, write: u.SetTurn) -> None:
        turn = self._turns.get(session_id, write.turn_id)
        turn = with_status(turn, write.status or turn.status, write.settled_at, write.data)
        self._pending.set_turn(turn, self._turns.keep(turn))
        state = self._state(session_id) or SessionState()
        if turn.status in OPEN and state.open_turn_id != turn.id:
            self._set_state(session_id, open_turn_id=turn.id)
        elif turn.status not in OPEN and state.open_turn_id == turn.id:
            self._set_state(session_id, open_turn_id=None)
        if state.runner is not None and state.open_turn_id == turn.id and not is_run(turn.status):
            self._set_state(session_id, runner=None)

    def _move_turn(self, session_id: str, write: u.MoveTurn) -> None:
        state = self._state(session_id) or SessionState()
        if write.turn_id != state.open_turn_id or write.turn_id == write.parent_turn_id:
            raise InternalError("only the open turn can move, and only below another turn", turn_id=write.turn_id)
        turn = self._turns.get(session_id, write.turn_id)
        parent = self._turns.get(session_id, write.parent_turn_id) if write.parent_turn_id is not None else None
        must(self._sql, "place_turn", self._turns.keep(with_parent(turn, parent)))

    def _move_head(self, session_id: str, write: u.MoveHead) -> None:
        if write.to_turn_id is not None:
            self._turns.get(session_id, write.to_turn_id)
        old = (self._state(session_id) or SessionState()).head_turn_id
        self._sql.run("add_move", {"session_id": session_id, "from_turn_id": old, **msgspec.structs.asdict(write)})
        self._set_state(session_id, head_turn_id=write.to_turn_id)


def set_hidden(sql: Statements, session_id: str, hidden: Mapping[str, Hidden | None]) -> int:
    """Store whether these messages are hidden, one statement per distinct value; return how many were found."""
    found = 0
    # Most are the same object; identity is faster to compare than equality.
    groups = set({id(one): one for one in hidden.values()}.values())
    for one in groups:
        ids = [message_id for message_id, its in hidden.items() if its == one] if len(groups) > 1 else list(hidden)
        params = {"session_id": session_id, "ids": rows.encode(ids)}
        if one is None:
            found += sql.run("show_messages", params)
        else:
            found += sql.run("hide_messages", {**params, "at": one.at, "by": one.by})
    return found


_HANDLERS: Final[Mapping[type[u.Write], Callable[[UnitWriter, str, Any], None]]] = {
    u.AppendChunks: UnitWriter._append_chunks,
    u.MarkFolded: UnitWriter._mark_folded,
    u.RecordStep: UnitWriter._book_step,
    u.FinishStep: UnitWriter._finish_step,
    u.RecordUsage: UnitWriter._book_usage,
    u.PutCall: UnitWriter._put_call,
    u.InsertMessage: UnitWriter._insert_message,
    u.PatchMessage: UnitWriter._patch_message,
    u.SealMessage: UnitWriter._seal_message,
    u.OpenTurn: UnitWriter._open_turn,
    u.SetTurn: UnitWriter._set_turn,
    u.LinkMessage: UnitWriter._link,
    u.MoveHead: UnitWriter._move_head,
    u.SetEpoch: UnitWriter._set_epoch,
    u.SetRunner: UnitWriter._set_runner,
    u.PatchSession: UnitWriter._patch_session,
}
"""The handler of each kind of write. Lookup by type is faster than trying one pattern after another."""
