"""The content of a copied line before it is written: its turns and messages, and the originals they are copied from.

A turn is listed only if its copy differs from it in more than its ids. :class:`CopiedRun` stands for the turns between:
the database copies them without sending them to Python and back. A branch in the middle of 2,000 turns takes 50 ms of
processor time this way, and 80 ms if every turn is listed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from clew.transcript.turn import Turn, with_parent

__all__ = ["NOT_COPIED", "CopiedMessage", "CopiedRun", "CopiedTurn"]

NOT_COPIED: Final = ("hidden_at", "hidden_by", "snapshot_id")
"""Metadata that is not copied with a message: it refers to the source's tree or workspace."""


class CopiedMessage(NamedTuple):
    """A message of another session and the id of its copy. ``inserted``: the same unit inserts the copy by another
    write."""

    source_id: str
    id: str
    inserted: bool = False


class CopiedTurn(msgspec.Struct, frozen=True):
    """A settled turn of the copy, with its messages. ``turn.origin_turn_id`` names the original.

    The store sets its parent: the turn listed before it, or the last turn of the run between them.
    """

    turn: Turn
    messages: tuple[CopiedMessage, ...]


class CopiedRun(msgspec.Struct, frozen=True):
    """A number of consecutive turns of another session that end with ``through``, each copied unchanged with its
    messages.

    They are inserted directly above the copied turn ``above``, or below all turns of the write if that is None. They
    are settled, no compactions, and have no data. ``turn`` and ``message`` are minted ids from which the ids of the
    copies are derived. ``now`` is the settle time of turns that have none.
    """

    above: str | None
    through: str
    count: int
    turn: str
    message: str
    now: int

    def last(self, above: Turn | None, session_id: str) -> Turn:
        """Return the last turn of the copies below ``above``, as the parent of the next one."""
        first = with_parent(Turn(id=self.turn, session_id=session_id, parent_turn_id=None, created_at=self.now), above)
        last_id = f"{self.turn[:16]}{self.count - 1:06x}{self.turn[22:]}"  # as add_copied_turns makes them
        return msgspec.structs.replace(first, id=last_id, depth=first.depth + self.count - 1)
