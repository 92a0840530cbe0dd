"""Units into SQL: how each write of the vocabulary is carried out on an open transaction.

Knows the statements by name only; which engine runs them is the business of the :class:`Statements` given to it.
Guards are looked at before the first write, so a refused unit leaves nothing behind in its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from clew.errors import InternalError
from clew.ids import Mint
from clew.store import unit as u
from clew.store.guards import Waiting, refusal
from clew.store.sql import rows, triggers
from clew.store.sql.copying import copy_line
from clew.store.sql.pending import Pending
from clew.store.sql.replicas import to_replica
from clew.store.sql.statements import Statements
from clew.store.sql.turns import Turns
from clew.transcript.metadata import merge, named
from clew.transcript.model_call import ModelCall, brought_up_to_date
from clew.transcript.projection import Hidden
from clew.transcript.rollup import book_message, book_usage
from clew.transcript.session import SessionState
from clew.transcript.turn import place_below, with_status
from clew.transcript.turn_state import OPEN, check_transition, is_run
from clew.triggers.schedule import Schedule

__all__ = ["Index", "Journal", "Log", "UnitWriter", "set_hidden"]


class Index(Protocol):
    """What a search index has to be told while units are applied."""

    def note(self, message_ids: Iterable[str]) -> None:
        """These messages were sealed."""
        ...

    def forget_message(self, message_id: str) -> None:
        """Parts of this message are about to change."""
        ...

    def forget_session(self, session_id: str) -> None:
        """This session is about to be deleted."""
        ...


class Log(Protocol):
    """What an event log has to be told while units are applied."""

    def note(self, unit: u.Unit) -> None:
        """This unit was applied just now."""
        ...

    def restate(self, session_id: str) -> None:
        """This session holds what no unit has put there."""
        ...

    def reset(self) -> None:
        """The transaction was rolled back."""
        ...


class Journal(Protocol):
    """Where chunks stand until the parts hold them."""

    def reset(self) -> None:
        """Forget what was learnt: the transaction was rolled back, or others may have written."""
        ...

    def knows(self, message_id: str) -> bool:
        """Whether the message of this stream need not be looked up."""
        ...

    def accept(self, session_id: str, message_id: str, entries: Sequence[u.JournalEntry]) -> None:
        """Chunks of a unit whose guards hold."""
        ...

    def fold(self, session_id: str, message_id: str, through: int) -> None:
        """The stream's parts hold everything through this chunk."""
        ...

    def delete_session(self, session_id: str) -> None: ...

    def flush(self) -> None:
        """The unit ends."""
        ...

    def finish(self) -> None:
        """The transaction ends, and something was written in it."""
        ...


