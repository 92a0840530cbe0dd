"""A session's history as the UI reads it in pages: its turns, its moves, and the turn that holds a message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Turn

__all__ = ["HistoryPages", "Holder", "KnownTurn", "MovePage", "TurnPage"]


class Holder(msgspec.Struct, frozen=True):
    """The turn through which a message is reached."""

    turn: Turn
    on_line: bool


class KnownTurn(msgspec.Struct, frozen=True):
    """A turn with the ids of its messages. ``described_by`` are the messages that describe it to a user, in order: the
    user's messages, and for a compaction all it holds."""

    turn: Turn
    messages: tuple[str, ...]
    described_by: tuple[MessageRow, ...]


class TurnPage(msgspec.Struct, frozen=True):
    """Turns by id, newest first; ``on_line`` names those on the line. ``more``: there are older ones."""

    head_turn_id: str | None
    open_turn_id: str | None
    turns: tuple[KnownTurn, ...]
    on_line: frozenset[str]
    more: bool


class MovePage(msgspec.Struct, frozen=True):
    """Moves of the head, newest first, and the turns they went to.

    ``summarised``: for each compaction among these turns, how many turns it replaces.
    """

    moves: tuple[HeadMove, ...]
    turns: Mapping[str, KnownTurn]
    summarised: Mapping[str, int]


class HistoryPages(Protocol):
    """Paged reads of a session's history. Their cost does not grow with the session."""

    async def list_branches(self, parent_id: str) -> tuple[Session, ...]:
        """Return the sessions with this parent that do not belong to a subagent, oldest first."""
        ...

    async def load_turns(self, session_id: str, *, limit: int | None = None, before: str | None = None) -> TurnPage:
        """Return turns by id, newest first, at most ``limit`` of those whose id is below ``before``.

        The turns below a turn of the page are on the page too, or on an earlier one, except a compaction that made room
        for it.
        """
        ...

    async def load_moves(self, session_id: str, *, limit: int | None = None, before: int | None = None) -> MovePage:
        """Return moves of the head, newest first, at most ``limit`` of those with a ``seq`` below ``before``."""
        ...

    async def find_holder(self, session_id: str, message_id: str) -> Holder | None:
        """Find the turn through which a message is reached: the one on the line, else the newest that holds it."""
        ...

    async def has_files(self, session_id: str) -> bool:
        """Return whether any message of the session holds a file, on the line or not."""
        ...

    async def failed_sessions(self, among: Collection[str]) -> tuple[str, ...]:
        """Return those of these sessions whose line ends with a turn that failed, or after which one was refused."""
        ...
