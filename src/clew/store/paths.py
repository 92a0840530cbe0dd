"""Parts of a tree, as moves of the head need them: a path, what holds a message, where the head has been.

What each answers costs as much as it tells, however long the session is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

from clew.transcript.turn import HeadMove, Turn

__all__ = ["PathTurn", "Paths", "is_joined", "join_runs"]


class PathTurn(NamedTuple):
    """A turn on a path, and the ids of the messages it holds, in order."""

    turn: Turn
    messages: tuple[str, ...]


def is_joined(turn: Turn, apart: str | None = None) -> bool:
    """Whether a turn goes into a run: to a move of the head it is nothing but the messages it holds."""
    return turn.kind == "normal" and turn.status != "refused" and turn.id != apart


def join_runs(path: Iterable[PathTurn], apart: str | None = None) -> tuple[PathTurn, ...]:
    """A path with each run of turns as one: the last of them, below what the first hangs below, with all they hold."""
    joined: list[PathTurn] = []
    for turn, messages in path:
        above = joined[-1] if joined else None
        if above is not None and is_joined(turn, apart) and is_joined(above.turn, apart):
            turn = msgspec.structs.replace(turn, parent_turn_id=above.turn.parent_turn_id)
            joined[-1] = PathTurn(turn, above.messages + messages)
        else:
            joined.append(PathTurn(turn, messages))
    return tuple(joined)


class Paths(Protocol):
    """Reading parts of the tree of one session."""

    async def load_path(
        self, session_id: str, turn_id: str | None, *, turns: int | None = None, depth: int = 0
    ) -> tuple[PathTurn, ...]:
        """The turns from the root down to this one, with what they hold; no message is read.

        ``turns`` takes at most that many from the end, ``depth`` none above it that lies further up. Raises
        ``RowUndecodable`` where one of them is missing, is not where it belongs, or has lost a message.
        """
        ...

    async def load_runs(
        self, session_id: str, turn_id: str | None, *, depth: int = 0, apart: str | None = None
    ) -> tuple[PathTurn, ...]:
        """The same as :func:`join_runs` makes it, without what lies above ``depth``; empty where that is all of it."""
        ...

    async def find_meeting(self, session_id: str, one: str | None, other: str | None) -> Turn | None:
        """The last turn that is on the paths to both; None where they have none in common.

        Raises ``RowUndecodable`` where one of them is missing or is not where it belongs.
        """
        ...

    async def find_on_path(self, session_id: str, message_id: str, through: str | None) -> Turn | None:
        """The turn that holds the message on the path down to ``through``; the first of them, where several do."""
        ...

    async def has_child(self, session_id: str, turn_id: str, *, refused: bool = False) -> bool:
        """Whether a turn hangs below this one; one that was refused counts where ``refused`` says so."""
        ...

    async def load_marked(self, session_id: str, turn_id: str) -> tuple[PathTurn, ...]:
        """Of the turns from the root down to this one both ends, and those that no run can hold (``is_plain``).

        Raises ``RowUndecodable`` where the path does not lead to a root.
        """
        ...

    async def load_refused(self, session_id: str, since: int) -> tuple[PathTurn, ...]:
        """The turns that were refused at that time or later, by (settled_at, id)."""
        ...

    async def newest_move(self, session_id: str) -> HeadMove | None:
        """The move that led the head to where it is."""
        ...

    async def find_rewind(self, session_id: str) -> HeadMove | None:
        """The newest rewind that was not undone."""
        ...

    async def moves_after(self, session_id: str, after: int, limit: int) -> tuple[HeadMove, ...]:
        """At most so many moves of the head behind the one numbered ``after``, oldest first."""
        ...

    async def was_head(self, session_id: str, turn_id: str, through: int) -> bool:
        """Whether a move of the head up to the one numbered ``through`` led to this turn or to one right below it."""
        ...
