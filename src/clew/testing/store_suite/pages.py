"""Pages of a session's history, the position of a message, and partial reads for the views of a long line."""

from __future__ import annotations

from typing import Any

import pytest

from clew.store.base import LineSlice, Store
from clew.store.trees import Holder, KnownTurn, MovePage, PathTurn, TurnPage, join_runs
from clew.store.unit import AddPruned, LinkMessage, MoveHead, MoveTurn, OpenTurn, SetTurn, Write
from clew.testing.chunks import text
from clew.testing.scribe import Scribe, settled
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.pruned import Pruned
from clew.transcript.turn import Turn
from clew.transcript.view import model_view, visible_view


async def test_turns_come_in_pages_the_newest_first_with_what_people_know_them_by(store: Store, scribe: Scribe) -> None:
    """Turns of other branches are included. A page begins below a turn, even if the head has moved since."""
    assert await store.load_turns(scribe.session_id) == TurnPage(None, None, (), frozenset(), more=False)
    ids = [(await scribe.turn(f"prompt {n}", text(f"answer {n}")))[0] for n in range(4)]
    await scribe.commit(MoveHead(ids[1], 9, "rewind"))
    tree = await store.load_tree(scribe.session_id)
    rows = {row.id: row for row in await store.load_messages(scribe.session_id)}
    known = [KnownTurn(tree.turns[id_], tree.links[id_], (rows[tree.links[id_][0]],)) for id_ in reversed(ids)]
    whole = await store.load_turns(scribe.session_id)
    assert whole == TurnPage(ids[1], None, tuple(known), frozenset(ids[:2]), more=False)
    first = await store.load_turns(scribe.session_id, limit=2)
    assert first == TurnPage(ids[1], None, tuple(known[:2]), frozenset(), more=True)
    await scribe.commit(MoveHead(ids[3], 10, "goto"))
    rest = await store.load_turns(scribe.session_id, limit=2, before=first.turns[-1].turn.id)
    assert rest == TurnPage(ids[3], None, tuple(known[2:]), frozenset(ids[:2]), more=False)


async def test_moves_come_in_pages_with_the_turns_they_went_to(store: Store, scribe: Scribe) -> None:
    """A compaction has the number of turns that its summary replaces."""
    assert await store.load_moves(scribe.session_id) == MovePage((), {}, {})
    turns = [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(3)]
    turn_id = scribe.mint.turn()
    await scribe.commit(
        *compaction(scribe, turns[2][0], turns[2][1], turn_id),
        MoveHead(turn_id, scribe.clock.now_ms(), "compaction"),
    )
    await scribe.commit(MoveHead(None, scribe.clock.now_ms(), "goto"))
    tree = await store.load_tree(scribe.session_id)
    whole = await store.load_moves(scribe.session_id)
    assert whole.moves == tree.moves[::-1]
    assert sorted(whole.turns) == sorted([turn_id, *(ids[0] for ids in turns)])
    assert whole.summarised == {turn_id: 2}
    page = await store.load_moves(scribe.session_id, limit=2, before=5)
    assert page.moves == (tree.moves[3], tree.moves[2])
    assert page.turns == {id_: whole.turns[id_] for id_ in (turn_id, turns[2][0])}
    marker = await store.find_message(scribe.session_id, tree.links[turn_id][0])
    assert page.turns[turn_id].described_by == (marker,)


async def test_a_message_is_held_by_the_turn_of_the_line_else_by_the_newest(store: Store, scribe: Scribe) -> None:
    """A prompt that was sent again is in two turns; a queued message, or one of another session, is in none."""
    first, user, reply = await scribe.turn("prompt", text("answer"))
    now, again = scribe.clock.now_ms() + 1, scribe.mint.turn()
    turn = Turn(id=again, session_id=scribe.session_id, parent_turn_id=None, created_at=now, status="unanswered")
    await scribe.commit(OpenTurn(turn), LinkMessage(again, user), MoveHead(again, now, "rewind"))
    turns = (await store.load_tree(scribe.session_id)).turns
    assert await store.find_holder(scribe.session_id, user) == Holder(turns[again], on_line=True)
    assert await store.find_holder(scribe.session_id, reply) == Holder(turns[first], on_line=False)
    await scribe.commit(MoveHead(first, now, "unrewind"))
    assert await store.find_holder(scribe.session_id, user) == Holder(turns[first], on_line=True)
    await scribe.commit(MoveHead(None, now, "goto"))
    assert await store.find_holder(scribe.session_id, user) == Holder(turns[again], on_line=False)
    assert await store.find_holder(scribe.session_id, scribe.mint.message()) is None


