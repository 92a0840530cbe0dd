"""The tree of a session as people look at it: every turn with its place, the branches that left it, the reflog."""

from __future__ import annotations

import msgspec

from clew.history.lookup import holder_of, words_of_turn
from clew.store.base import Store, get_session
from clew.transcript.line import line_turns, path_to, tail_place
from clew.transcript.projection import kept_tails_of
from clew.transcript.turn import MoveReason, Tree, Turn, TurnKind
from clew.transcript.turn_state import TurnStatus

__all__ = ["ReflogEntry", "TreeBranch", "TreeTurn", "TreeView", "load_reflog", "load_tree_view", "tree_order"]


class TreeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its place in the tree. ``text`` is the beginning of its user message, or of its summary."""

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
    """A session that starts as a copy of a line of this one. ``turn_id`` is where it left, if that is known."""

    session_id: str
    title: str | None
    label: str | None
    from_message_id: str | None
    turn_id: str | None
    created_at: int


class TreeView(msgspec.Struct, frozen=True, kw_only=True):
    """All turns of a session, parents before children, and its branches, oldest first."""

    session_id: str
    head_turn_id: str | None
    open_turn_id: str | None
    turns: tuple[TreeTurn, ...]
    branches: tuple[TreeBranch, ...]


class ReflogEntry(msgspec.Struct, frozen=True):
    """One move of the head, and what the turn it went to is known by; no text at the empty beginning."""

    seq: int
    from_turn_id: str | None
    to_turn_id: str | None
    at: int
    why: MoveReason
    text: str


async def load_tree_view(store: Store, session_id: str) -> TreeView:
    """The tree of a session. Subagent sessions are children too, and no branches."""
    await get_session(store, session_id)
    tree = await store.load_tree(session_id)
    rows = {row.id: row for row in await store.load_messages(session_id, keep_damaged=True)}
    branches = tuple(
        TreeBranch(
            session_id=child.id,
            title=child.title,
            label=child.label,
            from_message_id=child.parent_message_id,
            turn_id=left_at.id if (left_at := holder_of(tree, child.parent_message_id or "")) is not None else None,
            created_at=child.created_at,
        )
        for child in await store.list_children(session_id)
        if child.kind != "subagent"
    )
    line = {turn.id for turn in line_turns(tree)}
    turns = tuple(
        TreeTurn(
            **{name: getattr(turn, name) for name in TreeTurn.__struct_fields__ if hasattr(turn, name)},
            on_line=turn.id in line,
            is_head=turn.id == tree.head_turn_id,
            text=words_of_turn(turn, tree.links.get(turn.id, ()), rows),
            messages=tree.links.get(turn.id, ()),
        )
        for turn in tree_order(tree)
    )
    head, opened = tree.head_turn_id, tree.open_turn_id
    return TreeView(session_id=session_id, head_turn_id=head, open_turn_id=opened, turns=turns, branches=branches)


def tree_order(tree: Tree) -> list[Turn]:
    """Every turn right after its parent or an older sibling's descendants."""
    below: dict[str | None, list[Turn]] = {}
    for turn in sorted(tree.turns.values(), key=lambda turn: (turn.created_at, turn.id), reverse=True):
        below.setdefault(turn.parent_turn_id, []).append(turn)
    order: list[Turn] = []
    ahead = below.get(None, [])
    while ahead:
        turn = ahead.pop()
        order.append(turn)
        ahead += below.get(turn.id, ())
    return order


async def load_reflog(store: Store, session_id: str) -> list[ReflogEntry]:
    """Every move of the head, newest first."""
    await get_session(store, session_id)
    tree = await store.load_tree(session_id)
    rows = {row.id: row for row in await store.load_messages(session_id, keep_damaged=True)}
    tails = {tail.turn_id: tail.tail_start_id for tail in kept_tails_of(tree, rows)}
    known_by: dict[str, str] = {}
    for turn_id in {move.to_turn_id for move in tree.moves}:
        turn = tree.turns.get(turn_id or "")
        if turn is not None and turn.id in tails:
            count = _condensed(tree, turn, tails[turn.id])
            known_by[turn.id] = f"summary of {count} turn{'' if count == 1 else 's'}"
        elif turn is not None:
            known_by[turn.id] = words_of_turn(turn, tree.links.get(turn.id, ()), rows)
    return [
        ReflogEntry(
            move.seq, move.from_turn_id, move.to_turn_id, move.at, move.why, known_by.get(move.to_turn_id or "", "")
        )
        for move in reversed(tree.moves)
    ]


def _condensed(tree: Tree, turn: Turn, tail_start_id: str | None) -> int:
    """How many turns the summary of a compaction stands for, those of the summaries before it included."""
    path = path_to(tree.turns, turn.id)
    line = [(above, message_id) for above in path for message_id in tree.links.get(above.id, ())]
    start = tail_place([(above.id, message_id) for above, message_id in line], turn.id, tail_start_id)
    return len({above.id for above, _ in line[:start] if above.kind == "normal"})
