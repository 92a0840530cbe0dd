"""Projections: which messages carry ``hidden_at`` and ``hidden_by``, worked out from the tree and its head moves.

Other readers of the three tables know no turn tree; for them every unit that moves the head, adds a compaction or
refuses a turn also writes these two keys. Nothing in clew reads them back to decide anything.

* Off the line: ``rewind``, at the time of the head move that took the message off it.
* On the line before the newest compaction's tail: ``compaction``, at the time of the first compaction on the line
  that covers it.
* In a turn that was refused before any model call: ``refused``, at the time it was.
* Everything else carries neither key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from clew.transcript.line import line_messages, path_to
from clew.transcript.message import MessageRow
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.view import compaction_data

__all__ = ["Hidden", "Tail", "project", "projection_of", "tails_of"]


class Hidden(msgspec.Struct, frozen=True):
    """Why and since when a message is hidden from readers of the three tables."""

    at: int
    by: Literal["rewind", "compaction", "refused"]


class Tail(msgspec.Struct, frozen=True):
    """What a compaction turn kept: everything from ``tail_start_id`` on."""

    turn_id: str
    tail_start_id: str | None
    at: int


def tails_of(tree: Tree, rows: Mapping[str, MessageRow]) -> tuple[Tail, ...]:
    """The compactions of a session, read off the marker messages their turns hold."""
    tails: list[Tail] = []
    for turn in tree.turns.values():
        if turn.kind == "compaction":
            for message_id in tree.links.get(turn.id, ()):
                data = compaction_data(rows[message_id]) if message_id in rows else None
                if data is not None:
                    tails.append(Tail(turn.id, data.get("tail_start_id"), turn.settled_at or turn.created_at))
    return tuple(tails)


def projection_of(metadata: Mapping[str, object]) -> tuple[object, object]:
    """The two keys as a message carries them."""
    return metadata.get("hidden_at"), metadata.get("hidden_by")


def project(tree: Tree, tails: Iterable[Tail] = ()) -> dict[str, Hidden]:
    """Every hidden message with its reason. ``tails`` holds the compactions of the session, in any order."""
    hidden: dict[str, Hidden] = {}
    on_line = [message_id for _, message_id in line_messages(tree)]
    shown = set(on_line)
    _hide_off_line(tree, shown, hidden)
    _hide_summarised(tree, on_line, {tail.turn_id: tail for tail in tails}, hidden)
    return hidden


def _hide_off_line(tree: Tree, shown: set[str], hidden: dict[str, Hidden]) -> None:
    left = _left_at(tree.turns, tree.moves)
    for turn in tree.turns.values():
        if turn.status == "refused":
            reason = Hidden(turn.settled_at or turn.created_at, "refused")
        elif turn.id in left:
            reason = Hidden(left[turn.id], "rewind")
        else:
            continue
        for message_id in tree.links.get(turn.id, ()):
            known = hidden.get(message_id)
            if message_id not in shown and (known is None or known.at < reason.at):
                hidden[message_id] = reason


def _left_at(turns: Mapping[str, Turn], moves: Iterable[HeadMove]) -> dict[str, int]:
    """When each turn that the head has left was left; walking only the two legs of each move up to where they meet."""
    left: dict[str, int] = {}
    for move in moves:
        leaving, entering = turns.get(move.from_turn_id or ""), turns.get(move.to_turn_id or "")
        off: list[str] = []
        on: list[str] = []
        while leaving is not entering:
            if entering is None or (leaving is not None and leaving.depth >= entering.depth):
                assert leaving is not None
                off.append(leaving.id)
                leaving = turns.get(leaving.parent_turn_id or "")
            else:
                on.append(entering.id)
                entering = turns.get(entering.parent_turn_id or "")
        for turn_id in off:
            left[turn_id] = move.at
        for turn_id in on:
            left.pop(turn_id, None)
    return left


def _hide_summarised(tree: Tree, on_line: list[str], tails: Mapping[str, Tail], hidden: dict[str, Hidden]) -> None:
    position = {message_id: place for place, message_id in enumerate(on_line)}
    line = path_to(tree.turns, tree.open_turn_id or tree.head_turn_id)
    covering = [tails[turn.id] for turn in line if turn.kind == "compaction" and turn.id in tails]
    done = 0
    for tail in covering:
        end = position.get(tail.tail_start_id or "", done)
        for message_id in on_line[done:end]:
            hidden.setdefault(message_id, Hidden(tail.at, "compaction"))
        done = max(done, end)
