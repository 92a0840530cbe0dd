"""Parts of a history as they were told: the same whether pruned or not, settled or left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clew.history.branch_plan import LEFT_BEHIND
from clew.transcript.line import LineTurn
from clew.transcript.message import Message


def known_parts(parts: Iterable[dict[str, Any]]) -> list[Any]:
    """Parts by what makes them the same, pruned or not."""
    return [part.get("toolCallId") or part for part in parts]


def lost_parts(held: list[Any], pieces: Iterable[list[Any]]) -> list[Any]:
    """What of a message is in none of the pieces it was told in. Each has to be a stretch of it."""
    found: set[int] = set()
    for piece in pieces:
        starts = [at for at in range(len(held) - len(piece) + 1) if held[at : at + len(piece)] == piece]
        assert starts
        found.update(at + n for at in starts for n in range(len(piece)))
    return [part for n, part in enumerate(held) if n not in found and part != {"type": "step-start"}]


def settled_part(part: dict[str, Any]) -> dict[str, Any]:
    """A part as a branch holds it: a call that waits for a human is denied there."""
    approval = part.get("approval") or {}
    waits = "toolCallId" in part and not str(part["state"]).startswith("output-")
    if waits or approval.get("reason") == LEFT_BEHIND:
        return {"toolCallId": part["toolCallId"], "input": part.get("input"), "state": "left behind"}
    return part


def said_on_line(line: Sequence[LineTurn], through: str | None = None) -> list[Any]:
    """What people and the model said on a line, up to a message, without the summaries."""
    said: list[Any] = []
    for entry in line:
        for row in entry.messages:
            if entry.turn.kind == "normal":
                said.append((row.role, [settled_part(part.data) for part in row.parts]))
            if row.id == through and entry is line[-1]:
                return said
    return said


def sent_messages(messages: Iterable[Message]) -> list[Any]:
    return [(message.role, [settled_part(part) for part in message.parts]) for message in messages]
