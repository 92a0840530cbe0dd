"""Reads of a session's tree: its history in pages, as the UI shows it, and the parts that a move of the head needs.

The cost of a read depends on the size of its result, not on the length of the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Turn

__all__ = ["HistoryPages", "Holder", "KnownTurn", "MovePage", "PathTurn", "Paths", "TurnPage", "is_joined", "join_runs"]


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


class PathTurn(NamedTuple):
    """A turn on a path, with the ids of its messages in order."""

    turn: Turn
    messages: tuple[str, ...]


def is_joined(turn: Turn, apart: str | None = None) -> bool:
    """Return whether a turn can be merged with its neighbours: moving the head needs only the ids of its messages.

    ``apart`` is a turn that must stay separate.
    """
    return turn.kind == "normal" and turn.status != "refused" and turn.id != apart


def join_runs(path: Iterable[PathTurn], apart: str | None = None) -> tuple[PathTurn, ...]:
    """Return a path with each run of turns merged into one turn: the last one, with the parent of the first and the
    messages of all."""
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
    """Partial reads of the tree of one session."""

    async def load_path(
        self, session_id: str, turn_id: str | None, *, turns: int | None = None, depth: int = 0
    ) -> tuple[PathTurn, ...]:
        """Return the turns from the root down to this one, with the ids of their messages, but without the messages.

        ``turns`` limits the path to its last turns, ``depth`` to turns at that depth or deeper. Raise
        ``RowUndecodable`` if a turn is missing, misplaced, or has lost a message.
        """
        ...

    async def load_runs(
        self, session_id: str, turn_id: str | None, *, depth: int = 0, apart: str | None = None
    ) -> tuple[PathTurn, ...]:
        """Return the path, merged by :func:`join_runs`, without turns above ``depth``; empty if all are above it."""
        ...

    async def find_meeting(self, session_id: str, one: str | None, other: str | None) -> Turn | None:
        """Find the last turn that is on both paths; None if they have no turn in common.

        Raise ``RowUndecodable`` if a turn is missing or misplaced.
        """
        ...

    async def find_on_path(self, session_id: str, message_id: str, through: str | None) -> Turn | None:
        """Find the first turn that contains the message, on the path down to ``through``."""
        ...

    async def has_child(self, session_id: str, turn_id: str, *, refused: bool = False) -> bool:
        """Return whether the turn has a child; a refused one counts only with ``refused``."""
        ...

    async def load_marked(self, session_id: str, turn_id: str) -> tuple[PathTurn, ...]:
        """Return the first and last turn of the path from the root down to this turn, and every turn between them that
        cannot be part of a run (:class:`clew.store.copied_line.CopiedRun`).

        Raise ``RowUndecodable`` if the path does not lead to a root.
        """
        ...

    async def path_every(self, session_id: str, turn_id: str, every: int) -> tuple[str, ...]:
        """Return the turns on the path down to this one whose depth is a multiple of ``every``, root first."""
        ...

    async def load_refused(self, session_id: str, since: int) -> tuple[PathTurn, ...]:
        """Return the turns that were refused at that time or later, by (settled_at, id)."""
        ...

    async def newest_move(self, session_id: str) -> HeadMove | None:
        """Return the newest move of the head."""
        ...

    async def find_rewind(self, session_id: str) -> HeadMove | None:
        """Find the newest rewind that was not undone."""
        ...

    async def moves_after(self, session_id: str, after: int, limit: int) -> tuple[HeadMove, ...]:
        """Return at most ``limit`` moves of the head with a ``seq`` above ``after``, oldest first."""
        ...

    async def was_head(self, session_id: str, turn_id: str, through: int) -> bool:
        """Return whether a move of the head with a ``seq`` up to ``through`` led to this turn or to one of its
        children."""
        ...
