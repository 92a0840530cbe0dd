"""What a copy of a line is made of, before it is written: its turns and messages, by what they are copies of."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from clew.transcript.turn import Turn

__all__ = ["CopiedMessage", "CopiedRun", "CopiedTurn"]


class CopiedMessage(NamedTuple):
    """A message of another session and the id of its copy. ``inserted``: this unit inserts the copy by itself."""

    source_id: str
    id: str
    inserted: bool = False


class CopiedTurn(msgspec.Struct, frozen=True):
    """A settled turn as it will be, and what it holds. ``turn.origin_turn_id`` names the turn it is a copy of."""

    turn: Turn
    messages: tuple[CopiedMessage, ...]


class CopiedRun(msgspec.Struct, frozen=True):
    """So many turns of another session that end with ``through``, each copied as it is, with what it holds.

    They go right above the copied turn ``above``. They are settled, no compactions, and have no data. ``turn`` and
    ``message`` are minted: the ids of the copies are made of them. ``now`` is when those settled that do not say it.
    """

    above: str
    through: str
    count: int
    turn: str
    message: str
    now: int