class UnitWriter:
    """Applies units one after another; ``finish`` ends what they share."""

    def __init__(
        self, statements: Statements, mint: Mint, index: Index, journal: Journal, log: Log | None = None
    ) -> None:
        self._sql = statements
        self._index = index
        self._journal = journal
        self._log = log
        self._mint = mint
        self._pending = Pending(statements)
        self._states: dict[str, SessionState | None] = {}
        self._turns = Turns(statements, self._pending)
        self._wrote = False

    def reset(self) -> None:
        """Forget what was learnt; needed whenever a transaction was rolled back."""
        self._states.clear()
        self._turns.forget()
        self._pending.reset()
        if self._log is not None:
            self._log.reset()
        self._journal.reset()
        self._wrote = False

    def begin(self, states: Mapping[str, SessionState | None]) -> None:
        """A transaction of a store that others write to as well: what was learnt before does not hold, these do."""
        self.reset()
        self._states.update(states)

    def apply(self, unit: u.Unit) -> u.Outcome:
        refused = refusal(
            unit,
            self._state(unit.session_id),
            lambda id_: self._find_queued(unit.session_id, id_),
            self._has_event,
            self._is_alive,
            self._find_schedule,
            lambda id_: self._count_sent(unit.session_id, id_),
            lambda guard: triggers.load_routed(self._sql, guard.kind, guard.name, guard.owner),
            lambda project: self._load_rules(unit.session_id, project),
            lambda name, owner: triggers.find_named(self._sql, name, owner),
        )
        if refused is not None:
            return refused
        self._wrote = self._wrote or bool(unit.writes)
        for write in unit.writes:
            self._write(unit.session_id, write)
        self._pending.flush(unit.session_id)
        self._journal.flush()
        if self._log is not None:
            self._log.note(unit)
        return u.Committed()

    def adopt(self, session_id: str, writes: Iterable[u.Write], *, is_new: bool) -> None:
        """Carry out the writes by which a session takes in what another program wrote; the log is told all of it."""
        self._wrote = True
        if is_new:
            self._sql.run("insert_state", {"id": session_id, "owner": None, "alias": None})
            self._states[session_id] = SessionState()
        for write in writes:
            self._write(session_id, write)
        self._pending.flush(session_id)
        if self._log is not None:
            self._log.restate(session_id)

    def finish(self) -> None:
        """Before the commit."""
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
        named = {"session_id": session_id, "client_message_id": client_message_id}
        return sum(1 for _ in self._sql.rows("load_client_messages", named))

    def _has_event(self, guard: u.EventIsNew) -> bool:
        return self._sql.first("has_event", msgspec.structs.asdict(guard)) is not None

    def _is_alive(self, replica_id: str) -> bool:
        row = self._sql.first("find_replica", {"id": replica_id})
        return row is not None and to_replica(row).alive

    def _find_schedule(self, schedule_id: str) -> Schedule | None:
        row = self._sql.first("hold_schedule", {"id": schedule_id})
        return triggers.to_schedule(row) if row is not None else None

    def _load_rules(self, session_id: str, project: str | None) -> Sequence[dict[str, Any]]:
        of_session = self._sql.first("get_session_permissions", {"id": session_id}) if project is None else None
        row = of_session if project is None else self._sql.first("load_project_rules", {"project": project})
        return rows.decode(row[0], "rules", session_id=session_id, project=project) if row is not None else ()

    def _write(self, session_id: str, write: u.Write) -> None:
        """Carry out one write of those that every chunk, step and turn is made of; the rest comes after them."""
        pending = self._pending
        match write:
            case u.AppendChunks(message_id, entries):
                if not self._journal.knows(message_id):
                    self._metadata(session_id, message_id)
                self._journal.accept(session_id, message_id, entries)
            case u.MarkFolded(message_id, through):
                self._journal.fold(session_id, message_id, through)
            case u.BookStep(step):
                booked = book_message(self._metadata(session_id, step.message_id), step)
                pending.set_metadata(step.message_id, booked, step.finished_at)
                pending.book_step(step)
                pending.book(session_id, step.usage, step.cost_usd)
                pending.touch(step.finished_at)
            case u.FinishStep(turn_id, index, at):
                self._turns.get(session_id, turn_id)
                if not pending.finish_step(turn_id, index, at):
                    self._must("finish_step", {"turn_id": turn_id, "step": index, "finished_at": at})
                pending.touch(at)
            case u.BookUsage(message_id, usage, cost_usd, at, estimated):
                booked = book_usage(
                    self._metadata(session_id, message_id), usage, estimated=estimated, broken_off=cost_usd
                )
                pending.set_metadata(message_id, booked, at)
                pending.book(session_id, usage, cost_usd)
            case u.PutCall(call):
                if (call.session_id or u.STORE_WIDE) != session_id:
                    raise InternalError("a model call is of another session", call_id=call.id)
                self._put_call(call)
            case u.InsertMessage(message):
                if message.session_id != session_id:
                    raise InternalError("a message is of another session", message_id=message.id)
                parts = [rows.part_params(part, message.id, session_id) for part in message.parts]
                for params in parts:
                    params["id"] = params["id"] or self._mint.part()
                pending.insert_message(message, parts)
            case u.PatchMessage(message_id, updated_at, metadata, drop, created_at):
                old = self._metadata(session_id, message_id)
                pending.set_metadata(message_id, merge(old, metadata, drop), updated_at)
                if created_at is not None:
                    pending.set_created(message_id, created_at)
            case u.SealMessage(message_id, digest):
                if pending.find_message(message_id) is not None:
                    pending.seal(message_id, digest)
                else:
                    self._must("put_seal", {"session_id": session_id, "message_id": message_id, "digest": digest})
                self._index.note([message_id])
            case u.OpenTurn(turn):
                check_transition(None, turn.status)
                parent = self._turns.get(session_id, turn.parent_turn_id) if turn.parent_turn_id is not None else None
                turn = place_below(turn, parent)
                pending.insert_turn(turn, self._turns.keep(turn, new=True))
                if turn.status in OPEN:
                    self._set_state(session_id, open_turn_id=turn.id)
            case u.SetTurn():
                self._set_turn(session_id, write)
            case u.LinkMessage(turn_id, message_id):
                self._link(session_id, turn_id, message_id)
            case u.MoveHead():
                self._move_head(session_id, write)
            case u.SetEpoch(epoch):
                self._set_state(session_id, epoch=epoch)
            case u.SetRunner(replica_id):
                self._set_state(session_id, runner=replica_id)
            case u.PatchSession():
                self._patch_session(session_id, write)
            case _:
                # Whatever else is written may read what waits.
                pending.flush(session_id)
                self._write_more(session_id, write)

    def _write_more(self, session_id: str, write: u.Write) -> None:
        """Carry out a write of a session that goes by what its tables hold."""
        sql = self._sql
        match write:
            case u.PutParts(message_id, parts):
                self._index.forget_message(message_id)
                for part in parts:
                    params = rows.part_params(part, message_id, session_id)
                    # A text that grew is the usual case; to name the other columns would write their indexes anew.
                    if sql.run("grow_part", params) == 0 and sql.run("update_part", params) == 0:
                        self._must("insert_part", {**params, "id": params["id"] or self._mint.part()})
            case u.SetHidden(hidden):
                if set_hidden(sql, session_id, hidden) != len(hidden):
                    raise InternalError("a message to hide or show is not in its session", session_id=session_id)
            case u.MoveTurn():
                self._move_turn(session_id, write)
            case u.Enqueue(message_id, queued_at, interrupt):
                place = {"message_id": message_id, "queued_at": queued_at, "interrupt": interrupt}
                sql.run("enqueue", {"session_id": session_id, **place})
                metadata = merge(self._metadata(session_id, message_id), {"queued_at": queued_at})
                self._pending.set_metadata(message_id, metadata, queued_at)
            case u.Dequeue(message_id):
                sql.run("dequeue", {"message_id": message_id})
                metadata = merge(self._metadata(session_id, message_id), {}, ("queued_at",))
                self._pending.set_metadata(message_id, metadata, 0)
            case u.AddPruned(pruned):
                newest = sql.first("newest_prune", {"id": session_id})
                seq = (newest[0] if newest else 0) + 1
                for one in pruned:
                    self._must("add_pruned", {**msgspec.structs.asdict(one), "session_id": session_id, "seq": seq})
            case u.InsertSession(session):
                sql.run("insert_session", rows.session_params(session))
                sql.run("insert_state", {"id": session_id, "owner": session.owner, "alias": session.alias})
                self._states[session_id] = SessionState()
            case u.NameSession(title, by, tries):
                told = named(self._session_metadata(session_id), title, by, tries)
                self._patch_session(session_id, u.PatchSession(told))
            case u.DeleteSession():
                self._delete_session(session_id)
            case u.CopyLine():
                copy_line(sql, session_id, write, self._mint.part(), self._index.note)
            case _:
                self._write_shared(session_id, write)

    def _write_shared(self, session_id: str, write: u.Write) -> None:
        """Carry out a write of what sessions share, or of triggers."""
        sql = self._sql
        match write:
            case u.PutPrompt():
                sql.run("put_prompt", msgspec.structs.asdict(write))
            case u.PutBlob(sha256, _, data):
                sql.run("put_blob", {"size": len(data), **msgspec.structs.asdict(write)})
                sql.run("link_blob", {"session_id": session_id, "sha256": sha256})
            case u.LinkBlob(sha256):
                if sql.first("has_blob", {"sha256": sha256}) is None:
                    raise InternalError("a link names a blob that is not there", sha256=sha256)
                sql.run("link_blob", {"session_id": session_id, "sha256": sha256})
            case u.PutProjectRules(project, rules, at):
                params = {"project": project, "rules_json": rows.encode(list(rules)), "updated_at": at}
                sql.run("put_project_rules", params)
            case u.AddEvent(event):
                self._must("add_event", {**triggers.event_params(event), "of_session": session_id})
            case u.PutSchedule(schedule):
                # One that is kept says why it cannot run, also when another program has deleted its session alone.
                if not sql.run("change_schedule", triggers.schedule_params(schedule)):
                    sql.run("put_schedule", triggers.schedule_params(schedule))
            case u.DropSchedule(schedule_id):
                sql.run("drop_schedule", {"schedule_id": schedule_id})
            case u.PutWebhook(webhook):
                if not sql.run("change_webhook", triggers.webhook_params(webhook)):
                    sql.run("put_webhook", triggers.webhook_params(webhook))
            case u.DropWebhook(key):
                sql.run("drop_webhook", {"name": key})
            case u.JoinReplica():
                self._must("join_replica", msgspec.structs.asdict(write))
            case u.BeatReplica():
                self._must("beat_replica", msgspec.structs.asdict(write))
            case u.LeaveReplica(replica_id):
                sql.run("leave_replica", {"replica_id": replica_id})
            case _:
                raise InternalError(f"nobody carries out {type(write).__name__}")

    # Sessions

    def _session_metadata(self, session_id: str) -> Any:
        row = self._sql.first("get_session_metadata", {"id": session_id})
        return rows.decode(row[0] if row else None, "metadata of a session", session_id=session_id)

    def _patch_session(self, session_id: str, write: u.PatchSession) -> None:
        if write.metadata or write.drop:
            new = rows.encode(merge(self._session_metadata(session_id), write.metadata, write.drop))
            self._sql.run("set_session_metadata", {"id": session_id, "metadata_json": new})
        if write.model is not None:
            self._sql.run("set_session_model", {"id": session_id, "model_json": rows.encode_model(write.model)})
        if write.permissions is not None:
            permissions = rows.encode(list(write.permissions))
            self._sql.run("set_session_permissions", {"id": session_id, "permissions_json": permissions})
        if write.archived_at is not msgspec.UNSET:
            self._sql.run("set_session_archived", {"id": session_id, "archived_at": write.archived_at})
        if write.updated_at is not None:
            self._pending.touch(write.updated_at)

    def _delete_session(self, session_id: str) -> None:
        self._index.forget_session(session_id)
        self._sql.run("delete_unnamed_blobs", {"id": session_id})
        self._sql.run("delete_session", {"id": session_id})
        self._sql.run("delete_unnamed_prompts", {})
        self._sql.run("delete_facts_of_prompts", {})
        self._states[session_id] = None
        self._turns.forget()
        self._pending.forget_session(session_id)
        self._journal.delete_session(session_id)

    # Messages and turns

    def _must(self, name: str, params: Mapping[str, Any], rows_changed: int = 1) -> None:
        """Run a statement that finds what it names inside the unit's own session, or the unit fails.

        Exactly so many rows must change: a write that may come twice needs ``DO UPDATE``, not ``DO NOTHING``.
        """
        if self._sql.run(name, params) != rows_changed:
            raise InternalError(f"{name}: a write names what is not in its session", **_ids(params))

    def _metadata(self, session_id: str, message_id: str) -> dict[str, Any]:
        waiting = self._pending.find_metadata(message_id)
        if waiting is not None:
            return waiting
        row = self._sql.first("get_message_metadata", {"id": message_id, "session_id": session_id})
        if row is None:
            raise InternalError("a write names a message that is not there", message_id=message_id)
        value: dict[str, Any] = rows.decode(row[0], "metadata of a message", message_id=message_id)
        return value

    def _put_call(self, call: ModelCall) -> None:
        row = self._sql.first("find_call", {"id": call.id})
        held = rows.to_call(row) if row else None
        kept = brought_up_to_date(held, call)
        if held is None or held.asked_at != kept.asked_at:
            self._must("put_call", rows.call_params(kept))
        elif kept != held:
            self._must("change_call" if held.is_open else "set_tools_ms", rows.call_params(kept))

    def _link(self, session_id: str, turn_id: str, message_id: str) -> None:
        self._turns.get(session_id, turn_id)
        place = self._turns.link(turn_id)
        if place is not None and self._pending.find_message(message_id) is not None:
            self._pending.link(turn_id, place, message_id)
            return
        self._pending.flush(session_id)
        self._must("link_message", {"session_id": session_id, "turn_id": turn_id, "message_id": message_id})

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
            raise InternalError("only the open turn moves, and below another", turn_id=write.turn_id)
        turn = self._turns.get(session_id, write.turn_id)
        parent = self._turns.get(session_id, write.parent_turn_id) if write.parent_turn_id is not None else None
        self._must("place_turn", self._turns.keep(place_below(turn, parent)))

    def _move_head(self, session_id: str, write: u.MoveHead) -> None:
        if write.to_turn_id is not None:
            self._turns.get(session_id, write.to_turn_id)
        old = (self._state(session_id) or SessionState()).head_turn_id
        self._sql.run("add_move", {"session_id": session_id, "from_turn_id": old, **msgspec.structs.asdict(write)})
        self._set_state(session_id, head_turn_id=write.to_turn_id)


def set_hidden(sql: Statements, session_id: str, hidden: Mapping[str, Hidden | None]) -> int:
    """Write the projection of these messages, those that share one together; how many were found."""
    found = 0
    # Most are the very same value, which is told sooner than that it is an equal one.
    groups = set({id(one): one for one in hidden.values()}.values())
    for one in groups:
        ids = [message_id for message_id, its in hidden.items() if its == one] if len(groups) > 1 else list(hidden)
        params = {"session_id": session_id, "ids": rows.encode(ids)}
        if one is None:
            found += sql.run("show_messages", params)
        else:
            found += sql.run("hide_messages", {**params, "at": one.at, "by": one.by})
    return found


def _ids(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key.endswith("_id")}
