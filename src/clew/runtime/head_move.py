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
from clew.transcript.head import moved, newly_hidden, with_turn
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.projection import KeptTail, kept_tails_of
from clew.transcript.turn import MoveReason, Tree, Turn
from clew.transcript.view import Compaction, compactions_of

__all__ = ["load_compactions", "load_kept_tails", "plan_move"]

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


def plan_move(
    tree: Tree,
    tails: Iterable[KeptTail],
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
    hidden = newly_hidden(tree, after, tails)
    return (*writes, SetHidden(hidden)) if hidden else tuple(writes)
