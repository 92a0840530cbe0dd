"""Units: atomic, in order, and refused if a guard fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from clew.errors import ClewError, IllegalTransition, InternalError
from clew.ids import Mint
from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import Store
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, user_row
from clew.transcript.pruned import Pruned
from clew.transcript.session import SessionState
from clew.transcript.turn import Turn, with_parent


async def test_a_unit_that_fails_half_way_leaves_nothing_behind(scribe: Scribe) -> None:
    """If the second write fails, the first is undone, and so is a change of state."""
    await scribe.turn("hello", text("hi"))
    before = (await scribe.session(), await scribe.store.load_tree(scribe.session_id))
    row = user_row(scribe.mint, scribe.session_id, "x", 1)
    failing: list[tuple[u.Write, ...]] = [
        (u.PatchSession(metadata={"a": 1}), u.SetEpoch(99), u.SetTurn(scribe.mint.turn(), "completed")),
        (u.InsertMessage(row), u.LinkMessage(scribe.mint.turn(), row.id)),
        (u.InsertMessage(row), u.InsertMessage(row)),
    ]
    for writes in failing:
        with pytest.raises(ClewError):
            await scribe.commit(*writes)
    assert (await scribe.session(), await scribe.store.load_tree(scribe.session_id)) == before
    assert await scribe.store.find_message(scribe.session_id, row.id) is None
    assert (await scribe.store.load_state(scribe.session_id)).epoch == 1
    assert await check(scribe.store) == []


async def test_one_failing_unit_does_not_take_its_neighbours_down(store: Store, scribe: Scribe) -> None:
    """Units in one group with a failing one are all committed; only that one gets an error."""
    units = [u.Unit(scribe.session_id, (u.PatchSession(metadata={f"k{n}": n}),)) for n in range(20)]
    units.insert(7, u.Unit(scribe.session_id, (u.PatchSession(metadata={"bad": 1}), u.SetTurn("trn_none", "failed"))))
    units.insert(12, u.Unit(scribe.session_id, (u.PatchSession(metadata={"stale": 1}),), (u.EpochIs(5),)))
    results = await asyncio.gather(*(store.submit(unit) for unit in units), return_exceptions=True)
    assert isinstance(results.pop(7), ClewError)
    assert results.pop(11) == u.Refused("stale_epoch")
    assert results == [u.Committed()] * 20
    assert (await scribe.session()).metadata == {f"k{n}": n for n in range(20)}


async def test_units_of_a_session_commit_in_the_order_they_were_submitted(store: Store, scribe: Scribe) -> None:
    """The last one submitted wins."""
    units = [u.Unit(scribe.session_id, (u.PatchSession(metadata={"n": n}),)) for n in range(300)]
    await asyncio.gather(*(store.submit(unit) for unit in units))
    assert (await scribe.session()).metadata == {"n": 299}


@pytest.mark.rule("SR-6")
async def test_units_handed_over_together_are_answered_each_by_its_place(store: Store, scribe: Scribe) -> None:
    """A failed or refused unit does not affect the others."""
    units = [u.Unit(scribe.session_id, (u.PatchSession(metadata={f"k{n}": n}),)) for n in range(5)]
    units[1] = u.Unit(scribe.session_id, (u.PatchSession(metadata={"bad": 1}), u.SetTurn("trn_none", "failed")))
    units[3] = u.Unit(scribe.session_id, (u.PatchSession(metadata={"stale": 1}),), (u.EpochIs(5),))
    found: dict[int, object] = {}
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(answers: Sequence[tuple[int, object]]) -> None:
        found.update(answers)
        if len(found) == len(units):
            over.set_result(None)

    store.submit_all(units, answered, awaited=True)
    await over
    assert isinstance(found.pop(1), ClewError)
    assert found == {0: u.Committed(), 2: u.Committed(), 3: u.Refused("stale_epoch"), 4: u.Committed()}
    assert (await scribe.session()).metadata == {"k0": 0, "k2": 2, "k4": 4}


async def test_only_one_of_many_can_take_a_session(store: Store, scribe: Scribe) -> None:
    """Acquiring a session is one conditional update: of a hundred attempts with the same epoch, one succeeds."""
    tries = [u.Unit(scribe.session_id, (u.SetEpoch(1),), (u.EpochIs(0),)) for _ in range(100)]
    outcomes = await asyncio.gather(*(store.submit(unit) for unit in tries))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Committed"] + ["Refused"] * 99
    assert await store.load_state(scribe.session_id) == SessionState(epoch=1)


async def test_each_guard_refuses_with_its_own_word(scribe: Scribe) -> None:
    """The unit passes if the guard holds."""
    opened = await scribe.prompt("hello")
    row = user_row(scribe.mint, scribe.session_id, "later", 1, {"client_message_id": "c1"})
    await scribe.commit(u.InsertMessage(row), u.SealMessage(row.id, row.seal), u.Enqueue(row.id, 1))
    mark = u.PatchSession(metadata={"seen": 1})
    other = scribe.mint.turn()
    assert await scribe.try_commit(mark, guards=[u.EpochIs(2)]) == u.Refused("stale_epoch")
    assert await scribe.try_commit(mark, guards=[u.HeadIs(other)]) == u.Refused("head_moved")
    assert await scribe.try_commit(mark, guards=[u.NoOpenTurn()]) == u.Refused("turn_open")
    assert await scribe.try_commit(mark, guards=[u.OpenTurnIs(other)]) == u.Refused("turn_not_open")
    assert await scribe.try_commit(mark, guards=[u.StillQueued(opened.user.id)]) == u.Refused("not_queued")
    for changed in (
        u.StillQueued(row.id, (True, 1)),
        u.StillQueued(row.id, (False, 2)),
        u.StillQueued(row.id, seal="x"),
    ):
        assert await scribe.try_commit(mark, guards=[changed]) == u.Refused("queue_changed")
    assert await scribe.try_commit(mark, guards=[u.SentCountIs("c1", 0)]) == u.Refused("sent_meanwhile")
    assert (await scribe.session()).metadata == {}
    holding: list[u.Guard] = [u.EpochIs(1), u.HeadIs(None), u.OpenTurnIs(opened.id)]
    holding += [
        u.StillQueued(row.id),
        u.StillQueued(row.id, (False, 1), row.seal),
        u.SentCountIs("c1", 1),
        u.SentCountIs("c2", 0),
    ]
    assert await scribe.try_commit(mark, u.Dequeue(row.id), guards=holding) == u.Committed()
    assert (await scribe.session()).metadata == {"seen": 1}


async def test_of_cancel_and_fire_exactly_one_wins(store: Store, scribe: Scribe) -> None:
    """Both remove the message from the queue under the same guard; the other is refused."""
    row = user_row(scribe.mint, scribe.session_id, "later", 1)
    await scribe.commit(u.InsertMessage(row), u.Enqueue(row.id, 1))
    race = [u.Unit(scribe.session_id, (u.Dequeue(row.id),), (u.StillQueued(row.id),)) for _ in range(2)]
    assert await asyncio.gather(*(store.submit(unit) for unit in race)) == [u.Committed(), u.Refused("not_queued")]


async def test_the_queue_keeps_its_order(store: Store, scribe: Scribe, mint: Mint, clock: FakeClock) -> None:
    """Interrupting messages are first, then by queued_at, then by id; a queued message has its time."""
    rows = [user_row(mint, scribe.session_id, f"m{n}", clock.now_ms()) for n in range(5)]
    for row, (queued_at, interrupt) in zip(
        rows, [(30, False), (10, False), (10, False), (40, True), (20, True)], strict=True
    ):
        await scribe.commit(u.InsertMessage(row), u.Enqueue(row.id, queued_at, interrupt))
    queue = await store.load_queue(scribe.session_id)
    assert [entry.message.id for entry in queue] == [rows[n].id for n in (4, 3, 1, 2, 0)]
    assert [entry.message.metadata["queued_at"] for entry in queue] == [20, 40, 10, 10, 30]
    assert [(entry.queued_at, entry.interrupt) for entry in queue] == [
        (20, True),
        (40, True),
        (10, False),
        (10, False),
        (30, False),
    ]
    # To reorder the queue, one unit removes all messages and adds them again.
    reordered = [(row.id, n) for n, row in enumerate(rows)]
    moved = [(u.Dequeue(id_), u.Enqueue(id_, n, n == 0)) for id_, n in reordered]
    guards = [u.StillQueued(row.id) for row in rows]
    assert await scribe.try_commit(*(write for both in moved for write in both), guards=guards) == u.Committed()
    placed = [(entry.message.id, entry.message.queued_at) for entry in await store.load_queue(scribe.session_id)]
    assert placed == reordered
    await scribe.commit(u.Dequeue(rows[1].id))
    fired = await store.find_message(scribe.session_id, rows[1].id)
    assert fired is not None
    assert "queued_at" not in fired.metadata


async def test_a_turn_moves_only_as_the_table_allows(scribe: Scribe) -> None:
    """A settled turn is not set waiting by a stray write, and the refusal changes nothing."""
    turn_id, _, _ = await scribe.turn("hello", text("hi"), status="failed")
    with pytest.raises(IllegalTransition):
        await scribe.commit(u.SetTurn(turn_id, "waiting"))
    assert (await scribe.store.load_tree(scribe.session_id)).turns[turn_id].status == "failed"


async def test_the_open_turn_can_be_hung_below_another(store: Store, scribe: Scribe) -> None:
    """Its depth and its nearest compaction change with it; a settled turn is not moved."""
    first, _, _ = await scribe.turn("hello", text("hi"))
    opened = await scribe.prompt("go on")
    before = await store.find_turn(opened.id)
    assert before is not None
    compaction = Turn(
        id=scribe.mint.turn(),
        session_id=scribe.session_id,
        parent_turn_id=first,
        created_at=2,
        kind="compaction",
        status="completed",
        settled_at=2,
    )
    await scribe.commit(
        u.OpenTurn(compaction), u.MoveTurn(opened.id, compaction.id), u.MoveHead(compaction.id, 2, "compaction")
    )
    compacted = await store.find_turn(compaction.id)
    assert compacted is not None
    assert (compacted.depth, compacted.compaction_turn_id) == (1, compacted.id)
    assert await store.find_turn(opened.id) == with_parent(before, compacted)
    assert [entry.turn.id for entry in (await store.load_line(scribe.session_id)).turns] == [
        first,
        compacted.id,
        opened.id,
    ]
    assert await check(store) == []
    for move in (
        u.MoveTurn(compaction.id, None),
        u.MoveTurn(first, compaction.id),
        u.MoveTurn(opened.id, opened.id),
        u.MoveTurn(opened.id, scribe.mint.turn()),
    ):
        with pytest.raises(InternalError):
            await scribe.commit(move)
    assert await store.find_turn(opened.id) == with_parent(before, compacted)
    await scribe.commit(u.MoveTurn(opened.id, None))
    assert await store.find_turn(opened.id) == msgspec.structs.replace(before, parent_turn_id=None, depth=0)


async def test_a_turn_is_found_whichever_session_it_is_of(
    store: Store, scribe: Scribe, other: Scribe, mint: Mint
) -> None:
    """It is found as it is in that session's tree; an unknown one is not found."""
    for one in (scribe, other):
        turn_id, _, _ = await one.turn("hello", text("hi"))
        assert await store.find_turn(turn_id) == (await store.load_tree(one.session_id)).turns[turn_id]
    assert await store.find_turn(mint.turn()) is None


