"""The head: where a new turn may be attached, and the tree and its projections after a move. Pure.

The tree decides what a conversation contains. ``hidden_at`` and ``hidden_by`` are computed from it before and after a
move, and only the differences are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from clew.transcript.line import line_messages, tail_place
from clew.transcript.projection import CompactionTail, Hidden, hidden_messages
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, with_parent
from clew.transcript.view import Compaction

__all__ = [
    "Added",
    "copied_compaction",
    "holding_at",
    "moved",
    "newest_rewind",
    "newly_hidden",
    "restart_turn",
    "with_turn",
]


class Added(msgspec.Struct, frozen=True):
    """A turn to add below its parent, with its messages; ``tail`` is its tail if it is a compaction."""

    turn: Turn
    messages: tuple[str, ...]
    tail: CompactionTail | None = None


def holding_at(
    line: Sequence[tuple[str, str]], compactions: Iterable[Compaction], turn_id: str, message_id: str
) -> set[str]:
    """Return the compactions that stay in force if a line of (turn id, message id) ends at this message, by turn.

    These are the ones whose tail includes the message and whose summary covers nothing after it: the shortened line
    still contains everything they summarised.
    """
    end = line.index((turn_id, message_id))
    ends = {message: index for index, (_, message) in enumerate(line)}
    return {
        one.turn_id
        for one in compactions
        if tail_place(line, one.turn_id, one.tail_start_id) <= end
        and (one.split is None or ends.get(one.split.message_id, 0) <= end)
    }


def copied_compaction(source: Turn, turn_id: str, parent_turn_id: str | None) -> Turn:
    """Return a copy of a compaction's turn for another position in the tree, with the turn it was created as."""
    made_as = source.carried_from or source.id
    data = {**source.data, "carried_from": made_as}
    return msgspec.structs.replace(source, id=turn_id, parent_turn_id=parent_turn_id, origin_turn_id=None, data=data)


def restart_turn(
    tree: Tree, compactions: Collection[Compaction], turn: Turn, carried_id: str
) -> tuple[str | None, tuple[Added, ...]]:
    """Return the parent of a turn that restarts ``turn`` with the same user message, and the turns to add for it.

    A parent of None means the root. The newest compaction of the line that is still in force there is copied to the
    turn ``carried_id`` directly above the new one. A compaction made during the turn, whose summary covers what is
    being taken back, is skipped.
    """
    if not compactions:
        return turn.parent_turn_id, ()
    line = [(above.id, message_id) for above, message_id in line_messages(tree)]
    by_turn = {one.turn_id: one for one in compactions}
    on_line = [by_turn[id_] for id_ in dict.fromkeys(id_ for id_, _ in line) if id_ in by_turn]
    holding = holding_at(line, on_line, turn.id, tree.links[turn.id][0])
    parent = tree.turns.get(turn.parent_turn_id or "")
    while parent is not None and parent.id in by_turn and parent.id not in holding:
        parent = tree.turns.get(parent.parent_turn_id or "")
    parent_id = parent.id if parent is not None else None
    later = [one for one in on_line if one.turn_id in holding and tree.turns[one.turn_id].depth > turn.depth]
    if not later:
        return parent_id, ()
    carried = copied_compaction(tree.turns[later[-1].turn_id], carried_id, parent_id)
    tail = CompactionTail(carried_id, later[-1].tail_start_id, carried.settled_at or carried.created_at)
    return carried_id, (Added(carried, (later[-1].marker.id,), tail),)


def with_turn(tree: Tree, turn: Turn, messages: Sequence[str] = ()) -> Tree:
    """Return the tree with one more turn, below its parent."""
    turn = with_parent(turn, tree.turns.get(turn.parent_turn_id or ""))
    return msgspec.structs.replace(
        tree, turns={**tree.turns, turn.id: turn}, links={**tree.links, turn.id: tuple(messages)}
    )


def moved(tree: Tree, session_id: str, to_turn_id: str | None, now: int, why: MoveReason) -> Tree:
    """Return the tree with its head moved and the move in its reflog."""
    seq = tree.moves[-1].seq + 1 if tree.moves else 1
    move = HeadMove(seq, session_id, tree.head_turn_id, to_turn_id, now, why)
    return msgspec.structs.replace(tree, head_turn_id=to_turn_id, moves=(*tree.moves, move))


def newest_rewind(moves: Iterable[HeadMove]) -> HeadMove | None:
    """Return the newest rewind that was not undone. ``moves`` are read newest first, and only as far as needed."""
    undone = 0
    for move in moves:
        if move.why == "unrewind":
            undone += 1
        elif move.why == "rewind" and not undone:
            return move
        elif move.why == "rewind":
            undone -= 1
    return None


def newly_hidden(
    before: Tree, after: Tree, tails: Iterable[CompactionTail], tails_after: Iterable[CompactionTail] | None = None
) -> dict[str, Hidden | None]:
    """Return the messages whose projection differs between two trees, each with the new one."""
    tails = tuple(tails)
    old = hidden_messages(before, tails)
    new = hidden_messages(after, tails if tails_after is None else tails_after)
    both = old.keys() & new.keys()
    unchanged = [id_ for id_ in both if old[id_] == new[id_]] if both else ()
    changed: dict[str, Hidden | None] = {**dict.fromkeys(old), **new}
    for id_ in unchanged:
        del changed[id_]
    return changed
