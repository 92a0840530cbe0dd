"""What people look at of a session, as stores answer it in pages: its turns, its moves, and where a message is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Turn

__all__ = ["Holder", "KnownTurn", "Looks", "MovePage", "TurnPage"]


class Holder(msgspec.Struct, frozen=True):
    """The turn through which a message is reached."""

    turn: Turn
    on_line: bool


class KnownTurn(msgspec.Struct, frozen=True):
    """A turn with the ids of its messages. ``told_by`` are those people know it by, in order: what a user said in it,
    and of a compaction all that it holds.
    """

    turn: Turn
    messages: tuple[str, ...]
    told_by: tuple[MessageRow, ...]


class TurnPage(msgspec.Struct, frozen=True):
    """Turns by id, the newest first; ``on_line`` names those of them that are. ``more``: there are older ones."""

    head_turn_id: str | None
    open_turn_id: str | None
    turns: tuple[KnownTurn, ...]
    on_line: frozenset[str]
    more: bool


class MovePage(msgspec.Struct, frozen=True):
    """Moves of the head, the newest first, and the turns they went to.

    ``summarised``: of the compactions among these, how many turns each stands for.
    """

    moves: tuple[HeadMove, ...]
    turns: Mapping[str, KnownTurn]
    summarised: Mapping[str, int]


class Looks(Protocol):
    """Reading what people look at. None of it costs more in a longer session."""

    async def list_branches(self, parent_id: str) -> tuple[Session, ...]:
        """Of the sessions whose parent this is those that are no subagent's, oldest first."""
        ...

    async def load_turns(self, session_id: str, *, limit: int | None = None, before: str | None = None) -> TurnPage:
        """Turns by id, newest first, at most ``limit`` of those whose id is below ``before``.

        Whatever hangs below a turn that is on the page is on it too, or on one before it, but for a compaction that
        made room for it.
        """
        ...

    async def load_moves(self, session_id: str, *, limit: int | None = None, before: int | None = None) -> MovePage:
        """Moves of the head, newest first, at most ``limit`` of those with a ``seq`` below ``before``."""
        ...

    async def find_holder(self, session_id: str, message_id: str) -> Holder | None:
        """The turn through which a message is reached: the one on the line, else the newest that holds it."""
        ...

    async def has_files(self, session_id: str) -> bool:
        """Whether any message of the session holds a file, on the line or not."""
        ...

    async def failed_sessions(self, among: Collection[str]) -> tuple[str, ...]:
        """Return those of these sessions whose line ends with a turn that failed, or after which one was refused."""
        ...