async def test_a_part_of_a_tree_is_what_the_whole_tree_says(store: Store, scribe: Scribe) -> None:
    """A path, the turns of a message on it, refused prompts, earlier heads, and the rewind to be undone."""
    id_, turns = scribe.session_id, [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(3)]
    ids, now, again = [turn[0] for turn in turns], scribe.clock.now_ms() + 1, scribe.mint.turn()
    turn = Turn(id=again, session_id=id_, parent_turn_id=ids[0], created_at=now)
    await scribe.commit(MoveHead(ids[0], now, "rewind"), OpenTurn(turn), LinkMessage(again, turns[2][1]))
    await scribe.commit(SetTurn(again, "refused", settled_at=now))
    tree = await store.load_tree(id_)
    whole = [PathTurn(tree.turns[turn_id], tree.links[turn_id]) for turn_id in ids]
    assert await store.load_path(id_, ids[2]) == tuple(whole)
    assert (
        await store.load_path(id_, ids[2], turns=2) == await store.load_path(id_, ids[2], depth=1) == tuple(whole[1:])
    )
    assert await store.load_path(id_, None) == ()
    assert await store.load_marked(id_, ids[2]) == (whole[0], whole[2])
    assert await store.path_every(id_, ids[2], 2) == (ids[0], ids[2])
    assert await store.load_runs(id_, ids[2]) == join_runs(whole)
    assert await store.load_runs(id_, ids[2], depth=1, apart=ids[1]) == tuple(whole[1:])
    assert [await store.load_runs(id_, None), await store.load_runs(id_, ids[0], depth=1)] == [(), ()]
    assert await store.find_meeting(id_, ids[2], again) == await store.find_meeting(id_, again, ids[0]) == whole[0].turn
    assert await store.find_meeting(id_, ids[2], None) is None
    assert await store.find_on_path(id_, turns[1][1], ids[2]) == tree.turns[ids[1]]
    assert await store.find_on_path(id_, turns[2][1], ids[1]) is None
    assert [await store.has_child(id_, turn_id) for turn_id in ids] == [True, True, False]
    assert [await store.has_child(id_, turn_id, refused=True) for turn_id in ids] == [True, True, False]
    below = Turn(id=scribe.mint.turn(), session_id=id_, parent_turn_id=again, created_at=now)
    await scribe.commit(OpenTurn(below), SetTurn(below.id, "refused", settled_at=now - 1))
    assert [await store.has_child(id_, again), await store.has_child(id_, again, refused=True)] == [False, True]
    assert await store.load_refused(id_, now) == (PathTurn(tree.turns[again], (turns[2][1],)),)
    assert await store.load_refused(id_, now + 1) == ()
    assert await store.find_rewind(id_) == await store.newest_move(id_) == tree.moves[-1]
    assert await store.moves_after(id_, 1, 2) == tree.moves[1:3]
    assert [await store.was_head(id_, ids[2], through) for through in (2, 3)] == [False, True]
    await scribe.commit(MoveHead(ids[2], now, "unrewind"))
    assert await store.find_rewind(id_) is None


async def test_the_prunes_of_some_messages_are_those_alone(store: Store, scribe: Scribe) -> None:
    """They are ordered by (seq, message, part)."""
    _, _, one = await scribe.turn("prompt", text("answer"))
    _, _, other = await scribe.turn("prompt", text("answer"))
    for at in (1, 2):
        await scribe.commit(AddPruned(tuple(Pruned(0, id_, 0, 5, 0, at) for id_ in (one, other))))
    every = await store.load_pruned(scribe.session_id)
    assert await store.load_pruned(scribe.session_id, {one}) == tuple(row for row in every if row.message_id == one)
    assert await store.load_pruned(scribe.session_id, set()) == ()


async def test_branches_are_the_children_that_no_subagent_is(store: Store, scribe: Scribe) -> None:
    """Oldest first."""
    made: dict[str, Any] = {"parent_id": scribe.session_id, "clock": scribe.clock, "mint": scribe.mint}
    expected = [(await Scribe.create(store, **made)).session_id for _ in range(2)]
    await Scribe.create(store, metadata={"kind": "subagent"}, **made)
    assert {session.id for session in await store.list_branches(scribe.session_id)} == set(expected)
    assert await store.list_branches(expected[0]) == ()


def compaction(scribe: Scribe, parent: str, tail: str | None, turn_id: str) -> tuple[Write, ...]:
    """Return the writes of a compaction below a turn; a ``tail`` of "marker" is its own marker."""
    now, marker_id = scribe.clock.now_ms(), scribe.mint.message()
    turn = Turn(
        id=turn_id,
        session_id=scribe.session_id,
        parent_turn_id=parent,
        created_at=now,
        kind="compaction",
        status="completed",
        settled_at=now,
    )
    data = {"summary": "so far", "tail_start_id": marker_id if tail == "marker" else tail}
    part = PartRow(scribe.mint.part(), 0, {"type": "data-compaction", "data": data}, now, now)
    row = MessageRow(marker_id, scribe.session_id, "assistant", now, now, {}, (part,))
    return OpenTurn(turn), *settled(row), LinkMessage(turn_id, row.id)


