"""The content of a copied line before it is written: its turns and messages, and the originals they are copied from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from clew.transcript.turn import Turn

__all__ = ["CopiedMessage", "CopiedRun", "CopiedTurn"]


class CopiedMessage(NamedTuple):
    """A message of another session and the id of its copy. ``inserted``: the same unit inserts the copy by another
    write."""

    source_id: str
    id: str
    inserted: bool = False


class CopiedTurn(msgspec.Struct, frozen=True):
    """A settled turn of the copy, with its messages. ``turn.origin_turn_id`` names the original."""

    turn: Turn
    messages: tuple[CopiedMessage, ...]


class CopiedRun(msgspec.Struct, frozen=True):
    """A number of consecutive turns of another session that end with ``through``, each copied unchanged with its
    messages.

    They are inserted directly above the copied turn ``above``. They are settled, no compactions, and have no data.
    ``turn`` and ``message`` are minted ids from which the ids of the copies are derived. ``now`` is the settle time of
    turns that have none.
    """

    above: str
    through: str
    count: int
    turn: str
    message: str
    now: int
