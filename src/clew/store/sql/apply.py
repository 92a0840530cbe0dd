"""Units into SQL: how each write of the vocabulary is carried out on an open transaction.

Knows the statements by name only; which engine runs them is the business of the :class:`Statements` given to it.
Guards are looked at before the first write, so a refused unit leaves nothing behind in its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from clew.errors import InternalError, RowUndecodable
from clew.ids import Mint
from clew.store import unit as u
from clew.store.copies import plan_copy
from clew.store.guards import refusal
from clew.store.sql import rows, triggers
from clew.store.sql.journal import JournalBook, Mark, decode_entries, mark_crc, row_crc
from clew.store.sql.statements import Statements
from clew.transcript.chunk import encode_rows
from clew.transcript.message import PartRow
from clew.transcript.metadata import merged
from clew.transcript.project import Hidden
from clew.transcript.rollup import booked_message
from clew.transcript.session import SessionState
from clew.transcript.turn import Turn, placed
from clew.transcript.turn_state import OPEN, check_transition

__all__ = ["Index", "Log", "UnitWriter"]


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

    def reset(self) -> None:
        """The transaction was rolled back."""
        ...


class UnitWriter:
    """Applies units one after another; ``seal`` writes the journal row they share."""

    def __init__(self, statements: Statements, mint: Mint, index: Index, log: Log | None = None) -> None:
        self._sql = statements
        self._index = index
        self._log = log
        self._mint = mint
        self._book = JournalBook()
        self._states: dict[str, SessionState | None] = {}
        self._wrote = self._struck = False
        self.commit = 0

    def reset(self) -> None:
        """Forget what was learnt; needed whenever a transaction was rolled back."""
        self._states.clear()
        if self._log is not None:
            self._log.reset()
        marks = {row[0]: Mark(*row) for row in self._sql.rows("load_marks", {})}
        self._book.load(((n, data, crc) for n, data, crc in self._sql.rows("load_journal", {})), marks)
        self._wrote = self._struck = False
        found = self._sql.first("get_commits", {})
        if found is None:
            raise InternalError("the store has lost the row that counts its commits; restore a backup")
        self.commit = found[0]

    def apply(self, unit: u.Unit) -> u.Outcome:
        refused = refusal(
            unit, self._state(unit.session_id), lambda id_: self._is_queued(unit.session_id, id_), self._has_event
        )
        if refused is not None:
            return refused
        self._wrote = self._wrote or bool(unit.writes)
        for write in unit.writes:
            _APPLY[type(write)](self, unit.session_id, write)
        if self._log is not None:
            self._log.note(unit)
        return u.Committed()

    def seal(self) -> None:
        """Before the commit: number it, add the journal row of the accepted chunks, take away those all have passed.

        The number stands in the journal row, where there is one, and costs nothing there. A row is taken away only
        with a commit that writes its own number down, so the highest of both is always the newest commit.
        """
        if not self._wrote:
            return
        self.commit += 1
        row = self._book.row(self.commit)
        if row is not None:
            data, new = row
            crc = row_crc(self.commit, data)
            self._sql.run("insert_journal_row", {"n": self.commit, "data": data.decode(), "crc": crc})
            for mark in new:
                self._sql.run("add_mark", mark._asdict())
        ranges, unmarked = self._book.done()
        for first, last in ranges:
            self._sql.run("delete_journal_rows", {"first": first, "last": last})
        for message_id in unmarked:
            self._sql.run("delete_mark", {"message_id": message_id})
        if row is None or ranges or self._struck:
            self._sql.run("set_commits", {"commits": self.commit})
        self._wrote = self._struck = False

    # State, cached because one writer owns it

    def _state(self, session_id: str) -> SessionState | None:
        try:
            return self._states[session_id]
        except KeyError:
            row = self._sql.first("get_state", {"id": session_id})
            state = SessionState(*row) if row else None
            if len(self._states) > 10_000:
                self._states.clear()
            self._states[session_id] = state
            return state

    def _set_state(self, session_id: str, **changes: Any) -> None:
        state = msgspec.structs.replace(self._state(session_id) or SessionState(), **changes)
        self._states[session_id] = state
        self._sql.run("set_state", {"id": session_id, **msgspec.structs.asdict(state)})

    def _is_queued(self, session_id: str, message_id: str) -> bool:
        return self._sql.first("is_queued", {"session_id": session_id, "message_id": message_id}) is not None

    def _has_event(self, guard: u.EventIsNew) -> bool:
        return self._sql.first("has_event", msgspec.structs.asdict(guard)) is not None

    # Sessions

    def _insert_session(self, session_id: str, write: u.InsertSession) -> None:
        self._sql.run("insert_session", rows.session_params(write.session))
        self._sql.run("insert_state", {"id": session_id})
        self._states[session_id] = SessionState()

    def _patch_session(self, session_id: str, write: u.PatchSession) -> None:
        if write.metadata or write.drop:
            row = self._sql.first("get_session_metadata", {"id": session_id})
            old = rows.decode(row[0] if row else None, "metadata of a session", session_id=session_id)
            new = rows.encode(merged(old, write.metadata, write.drop))
            self._sql.run("set_session_metadata", {"id": session_id, "metadata_json": new})
        if write.model is not None:
            self._sql.run("set_session_model", {"id": session_id, "model_json": rows.encode_model(write.model)})
        if write.permissions is not None:
            permissions = rows.encode(list(write.permissions))
            self._sql.run("set_session_permissions", {"id": session_id, "permissions_json": permissions})
        if write.archived_at is not msgspec.UNSET:
            self._sql.run("set_session_archived", {"id": session_id, "archived_at": write.archived_at})
        if write.updated_at is not None:
            self._sql.run("touch_session", {"id": session_id, "updated_at": write.updated_at})

    def _delete_session(self, session_id: str, write: u.DeleteSession) -> None:
        self._index.forget_session(session_id)
        self._sql.run("delete_unnamed_blobs", {"id": session_id})
        self._sql.run("delete_session", {"id": session_id})
        self._sql.run("delete_unnamed_prompts", {})
        self._sql.run("delete_facts_of_prompts", {})
        self._states[session_id] = None
        self._struck = True
        streams, numbers = self._book.forget(session_id)
        for n in numbers:
            if self._book.strike(n, streams):
                self._rewrite_journal_row(n, streams)
            else:
                self._sql.run("delete_journal_rows", {"first": n, "last": n})
                for message_id in self._book.remove(n):
                    self._sql.run("delete_mark", {"message_id": message_id})
        for message_id in streams:
            self._sql.run("delete_mark", {"message_id": message_id})

    def _rewrite_journal_row(self, n: int, without: Iterable[str]) -> None:
        """Strike the chunks of some streams from a row that others still need."""
        row = self._sql.first("get_journal_row", {"n": n})
        if row is None:
            raise InternalError("a journal row is missing", n=n)
        gone = set(without)
        try:
            streams = decode_entries((row[0], row[1], row[2]))
        except RowUndecodable:
            return  # it goes as a whole, once the others were folded
        left = [
            (message_id, entry.n, entry.part, entry.chunk)
            for message_id, entries in streams.items()
            if message_id not in gone
            for entry in entries
        ]
        data = encode_rows(left)
        self._sql.run("replace_journal_row", {"n": n, "data": data.decode(), "crc": row_crc(n, data)})

    # Messages

    def _insert_message(self, session_id: str, write: u.InsertMessage) -> None:
        self._sql.run("insert_message", rows.message_params(write.message))
        for part in write.message.parts:
            self._insert_part(session_id, write.message.id, part)

    def _insert_part(self, session_id: str, message_id: str, part: PartRow) -> None:
        params = rows.part_params(part, message_id, session_id)
        params["id"] = params["id"] or self._mint.part()
        self._must("insert_part", params)

    def _must(self, name: str, params: Mapping[str, Any], rows_changed: int = 1) -> None:
        """Run a statement that finds what it names inside the unit's own session, or the unit fails."""
        if self._sql.run(name, params) != rows_changed:
            raise InternalError(f"{name}: a write names what is not in its session", **_ids(params))

    def _put_parts(self, session_id: str, write: u.PutParts) -> None:
        self._index.forget_message(write.message_id)
        for part in write.parts:
            params = rows.part_params(part, write.message_id, session_id)
            if self._sql.run("update_part", params) == 0:
                params["id"] = params["id"] or self._mint.part()
                self._must("insert_part", params)

    def _patch_message(self, session_id: str, write: u.PatchMessage) -> None:
        old = self._metadata(session_id, write.message_id)
        self._set_metadata(write.message_id, merged(old, write.metadata, write.drop), write.updated_at)
        if write.created_at is not None:
            self._sql.run("set_message_created", {"id": write.message_id, "created_at": write.created_at})

    def _metadata(self, session_id: str, message_id: str) -> dict[str, Any]:
        row = self._sql.first("get_message_metadata", {"id": message_id, "session_id": session_id})
        if row is None:
            raise InternalError("a write names a message that is not there", message_id=message_id)
        value: dict[str, Any] = rows.decode(row[0], "metadata of a message", message_id=message_id)
        return value

    def _set_metadata(self, message_id: str, metadata: dict[str, Any], updated_at: int) -> None:
        params = {"id": message_id, "metadata_json": rows.encode(metadata), "updated_at": updated_at}
        self._sql.run("set_message_metadata", params)

    def _set_hidden(self, session_id: str, write: u.SetHidden) -> None:
        groups: dict[Hidden | None, list[str]] = {}
        for message_id, hidden in write.hidden.items():
            groups.setdefault(hidden, []).append(message_id)
        for hidden, ids in groups.items():
            params = {"session_id": session_id, "ids": rows.encode(ids)}
            if hidden is None:
                self._must("show_messages", params, len(ids))
            else:
                self._must("hide_messages", {**params, "at": hidden.at, "by": hidden.by}, len(ids))

    def _seal_message(self, session_id: str, write: u.SealMessage) -> None:
        self._must("put_seal", {"session_id": session_id, **msgspec.structs.asdict(write)})
        self._index.note([write.message_id])

    # Turns

    def _turn(self, session_id: str, turn_id: str) -> Turn:
        row = self._sql.first("get_turn", {"id": turn_id, "session_id": session_id})
        if row is None:
            raise InternalError("a write names a turn that is not there", turn_id=turn_id)
        return rows.to_turn(row)

    def _open_turn(self, session_id: str, write: u.OpenTurn) -> None:
        turn = write.turn
        check_transition(None, turn.status)
        parent = self._turn(session_id, turn.parent_turn_id) if turn.parent_turn_id is not None else None
        self._sql.run("insert_turn", rows.turn_params(placed(turn, parent)))
        if turn.status in OPEN:
            self._set_state(session_id, open_turn_id=turn.id)

    def _set_turn(self, session_id: str, write: u.SetTurn) -> None:
        turn = self._turn(session_id, write.turn_id)
        check_transition(turn.status, write.status)
        settled_at = None if write.status in OPEN else write.settled_at or turn.settled_at
        data = rows.encode({**turn.data, **write.data})
        params = {"id": turn.id, "status": write.status, "settled_at": settled_at, "data_json": data}
        self._sql.run("set_turn", params)
        state = self._state(session_id) or SessionState()
        if write.status in OPEN and state.open_turn_id != turn.id:
            self._set_state(session_id, open_turn_id=turn.id)
        elif write.status not in OPEN and state.open_turn_id == turn.id:
            self._set_state(session_id, open_turn_id=None)

    def _move_turn(self, session_id: str, write: u.MoveTurn) -> None:
        state = self._state(session_id) or SessionState()
        if write.turn_id != state.open_turn_id or write.turn_id == write.parent_turn_id:
            raise InternalError("only the open turn moves, and below another", turn_id=write.turn_id)
        turn = self._turn(session_id, write.turn_id)
        parent = self._turn(session_id, write.parent_turn_id) if write.parent_turn_id is not None else None
        self._must("place_turn", rows.turn_params(placed(turn, parent)))

    def _link_message(self, session_id: str, write: u.LinkMessage) -> None:
        self._must("link_message", {"session_id": session_id, **msgspec.structs.asdict(write)})

    def _move_head(self, session_id: str, write: u.MoveHead) -> None:
        if write.to_turn_id is not None:
            self._turn(session_id, write.to_turn_id)
        old = (self._state(session_id) or SessionState()).head_turn_id
        self._sql.run("add_move", {"session_id": session_id, "from_turn_id": old, **msgspec.structs.asdict(write)})
        self._set_state(session_id, head_turn_id=write.to_turn_id)

    def _set_epoch(self, session_id: str, write: u.SetEpoch) -> None:
        self._set_state(session_id, epoch=write.epoch)

    def _end_step(self, session_id: str, write: u.EndStep) -> None:
        step = write.step
        booked = booked_message(self._metadata(session_id, step.message_id), step)
        self._set_metadata(step.message_id, booked, step.finished_at)
        params = rows.step_params(step)
        self._sql.run("insert_step", params)
        self._sql.run("book_session", {"id": session_id, "total": step.usage.total, **params})

    def _add_pruned(self, session_id: str, write: u.AddPruned) -> None:
        newest = self._sql.first("newest_prune", {"id": session_id})
        seq = (newest[0] if newest else 0) + 1
        for one in write.pruned:
            self._must("add_pruned", {**msgspec.structs.asdict(one), "session_id": session_id, "seq": seq})

    # Copies

    def _copy_line(self, session_id: str, write: u.CopyLine) -> None:
        plan = plan_copy(session_id, write)
        params = {"session_id": session_id, "source": write.source_session_id}
        self._sql.run("make_copied", {})
        self._sql.run("empty_copied", {})
        self._sql.many("add_copied", (copied._asdict() for copied in plan.messages))
        inserted = sum(copied.inserted for copied in plan.messages)
        found = self._sql.first("count_inserted", params) if inserted else (0,)
        if found != (inserted,):
            raise InternalError("a copy names a message that is not in its session", **_ids(params))
        self._must("copy_messages", params, len(plan.messages) - inserted)
        self._sql.run("copy_parts", {"minted": self._mint.part(), **params})
        self._sql.run("copy_seals", params)
        self._index.note(copied.id for copied in plan.messages)
        self._sql.many("insert_turn", (rows.turn_params(turn) for turn in plan.turns))
        for name in ("copy_links", "copy_steps", "copy_pruned", "copy_blob_links", "sum_session"):
            self._sql.run(name, params)
        self._sql.run("empty_copied", {})

    # Journal

    def _append_chunks(self, session_id: str, write: u.AppendChunks) -> None:
        if not self._book.knows(write.message_id):
            self._metadata(session_id, write.message_id)
        self._book.accept(session_id, write.message_id, write.entries)

    def _mark_folded(self, session_id: str, write: u.MarkFolded) -> None:
        if self._book.fold(write.message_id, write.through):
            mark = {"message_id": write.message_id, "folded_through": write.through}
            self._sql.run("set_mark", {**mark, "crc": mark_crc(write.message_id, write.through)})

    # Queue

    def _enqueue(self, session_id: str, write: u.Enqueue) -> None:
        self._sql.run("enqueue", {"session_id": session_id, **msgspec.structs.asdict(write)})
        metadata = merged(self._metadata(session_id, write.message_id), {"queued_at": write.queued_at})
        self._set_metadata(write.message_id, metadata, write.queued_at)

    def _dequeue(self, session_id: str, write: u.Dequeue) -> None:
        self._sql.run("dequeue", {"message_id": write.message_id})
        metadata = merged(self._metadata(session_id, write.message_id), {}, ("queued_at",))
        self._set_metadata(write.message_id, metadata, 0)

    # Kept once

    def _put_prompt(self, session_id: str, write: u.PutPrompt) -> None:
        self._sql.run("put_prompt", msgspec.structs.asdict(write))

    def _put_blob(self, session_id: str, write: u.PutBlob) -> None:
        self._sql.run("put_blob", {"size": len(write.data), **msgspec.structs.asdict(write)})
        self._sql.run("link_blob", {"session_id": session_id, "sha256": write.sha256})

    def _link_blob(self, session_id: str, write: u.LinkBlob) -> None:
        if self._sql.first("has_blob", {"sha256": write.sha256}) is None:
            raise InternalError("a link names a blob that is not there", sha256=write.sha256)
        self._sql.run("link_blob", {"session_id": session_id, "sha256": write.sha256})

    def _put_project_rules(self, session_id: str, write: u.PutProjectRules) -> None:
        params = {
            "project": write.project,
            "rules_json": rows.encode(list(write.rules)),
            "updated_at": write.updated_at,
        }
        self._sql.run("put_project_rules", params)

    # Triggers

    def _add_event(self, session_id: str, write: u.AddEvent) -> None:
        self._must("add_event", {**triggers.event_params(write.event), "of_session": session_id})

    def _put_schedule(self, session_id: str, write: u.PutSchedule) -> None:
        self._sql.run("put_schedule", triggers.schedule_params(write.schedule))

    def _drop_schedule(self, session_id: str, write: u.DropSchedule) -> None:
        self._sql.run("drop_schedule", msgspec.structs.asdict(write))

    def _put_webhook(self, session_id: str, write: u.PutWebhook) -> None:
        self._sql.run("put_webhook", triggers.webhook_params(write.webhook))

    def _drop_webhook(self, session_id: str, write: u.DropWebhook) -> None:
        self._sql.run("drop_webhook", msgspec.structs.asdict(write))


