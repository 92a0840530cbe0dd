"""Replicas: any number of engines on one store are one clew, and a session has one run among all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import ReplicaConfig
from clew.errors import ReplicaAway, SessionBusy
from clew.session.acquire.acquire import BY_USER, GONE, INTERRUPTED
from clew.session.api import Engine
from clew.session.history.check import check
from clew.store.unit import OpenTurn, Outcome, Unit
from clew.testing.clock import FakeClock
from clew.testing.scripted import Gate, call, say, wait
from clew.transcript.rule import Rule
from clew.transcript.session import Session
from clew.triggers.values.routing import RouteKind, Routing
from tests.acceptance.conversations import echo
from tests.acceptance.replicas import LEASE_MS, Cluster, open_cluster

pytestmark = pytest.mark.rule("RP-1", "SR-8")


@pytest.fixture(params=["memory", "sqlite"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(request.param, tmp_path) as opened:
        yield opened


async def said(cluster: Cluster, session: Session) -> list[str]:
    """The conversation, as the store has it."""
    line = await cluster.store.load_line(session.id)
    return [f"{row.role}: {' '.join(row.texts)}" for turn in line.turns for row in turn.messages]


PATIENCE_S = 60
"""For what must come by itself, however busy the machine is."""


async def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, "it never came to that"
        await asyncio.sleep(0)


async def other_drains(engine: Engine) -> None:
    """Until the one other replica says that it drains. Two that joined in the same millisecond come in any order."""
    give_up = time.monotonic() + PATIENCE_S
    while {replica.here: replica.draining for replica in await engine.replicas()} != {False: True, True: False}:
        assert time.monotonic() < give_up, "it never drained"
        await asyncio.sleep(0)


async def over(cluster: Cluster, session: Session) -> None:
    """Until nothing runs on the session anywhere, and nothing waits."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        # The queue first: what was taken out of it by then is an open turn, or has ended.
        queue, state = await cluster.store.load_queue(session.id), await cluster.store.load_state(session.id)
        idle = all(engine.is_idle(session.id) for engine in cluster.engines if engine not in cluster.frozen)
        # A run has let go of its session before what came in for it is noted as done.
        told = not await cluster.store.open_events(session.id)
        if state.open_turn_id is None and not queue and idle and told:
            return
        assert time.monotonic() < give_up, f"it never ended: {state}, queue {queue}, idle {idle}, told {told}"
        await asyncio.sleep(0)


async def test_a_prompt_for_a_session_that_runs_elsewhere_waits_and_is_run_where_that_ends(cluster: Cluster) -> None:
    """It is busy wherever it is asked, and whoever waits for the turn learns how it ended."""
    gate = Gate()
    one, two = await cluster.join([[say("first "), wait(gate)], say("second")]), await cluster.join()
    session = await one.create_session(title="t")
    running = await one.submit(session.id, "go")
    await gate.reached.wait()
    assert (await two.get_status(session.id)).state == "busy"
    with pytest.raises(SessionBusy):
        await two.submit(session.id, "me too", on_busy="reject")
    waiting = await two.submit(session.id, "me too")
    assert waiting.queued
    gate.set()
    await running.wait()
    await over(cluster, session)
    await cluster.beat(two)
    assert (await waiting.wait()).status == "completed"
    assert await said(cluster, session) == ["user: go", "assistant: first ", "user: me too", "assistant: second"]
    assert (await two.get_status(session.id)).state == "idle"
    assert await check(cluster.store) == []


@pytest.mark.rule("RP-3")
@pytest.mark.parametrize("lost", [False, True])
async def test_an_abort_reaches_the_run_wherever_it_is(cluster: Cluster, lost: bool) -> None:
    """By a signal; where that is lost, at its next heartbeat. Who stopped it is stored before."""
    gate = Gate()
    one, two = await cluster.join([[say("half "), wait(gate)]]), await cluster.join()
    session = await one.create_session(title="t")
    running = await one.submit(session.id, "go")
    await gate.reached.wait()
    cluster.signals.lost = lost
    assert await two.abort(session.id)
    if lost:
        assert not one.is_idle(session.id)
        await cluster.beat(one)
    outcome = await running.wait()
    assert (outcome.status, outcome.stopped) == ("aborted", BY_USER)
    assert await two.abort(session.id) is False
    assert await said(cluster, session) == ["user: go", "assistant: half "]


