"""Moving the head: the compactions that have to be known for it, and the writes it comes to.

What a move changes is decided by :mod:`clew.transcript.head`; the projections go into the same unit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Store
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, SetHidden, Write
from clew.transcript.head import Added, begin_anew, moved, newly_hidden, with_turn
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.projection import KeptTail, kept_tails_of
from clew.transcript.turn import MoveReason, Tree, Turn
from clew.transcript.view import Compaction, compactions_of

__all__ = ["load_begun_anew", "load_kept_tails", "plan_move"]

log = logging.getLogger("clew.history")


async def load_kept_tails(store: Store, session_id: str, tree: Tree) -> tuple[KeptTail, ...]:
    """The compactions of a session, on the line or not."""
    rows: dict[str, MessageRow] = {}
    lost: list[KeptTail] = []
    for turn in tree.turns.values():
        if turn.kind == "compaction":
            held = await _markers(store, session_id, tree, turn)
            rows |= {row.id: row for row in held}
            if not held and turn.tail_start_id is not None:
                lost.append(KeptTail(turn.id, turn.tail_start_id, turn.settled_at or turn.created_at))
    return (*kept_tails_of(tree, rows), *lost)


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


async def load_begun_anew(
    store: Store, session_id: str, tree: Tree, turn: Turn, carried_id: str
) -> tuple[str | None, tuple[Added, ...]]:
    """Where a turn hangs that starts over with the user message of ``turn``, and what has to be added for it."""
    return begin_anew(tree, await load_compactions(store, session_id, tree), turn, carried_id)


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