async def test_prunes_are_numbered_by_the_session_and_only_added(store: Store, scribe: Scribe) -> None:
    """All outputs of one prune have one number, whatever number was passed; every view has them."""
    calls = [*tool_call("read", {}, id="c1"), *tool_output("x", call="c1")]
    calls += [*tool_call("read", {}, id="c2"), *tool_output("y", call="c2")]
    replies = [(await scribe.turn(f"look {n}", calls))[2] for n in range(2)]
    assert await store.load_pruned(scribe.session_id) == ()
    first = [Pruned(9, reply, part, 5, 0, 100) for reply in reversed(replies) for part in (2, 1)]
    await scribe.commit(u.AddPruned(tuple(first)))
    await scribe.commit(u.AddPruned((Pruned(0, replies[0], 1, 5, 3, 200),)))
    expected = tuple(Pruned(1, reply, part, 5, 0, 100) for reply in replies for part in (1, 2))
    expected = (*expected, Pruned(2, replies[0], 1, 5, 3, 200))
    assert await store.load_pruned(scribe.session_id) == expected
    view = await store.find_view(scribe.session_id)
    whole = await store.find_full_session(scribe.session_id)
    assert view is not None
    assert whole is not None
    assert view.pruned == whole.pruned == expected
    assert (await store.load_line(scribe.session_id)).pruned == ()
    assert await check(store) == []


async def test_a_prune_of_another_sessions_message_fails(store: Store, scribe: Scribe, other: Scribe) -> None:
    """So is one that prunes the same part twice; neither is stored."""
    _, _, elsewhere = await other.turn("hello", text("hi"))
    _, _, reply = await scribe.turn("look", [*tool_call("read", {}), *tool_output("x")])
    good = Pruned(0, reply, 1, 5, 0, 100)
    for bad in (Pruned(0, elsewhere, 1, 5, 0, 100), good):
        with pytest.raises(InternalError):
            await scribe.commit(u.AddPruned((good, bad)))
    assert await store.load_pruned(scribe.session_id) == ()
    assert await store.load_pruned(other.session_id) == ()


async def test_prunes_go_with_their_session(store: Store, scribe: Scribe, other: Scribe) -> None:
    """The prunes of other sessions stay."""
    for one in (scribe, other):
        _, _, reply = await one.turn("look", [*tool_call("read", {}), *tool_output("x")])
        await one.commit(u.AddPruned((Pruned(0, reply, 1, 5, 0, 100),)))
    await scribe.commit(u.DeleteSession())
    assert await store.load_pruned(scribe.session_id) == ()
    assert len(await store.load_pruned(other.session_id)) == 1
    assert await check(store) == []
