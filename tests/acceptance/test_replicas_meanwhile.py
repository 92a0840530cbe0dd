"""What another replica does in the middle of a step here: at its last write, or between that and telling it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

import clew
from clew.errors import ClewError, SessionBusy, SessionNotFound
from clew.live.base import Event
from clew.session.acquire.acquire import GONE
from clew.session.api import Engine
from clew.session.history.check import check
from clew.session.turn.recorder import Recorder
from clew.store.unit import SetTurn, Unit, Write
from clew.testing.clock import FakeClock
from clew.testing.scripted import Gate, call, say, wait
from clew.transcript.turn_state import TurnStatus
from tests.acceptance.replicas import Cluster, open_cluster
from tests.acceptance.test_replicas import over, said, until
from tests.acceptance.test_replicas_at_once import once

pytestmark = pytest.mark.rule("RP-1", "RP-3")


class AtItsEnd(Protocol):
    def __call__(self, status: TurnStatus, meanwhile: Callable[[], Awaitable[Any]], *, before: bool) -> None: ...


@pytest.fixture(params=["memory", "sqlite"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(request.param, tmp_path) as opened:
        yield opened


@clew.tool
async def fetch(name: str) -> str:
    """Fetch something."""
    return f"here is {name}"


@pytest.fixture
def at_its_end(monkeypatch: pytest.MonkeyPatch) -> AtItsEnd:
    """Do something else right before, or after, the next run that ends so has that stored."""

    def do(status: TurnStatus, meanwhile: Callable[[], Awaitable[Any]], *, before: bool) -> None:
        real = Recorder.close
        done: list[bool] = []

        async def close(self: Recorder, *writes: Write, seal: bool = True) -> None:
            is_meant = not done and any(isinstance(write, SetTurn) and write.status == status for write in writes)
            if is_meant:
                done.append(True)
            if is_meant and before:
                await meanwhile()
            await real(self, *writes, seal=seal)
            if is_meant and not before:
                await meanwhile()

        monkeypatch.setattr(Recorder, "close", close)

    return do


def told_by(engine: Engine) -> list[tuple[str, Any]]:
    """What this replica tells of turns that end, from now on."""
    told: list[tuple[str, Any]] = []
    real = engine.host.live.publish

    def publish(event: Event) -> None:
        if event.type == "turn_finished":
            told.append((event.type, event.data["reason"]))
        real(event)

    engine.host.live.publish = publish  # type: ignore[method-assign]
    return told


@pytest.mark.parametrize("named", [True, False])
async def test_an_answer_waits_for_a_run_elsewhere_that_is_still_ending_to_ask(
    cluster: Cluster, named: bool, at_its_end: AtItsEnd
) -> None:
    """Its request is shown before its turn waits for an answer; whoever is so quick has his answer taken then."""
    one = await cluster.join([call("fetch", {"name": "a"})], tools=[fetch])
    two = await cluster.join([say("got it")], tools=[fetch])
    session = await one.create_session(title="t")
    ending = Gate()
    at_its_end("waiting", ending.wait, before=True)
    shown = aiter(one.run(session.id, "go"))
    await anext(shown)
    await ending.reached.wait()
    # Its end takes so long that what it has said goes ahead.
    assert isinstance(one.clock, FakeClock)
    one.clock.advance(1_000)
    asked = ""
    while not asked:
        asked = (await anext(shown)).get("approvalId", "")
    answering = asyncio.ensure_future(
        two.answer(session.id, asked, "once") if named else two.answer_all(session.id, "once")
    )
    looked: list[bool] = []
    clock = two.clock
    assert isinstance(clock, FakeClock)

    def looks() -> bool:
        looked.append(True)
        clock.advance(1)
        return answering.done() or len(looked) == 1000

    try:
        await until(looks)
        assert not answering.done()
    finally:
        ending.set()
    # The clock stands still until the request is stored: a busy disk must not use up the time that the answer waits.
    await until(lambda: one.is_idle(session.id))
    await until(looks)
    assert await answering == 0
    await over(cluster, session)
    assert (await said(cluster, session))[-1] == "assistant: got it"
    assert await check(cluster.store) == []


@pytest.mark.rule("RP-4")
async def test_who_comes_too_late_to_settle_a_turn_tells_no_end_of_it(cluster: Cluster) -> None:
    """It was about to write its end, and froze: another has done that and told it, when it goes on."""
    gate = Gate()
    one = await cluster.join([[say("half "), wait(gate)]])
    two, three = await cluster.join(), await cluster.join()
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    await cluster.freeze(one)
    told = told_by(two), told_by(three)

    async def lose_it_to_two() -> None:
        await cluster.lapse(str(three.host.lease.replica_id))
        await cluster.beat(two)

    def settles(unit: Unit) -> bool:
        return any(isinstance(write, SetTurn) for write in unit.writes)

    once(three, "commit", lose_it_to_two, before=True, when=settles)
    await cluster.beat(three)
    assert told == ([("turn_finished", "error")], [])
    [turn] = (await cluster.store.load_line(session.id)).turns
    assert (turn.turn.status, turn.turn.error) == ("failed", {"code": "interrupted", "message": GONE})
    gate.set()


@pytest.mark.parametrize("answered", [True, False])
async def test_what_a_run_asks_stays_where_it_has_lost_the_session_as_it_ends(
    cluster: Cluster, answered: bool, at_its_end: AtItsEnd
) -> None:
    """By an answer elsewhere, or by its lease. Nobody has aborted anything: the rest waits for a human all the same."""
    one = await cluster.join([[call("fetch", {"name": "a"}), call("fetch", {"name": "b"})]], tools=[fetch])
    two = await cluster.join([say("got both")], tools=[fetch])
    session = await one.create_session(title="t")

    async def open_requests() -> list[str]:
        return [waiting.approval_id or "" for waiting in (await two.get_status(session.id)).waiting]

    async def lose_it() -> None:
        if answered:
            assert await two.answer(session.id, (await open_requests())[0], "once") == 1
            await cluster.beat(one)
        else:
            one._runtime.heartbeat._lapse()
            await cluster.beat(one)

    at_its_end("waiting", lose_it, before=False)
    await one.submit(session.id, "go")
    await until(lambda: one.is_idle(session.id))
    left = await open_requests()
    assert len(left) == (1 if answered else 2)
    assert [await two.answer(session.id, asked, "once") for asked in left][-1] == 0
    await over(cluster, session)
    assert (await said(cluster, session))[-1] == "assistant: got both"


async def test_a_damaged_message_is_not_accepted_while_another_replica_runs(cluster: Cluster) -> None:
    """What runs may be about to write it."""
    gate = Gate()
    one, two = await cluster.join([[say("half "), wait(gate)]]), await cluster.join()
    session = await one.create_session(title="t")
    running = await one.submit(session.id, "go")
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await two.accept_message(session.id, running.message_id)
    gate.set()
    await running.wait()
    await over(cluster, session)
    with pytest.raises(ClewError) as told:
        await two.accept_message(session.id, running.message_id)
    assert not isinstance(told.value, SessionBusy)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_run_whose_session_was_deleted_elsewhere_tells_of_no_end_it_has_not_stored(
    cluster: Cluster, ended: bool, at_its_end: AtItsEnd, caplog: pytest.LogCaptureFixture
) -> None:
    """Its replica has heard nothing of that. Whoever waits for the turn is let go of, or told the end that it had."""
    gate = Gate()
    one, two = await cluster.join([[say("half "), wait(gate), say("whole")]]), await cluster.join()
    session = await one.create_session(title="t")
    cluster.signals.lost = True
    told = told_by(one)

    async def delete() -> None:
        await two.delete_session(session.id, force=True)

    if ended:
        at_its_end("completed", delete, before=False)
    running = await one.submit(session.id, "go")
    await gate.reached.wait()
    if not ended:
        await delete()
    gate.set()
    await until(lambda: one.is_idle(session.id))
    await cluster.beat(one)
    if ended:
        assert (await running.wait()).status == "completed"
    else:
        with pytest.raises(asyncio.CancelledError):
            await running.wait()
    assert told == ([("turn_finished", "finish")] if ended else [])
    assert [record.message for record in caplog.records] == []
    with pytest.raises(SessionNotFound):
        await one.get_session(session.id)
    assert await check(cluster.store) == []