def _ids(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key.endswith("_id")}


_APPLY: dict[type, Callable[[UnitWriter, str, Any], None]] = {
    u.InsertSession: UnitWriter._insert_session,
    u.PatchSession: UnitWriter._patch_session,
    u.DeleteSession: UnitWriter._delete_session,
    u.InsertMessage: UnitWriter._insert_message,
    u.PutParts: UnitWriter._put_parts,
    u.PatchMessage: UnitWriter._patch_message,
    u.SetHidden: UnitWriter._set_hidden,
    u.SealMessage: UnitWriter._seal_message,
    u.OpenTurn: UnitWriter._open_turn,
    u.SetTurn: UnitWriter._set_turn,
    u.MoveTurn: UnitWriter._move_turn,
    u.LinkMessage: UnitWriter._link_message,
    u.MoveHead: UnitWriter._move_head,
    u.SetEpoch: UnitWriter._set_epoch,
    u.EndStep: UnitWriter._end_step,
    u.AddPruned: UnitWriter._add_pruned,
    u.CopyLine: UnitWriter._copy_line,
    u.AppendChunks: UnitWriter._append_chunks,
    u.MarkFolded: UnitWriter._mark_folded,
    u.Enqueue: UnitWriter._enqueue,
    u.Dequeue: UnitWriter._dequeue,
    u.PutPrompt: UnitWriter._put_prompt,
    u.PutBlob: UnitWriter._put_blob,
    u.LinkBlob: UnitWriter._link_blob,
    u.PutProjectRules: UnitWriter._put_project_rules,
    u.AddEvent: UnitWriter._add_event,
    u.PutSchedule: UnitWriter._put_schedule,
    u.DropSchedule: UnitWriter._drop_schedule,
    u.PutWebhook: UnitWriter._put_webhook,
    u.DropWebhook: UnitWriter._drop_webhook,
}
