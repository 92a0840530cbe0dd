"""What people look at, page by page, held against the whole of it by the pure rules."""

from __future__ import annotations

import random

import pytest

from clew.compaction.files import touched_files
from clew.errors import MessageNotFound
from clew.session.history.lookup import holder_of, words_of_turn
from clew.session.history.tree import (
    ReflogEntry,
    TreeBranch,
    TreeTurn,
    load_reflog,
    load_tree_view,
    tree_order,
    words_of_summary,
)
from clew.session.history.views import load_files, load_messages
from clew.store.base import Store, get_session
from clew.store.trees import Holder
from clew.transcript.line import line_messages, line_turns, path_to, turns_before_tail
from clew.transcript.projection import compaction_tails
from clew.transcript.turn import Tree
from clew.transcript.view import annotate, visible_view


async def check_looks(store: Store, session_id: str, rng: random.Random) -> None:
    """Every page of every list is what the whole has there."""
    tree = await store.load_tree(session_id)
    rows = {row.id: row for row in await store.load_messages(session_id, keep_damaged=True)}
    least = 1 + len(tree.turns) // 12
    await check_tree(store, session_id, tree, rng.randint(least, 7 * least))
    await check_reflog(store, session_id, tree, rng.randint(least, 7 * least))
    await check_messages(store, session_id, rng)
    await check_files(store, session_id, rng.randint(least, 5 * least))
    on_line = {turn.id for turn in line_turns(tree)}
    for message_id in (*rng.sample(sorted(rows), min(len(rows), 25)), "msg_nowhere"):
        turn = holder_of(tree, message_id)
        found = await store.find_holder(session_id, message_id)
        assert found == (None if turn is None else Holder(turn, turn.id in on_line))
    some = set(rng.sample(sorted(rows), min(len(rows), 4)))
    pruned = await store.load_pruned(session_id)
    assert await store.load_pruned(session_id, some) == tuple(one for one in pruned if one.message_id in some)


async def check_tree(store: Store, session_id: str, tree: Tree, limit: int) -> None:
    rows = {row.id: row for row in await store.load_messages(session_id, keep_damaged=True)}
    on_line = {turn.id for turn in line_turns(tree)}
    expected = [
        TreeTurn(
            **{name: getattr(turn, name) for name in TreeTurn.__struct_fields__ if hasattr(turn, name)},
            on_line=turn.id in on_line,
            is_head=turn.id == tree.head_turn_id,
            text=words_of_turn(turn, tree.links.get(turn.id, ()), rows),
            messages=tree.links.get(turn.id, ()),
        )
        for turn in tree_order(tree.turns.values())
    ]
    whole = await load_tree_view(store, session_id)
    assert list(whole.turns) == expected
    assert (whole.head_turn_id, whole.open_turn_id, whole.next_cursor) == (tree.head_turn_id, tree.open_turn_id, None)
    known = {turn.id: turn for turn in expected}
    told: list[TreeTurn] = []
    branches: list[TreeBranch] = []
    cursor = None
    while True:
        page = await load_tree_view(store, session_id, limit, cursor)
        assert page.turns == tuple(known[turn.id] for turn in tree_order(tree.turns[turn.id] for turn in page.turns))
        told += sorted(page.turns, key=lambda turn: turn.id, reverse=True)
        branches += page.branches
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page.turns) == limit
    assert told == sorted(expected, key=lambda turn: turn.id, reverse=True)
    assert sorted(branches, key=lambda one: (one.created_at, one.session_id)) == list(whole.branches)


async def check_reflog(store: Store, session_id: str, tree: Tree, limit: int) -> None:
    rows = {row.id: row for row in await store.load_messages(session_id, keep_damaged=True)}
    known = {turn.id: words_of_turn(turn, tree.links.get(turn.id, ()), rows) for turn in tree.turns.values()}
    for tail in compaction_tails(tree, rows):
        path = path_to(tree.turns, tail.turn_id)
        line = [(turn, message_id) for turn in path for message_id in tree.links.get(turn.id, ())]
        known[tail.turn_id] = words_of_summary(turns_before_tail(line, tail.turn_id, tail.tail_start_id))
    expected = [
        ReflogEntry(
            move.seq, move.from_turn_id, move.to_turn_id, move.at, move.why, known.get(move.to_turn_id or "", "")
        )
        for move in reversed(tree.moves)
    ]
    assert await load_reflog(store, session_id) == expected
    told: list[ReflogEntry] = []
    while page := await load_reflog(store, session_id, limit, told[-1].seq if told else None):
        told += page
    assert told == expected


async def check_messages(store: Store, session_id: str, rng: random.Random) -> None:
    line = await store.load_line(session_id, keep_damaged=True)
    turns = {entry.turn.id: entry.turn for entry in line.turns}
    expected = annotate(visible_view(line.turns), turns, await store.load_pruned(session_id))
    assert await load_messages(store, session_id, "visible", None, None) == expected
    shown = {message.id for message in expected}
    for place in sorted({*rng.sample(range(len(expected)), min(len(expected), 12)), len(expected)}):
        limit = rng.choice([1, 2, 3, 5, 9, 40])
        before = None if place == len(expected) else expected[place].id
        page = await load_messages(store, session_id, "visible", limit, before)
        assert page == expected[max(place - limit, 0) : place], (place, limit)
    gone = sorted({row.id for row in await store.load_messages(session_id, keep_damaged=True)} - shown)
    for message_id in rng.sample(gone, min(len(gone), 4)):
        with pytest.raises(MessageNotFound):
            await load_messages(store, session_id, "visible", 3, message_id)


async def check_files(store: Store, session_id: str, limit: int) -> None:
    session = await get_session(store, session_id)
    line = (await store.load_line(session_id, keep_damaged=True)).turns
    assert (await load_files(store, session, None, None)).files == touched_files(line, session.workspace_root)
    end, cursor = len(line), None
    while True:
        page = await load_files(store, session, limit, cursor)
        start = max(end - limit, 0)
        assert page.files == touched_files(line[start:end], session.workspace_root)
        end, cursor = start, page.next_cursor
        if cursor is None:
            break
    assert end == 0
    assert list(line_messages(await store.load_tree(session_id))) == [
        (entry.turn, row.id) for entry in line for row in entry.messages
    ]
