"""Projections: which messages have ``hidden_at`` and ``hidden_by``, computed from the tree and its head moves.

Other readers of the three tables know nothing of the turn tree, so every unit that moves the head, adds a compaction or
refuses a turn also writes these two keys. clew itself never decides anything by them.

* Off the line: ``rewind``, at the time of the head move that removed the message from it.
* On the line before the newest compaction's tail: ``compaction``, at the time of the first compaction on the line that
  covers it. A marker is covered by the next compaction, wherever that one's tail begins, because the next summary
  includes its own. The newest marker is never hidden: it represents all hidden messages.
* In a turn that was refused before any model call: ``refused``, at the time of the refusal.
* All other messages have neither key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from clew.transcript.line import LineTurn, line_turns, tail_place
from clew.transcript.message import MessageRow
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.view import find_compaction

__all__ = ["CompactionTail", "Hidden", "compaction_tails", "hidden_messages"]


class Hidden(msgspec.Struct, frozen=True):
    """Since when and why a message is hidden from readers of the three tables."""

    at: int
    by: Literal["rewind", "compaction", "refused"]


class CompactionTail(msgspec.Struct, frozen=True):
    """The tail of a compaction turn: everything from ``tail_start_id`` on."""

    turn_id: str
    tail_start_id: str | None
    at: int


def compaction_tails(tree: Tree, rows: Mapping[str, MessageRow]) -> tuple[CompactionTail, ...]:
    """Return the tails of a session's compactions, from the marker messages in their turns."""
    tails: list[CompactionTail] = []
    for turn in tree.turns.values():
        if turn.kind != "compaction":
            continue
        messages = tuple(rows[message_id] for message_id in tree.links.get(turn.id, ()) if message_id in rows)
        compaction = find_compaction((LineTurn(turn, messages),))
        if compaction is not None:
            tails.append(CompactionTail(turn.id, compaction.tail_start_id, turn.settled_at or turn.created_at))
    return tuple(tails)


def hidden_messages(tree: Tree, tails: Iterable[CompactionTail] = ()) -> dict[str, Hidden]:
    """Return every hidden message with its reason. ``tails`` are the session's compactions, in any order."""
    path, links = line_turns(tree), tree.links
    hidden = _left_messages(tree)
    if hidden:
        for turn in path:
            for message_id in links.get(turn.id, ()):
                hidden.pop(message_id, None)
    by_turn = {tail.turn_id: tail for tail in tails}
    if any(turn.id in by_turn for turn in path):
        line = [(turn.id, message_id) for turn in path for message_id in links.get(turn.id, ())]
        hidden |= _summarised(line, by_turn)
    return hidden


def _left_messages(tree: Tree) -> dict[str, Hidden]:
    """Return the messages of every turn that was left or refused, each with the most recent reason."""
    hidden: dict[str, Hidden] = {}
    for turn_id, move in _left_by(tree.turns, tree.moves).items():
        hidden.update(dict.fromkeys(tree.links.get(turn_id, ()), Hidden(move.at, "rewind")))
    for turn in tree.turns.values():
        if turn.status == "refused":
            refused = Hidden(turn.settled_at or turn.created_at, "refused")
            for message_id in tree.links.get(turn.id, ()):
                if message_id not in hidden or hidden[message_id].at <= refused.at:
                    hidden[message_id] = refused
    return hidden


def _left_by(turns: Mapping[str, Turn], moves: Sequence[HeadMove]) -> dict[str, HeadMove]:
    """Return the move by which the head left each turn it is not at or below now, in the order of the moves.

    Moves are visited newest first. Above a turn that is known to be on the line, or to have been left, every turn is
    known too, so each turn is visited once, however many moves there are.
    """
    staying: set[str] = set()
    turn = turns.get(moves[-1].to_turn_id or "") if moves else None
    while turn is not None:
        staying.add(turn.id)
        turn = turns.get(turn.parent_turn_id or "")
    moves_by_turn: dict[str, HeadMove] = {}
    for move in reversed(moves):
        turn = turns.get(move.from_turn_id or "")
        while turn is not None and turn.id not in staying and turn.id not in moves_by_turn:
            moves_by_turn[turn.id] = move
            turn = turns.get(turn.parent_turn_id or "")
    return dict(reversed(moves_by_turn.items()))


def _summarised(line: list[tuple[str, str]], tails: Mapping[str, CompactionTail]) -> dict[str, Hidden]:
    """Return the messages the compactions on the line cover, each with the first compaction that covers it."""
    covering = [tails[turn_id] for turn_id in dict.fromkeys(turn_id for turn_id, _ in line) if turn_id in tails]
    starts = [tail_place(line, tail.turn_id, tail.tail_start_id) for tail in covering]
    tail_start = starts[-1] if starts else 0
    following = {before.turn_id: after for before, after in pairwise(covering)}
    hidden: dict[str, Hidden] = {}
    for index, (turn_id, message_id) in enumerate(line):
        cover = following.get(turn_id)
        if turn_id not in tails and index < tail_start:
            cover = next(tail for tail, start in zip(covering, starts, strict=True) if index < start)
        if cover is not None:
            hidden[message_id] = Hidden(cover.at, "compaction")
    return hidden