async def load_checked_view(store: Store, session_id: str) -> LineSlice:
    """Return the view, which must equal that of the complete line."""
    view = await store.find_view(session_id)
    whole = await store.load_line(session_id)
    assert view is not None
    assert view.complete
    assert visible_view(view.turns) == visible_view(whole.turns)
    assert model_view(view.turns) == model_view(whole.turns)
    assert contents_of(view) == contents_of(whole)[len(whole.turns) - len(view.turns) :]
    return view


def contents_of(line: LineSlice) -> list[Any]:
    """Return the contents of a line without ids and times of parts, which a view may leave out."""
    return [
        (entry.turn, [(row.id, row.role, row.metadata, [part.data for part in row.parts]) for row in entry.messages])
        for entry in line.turns
    ]


@pytest.mark.parametrize(
    ("tail", "turns"),
    [("user 2", 4), ("reply 2", 4), ("user 0", 6), ("marker", 2), ("nowhere", 2), ("user 4", 2), (None, 6)],
)
async def test_a_view_begins_where_the_tail_does(store: Store, scribe: Scribe, tail: str | None, turns: int) -> None:
    """The tail begins above or below the compaction; one that is not on the line, or the marker, begins below it."""
    written = [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(4)]
    message_ids = {f"user {n}": ids[1] for n, ids in enumerate(written)} | {
        f"reply {n}": ids[2] for n, ids in enumerate(written)
    }
    opened = await scribe.prompt("after")
    message_ids |= {"user 4": opened.user.id, "nowhere": scribe.mint.message()}
    turn_id = scribe.mint.turn()
    await scribe.commit(
        *compaction(scribe, written[3][0], message_ids.get(tail or "", tail), turn_id),
        MoveTurn(opened.id, turn_id),
        MoveHead(turn_id, 9, "compaction"),
    )
    view = await load_checked_view(store, scribe.session_id)
    assert len(view.turns) == turns
    assert [entry.turn.id for entry in view.turns[-2:]] == [turn_id, opened.id]


@pytest.mark.parametrize("tail", ["user 1", "open", "marker", "nowhere"])
async def test_a_compaction_between_the_head_and_the_open_turn_is_in_the_view(
    store: Store, scribe: Scribe, tail: str
) -> None:
    """This holds before and after the head has followed, and after the open turn was left."""
    first, _, _ = await scribe.turn("one", text("1"))
    second, user, _ = await scribe.turn("two", text("2"))
    opened = await scribe.prompt("three")
    message_ids = {"user 1": user, "open": opened.user.id, "nowhere": scribe.mint.message()}
    turn_id = scribe.mint.turn()
    writes = compaction(scribe, second, message_ids.get(tail, tail), turn_id)
    await scribe.commit(*writes, MoveTurn(opened.id, turn_id))
    tail_turns = [second] if tail == "user 1" else []
    view = await load_checked_view(store, scribe.session_id)
    assert [entry.turn.id for entry in view.turns] == [*tail_turns, turn_id, opened.id]
    await scribe.commit(MoveHead(turn_id, 9, "compaction"))
    assert await load_checked_view(store, scribe.session_id) == view
    await scribe.commit(*opened.settling("failed"), MoveHead(turn_id, 10, "rewind"))
    view = await load_checked_view(store, scribe.session_id)
    assert [entry.turn.id for entry in view.turns] == [*tail_turns, turn_id]
    await scribe.commit(MoveHead(first, 11, "rewind"))
    assert [entry.turn.id for entry in (await load_checked_view(store, scribe.session_id)).turns] == [first]


async def test_without_a_compaction_a_view_is_as_long_as_asked(store: Store, scribe: Scribe) -> None:
    """It also says whether there is more."""
    assert await store.find_view(scribe.session_id) == LineSlice((), complete=True)
    assert await store.find_view(scribe.mint.session(store.capabilities.session_ids)) is None
    for n in range(3):
        await scribe.turn(f"prompt {n}", text(f"answer {n}"))
    whole = contents_of(await store.load_line(scribe.session_id))
    near = await store.find_view(scribe.session_id, near=True)
    assert (near and contents_of(near), near and near.complete) == (whole, True)
    for turns, complete in ((1, False), (2, False), (3, True), (4, True)):
        view = await store.find_view(scribe.session_id, turns=turns)
        assert view is not None
        assert (contents_of(view), view.complete) == (whole[-turns:], complete)
