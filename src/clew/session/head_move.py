"""Moves of the head: the parent of a restarted turn, and the writes of a move.

:mod:`clew.transcript.head` decides what a move changes; the projections are written in the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from clew.session.affected_tree import AffectedTree, load_deeper
from clew.store.base import Moment
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, SetHidden, Write
from clew.transcript.head import Added, moved, newly_hidden, restart_turn, with_turn
from clew.transcript.line import line_turns
from clew.transcript.projection import CompactionTail
from clew.transcript.turn import MoveReason, Tree, Turn

__all__ = ["load_move", "plan_move", "plan_restart"]


def plan_restart(affected: AffectedTree, turn: Turn, copied_id: str) -> tuple[str | None, tuple[Added, ...]]:
    """Return the parent of a turn that restarts with the user message of ``turn``, and the turns to add for it."""
    return restart_turn(affected.tree, affected.compactions, affected.tree.turns[turn.id], copied_id)


async def load_move(
    store: Moment,
    affected: AffectedTree,
    to_turn_id: str | None,
    now: int,
    why: MoveReason,
    *,
    new: Sequence[Added] = (),
) -> tuple[Tree, tuple[Write, ...]]:
    """Return the tree after a move and its writes, like :func:`plan_move`.

    More of the tree is loaded if other summaries apply after the move.
    """
    after, writes = plan_move(affected.tree, affected.tails, affected.session_id, to_turn_id, now, why, new=new)
    added = tuple(one.tail for one in new if one.tail is not None)
    if not affected.is_cut or not (affected.tails or added):
        return after, writes
    before = _in_force(affected.tree, affected.tails)
    then = _in_force(after, (*affected.tails, *added))
    if before == then:
        return after, writes
    deeper = await load_deeper(store, affected, {tails[-1][0] for tails in (before, then) if tails}, now)
    return after, plan_move(deeper.tree, deeper.tails, affected.session_id, to_turn_id, now, why, new=new)[1]


def _in_force(tree: Tree, tails: Iterable[CompactionTail]) -> list[tuple[str | None, int]]:
    """Return the summaries on the line, by the values that determine which messages they cover."""
    by_turn = {tail.turn_id: (tail.tail_start_id, tail.at) for tail in tails}
    return [by_turn[turn.id] for turn in line_turns(tree) if turn.id in by_turn]


def plan_move(
    tree: Tree,
    tails: Iterable[CompactionTail],
    session_id: str,
    to_turn_id: str | None,
    now: int,
    why: MoveReason,
    *,
    new: Sequence[Added] = (),
) -> tuple[Tree, tuple[Write, ...]]:
    """Return the tree with its head moved to a turn, and the writes for that and the projections.

    ``new`` turns are added first. A new open turn stays below the head and does not become it: ``to_turn_id`` is the
    head.
    """
    writes: list[Write] = []
    # Readers must never find an open turn that is not below the head, so the head moves before it is opened.
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
