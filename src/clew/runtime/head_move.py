"""Moving the head: where a turn hangs that is begun anew, and the writes a move comes to.

What a move changes is decided by :mod:`clew.transcript.head`; the projections go into the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from clew.runtime.reach import Reach, load_deeper
from clew.store.base import Moment
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, SetHidden, Write
from clew.transcript.head import Added, begin_anew, moved, newly_hidden, with_turn
from clew.transcript.line import line_turns
from clew.transcript.projection import KeptTail
from clew.transcript.turn import MoveReason, Tree, Turn

__all__ = ["load_move", "plan_begun_anew", "plan_move"]


def plan_begun_anew(reach: Reach, turn: Turn, carried_id: str) -> tuple[str | None, tuple[Added, ...]]:
    """Where a turn hangs that starts over with the user message of ``turn``, and what has to be added for it."""
    return begin_anew(reach.tree, reach.compactions, reach.tree.turns[turn.id], carried_id)


async def load_move(
    store: Moment, reach: Reach, to_turn_id: str | None, now: int, why: MoveReason, *, new: Sequence[Added] = ()
) -> tuple[Tree, tuple[Write, ...]]:
    """What :func:`plan_move` comes to: the tree of the reach afterwards, and the writes.

    Where other summaries are in force then, these come from more of the tree.
    """
    after, writes = plan_move(reach.tree, reach.tails, reach.session_id, to_turn_id, now, why, new=new)
    added = tuple(one.tail for one in new if one.tail is not None)
    if not reach.is_cut or not (reach.tails or added):
        return after, writes
    before = _in_force(reach.tree, reach.tails)
    then = _in_force(after, (*reach.tails, *added))
    if before == then:
        return after, writes
    deeper = await load_deeper(store, reach, {tails[-1][0] for tails in (before, then) if tails}, now)
    return after, plan_move(deeper.tree, deeper.tails, reach.session_id, to_turn_id, now, why, new=new)[1]


def _in_force(tree: Tree, tails: Iterable[KeptTail]) -> list[tuple[str | None, int]]:
    """The summaries on the line, by what has to be the same for them to tell of the same messages."""
    by_turn = {tail.turn_id: (tail.tail_start_id, tail.at) for tail in tails}
    return [by_turn[turn.id] for turn in line_turns(tree) if turn.id in by_turn]


def plan_move(
    tree: Tree,
    tails: Iterable[KeptTail],
    session_id: str,
    to_turn_id: str | None,
    now: int,
    why: MoveReason,
    *,
    new: Sequence[Added] = (),
) -> tuple[Tree, tuple[Write, ...]]:
    """The tree with its head moved to a turn, and the writes for it with the projections. ``new`` is added first.

    A new turn that is open stays below the head it is given and is not made the head: ``to_turn_id`` says where
    that is.
    """
    writes: list[Write] = []
    # The head moves before a turn is opened below it, so that a reader never finds an open turn off the head.
    move, at = MoveHead(to_turn_id, now, why), 0
    after = tree
    for one in new:
        after = with_turn(after, one.turn, one.messages)
        writes += [OpenTurn(one.turn), *(LinkMessage(one.turn.id, message_id) for message_id in one.messages)]
        if one.turn.id == to_turn_id:
            at = len(writes)
        if one.turn.status == "running":
            after = msgspec.structs.replace(after, open_turn_id=one.turn.id)
    after = moved(after, session_id, to_turn_id, now, why)
    writes.insert(at, move)
    tails = tuple(tails)
    hidden = newly_hidden(tree, after, tails, (*tails, *(one.tail for one in new if one.tail is not None)))
    return after, (*writes, SetHidden(hidden)) if hidden else tuple(writes)
