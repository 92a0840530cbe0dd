"""Passages: what a person reads of a session, in order. Both formats for people are made from them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from clew.transcript.line import LineTurn, line_turns
from clew.transcript.message import MessageRow
from clew.transcript.metadata import DAMAGED
from clew.transcript.part import error_text, input_of, is_call, output_of, state_of, tool_name
from clew.transcript.portable import PortableSession, tree_of
from clew.transcript.project import project, tails_of
from clew.transcript.view import compaction_data, visible_view

__all__ = [
    "MARKS",
    "Mark",
    "Passage",
    "ToolUse",
    "left_out",
    "passages_of",
    "shown_json",
    "shown_time",
    "tool_use",
]

Mark = Literal["rewind", "compaction", "refused", "queued", "cancelled"]
MARKS: Final[dict[Mark, str]] = {
    "rewind": "left behind by a rewind",
    "compaction": "summarised since",
    "refused": "refused",
    "queued": "waits in the queue",
    "cancelled": "cancelled before it was sent",
}
"""Each mark in words."""
_UNSEEN: Final = re.compile(r"[\r\n\t]+")


class Passage(msgspec.Struct, frozen=True):
    """A message on its way to a reader. ``turn`` counts the turns shown; ``mark`` says why it is not on the line."""

    row: MessageRow
    turn: int
    mark: Mark | None = None

    @property
    def is_summary(self) -> bool:
        return compaction_data(self.row) is not None


def damage_of(row: MessageRow) -> str | None:
    """What is the matter with a message that may not be what was stored."""
    if row.damage is not None or DAMAGED not in row.metadata:
        return row.damage
    return "not all of it is readable"


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call as people look at it."""

    name: str
    state: str
    input: str
    output: str | None
    error: str | None


def passages_of(portable: PortableSession, *, hidden: bool = False) -> tuple[Passage, ...]:
    """The conversation as it stands and what is queued; with ``hidden`` every message there is, by its time."""
    rows, tree = {row.id: row for row in portable.messages}, tree_of(portable)
    queued = {entry.message_id for entry in portable.queue}
    marks: dict[str, Mark] = {id_: why.by for id_, why in project(tree, tails_of(tree, rows)).items()}
    marks |= {row.id: "cancelled" for row in rows.values() if row.is_cancelled}
    marks |= dict.fromkeys(queued, "queued")
    holders: dict[str, str] = {}
    for turn in (*tree.turns.values(), *line_turns(tree)):
        holders.update(dict.fromkeys(tree.links.get(turn.id, ()), turn.id))
    if hidden:
        shown = [row for row in rows.values() if row.id not in queued]
    else:
        line = [LineTurn(turn, tuple(rows[id_] for id_ in tree.links[turn.id])) for turn in line_turns(tree)]
        shown = [rows[message.id] for message in visible_view(line)]
    shown += [rows[entry.message_id] for entry in portable.queue]
    numbers: dict[str | None, int] = {}
    return tuple(
        Passage(row, numbers.setdefault(holders.get(row.id, row.id), len(numbers) + 1), marks.get(row.id))
        for row in shown
    )


def left_out(portable: PortableSession, shown: tuple[Passage, ...]) -> str:
    """Of what is not shown, how much and how to see it; nothing when all is."""
    count = len(portable.messages) - len(shown)
    if count <= 0:
        return ""
    which = "1 message is" if count == 1 else f"{count} messages are"
    return f"{which} not shown: summarised, or left behind; an export with --hidden (hidden=true over HTTP) has all."


def tool_use(data: dict[str, Any]) -> ToolUse | None:
    """The part as a tool call; None when it is none."""
    if not is_call(data):
        return None
    return ToolUse(
        _UNSEEN.sub(" ", tool_name(data))[:200],
        state_of(data) or "",
        shown_json(input_of(data)),
        shown_json(output_of(data)) if "output" in data else None,
        error_text(data),
    )


def shown_json(value: Any) -> str:
    """A text as it is, anything else as JSON on lines."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def shown_time(ms: int) -> str:
    """A time for people, in UTC; one that no calendar holds stays a number."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return str(ms)