@pytest.mark.rule("RP-3")
async def test_a_prompt_that_interrupts_does_so_wherever_the_run_is(cluster: Cluster) -> None:
    """It is in the queue before the run is stopped, and is the next to run there."""
    gate = Gate()
    one, two = await cluster.join([[say("half "), wait(gate)], say("now this")]), await cluster.join()
    session = await one.create_session(title="t")
    running = await one.submit(session.id, "go")
    await gate.reached.wait()
    await two.submit(session.id, "stop, this first", on_busy="interrupt")
    assert (await running.wait()).stopped == INTERRUPTED
    await over(cluster, session)
    assert await said(cluster, session) == [
        "user: go",
        "assistant: half ",
        "user: stop, this first",
        "assistant: now this",
    ]


@clew.tool
async def fetch(name: str) -> str:
    """Fetch something."""
    return f"here is {name}"


@pytest.mark.rule("RP-3")
async def test_an_approval_is_asked_in_one_shown_in_another_and_answered_in_a_third(cluster: Cluster) -> None:
    """What waits is in the store; whoever takes the last answer goes on with the turn."""
    one = await cluster.join([call("fetch", {"name": "a"})], tools=[fetch])
    two, three = await cluster.join(), await cluster.join([say("got it")], tools=[fetch])
    session = await one.create_session(title="t")
    async for _ in one.run(session.id, "go"):
        pass
    status = await two.get_status(session.id)
    assert (status.state, [wait.tool for wait in status.waiting]) == ("idle", ["fetch"])
    assert await three.answer(session.id, status.waiting[0].approval_id or "", "once") == 0
    await over(cluster, session)
    assert (await said(cluster, session))[-1] == "assistant: got it"
    assert [one.status for one in [(await cluster.store.load_line(session.id)).turns[-1].turn]] == ["completed"]
    assert await check(cluster.store) == []


@pytest.mark.rule("RP-4")
async def test_a_frozen_replica_gives_up_its_sessions_and_writes_nothing_when_it_wakes(cluster: Cluster) -> None:
    """Another settles what it ran, once, as it was left. The zombie is refused by the epoch, stops, and joins anew."""
    gate = Gate()
    script = [[say("half "), wait(gate), say("too late")]]
    one, two, three = await cluster.join(script), await cluster.join(echo()), await cluster.join(echo())
    session = await one.create_session(title="t")
    running = await one.submit(session.id, "go")
    await gate.reached.wait()
    await cluster.freeze(one)
    await asyncio.gather(cluster.beat(two), cluster.beat(three))
    [turn] = (await cluster.store.load_line(session.id)).turns
    assert (turn.turn.status, turn.turn.error) == ("failed", {"code": "interrupted", "message": GONE})
    before = await cluster.store.find_full_session(session.id), await cluster.store.load_state(session.id)
    assert before[1].runner is None
    # It wakes: what it says now goes nowhere.
    gate.set()
    await until(lambda: one.is_idle(session.id))
    assert (await cluster.store.find_full_session(session.id), await cluster.store.load_state(session.id)) == before
    old = one.host.lease.replica_id
    await cluster.beat(one)
    assert [replica.here for replica in await one.replicas()] == [False, False, False]
    with pytest.raises(ReplicaAway):
        await one.submit(session.id, "again")
    await cluster.beat(one)
    assert one.host.lease.replica_id not in (None, old)
    assert (await running.wait()).status == "failed"
    await (await two.submit(session.id, "go on")).wait()
    assert await said(cluster, session) == ["user: go", "assistant: half ", "user: go on", "assistant: re go on"]
    assert await check(cluster.store) == []


