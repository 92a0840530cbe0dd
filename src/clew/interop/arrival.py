"""Arrival: what becomes of a document before it is written elsewhere. Pure.

What was running there runs nowhere here, so it is given an end that says so. Where an id is taken already, every id is
replaced, and whatever names a message or a turn names the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clew.ids import Mint
from clew.interop.document import MessageRecord, MoveRecord, PartRecord, SessionDocument, TurnRecord
from clew.transcript.part import COMPACTION_PART
from clew.transcript.turn_state import OPEN

__all__ = ["LEFT_BEHIND", "renamed", "settled"]

LEFT_BEHIND: Final = "left behind by an import"
_STREAMED: Final = ("text", "reasoning")
replace = msgspec.structs.replace


def settled(document: SessionDocument, now: int, mint: Mint) -> SessionDocument:
    """The document with nothing open: its open turn aborted, its open calls closed as errors, its texts ended.

    Parts that had no id yet get one.
    """
    before = document.turns
    document = replace(document, messages=tuple(_settled_message(row, now, mint) for row in document.messages))
    document = replace(document, turns=tuple(_settled_turn(turn, now) for turn in document.turns))
    ended = next((turn for turn, was in zip(document.turns, before, strict=True) if was.status in OPEN), None)
    if ended is None or document.session.head_turn_id == ended.id:
        return document
    moves = (*document.moves, MoveRecord(ended.id, now, "turn"))
    return replace(document, moves=moves, session=replace(document.session, head_turn_id=ended.id))


def _settled_turn(turn: TurnRecord, now: int) -> TurnRecord:
    """The turn without what it asked a human, whom nobody here could answer."""
    if turn.data.get("waiting") or turn.status in OPEN:
        turn = replace(turn, data={key: value for key, value in turn.data.items() if key != "waiting"})
    if turn.status not in OPEN:
        return turn
    return replace(turn, status="aborted", settled_at=now, data={**turn.data, "stopped": LEFT_BEHIND})


def _settled_message(row: MessageRecord, now: int, mint: Mint) -> MessageRecord:
    named = (part if part.id is not None else replace(part, id=mint.part()) for part in row.parts)
    parts = tuple(_settled_part(part, now) for part in named)
    same = all(new is old for new, old in zip(parts, row.parts, strict=True))
    return row if same else replace(row, parts=parts)


def _settled_part(part: PartRecord, now: int) -> PartRecord:
    state = part.data.get("state")
    if part.data.get("type") in _STREAMED and state == "streaming":
        return replace(part, data={**part.data, "state": "done"}, updated_at=now)
    called = isinstance(part.data.get("toolCallId"), str) and isinstance(state, str)
    if not called or str(state).startswith("output-"):
        return part
    data = {key: value for key, value in part.data.items() if key not in ("approval", "inputEncoding", "rawInput")}
    asked = part.data.get("approval")
    if isinstance(asked, dict) and asked.get("approved") is True:
        data["approval"] = asked
    data.setdefault("input", {})
    return replace(part, data={**data, "state": "output-error", "errorText": LEFT_BEHIND}, updated_at=now)


def renamed(document: SessionDocument, session_id: str, mint: Mint) -> SessionDocument:
    """The document under new ids, minted in its order so that they sort as the old ones did."""
    names = {row.id: mint.message() for row in document.messages}
    names |= {turn.id: mint.turn() for turn in document.turns}
    head = document.session.head_turn_id
    return replace(
        document,
        session=replace(document.session, id=session_id, head_turn_id=names.get(head or "")),
        messages=tuple(_renamed_message(row, names, mint) for row in document.messages),
        turns=tuple(_renamed_turn(turn, names) for turn in document.turns),
        steps=tuple(
            replace(step, turn_id=names[step.turn_id], message_id=names[step.message_id]) for step in document.steps
        ),
        moves=tuple(replace(move, to_turn_id=names.get(move.to_turn_id or "")) for move in document.moves),
        prunes=tuple(replace(one, message_id=names[one.message_id]) for one in document.prunes),
        queue=tuple(replace(entry, message_id=names[entry.message_id]) for entry in document.queue),
    )


def _renamed_message(row: MessageRecord, names: Mapping[str, str], mint: Mint) -> MessageRecord:
    return replace(
        row,
        id=names[row.id],
        parts=tuple(replace(part, id=mint.part(), data=_renamed_part(part.data, names)) for part in row.parts),
    )


def _renamed_part(data: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    # Only a compaction names other messages; everywhere else a text that looks like an id is a text.
    return {**data, "data": _remapped(data.get("data"), names)} if data.get("type") == COMPACTION_PART else data


def _renamed_turn(turn: TurnRecord, names: Mapping[str, str]) -> TurnRecord:
    origin = turn.origin_turn_id
    return replace(
        turn,
        id=names[turn.id],
        parent_turn_id=names.get(turn.parent_turn_id or ""),
        origin_turn_id=names.get(origin, origin) if origin is not None else None,
        data=_remapped(turn.data, names),
        messages=tuple(names[message_id] for message_id in turn.messages),
    )


def _remapped(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {key: _remapped(item, names) for key, item in value.items()}
    return [_remapped(item, names) for item in value] if isinstance(value, list) else value
