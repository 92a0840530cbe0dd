"""Adoption: records that another program wrote, taken in as a session of clew's. Pure.

A user message begins a turn; what follows is its answer, one message with a step for each record. Ids follow from the
session and the place of a record, so that every load gives the same ones, and the file itself is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from clew.ids import derived_id
from clew.store.files.record import Record, content_text, names_in
from clew.store.memory.session_value import SessionValue
from clew.transcript.iso_time import milliseconds
from clew.transcript.message import MessageRow, PartRow, Role
from clew.transcript.metadata import merge
from clew.transcript.part import COMPACTION_PART, STEP_START
from clew.transcript.projection import hidden_messages, kept_tails_of
from clew.transcript.turn import HeadMove, MoveReason, Turn, with_parent

__all__ = ["adopt", "project_hidden"]


def adopt(
    value: SessionValue,
    record: Record,
    seqs: Mapping[str, list[tuple[int, int]]],
    kept: Sequence[dict[str, Any]] = (),
    before: Sequence[dict[str, Any]] = (),
) -> str | None:
    """Take in one record of another program; the id of the message it became, or became part of.

    ``kept`` are parts that keep the record itself, and stand behind what it says; those of ``before`` stand in front.
    """
    adoption = _Adoption(value, record, kept, before)
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
    """A record on its way into a session. ``at`` is when it was written, ``place`` where it stands."""

    def __init__(
        self, value: SessionValue, record: Record, kept: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]
    ) -> None:
        self.value = value
        self.record = record
        self.kept, self.before = kept, before
        self.session_id = value.row["session"].id
        self.place = str(record["seq"])
        at = milliseconds(record.get("timestamp"))
        times = (row.parts[0].created_at if row.parts else row.created_at for row in value.messages.values())
        self.at = max(times, default=value.row["session"].created_at) if at is None else at

    def user(self) -> str:
        turn = self._begin("normal")
        return self._add(turn, "user", self._with_kept([one for one in self._blocks() if isinstance(one, dict)]))

    def assistant(self) -> str:
        value = self.value
        head = value.turns.get(value.state["state"].head_turn_id or "")
        if head is None or head.kind == "compaction":
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
                    # Without a result it is what a process that was cut off leaves; settling gives it an end.
                    said.append({**call, "input": given if isinstance(given, dict) else {}})
                case {"type": str()}:
                    said.append(block)
        said = self._with_kept(said)
        value.turns[head.id] = replace(head, status="completed", settled_at=self.at)
        if row is None or row.role != "assistant":
            return self._add(value.turns[head.id], "assistant", said)
        return self._set_parts(row, (*row.parts, *self._parts(said, len(row.parts))))

    def result(self) -> str | None:
        record, text = self.record, content_text(self.record.get("content"))
        for row in reversed(self.value.messages.values()):
            for part in row.parts:
                if part.tool_call_id == record.get("toolCallId") and part.tool_state == "input-available":
                    came = {"state": "output-available", "output": text}
                    if record.get("isError") is True:
                        came = {"state": "output-error", "errorText": text}
                    # What the call had given before is none of its result.
                    before = {key: value for key, value in part.data.items() if key not in ("output", "preliminary")}
                    new = replace(part, data={**before, **came}, updated_at=self.at)
                    kept = self._parts(self._with_kept([]), len(row.parts))
                    return self._set_parts(row, (*row.parts[: part.index], new, *row.parts[part.index + 1 :], *kept))
        return None

    def compaction(self, seqs: Mapping[str, list[tuple[int, int]]]) -> str:
        record = self.record
        turn = self._begin("compaction")
        first = record.get("firstKeptSeq")
        wanted = first if isinstance(first, int) else 0
        # The message that the first record which is kept belongs to, and from which of its parts on.
        kept = ((id_, part) for id_, places in seqs.items() for seq, part in places if seq >= wanted)
        tail, from_part = next(kept, (None, 0))
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
        said = self._with_kept([{"type": COMPACTION_PART, "data": data}])
        return self._add(turn, "assistant", [*self.before, *said])

    def _blocks(self) -> list[Any]:
        content = self.record.get("content")
        return content if isinstance(content, list) else [{"type": "text", "text": content_text(content)}]

    def _with_kept(self, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what was said, and behind it what is kept of the record that said it."""
        kept = ({**part, "data": {**part["data"], "parts": len(said)}} for part in self.kept)
        return [*said, *kept]

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
        """A message at the end of a turn."""
        value, session, at = self.value, self.value.row["session"], self.at
        metadata = {key: True for key in ("synthetic", "summary") if self.record.get(key) is True}
        # Messages are shown by when they were made. Where a file says nothing of that, or puts an older one behind a
        # newer one, its own order is what counts.
        last = next(reversed(value.messages.values()), None)
        made = at if last is None else max(at, last.created_at + 1)
        row = MessageRow(self._id("msg_"), session.id, role, made, max(at, made), metadata, self._parts(said, 0))
        value.messages[row.id] = row
        value.links[turn.id] = (*value.links.get(turn.id, ()), row.id)
        value.row["session"] = replace(session, updated_at=max(session.updated_at, at))
        return row.id

    def _begin(self, kind: Literal["normal", "compaction"]) -> Turn:
        """A turn below the head, which moves to it."""
        value, state = self.value, self.value.state["state"]
        turn = Turn(
            id=self._id("trn_"),
            session_id=self.session_id,
            parent_turn_id=state.head_turn_id,
            created_at=self.at,
            kind=kind,
            status="completed" if kind == "compaction" else "unanswered",
            settled_at=self.at,
        )
        turn = value.turns[turn.id] = with_parent(turn, value.turns.get(state.head_turn_id or ""))
        seq = next(reversed(value.moves), 0) + 1
        why: MoveReason = "compaction" if kind == "compaction" else "turn"
        value.moves[seq] = HeadMove(seq, self.session_id, state.head_turn_id, turn.id, self.at, why)
        value.state["state"] = replace(state, head_turn_id=turn.id)
        return turn


def project_hidden(value: SessionValue) -> None:
    """Mark what compactions of another program hide."""
    tree = value.tree()
    hidden = hidden_messages(tree, kept_tails_of(tree, value.messages))
    for row in list(value.messages.values()):
        one = hidden.get(row.id)
        metadata = merge(row.metadata, {}, ("hidden_at", "hidden_by"))
        if one is not None:
            metadata = {**metadata, "hidden_at": one.at, "hidden_by": one.by}
        if metadata != row.metadata:
            value.messages[row.id] = replace(row, metadata=metadata)
