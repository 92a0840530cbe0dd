"""Turns and the tree they form; steps inside them; the moves of the head over them.

A turn is a user message and all that follows until the next one. Turns know their parent and their depth, and the
nearest compaction at or above them, so that the end of a long session can be read without reading its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from clew.transcript.session import Model
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage

__all__ = ["HeadMove", "MoveReason", "Step", "Tree", "Turn", "TurnKind", "placed"]

TurnKind = Literal["normal", "compaction"]
MoveReason = Literal["turn", "rewind", "unrewind", "goto", "compaction", "branch"]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the turn tree. ``data`` holds what its kind needs (errors, compaction figures) as JSON."""

    id: str
    session_id: str
    parent_turn_id: str | None
    created_at: int
    kind: TurnKind = "normal"
    status: TurnStatus = "running"
    depth: int = 0
    compaction_turn_id: str | None = None
    origin_turn_id: str | None = None
    settled_at: int | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)


def placed(turn: Turn, parent: Turn | None) -> Turn:
    """The turn with its depth and nearest compaction as its place under ``parent`` gives them."""
    above = parent.compaction_turn_id if parent else None
    return msgspec.structs.replace(
        turn,
        parent_turn_id=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
        compaction_turn_id=turn.id if turn.kind == "compaction" else above,
    )


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One model call with its tool results: what it used, when, and which prompt it was given."""

    turn_id: str
    index: int
    message_id: str
    usage: Usage
    model: Model
    started_at: int
    finished_at: int
    finish_reason: str | None = None
    prompt_digest: str | None = None
    cost_usd: float = 0.0
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The digests under which its prompt and its tools are kept."""
        named = (self.prompt_digest, self.data.get("tools"))
        return tuple(digest for digest in named if isinstance(digest, str))


class HeadMove(msgspec.Struct, frozen=True):
    """One entry of the reflog: the head left ``from_turn_id`` for ``to_turn_id``."""

    seq: int
    session_id: str
    from_turn_id: str | None
    to_turn_id: str | None
    at: int
    why: MoveReason


class Tree(msgspec.Struct, frozen=True):
    """All turns of one session, which messages each holds in order, and every head move, oldest first."""

    head_turn_id: str | None
    open_turn_id: str | None
    turns: Mapping[str, Turn]
    links: Mapping[str, tuple[str, ...]]
    moves: tuple[HeadMove, ...]
