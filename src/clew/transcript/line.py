"""The line: the path from the root turn to the head, and on through the open turn.

This module alone decides which messages make up the conversation as it stands. It never looks at ``hidden_at``:
that key is a projection for other readers, made from here.
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
    """A turn on the line with the messages it holds, in order."""

    turn: Turn
    messages: tuple[MessageRow, ...]

    @property
    def memo(self) -> dict[str, Any]:
        """What its messages were made into; see :attr:`clew.transcript.message.Message.memo`."""
        return self.__dict__


def path_to(turns: Mapping[str, Turn], turn_id: str | None) -> tuple[Turn, ...]:
    """The turns from the root down to ``turn_id``; empty when it is None."""
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
    """Where the line ends: at the open turn when there is one, else at the head."""
    return open_turn_id if open_turn_id is not None else head_turn_id


def line_turns(tree: Tree) -> tuple[Turn, ...]:
    return path_to(tree.turns, end_of_line(tree.head_turn_id, tree.open_turn_id))


def line_messages(tree: Tree) -> Iterator[tuple[Turn, str]]:
    """Each message of the line as (turn, message id), in the order of the conversation."""
    for turn in line_turns(tree):
        for message_id in tree.links.get(turn.id, ()):
            yield turn, message_id


def tail_place(line: Sequence[tuple[str, str]], turn_id: str, tail_start_id: str | None) -> int:
    """Where on a line of (turn id, message id) the tail of the compaction ``turn_id`` begins.

    A compaction that made room for an open turn has its tail below itself. Once the head has left that turn, the
    tail is what follows the compaction: all that lies above it is summarised. Without a tail everything is kept.
    """
    if tail_start_id is None:
        return 0
    below = 0
    for place, (turn, message) in enumerate(line):
        if message == tail_start_id:
            return place
        if turn == turn_id:
            below = place + 1
    return below


def turns_before_tail(line: Sequence[tuple[Turn, str]], turn_id: str, tail_start_id: str | None) -> int:
    """How many turns the summary of a compaction stands for, those of the summaries before it included.

    ``line`` is the path to the compaction's own turn, as (turn, message id).
    """
    start = tail_place([(turn.id, message_id) for turn, message_id in line], turn_id, tail_start_id)
    return len({turn.id for turn, _ in line[:start] if turn.kind == "normal"})
