"""Units: whole or not at all, in order, and refused when their guards do not hold."""

from __future__ import annotations

import asyncio

import pytest

from clew.errors import ClewError, IllegalTransition
from clew.history.check import check
from clew.ids import Mint
from clew.store.base import Store
from clew.store.unit import (
    Committed,
    Dequeue,
    Enqueue,
    EpochIs,
    Guard,
    HeadIs,
    InsertMessage,
    LinkMessage,
    NoOpenTurn,
    OpenTurnIs,
    PatchSession,
    Refused,
    SetEpoch,
    SetTurn,
    StillQueued,
    Unit,
    Write,
)
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, user_row
from clew.transcript.session import SessionState


async def test_a_unit_that_fails_half_way_leaves_nothing_behind(scribe: Scribe) -> None:
    """Its first write is undone when its second one cannot be done; so is a change of state."""
    await scribe.turn("hello", text("hi"))
    before = (await scribe.session(), await scribe.store.load_tree(scribe.session_id))
    row = user_row(scribe.mint, scribe.session_id, "x", 1)
    failing: list[tuple[Write, ...]] = [
        (PatchSession(metadata={"a": 1}), SetEpoch(99), SetTurn(scribe.mint.turn(), "completed")),
        (InsertMessage(row), LinkMessage(scribe.mint.turn(), row.id)),
        (InsertMessage(row), InsertMessage(row)),
    ]
    for writes in failing:
        with pytest.raises(ClewError):
            await scribe.commit(*writes)
    assert (await scribe.session(), await scribe.store.load_tree(scribe.session_id)) == before
    assert await scribe.store.find_message(scribe.session_id, row.id) is None
    assert (await scribe.store.load_state(scribe.session_id)).epoch == 1
    assert await check(scribe.store) == []


async def test_one_failing_unit_does_not_take_its_neighbours_down(store: Store, scribe: Scribe) -> None:
    """Units that travel in one group with a failing one are all committed; only that one sees its error."""
    units = [Unit(scribe.session_id, (PatchSession(metadata={f"k{n}": n}),)) for n in range(20)]
    units.insert(7, Unit(scribe.session_id, (PatchSession(metadata={"bad": 1}), SetTurn("trn_none", "failed"))))
    units.insert(12, Unit(scribe.session_id, (PatchSession(metadata={"stale": 1}),), (EpochIs(5),)))
    results = await asyncio.gather(*(store.submit(unit) for unit in units), return_exceptions=True)
    assert isinstance(results.pop(7), ClewError)
    assert results.pop(11) == Refused("stale_epoch")
    assert results == [Committed()] * 20
    assert (await scribe.session()).metadata == {f"k{n}": n for n in range(20)}


async def test_units_of_a_session_commit_in_the_order_they_were_submitted(store: Store, scribe: Scribe) -> None:
    """The last one submitted wins."""
    units = [Unit(scribe.session_id, (PatchSession(metadata={"n": n}),)) for n in range(300)]
    await asyncio.gather(*(store.submit(unit) for unit in units))
    assert (await scribe.session()).metadata == {"n": 299}


@pytest.mark.rule("SR-6")
async def test_only_one_of_many_can_take_a_session(store: Store, scribe: Scribe) -> None:
    """Taking a session is one conditional update: of a hundred that try with the same epoch, one gets it."""
    tries = [Unit(scribe.session_id, (SetEpoch(1),), (EpochIs(0),)) for _ in range(100)]
    outcomes = await asyncio.gather(*(store.submit(unit) for unit in tries))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Committed"] + ["Refused"] * 99
    assert await store.load_state(scribe.session_id) == SessionState(epoch=1)


async def test_each_guard_refuses_with_its_own_word(scribe: Scribe) -> None:
    """And lets the unit pass when it holds."""
    opened = await scribe.prompt("hello")
    row = user_row(scribe.mint, scribe.session_id, "later", 1)
    await scribe.commit(InsertMessage(row), Enqueue(row.id, 1))
    mark = PatchSession(metadata={"seen": 1})
    other = scribe.mint.turn()
    assert await scribe.try_commit(mark, guards=[EpochIs(2)]) == Refused("stale_epoch")
    assert await scribe.try_commit(mark, guards=[HeadIs(other)]) == Refused("head_moved")
    assert await scribe.try_commit(mark, guards=[NoOpenTurn()]) == Refused("turn_open")
    assert await scribe.try_commit(mark, guards=[OpenTurnIs(other)]) == Refused("turn_not_open")
    assert await scribe.try_commit(mark, guards=[StillQueued(opened.user.id)]) == Refused("not_queued")
    assert (await scribe.session()).metadata == {}
    held: list[Guard] = [EpochIs(1), HeadIs(None), OpenTurnIs(opened.id), StillQueued(row.id)]
    assert await scribe.try_commit(mark, Dequeue(row.id), guards=held) == Committed()
    assert (await scribe.session()).metadata == {"seen": 1}


async def test_of_cancel_and_fire_exactly_one_wins(store: Store, scribe: Scribe) -> None:
    """Both take the message out of the queue under the same guard; the other is told."""
    row = user_row(scribe.mint, scribe.session_id, "later", 1)
    await scribe.commit(InsertMessage(row), Enqueue(row.id, 1))
    race = [Unit(scribe.session_id, (Dequeue(row.id),), (StillQueued(row.id),)) for _ in range(2)]
    assert await asyncio.gather(*(store.submit(unit) for unit in race)) == [Committed(), Refused("not_queued")]


async def test_the_queue_keeps_its_order(store: Store, scribe: Scribe, mint: Mint, clock: FakeClock) -> None:
    """Interrupting messages first, then by queued_at, then by id; a queued message says when it was queued."""
    rows = [user_row(mint, scribe.session_id, f"m{n}", clock.now_ms()) for n in range(5)]
    for row, (queued_at, interrupt) in zip(
        rows, [(30, False), (10, False), (10, False), (40, True), (20, True)], strict=True
    ):
        await scribe.commit(InsertMessage(row), Enqueue(row.id, queued_at, interrupt))
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
    await scribe.commit(Dequeue(rows[1].id))
    fired = await store.find_message(scribe.session_id, rows[1].id)
    assert fired is not None
    assert "queued_at" not in fired.metadata


async def test_a_turn_moves_only_as_the_table_allows(scribe: Scribe) -> None:
    """A settled turn is not set running by a stray write, and the refusal changes nothing."""
    turn_id, _, _ = await scribe.turn("hello", text("hi"), status="failed")
    with pytest.raises(IllegalTransition):
        await scribe.commit(SetTurn(turn_id, "running"))
    assert (await scribe.store.load_tree(scribe.session_id)).turns[turn_id].status == "failed"
