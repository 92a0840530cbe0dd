"""Projections: which messages carry ``hidden_at`` and ``hidden_by``, worked out from the tree and its head moves.

Other readers of the three tables know no turn tree; for them every unit that moves the head, adds a compaction or
refuses a turn also writes these two keys. Nothing in clew reads them back to decide anything.

* Off the line: ``rewind``, at the time of the head move that took the message off it.
* On the line before the newest compaction's tail: ``compaction``, at the time of the first compaction on the line
  that covers it. A marker is covered by the next compaction, wherever the tail begins: its summary is in that
  one's. The newest marker is never hidden, for it stands for everything that is.
* In a turn that was refused before any model call: ``refused``, at the time it was.
* Everything else carries neither key.
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

__all__ = ["Hidden", "KeptTail", "hidden_messages", "kept_tails_of"]


class Hidden(msgspec.Struct, frozen=True):
    """Why and since when a message is hidden from readers of the three tables."""

    at: int
    by: Literal["rewind", "compaction", "refused"]


class KeptTail(msgspec.Struct, frozen=True):
    """What a compaction turn kept: everything from ``tail_start_id`` on."""

    turn_id: str
    tail_start_id: str | None
    at: int


def kept_tails_of(tree: Tree, rows: Mapping[str, MessageRow]) -> tuple[KeptTail, ...]:
    """The compactions of a session, read off the marker messages their turns hold."""
    tails: list[KeptTail] = []
    for turn in tree.turns.values():
        if turn.kind != "compaction":
            continue
        held = tuple(rows[message_id] for message_id in tree.links.get(turn.id, ()) if message_id in rows)
        compaction = find_compaction((LineTurn(turn, held),))
        if compaction is not None:
            tails.append(KeptTail(turn.id, compaction.tail_start_id, turn.settled_at or turn.created_at))
    return tuple(tails)


def hidden_messages(tree: Tree, tails: Iterable[KeptTail] = ()) -> dict[str, Hidden]:
    """Every hidden message with its reason. ``tails`` holds the compactions of the session, in any order."""
    path, links = line_turns(tree), tree.links
    hidden = _left_behind(tree)
    if hidden:
        for turn in path:
            for message_id in links.get(turn.id, ()):
                hidden.pop(message_id, None)
    by_turn = {tail.turn_id: tail for tail in tails}
    if any(turn.id in by_turn for turn in path):
        line = [(turn.id, message_id) for turn in path for message_id in links.get(turn.id, ())]
        hidden |= _summarised(line, by_turn)
    return hidden


def _left_behind(tree: Tree) -> dict[str, Hidden]:
    """What took each message off, for every turn that was left or refused; the last of it where there is more."""
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
    """The move by which the head left each turn it is not at or below now, in the order of the moves.

    The newest move is looked at first. What is above a turn that is known to be on the line, or to have been left, was
    on the line after that, so it is known too: each turn is walked over once, however often the head went by.
    """
    staying: set[str] = set()
    turn = turns.get(moves[-1].to_turn_id or "") if moves else None
    while turn is not None:
        staying.add(turn.id)
        turn = turns.get(turn.parent_turn_id or "")
    left: dict[str, HeadMove] = {}
    for move in reversed(moves):
        turn = turns.get(move.from_turn_id or "")
        while turn is not None and turn.id not in staying and turn.id not in left:
            left[turn.id] = move
            turn = turns.get(turn.parent_turn_id or "")
    return dict(reversed(left.items()))


def _summarised(line: list[tuple[str, str]], tails: Mapping[str, KeptTail]) -> dict[str, Hidden]:
    """What the compactions on the line cover, each message by the first that does."""
    covering = [tails[turn_id] for turn_id in dict.fromkeys(turn_id for turn_id, _ in line) if turn_id in tails]
    starts = [tail_place(line, tail.turn_id, tail.tail_start_id) for tail in covering]
    kept_from = starts[-1] if starts else 0
    following = {before.turn_id: after for before, after in pairwise(covering)}
    hidden: dict[str, Hidden] = {}
    for place, (turn_id, message_id) in enumerate(line):
        cover = following.get(turn_id)
        if turn_id not in tails and place < kept_from:
            cover = next(tail for tail, start in zip(covering, starts, strict=True) if place < start)
        if cover is not None:
            hidden[message_id] = Hidden(cover.at, "compaction")
    return hidden