@pytest.mark.rule("RP-4")
async def test_a_replica_that_cannot_reach_its_store_stops_its_runs_when_its_lease_is_over(cluster: Cluster) -> None:
    """By its own clock, before anybody else may have them; they are taken over once it has lapsed in the store."""
    gate = Gate()
    one, two = await cluster.join([[say("half "), wait(gate)]]), await cluster.join([say("well")])
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    held = str(one.host.lease.replica_id)
    one.store.cut = True  # type: ignore[attr-defined]
    assert isinstance(one.clock, FakeClock)
    one.clock.advance(LEASE_MS)
    await until(lambda: one.is_idle(session.id))
    assert one.host.lease.replica_id is None
    assert (await two.get_status(session.id)).state == "busy"
    await cluster.lapse(held)
    await cluster.beat(two)
    assert (await two.get_status(session.id)).state == "idle"
    one.store.cut = False  # type: ignore[attr-defined]
    await cluster.beat(one)
    assert sorted(one.id for one in await cluster.store.list_replicas()) == sorted(
        str(engine.host.lease.replica_id) for engine in (one, two)
    )
    await (await two.submit(session.id, "go on")).wait()
    assert await said(cluster, session) == ["user: go", "assistant: half ", "user: go on", "assistant: well"]


@pytest.mark.rule("RP-4")
@pytest.mark.parametrize("what", ["unsettled_sessions", "orphaned_sessions"])
async def test_a_replica_that_has_much_to_see_to_keeps_its_own_lease_meanwhile(cluster: Cluster, what: str) -> None:
    """When it is opened, and when another dies: else one death would take down whoever is to see to it."""
    gate, clock = Gate(), FakeClock()
    joining = asyncio.ensure_future(cluster.join([], clock=clock, slow={what: gate}))
    if what == "orphaned_sessions":
        await joining
        clock.advance(LEASE_MS / 3)
    await asyncio.wait_for(gate.reached.wait(), 60)
    [held] = await cluster.store.list_replicas()
    for _ in range(6):
        before = cluster.stores[0].commits
        clock.advance(LEASE_MS / 3)
        await until(partial(lambda before: cluster.stores[0].commits > before, before))
    gate.set()
    assert (await joining).host.lease.replica_id == held.id


@pytest.mark.rule("RP-4")
async def test_the_queue_of_a_dead_replica_is_gone_on_with_unless_it_is_paused(cluster: Cluster) -> None:
    """What was left is settled first. A queue that an abort has paused waits for a person, as it would have."""
    gate, other = Gate(), Gate()
    one = await cluster.join([[say("a "), wait(gate)], [say("b "), wait(other)]])
    two = await cluster.join(echo())
    sessions = [await one.create_session(title=title) for title in ("goes on", "paused")]
    for session, begun in zip(sessions, (gate, other), strict=True):
        await one.submit(session.id, "go")
        await begun.reached.wait()
        await two.submit(session.id, "next")
    cluster.signals.lost = True
    assert await two.abort(sessions[1].id)
    await cluster.freeze(one)
    await cluster.beat(two)
    await over(cluster, sessions[0])
    assert await said(cluster, sessions[0]) == ["user: go", "assistant: a ", "user: next", "assistant: re next"]
    assert [len(await two.queue(session.id)) for session in sessions] == [0, 1]
    status = await two.get_status(sessions[1].id)
    assert (status.state, status.paused_by) == ("idle", "abort")
    [turn] = (await cluster.store.load_line(sessions[1].id)).turns
    assert (turn.turn.status, turn.turn.stopped) == ("aborted", BY_USER)


@pytest.mark.rule("RP-4")
async def test_a_queue_that_nobody_is_left_to_start_is_started_by_another(cluster: Cluster) -> None:
    """Its replica died between the end of a run and the next: at the second beat it is clear that nobody comes."""
    gate = Gate()
    one, two = await cluster.join([[say("a "), wait(gate)]]), await cluster.join(echo())
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    await two.submit(session.id, "next")
    one.host.lease.draining = True
    gate.set()
    await until(lambda: one.is_idle(session.id))
    await cluster.beat(two)
    assert len(await two.queue(session.id)) == 1
    await cluster.beat(two)
    await over(cluster, session)
    assert (await said(cluster, session))[-1] == "assistant: re next"


