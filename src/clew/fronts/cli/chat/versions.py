"""Versions: alternative turns at the same position."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from clew.fronts.cli.command import AnyEngine
from clew.session.history.tree import TreeTurn
from clew.transcript.message import Message
from clew.transcript.part import input_of, is_call, output_text, text_of, tool_name

__all__ = ["diff_versions", "list_versions", "newest_descendant"]

_MAX_TURNS: Final = 200


async def list_versions(engine: AnyEngine, session_id: str, turn_id: str | None = None) -> list[TreeTurn]:
    """Return the versions of a turn, by default of the newest: the turns with the same parent, oldest first."""
    page = await engine.tree(session_id, limit=_MAX_TURNS)
    here = turn_id or page.head_turn_id
    of = next((turn for turn in page.turns if turn.id == here), None)
    if of is None:
        return []
    siblings = [turn for turn in page.turns if turn.parent_turn_id == of.parent_turn_id and turn.kind == of.kind]
    return sorted(siblings, key=lambda turn: (turn.created_at, turn.id))


async def newest_descendant(engine: AnyEngine, session_id: str, turn_id: str) -> str:
    """Return the newest descendant of a turn."""
    turns = (await engine.tree(session_id, limit=_MAX_TURNS)).turns
    while below := [turn for turn in turns if turn.parent_turn_id == turn_id]:
        turn_id = max(below, key=lambda turn: (turn.created_at, turn.id)).id
    return turn_id


def diff_versions(before: Sequence[Message], after: Sequence[Message], names: tuple[str, str]) -> Iterator[str]:
    """Yield a line diff of two versions; nothing if they are identical."""
    return difflib.unified_diff(list(_on_line(before)), list(_on_line(after)), *names, lineterm="", n=2)


def _on_line(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            text = text_of(part)
            if is_call(part):
                yield f"▸ {tool_name(part)} {input_of(part)}"
                yield from (output_text(part) or "").splitlines()
            elif text is not None:
                yield from (f"{'› ' if message.role == 'user' else ''}{line}" for line in text.splitlines())
