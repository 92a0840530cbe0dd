"""The tree of a session for display: every turn with its position, the branches that start at it, and the reflog."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clew.session.history.lookup import words_of_turn
from clew.store.base import Moment, Store, get_session
from clew.store.trees import KnownTurn
from clew.transcript.turn import MoveReason, Turn, TurnKind
from clew.transcript.turn_state import TurnStatus

__all__ = ["ReflogEntry", "TreeBranch", "TreeTurn", "TreeView", "load_reflog", "load_tree_view", "tree_order"]


class TreeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its position. ``text`` is the beginning of its user message or summary."""

    id: str
    parent_turn_id: str | None
    kind: TurnKind
    status: TurnStatus
    created_at: int
    settled_at: int | None
    depth: int
    origin_turn_id: str | None
    on_line: bool
    is_head: bool
    text: str
    messages: tuple[str, ...]


class TreeBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A session that starts as a copy of a line of this one. ``turn_id`` is where it branched, if known."""

    session_id: str
    title: str | None
    label: str | None
    from_message_id: str | None
    turn_id: str | None
    created_at: int


class TreeView(msgspec.Struct, frozen=True, kw_only=True):
    """Turns of a session, parents before children, and the branches that start at them, oldest first.

    All of them, or a page of the newest; ``next_cursor`` leads to the page before. Every descendant of a turn is on the
    same page or on one loaded before. Branches of unknown origin are on the last page.
    """

    session_id: str
    head_turn_id: str | None
    open_turn_id: str | None
    turns: tuple[TreeTurn, ...]
    branches: tuple[TreeBranch, ...]
    next_cursor: str | None = None


class ReflogEntry(msgspec.Struct, frozen=True):
    """A head move, and the label of the turn it went to; no text for the empty start."""

    seq: int
    from_turn_id: str | None
    to_turn_id: str | None
    at: int
    why: MoveReason
    text: str


async def load_tree_view(
    store: Store, session_id: str, limit: int | None = None, before: str | None = None
) -> TreeView:
    """Return the tree of a session, or a page of it: turns older than ``before``. Subagent sessions are no branches."""
    children = await store.list_branches(session_id)

    async def ask(moment: Moment) -> TreeView:
        await get_session(moment, session_id)
        page = await moment.load_turns(session_id, limit=limit, before=before)
        known = {one.turn.id: one for one in page.turns}
        whole = limit is None and before is None
        of_page = {message_id for one in page.turns for message_id in one.messages}
        branches: list[TreeBranch] = []
        for child in children:
            left = child.parent_message_id or ""
            if not (whole or left in of_page or not page.more):
                continue
            holder = await moment.find_holder(session_id, left) if left else None
            turn_id = holder.turn.id if holder is not None else None
            if whole or (turn_id in known if turn_id is not None else not page.more):
                branch = TreeBranch(
                    session_id=child.id,
                    title=child.title,
                    label=child.label,
                    from_message_id=child.parent_message_id,
                    turn_id=turn_id,
                    created_at=child.created_at,
                )
                branches.append(branch)
        turns = tuple(
            TreeTurn(
                **{name: getattr(turn, name) for name in TreeTurn.__struct_fields__ if hasattr(turn, name)},
                on_line=turn.id in page.on_line,
                is_head=turn.id == page.head_turn_id,
                text=_label(known[turn.id]),
                messages=known[turn.id].messages,
            )
            for turn in tree_order([one.turn for one in page.turns])
        )
        return TreeView(
            session_id=session_id,
            head_turn_id=page.head_turn_id,
            open_turn_id=page.open_turn_id,
            turns=turns,
            branches=tuple(branches),
            next_cursor=page.turns[-1].turn.id if page.more else None,
        )

    return await store.at_once(session_id, ask)


def tree_order(turns: Iterable[Turn]) -> list[Turn]:
    """Return the turns depth first, siblings by age; a turn whose parent is missing counts as a root."""
    by_id = {turn.id: turn for turn in turns}
    below: dict[str | None, list[Turn]] = {}
    for turn in sorted(by_id.values(), key=lambda turn: (turn.created_at, turn.id), reverse=True):
        below.setdefault(turn.parent_turn_id if turn.parent_turn_id in by_id else None, []).append(turn)
    order: list[Turn] = []
    stack = below.get(None, [])
    while stack:
        turn = stack.pop()
        order.append(turn)
        stack += below.get(turn.id, ())
    return order


async def load_reflog(
    store: Store, session_id: str, limit: int | None = None, before: int | None = None
) -> list[ReflogEntry]:
    """Return head moves, newest first: all of them, or at most ``limit`` of those before the move ``before``."""

    async def ask(moment: Moment) -> list[ReflogEntry]:
        await get_session(moment, session_id)
        page = await moment.load_moves(session_id, limit=limit, before=before)
        labels = {
            id_: words_of_summary(count) if (count := page.summarised.get(id_)) is not None else _label(known)
            for id_, known in page.turns.items()
        }
        return [
            ReflogEntry(
                move.seq, move.from_turn_id, move.to_turn_id, move.at, move.why, labels.get(move.to_turn_id or "", "")
            )
            for move in page.moves
        ]

    return await store.at_once(session_id, ask)


def words_of_summary(turns: int) -> str:
    """Return the label of a compaction in the reflog."""
    return f"summary of {turns} turn{'' if turns == 1 else 's'}"


def _label(known: KnownTurn) -> str:
    return words_of_turn(known.turn, known.messages, {row.id: row for row in known.described_by})
