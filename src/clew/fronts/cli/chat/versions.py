"""Versions: the turns that were said or answered in the place of one another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from clew.fronts.cli.command import AnyEngine
from clew.session.history.tree import TreeTurn
from clew.transcript.message import Message
from clew.transcript.part import input_of, is_call, output_text, text_of, tool_name

__all__ = ["compared", "list_versions", "newest_below"]

_NEAR: Final = 200


async def list_versions(engine: AnyEngine, session_id: str, turn_id: str | None = None) -> list[TreeTurn]:
    """A turn, that of the head if none is named, and those that have the same turn before them; oldest first."""
    page = await engine.tree(session_id, limit=_NEAR)
    here = turn_id or page.head_turn_id
    of = next((turn for turn in page.turns if turn.id == here), None)
    if of is None:
        return []
    beside = [turn for turn in page.turns if turn.parent_turn_id == of.parent_turn_id and turn.kind == of.kind]
    return sorted(beside, key=lambda turn: (turn.created_at, turn.id))


async def newest_below(engine: AnyEngine, session_id: str, turn_id: str) -> str:
    """Where a conversation that went on from a turn was last."""
    turns = (await engine.tree(session_id, limit=_NEAR)).turns
    while below := [turn for turn in turns if turn.parent_turn_id == turn_id]:
        turn_id = max(below, key=lambda turn: (turn.created_at, turn.id)).id
    return turn_id


def compared(before: Sequence[Message], after: Sequence[Message], names: tuple[str, str]) -> Iterator[str]:
    """What differs between two versions, line by line; nothing when they say the same."""
    return difflib.unified_diff(list(_said(before)), list(_said(after)), *names, lineterm="", n=2)


def _said(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            text = text_of(part)
            if is_call(part):
                yield f"▸ {tool_name(part)} {input_of(part)}"
                yield from (output_text(part) or "").splitlines()
            elif text is not None:
                yield from (f"{'› ' if message.role == 'user' else ''}{line}" for line in text.splitlines())
