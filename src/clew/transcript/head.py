"""The head: where it may hang a turn, and what the tree and its projections are once it has moved. Pure.

The tree decides what a conversation holds. ``hidden_at`` and ``hidden_by`` are worked out from it before and after a
move, and only what differs has to be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from clew.transcript.projection import Hidden, KeptTail, hidden_messages
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, place_below
from clew.transcript.view import Compaction

__all__ = ["condensed_after", "moved", "newly_hidden", "parent_before", "with_turn"]


def parent_before(tree: Tree, compactions: Iterable[Compaction], turn: Turn) -> str | None:
    """Where a turn hangs that starts over with the user message of ``turn``; None: at the beginning.

    Below its parent. But a compaction that made room inside the turn tells of what is being taken back, so those
    right above it are passed over.
    """
    by_turn = {compaction.turn_id: compaction for compaction in compactions}
    # All but the user message the turn starts over with.
    taken_back = tree.links.get(turn.id, ())[1:]
    parent = tree.turns.get(turn.parent_turn_id or "")
    while parent is not None and condensed_after(by_turn.get(parent.id), taken_back):
        parent = tree.turns.get(parent.parent_turn_id or "")
    return parent.id if parent is not None else None


def condensed_after(compaction: Compaction | None, messages: Sequence[str]) -> bool:
    """Whether what a compaction kept begins in one of these messages: then it condensed some of their turn."""
    if compaction is None:
        return False
    split = compaction.split.message_id if compaction.split is not None else None
    return split in messages or compaction.tail_start_id in messages


def with_turn(tree: Tree, turn: Turn, messages: Sequence[str] = ()) -> Tree:
    """The tree with one more turn, below its parent."""
    turn = place_below(turn, tree.turns.get(turn.parent_turn_id or ""))
    return msgspec.structs.replace(
        tree, turns={**tree.turns, turn.id: turn}, links={**tree.links, turn.id: tuple(messages)}
    )


def moved(tree: Tree, session_id: str, to_turn_id: str | None, now: int, why: MoveReason) -> Tree:
    """The tree with its head moved and the move in its reflog."""
    seq = tree.moves[-1].seq + 1 if tree.moves else 1
    move = HeadMove(seq, session_id, tree.head_turn_id, to_turn_id, now, why)
    return msgspec.structs.replace(tree, head_turn_id=to_turn_id, moves=(*tree.moves, move))


def newly_hidden(
    before: Tree, after: Tree, tails: Iterable[KeptTail], tails_after: Iterable[KeptTail] | None = None
) -> dict[str, Hidden | None]:
    """The messages whose projection differs between two trees, each with the new one."""
    tails = tuple(tails)
    old = hidden_messages(before, tails)
    new = hidden_messages(after, tails if tails_after is None else tails_after)
    return {id_: new.get(id_) for id_ in {**old, **new} if old.get(id_) != new.get(id_)}
