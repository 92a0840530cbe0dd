"""Moving the head: the writes for it, and for the projections that follow from it.

The tree decides what a conversation holds; ``hidden_at`` and ``hidden_by`` are worked out from it before and after,
and what differs is written in the same unit. Pure, but for reading the few messages that mark compactions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Store
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, SetHidden, Write
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.project import Tail, project, tails_of
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, placed
from clew.transcript.view import Compaction, compactions_of

__all__ = [
    "condensed_after",
    "load_compactions",
    "load_tails",
    "moved",
    "parent_before",
    "plan_move",
    "projecting",
    "with_turn",
]


log = logging.getLogger("clew.history")


async def load_tails(store: Store, session_id: str, tree: Tree) -> tuple[Tail, ...]:
    """The compactions of a session, on the line or not."""
    rows: dict[str, MessageRow] = {}
    lost: list[Tail] = []
    for turn in tree.turns.values():
        if turn.kind == "compaction":
            held = await _markers(store, session_id, tree, turn)
            rows |= {row.id: row for row in held}
            if not held and turn.tail_start_id is not None:
                lost.append(Tail(turn.id, turn.tail_start_id, turn.settled_at or turn.created_at))
    return (*tails_of(tree, rows), *lost)


async def _markers(store: Store, session_id: str, tree: Tree, turn: Turn) -> list[MessageRow]:
    """What a compaction turn holds. A marker that no longer reads must not keep the head from moving."""
    rows: list[MessageRow] = []
    for message_id in tree.links.get(turn.id, ()):
        try:
            row = await store.find_message(session_id, message_id)
        except RowUndecodable as error:
            log.warning("the marker of compaction %s is not readable: %s", turn.id, error)
            row = None
        if row is not None:
            rows.append(row)
    return rows


async def load_compactions(store: Store, session_id: str, tree: Tree) -> tuple[Compaction, ...]:
    """The compactions of a session with what their markers say, on the line or not."""
    found: list[Compaction] = []
    for turn in tree.turns.values():
        if turn.kind == "compaction":
            rows = await _markers(store, session_id, tree, turn)
            found += compactions_of([LineTurn(turn, tuple(rows))])
    return tuple(found)


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
    turn = placed(turn, tree.turns.get(turn.parent_turn_id or ""))
    return msgspec.structs.replace(
        tree, turns={**tree.turns, turn.id: turn}, links={**tree.links, turn.id: tuple(messages)}
    )


def moved(tree: Tree, session_id: str, to_turn_id: str | None, now: int, why: MoveReason) -> Tree:
    """The tree with its head moved and the move in its reflog."""
    seq = tree.moves[-1].seq + 1 if tree.moves else 1
    move = HeadMove(seq, session_id, tree.head_turn_id, to_turn_id, now, why)
    return msgspec.structs.replace(tree, head_turn_id=to_turn_id, moves=(*tree.moves, move))


def projecting(
    before: Tree, after: Tree, tails: Iterable[Tail], tails_after: Iterable[Tail] | None = None
) -> list[Write]:
    """The write that brings the projections from one tree to the next; none when nothing changes."""
    tails = tuple(tails)
    old = project(before, tails)
    new = project(after, tails if tails_after is None else tails_after)
    changes = {id_: new.get(id_) for id_ in {**old, **new} if old.get(id_) != new.get(id_)}
    return [SetHidden(changes)] if changes else []


def plan_move(
    tree: Tree,
    tails: Iterable[Tail],
    session_id: str,
    to_turn_id: str | None,
    now: int,
    why: MoveReason,
    *,
    new: Turn | None = None,
    holding: Sequence[str] = (),
) -> tuple[Write, ...]:
    """The writes that move the head to a turn, with the projections. ``new`` is added first, holding these messages.

    A ``new`` turn that is open stays below the head it is given and is not made the head: ``to_turn_id`` says where
    that is.
    """
    writes: list[Write] = []
    after = tree
    if new is not None:
        after = with_turn(after, new, holding)
        writes += [OpenTurn(new), *(LinkMessage(new.id, message_id) for message_id in holding)]
        if new.status == "running":
            after = msgspec.structs.replace(after, open_turn_id=new.id)
    after = moved(after, session_id, to_turn_id, now, why)
    # The head moves before a turn is opened below it, so that a reader never finds an open turn off the head.
    writes.insert(0 if new is None or to_turn_id != new.id else len(writes), MoveHead(to_turn_id, now, why))
    return (*writes, *projecting(tree, after, tails))
