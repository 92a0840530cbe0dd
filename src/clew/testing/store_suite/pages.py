"""Pages of a session's history: turns and moves, newest first, and the position of a message."""

from __future__ import annotations

from typing import Any

from clew.store.base import Store
from clew.store.history_pages import Holder, KnownTurn, MovePage, TurnPage
from clew.store.paths import PathTurn, join_runs
from clew.store.unit import AddPruned, LinkMessage, MoveHead, OpenTurn, SetTurn
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.testing.store_suite.views import compaction
from clew.transcript.pruned import Pruned
from clew.transcript.turn import Turn


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