@pytest.mark.rule("RP-4")
async def test_who_comes_for_a_moment_goes_on_with_nothing_that_a_dead_replica_left(cluster: Cluster) -> None:
    """It would be stopped as the visitor leaves. What cannot be resumed it settles; the rest is for who stays."""
    called, cut, safe = asyncio.Event(), Gate(), clew.Config(resume="safe")

    @clew.tool
    async def dig() -> str:
        """Dig."""
        called.set()
        await asyncio.Event().wait()
        return "never"

    allowed = [Rule("dig", "*", "allow")]
    one = await cluster.join([call("dig", {}), [say("b "), wait(cut)]], tools=[dig], rules=allowed)
    digs, says = await one.create_session(title="digs"), await one.create_session(title="says")
    await one.submit(digs.id, "dig")
    await called.wait()
    await one.submit(digs.id, "next")
    await one.submit(says.id, "say")
    await cut.reached.wait()
    await cluster.freeze(one)
    visit = await cluster.open_apart(triggers=False, config=safe)
    for _ in range(3):
        await cluster.beat(visit.engine)
    lines = [(await cluster.store.load_line(session.id)).turns for session in (digs, says)]
    assert [[one.turn.status for one in turns] for turns in lines] == [["failed"], ["running"]]
    assert [len(await visit.engine.queue(session.id)) for session in (digs, says)] == [1, 0]
    await visit.close()
    two = await cluster.join(echo(), config=safe)
    for session in (digs, says):
        await over(cluster, session)
    assert (await said(cluster, digs))[2:] == ["user: next", "assistant: re next"]
    assert await said(cluster, says) == ["user: say", "assistant: b ", "assistant: re say"]
    assert two.is_idle(digs.id)
    assert await check(cluster.store) == []


@pytest.mark.rule("RP-4")
async def test_who_comes_for_a_moment_and_waits_for_a_turn_goes_on_with_that_session(cluster: Cluster) -> None:
    """There may be nobody else: the replica that would have run it is dead."""
    gate = Gate()
    one, visit = await cluster.join([[say("a "), wait(gate)]]), await cluster.join(echo(), triggers=False)
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    waiting = await visit.submit(session.id, "mine")
    await cluster.freeze(one)
    await cluster.beat(visit)
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting.wait()).status == "completed"
    assert await said(cluster, session) == ["user: go", "assistant: a ", "user: mine", "assistant: re mine"]


@pytest.mark.rule("RP-1", "SR-8")
async def test_a_queued_prompt_that_another_replica_fires_at_that_moment_is_not_cancelled(cluster: Cluster) -> None:
    """Who comes second finds the session taken, and leaves what waits to who has it."""
    gate, again = Gate(), Gate()
    one = await cluster.join([[say("a "), wait(gate)], [say("b "), wait(again)], say("c")])
    two = await cluster.join(echo())
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    for text in ("next", "last"):
        await two.submit(session.id, text)
    one.host.lease.draining = True
    gate.set()
    await until(lambda: one.is_idle(session.id))
    one.host.lease.draining = False

    async def fire(engine: Engine) -> None:
        async with engine._runtime.sessions.lock(session.id):
            await engine._runtime.runner.fire_idle(session.id)

    async def read_before_the_other_fires(session_id: str) -> Any:
        queue = await cluster.store.load_queue(session_id)
        if one.is_idle(session_id):
            await fire(one)
        return queue

    two.store.load_queue = read_before_the_other_fires  # type: ignore[method-assign]
    await fire(two)
    assert [queued.message.texts for queued in await cluster.store.load_queue(session.id)] == [["last"]]
    again.set()
    await over(cluster, session)
    assert (await said(cluster, session))[2:] == ["user: next", "assistant: b ", "user: last", "assistant: c"]


@pytest.mark.rule("RP-5")
async def test_a_replica_that_drains_begins_nothing_and_another_goes_on(cluster: Cluster) -> None:
    """What runs may end; what does not is settled as interrupted, or with ``resume`` gone on with elsewhere."""
    ends, hangs = Gate(), Gate()
    safe = clew.Config(resume="safe")
    one = await cluster.open_apart([[say("a "), wait(ends)], [say("b "), wait(hangs)]], config=safe)
    two = await cluster.join([say("and the rest")], config=safe)
    short, long = await two.create_session(title="short"), await two.create_session(title="long")
    quick = await one.engine.submit(short.id, "go")
    await ends.reached.wait()
    await one.engine.submit(long.id, "go")
    await hangs.reached.wait()
    draining = asyncio.ensure_future(one.engine.drain(0.05))
    await other_drains(two)
    with pytest.raises(ReplicaAway):
        await one.engine.submit(short.id, "more")
    ends.set()
    assert (await quick.wait()).status == "completed"
    await draining
    await one.close()
    assert [replica.here for replica in await two.replicas()] == [True]
    await cluster.beat(two)
    await over(cluster, long)
    assert await said(cluster, short) == ["user: go", "assistant: a "]
    assert (await said(cluster, long))[-1] == "assistant: and the rest"
    assert await check(cluster.store) == []


