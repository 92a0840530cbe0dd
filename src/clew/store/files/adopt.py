"""Adoption: conversion of records that another program wrote to turns and messages. Pure.

A user message begins a turn; the records after it are its answer, one message with a step for each record. Ids are
derived from the session and the position of a record, so that every load results in the same ones and the file need not
be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from clew.ids import derived_id
from clew.store.files.record import Record, content_text, names_in
from clew.store.files.session_value import SessionValue
from clew.transcript.iso_time import milliseconds
from clew.transcript.message import MessageRow, PartRow, Role
from clew.transcript.metadata import merge
from clew.transcript.part import COMPACTION_PART, STEP_START
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.turn import HeadMove, MoveReason, Turn, with_parent

__all__ = ["adopt", "project_hidden"]


def adopt(
    value: SessionValue,
    record: Record,
    seqs: Mapping[str, list[tuple[int, int]]],
    preserved: Sequence[dict[str, Any]] = (),
    before: Sequence[dict[str, Any]] = (),
) -> str | None:
    """Adopt one record of another program; return the id of its message.

    ``preserved`` are parts with the record itself, which follow its content; those of ``before`` precede it.
    """
    adoption = _Adoption(value, record, preserved, before)
    if record["recordType"] == "compaction":
        return adoption.compaction(seqs)
    match record.get("role"):
        case "user":
            return adoption.user()
        case "assistant":
            return adoption.assistant()
        case "toolResult":
            return adoption.result()
    return None


class _Adoption:
    """The adoption of a record. ``at`` is the time it was written, ``place`` its position."""

    def __init__(
        self, value: SessionValue, record: Record, preserved: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]
    ) -> None:
        self.value = value
        self.record = record
        self.preserved, self.before = preserved, before
        self.session_id = value.row["session"].id
        self.place = str(record["seq"])
        at = milliseconds(record.get("timestamp"))
        times = (row.parts[0].created_at if row.parts else row.created_at for row in value.messages.values())
        self.at = max(times, default=value.row["session"].created_at) if at is None else at

    def user(self) -> str:
        turn = self._begin("normal")
        return self._add(turn, "user", self._with_preserved([one for one in self._blocks() if isinstance(one, dict)]))

    def assistant(self) -> str:
        value = self.value
        head = value.turns.get(value.state["state"].head_turn_id or "")
        if head is None or head.kind == "compaction" or self._open_turn() is not None:
            head = self._begin("normal")
        held = value.links.get(head.id, ())
        row = value.messages[held[-1]] if held else None
        said: list[dict[str, Any]] = [{"type": STEP_START}]
        for block in self._blocks():
            match block:
                case {"type": "text", "text": str(text)}:
                    said.append({"type": "text", "text": text, "state": "done"})
                case {"type": "toolCall", "id": str(id_), "name": str(name)}:
                    given = block.get("arguments")
                    call = {"type": f"tool-{name}", "toolCallId": id_, "state": "input-available"}
                    # A call without a result is like that of a process that died: settling completes it.
                    said.append({**call, "input": given if isinstance(given, dict) else {}})
                case {"type": str()}:
                    said.append(block)
        said = self._with_preserved(said)
        value.turns[head.id] = replace(head, status="completed", settled_at=self.at)
        if row is None or row.role != "assistant":
            return self._add(value.turns[head.id], "assistant", said)
        return self._set_parts(row, (*row.parts, *self._parts(said, len(row.parts))))

    def result(self) -> str | None:
        record, text = self.record, content_text(self.record.get("content"))
        for row in reversed(self.value.messages.values()):
            for part in row.parts:
                if part.tool_call_id == record.get("toolCallId") and part.tool_state == "input-available":
                    outcome = {"state": "output-available", "output": text}
                    if record.get("isError") is True:
                        outcome = {"state": "output-error", "errorText": text}
                    # Preliminary output is not part of the result.
                    before = {key: value for key, value in part.data.items() if key not in ("output", "preliminary")}
                    new = replace(part, data={**before, **outcome}, updated_at=self.at)
                    preserved = self._parts(self._with_preserved([]), len(row.parts))
                    return self._set_parts(
                        row, (*row.parts[: part.index], new, *row.parts[part.index + 1 :], *preserved)
                    )
        return None

    def compaction(self, seqs: Mapping[str, list[tuple[int, int]]]) -> str:
        record = self.record
        turn = self._begin("compaction")
        first = record.get("firstKeptSeq")
        wanted = first if isinstance(first, int) else 0
        # The message of the first record in the tail, and the index of the first part there.
        tail_parts = ((id_, part) for id_, places in seqs.items() for seq, part in places if seq >= wanted)
        tail, from_part = next(tail_parts, (None, 0))
        data: dict[str, Any] = {
            "summary": str(record.get("summary", "")),
            "tail_start_id": tail or self._id("msg_"),
            "auto": True,
            "summarised_tokens": tokens if isinstance(tokens := record.get("tokensBefore"), int) else 0,
            "read_files": names_in(record.get("readFiles")),
            "modified_files": names_in(record.get("modifiedFiles")),
        }
        if from_part:
            data["split"] = {"message_id": tail, "from_part": from_part}
        self.record = {**record, "synthetic": True, "summary": True}
        said = self._with_preserved([{"type": COMPACTION_PART, "data": data}])
        return self._add(turn, "assistant", [*self.before, *said])

    def _blocks(self) -> list[Any]:
        content = self.record.get("content")
        return content if isinstance(content, list) else [{"type": "text", "text": content_text(content)}]

    def _with_preserved(self, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the content followed by the parts with the record itself."""
        preserved = ({**part, "data": {**part["data"], "parts": len(said)}} for part in self.preserved)
        return [*said, *preserved]

    def _id(self, prefix: str, place: str = "") -> str:
        return derived_id(prefix, self.session_id, self.place + place, self.at)

    def _parts(self, said: list[dict[str, Any]], first: int) -> tuple[PartRow, ...]:
        return tuple(
            PartRow(self._id("prt_", f"/{index}"), index, data, self.at, self.at)
            for index, data in enumerate(said, first)
        )

    def _set_parts(self, row: MessageRow, parts: tuple[PartRow, ...]) -> str:
        self.value.messages[row.id] = replace(row, parts=parts, updated_at=max(row.updated_at, self.at))
        return row.id

    def _add(self, turn: Turn, role: Role, said: list[dict[str, Any]]) -> str:
        """Add a message at the end of a turn; return its id."""
        value, session, at = self.value, self.value.row["session"], self.at
        metadata = {key: True for key in ("synthetic", "summary") if self.record.get(key) is True}
        # Messages are ordered by time. If the file has no times, or an older message after a newer one, its order
        # decides.
        last = next(reversed(value.messages.values()), None)
        made = at if last is None else max(at, last.created_at + 1)
        row = MessageRow(self._id("msg_"), session.id, role, made, max(at, made), metadata, self._parts(said, 0))
        value.messages[row.id] = row
        value.links[turn.id] = (*value.links.get(turn.id, ()), row.id)
        value.row["session"] = replace(session, updated_at=max(session.updated_at, at))
        return row.id

    def _begin(self, kind: Literal["normal", "compaction"]) -> Turn:
        """Begin a turn at the end of the line, and move the head to it."""
        value, state = self.value, self.value.state["state"]
        # The process that ran an open turn is gone: the next settling ends it where it is.
        parent_id = self._open_turn() or state.head_turn_id
        turn = Turn(
            id=self._id("trn_"),
            session_id=self.session_id,
            parent_turn_id=parent_id,
            created_at=self.at,
            kind=kind,
            status="completed" if kind == "compaction" else "unanswered",
            settled_at=self.at,
        )
        turn = value.turns[turn.id] = with_parent(turn, value.turns.get(parent_id or ""))
        seq = next(reversed(value.moves), 0) + 1
        why: MoveReason = "compaction" if kind == "compaction" else "turn"
        value.moves[seq] = HeadMove(seq, self.session_id, state.head_turn_id, turn.id, self.at, why)
        value.state["state"] = replace(state, head_turn_id=turn.id)
        return turn

    def _open_turn(self) -> str | None:
        """Return the open turn, unless the head is already below it."""
        state = self.value.state["state"]
        at = self.value.turns.get(state.head_turn_id or "") if state.open_turn_id is not None else None
        while at is not None and at.id != state.open_turn_id:
            at = self.value.turns.get(at.parent_turn_id or "")
        return state.open_turn_id if at is None else None


def project_hidden(value: SessionValue) -> None:
    """Mark the messages that compactions of another program hide."""
    tree = value.tree()
    hidden = hidden_messages(tree, compaction_tails(tree, value.messages))
    for row in list(value.messages.values()):
        one = hidden.get(row.id)
        metadata = merge(row.metadata, {}, ("hidden_at", "hidden_by"))
        if one is not None:
            metadata = {**metadata, "hidden_at": one.at, "hidden_by": one.by}
        if metadata != row.metadata:
            value.messages[row.id] = replace(row, metadata=metadata)
