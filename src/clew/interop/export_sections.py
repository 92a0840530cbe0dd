"""Passages: the readable contents of a session in order, from which Markdown and HTML are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from clew.transcript import part as p
from clew.transcript.damage import DAMAGED, NOT_ALL_READABLE
from clew.transcript.line import LineTurn, line_turns
from clew.transcript.message import MessageRow
from clew.transcript.portable import PortableSession, tree_of
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.view import compaction_data, visible_view

__all__ = ["MARKS", "Block", "Mark", "Passage", "Piece", "about", "left_out", "passages_of", "piece_of", "shown_time"]

Mark = Literal["rewind", "compaction", "refused", "queued", "cancelled"]
MARKS: Final[dict[Mark, str]] = {
    "rewind": "left behind by a rewind",
    "compaction": "summarised since",
    "refused": "refused",
    "queued": "waits in the queue",
    "cancelled": "cancelled before it was sent",
}
"""The label of each mark."""
_LINE_ENDS: Final = re.compile(r"[\r\n\t]+")


class Passage(msgspec.Struct, frozen=True):
    """A message of an export. ``turn`` counts the turns shown; ``mark`` says why it is not on the current path."""

    row: MessageRow
    turn: int
    mark: Mark | None = None

    @property
    def who(self) -> str:
        return "Summary" if compaction_data(self.row) is not None else self.row.role.capitalize()

    @property
    def damage(self) -> str | None:
        """The damage of a message that may differ from the stored one."""
        if self.row.damage is not None or DAMAGED not in self.row.metadata:
            return self.row.damage
        return NOT_ALL_READABLE


class Block(msgspec.Struct, frozen=True):
    """A text to be shown unchanged."""

    title: str
    text: str
    language: str = "text"


class Piece(msgspec.Struct, frozen=True):
    """A part as it is shown. ``text`` is Markdown; ``blocks`` are collapsed under ``title``."""

    kind: Literal["text", "reasoning", "summary", "call", "other"]
    text: str = ""
    title: str = ""
    blocks: tuple[Block, ...] = ()


def about(portable: PortableSession) -> list[str]:
    """Return the facts to show above the conversation."""
    session = portable.session
    facts = [str(session.model), session.agent, shown_time(session.created_at)]
    return [*facts, f"{portable.redacted} redacted"] if portable.redacted else facts


def passages_of(portable: PortableSession, *, hidden: bool = False) -> tuple[Passage, ...]:
    """Return the current conversation and the queue; with ``hidden`` all messages, by time."""
    rows, tree = {row.id: row for row in portable.messages}, tree_of(portable)
    queued = {entry.message_id for entry in portable.queue}
    marks: dict[str, Mark] = {id_: why.by for id_, why in hidden_messages(tree, compaction_tails(tree, rows)).items()}
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
    """Return a sentence about messages that are not shown; an empty text if there are none."""
    count = len(portable.messages) - len(shown)
    if count <= 0:
        return ""
    which = "1 message is" if count == 1 else f"{count} messages are"
    return f"{which} not shown: summarised, or left behind; an export with --hidden (hidden=true over HTTP) has all."


def piece_of(data: dict[str, Any]) -> Piece | None:
    """Return the part as it is shown; None if it is not shown. Each format renders files itself."""
    if p.is_call(data):
        blocks = [Block("Input", shown_json(p.input_of(data)), "json")]
        blocks += [Block("Output", shown_json(p.read_output(data)))] if "output" in data else []
        blocks += [Block("Error", error)] if (error := p.error_text(data)) is not None else []
        name = _LINE_ENDS.sub(" ", p.tool_name(data))[:200]
        return Piece("call", title=f"{name} · {p.state_of(data) or ''}", blocks=tuple(blocks))
    kind, text = p.kind_of(data), p.text_of(data, "text", "reasoning")
    if text is not None:
        return Piece("text" if kind == "text" else "reasoning", text) if text or kind == "text" else None
    summary = (p.data_of(data, p.COMPACTION_PART) or {}).get("summary")
    if isinstance(summary, str):
        return Piece("summary", summary)
    if kind in p.UNSEEN:
        return None
    return Piece("other", title=kind, blocks=(Block("", shown_json(data), "json"),))


def shown_json(value: Any) -> str:
    """Return a text unchanged, any other value as indented JSON."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def shown_time(ms: int) -> str:
    """Return a time in UTC for people; one outside the calendar stays a number."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return str(ms)