@pytest.mark.rule("RP-5")
async def test_a_prompt_that_is_being_taken_as_a_replica_begins_to_drain_may_end_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was not there yet when the replica looked for what runs."""
    ends, stored = Gate(), Gate()
    one = await cluster.open_apart([[say("a"), wait(ends), say("b")]])
    two = await cluster.join(echo())
    session = await two.create_session()
    store = one.engine.host.store
    commit = store.commit

    async def held(unit: Unit) -> Outcome:
        if any(isinstance(write, OpenTurn) for write in unit.writes):
            stored.reached.set()
            await stored.wait()
        return await commit(unit)

    monkeypatch.setattr(store, "commit", held)
    taking = asyncio.ensure_future(one.engine.submit(session.id, "go"))
    await stored.reached.wait()
    draining = asyncio.ensure_future(one.engine.drain(PATIENCE_S))
    await other_drains(two)
    for _ in range(50):
        await asyncio.sleep(0)
    stored.set()
    submission = await taking
    await ends.reached.wait()
    assert not draining.done()
    ends.set()
    await draining
    assert (await submission.wait()).status == "completed"
    assert await said(cluster, session) == ["user: go", "assistant: a b"]


@pytest.mark.rule("RP-4", "EV-2")
async def test_a_schedule_fires_once_among_all(cluster: Cluster) -> None:
    """Each looks at it when it is due; one fires it, and the others find it fired."""
    patient = clew.Config(replica=ReplicaConfig(lease_s=10_000_000))
    engines = [await cluster.join(echo(), triggers=False, config=patient) for _ in range(3)]
    schedule = await engines[0].schedules.add("0 9 * * *", "good morning", missed="once")
    for day in range(1, 4):
        for engine in engines:
            assert isinstance(engine.clock, FakeClock)
            engine.clock.advance(86_400_000)
        await asyncio.gather(*(engine.schedules.tick() for engine in engines))
        sessions = [one for one in (await engines[0].list_sessions()).sessions if one.metadata.get("source") == "cron"]
        assert len(sessions) == day
        for session in sessions:
            await over(cluster, session)
    assert (await engines[2].schedules.get(schedule.id)).skipped == 0


@pytest.mark.rule("EV-1")
@pytest.mark.parametrize("routing", [Routing(key="room-7"), Routing(label="inbox")])
async def test_the_first_events_of_a_name_at_several_replicas_make_one_session(
    cluster: Cluster, routing: Routing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them have looked for it before one has made it; every event is in that one, and has its answer."""
    engines = [await cluster.join(echo()) for _ in range(4)]
    looked, all_looked = 0, asyncio.Event()
    load_routed = cluster.store.load_routed

    async def together(kind: RouteKind, name: str, owner: str | None = None) -> tuple[Session, ...]:
        nonlocal looked
        found = await load_routed(kind, name, owner)
        looked += 1
        if looked == len(engines):
            all_looked.set()
        await all_looked.wait()
        return found

    monkeypatch.setattr(cluster.store, "load_routed", together)
    takes = (engine.events.receive("test", f"e{n}", routing, text=f"{n}") for n, engine in enumerate(engines))
    got = await asyncio.gather(*takes)
    [session] = (await engines[0].list_sessions()).sessions
    assert {one.session_id for one in got} == {session.id}
    await over(cluster, session)
    assert {one.status for one in (await engines[0].events.list(direction="out")).events} == {"completed"}
    assert len((await cluster.store.load_line(session.id)).turns) == len(engines)
    assert await check(cluster.store) == []
