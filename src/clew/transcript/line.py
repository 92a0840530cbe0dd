"""The line: the path from the root turn to the head, and on to the open turn.

This module alone decides which messages make up the current conversation. It never reads ``hidden_at``: that key is a
projection for other readers, computed from the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from clew.errors import InternalError
from clew.transcript.message import MessageRow
from clew.transcript.turn import Tree, Turn

__all__ = ["LineTurn", "end_of_line", "line_messages", "line_turns", "path_to", "tail_place", "turns_before_tail"]


class LineTurn(msgspec.Struct, frozen=True, dict=True):
    """A turn on the line with its messages, in order."""

    turn: Turn
    messages: tuple[MessageRow, ...]

    @property
    def memo(self) -> dict[str, Any]:
        """Values derived from its messages; see :attr:`clew.transcript.message.Message.memo`."""
        return self.__dict__


def path_to(turns: Mapping[str, Turn], turn_id: str | None) -> tuple[Turn, ...]:
    """Return the turns from the root down to ``turn_id``; empty if it is None."""
    path: list[Turn] = []
    while turn_id is not None:
        turn = turns.get(turn_id)
        if turn is None or len(path) > len(turns):
            raise InternalError("the turn tree is broken", turn_id=turn_id)
        path.append(turn)
        turn_id = turn.parent_turn_id
    path.reverse()
    return tuple(path)


def end_of_line(head_turn_id: str | None, open_turn_id: str | None) -> str | None:
    """Return the turn the line ends at: the open turn if there is one, else the head."""
    return open_turn_id if open_turn_id is not None else head_turn_id


def line_turns(tree: Tree) -> tuple[Turn, ...]:
    return path_to(tree.turns, end_of_line(tree.head_turn_id, tree.open_turn_id))


def line_messages(tree: Tree) -> Iterator[tuple[Turn, str]]:
    """Yield each message of the line as (turn, message id), in the order of the conversation."""
    for turn in line_turns(tree):
        for message_id in tree.links.get(turn.id, ()):
            yield turn, message_id


def tail_place(line: Sequence[tuple[str, str]], turn_id: str, tail_start_id: str | None) -> int:
    """Return the index at which the tail of the compaction ``turn_id`` begins, on a line of (turn id, message id).

    A compaction made during an open turn has its tail below itself. Once the head has left that turn, the tail is what
    follows the compaction: everything above it is summarised. Without ``tail_start_id`` the whole line is the tail.
    """
    if tail_start_id is None:
        return 0
    after_compaction = 0
    for index, (turn, message) in enumerate(line):
        if message == tail_start_id:
            return index
        if turn == turn_id:
            after_compaction = index + 1
    return after_compaction


def turns_before_tail(line: Sequence[tuple[Turn, str]], turn_id: str, tail_start_id: str | None) -> int:
    """Return how many turns the summary of a compaction covers, including those of earlier summaries.

    ``line`` is the path to the compaction's own turn, as (turn, message id).
    """
    start = tail_place([(turn.id, message_id) for turn, message_id in line], turn_id, tail_start_id)
    return len({turn.id for turn, _ in line[:start] if turn.kind == "normal"})
