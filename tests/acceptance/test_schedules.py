"""Schedules at work: on a clock that a test moves, through restarts, jumps and changes of daylight saving."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import clew
from clew.errors import InvalidId, InvalidInput, RoutingConflict, SessionBusy, TriggerNotFound
from clew.store.unit import PatchSession, Unit
from clew.testing.clock import FakeClock
from clew.testing.scenario import transcript
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, fail, say, wait
from clew.transcript.metadata import local_place
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from tests.acceptance.conftest import Open
from tests.acceptance.triggered import answered, ended, napping

HOUR, DAY, MINUTE = 3_600_000, 86_400_000, 60_000
NOBODY = "sch_" + "0" * 26


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Vienna")).timestamp()) * 1000


NOON = at("2027-05-03T12:00")


def talker() -> ScriptedModel:
    return ScriptedModel([say("done")] * 60)


async def runs(engine: clew.Engine) -> list[str]:
    """When each run was due, in Vienna, oldest first."""
    page = await engine.events.list(direction="in", limit=200)
    dues = [one.source_id for one in reversed(page.events)]
    zone = ZoneInfo("Europe/Vienna")
    moments = {due: datetime.fromtimestamp(int(due) / 1000, zone) for due in dues if due.isdigit()}
    return [moments[due].strftime("%m-%d %H:%M%z") if due in moments else due[:3] for due in dues]


async def passing(engine: clew.Engine, clock: FakeClock, until: int, step: int) -> None:
    """Let time pass in steps, with a look at the schedules after each."""
    while clock.now_ms() < until:
        clock.advance(min(step, until - clock.now_ms()))
        await engine.schedules.tick()
        await ended(engine)


@pytest.fixture
async def engine() -> AsyncIterator[tuple[clew.Engine, FakeClock]]:
    clock = FakeClock(NOON)
    providers = FakeProviders(talker())
    async with clew.open("memory:", config=clew.Config(), clock=clock, providers=providers, triggers=False) as made:
        yield made, clock


@pytest.mark.rule("EV-2")
async def test_the_loop_fires_what_is_due_and_tags_what_it_makes(open_scenario: Open) -> None:
    """By itself, when the clock gets there: a session of its own for each run, with the job's id."""
    clock = FakeClock(NOON)
    async with open_scenario(talker(), clock=clock) as made:
        engine = made.engine
        schedule = await engine.schedules.add("*/10 * * * *", "look around", name="rounds")
        assert schedule.next_fire_at == NOON + 10 * MINUTE
        for n in range(2):
            await napping(engine)
            clock.advance(10 * MINUTE)
            await answered(engine, n + 1)
        sessions = (await engine.list_sessions()).sessions
        assert [one.metadata["source"] for one in sessions] == ["cron", "cron"]
        assert [one.metadata["cron_job_id"] for one in sessions] == [schedule.id, schedule.id]
        assert [one.title for one in sessions] == ["rounds", "rounds"]
        user, _ = await engine.messages(sessions[0].id)
        assert user.metadata["trigger"] == {
            "source": "schedule",
            "fired_at": user.metadata["trigger"]["fired_at"],
            "schedule_id": schedule.id,
        }
        assert user.metadata["unattended"] is True
        assert await runs(engine) == ["05-03 12:10+0200", "05-03 12:20+0200"]


@pytest.mark.rule("EV-2")
async def test_through_spring_and_autumn_a_daily_job_runs_once_a_day(engine: tuple[clew.Engine, FakeClock]) -> None:
    """At the end of the gap, and in the first of the two hours."""
    made, clock = engine
    clock.set_wall(at("2027-03-27T00:00"))
    await made.schedules.add("30 2 * * *", "go", timezone="Europe/Vienna")
    await passing(made, clock, at("2027-03-30T00:00"), 15 * MINUTE)
    assert await runs(made) == ["03-27 02:30+0100", "03-28 03:00+0200", "03-29 02:30+0200"]
    clock.set_wall(at("2027-10-30T00:00"))
    await made.schedules.tick()
    await passing(made, clock, at("2027-11-02T00:00"), 15 * MINUTE)
    assert (await runs(made))[3:] == ["10-30 02:30+0200", "10-31 02:30+0200", "11-01 02:30+0100"]


@pytest.mark.rule("EV-2")
async def test_a_clock_that_jumps_ahead_makes_up_for_at_most_one_run(engine: tuple[clew.Engine, FakeClock]) -> None:
    """By its policy; and from there on it goes as ever."""
    made, clock = engine
    skip = await made.schedules.add("0 * * * *", "go")
    once = await made.schedules.add("30 * * * *", "go", missed="once")
    clock.set_wall(NOON + 5 * HOUR + 45 * MINUTE)
    await made.schedules.tick()
    await ended(made)
    assert await runs(made) == ["05-03 17:30+0200"]
    assert [(await made.schedules.get(one.id)).skipped for one in (skip, once)] == [5, 5]
    assert (await made.schedules.get(once.id)).next_fire_at == NOON + 6 * HOUR + 30 * MINUTE
    await passing(made, clock, NOON + 7 * HOUR, 15 * MINUTE)
    assert await runs(made) == ["05-03 17:30+0200", "05-03 18:00+0200", "05-03 18:30+0200", "05-03 19:00+0200"]


@pytest.mark.rule("EV-2")
async def test_a_clock_that_jumps_back_runs_nothing_twice(engine: tuple[clew.Engine, FakeClock]) -> None:
    """What was run stays run, until the clock is past it again."""
    made, clock = engine
    await made.schedules.add("0 * * * *", "go")
    await passing(made, clock, NOON + 2 * HOUR, 30 * MINUTE)
    clock.set_wall(NOON - HOUR)
    await passing(made, clock, NOON + 3 * HOUR, 30 * MINUTE)
    assert await runs(made) == ["05-03 13:00+0200", "05-03 14:00+0200", "05-03 15:00+0200"]


@pytest.mark.rule("EV-2")
async def test_a_restart_keeps_schedules_and_deals_with_what_was_missed(open_scenario: Open) -> None:
    """Each by its policy, as soon as the store is open."""
    clock = FakeClock(NOON)
    async with open_scenario(talker(), clock=clock) as made:
        skip = await made.engine.schedules.add("0 * * * *", "skip", missed="skip")
        once = await made.engine.schedules.add("0 * * * *", "once", missed="once")
        paused = await made.engine.schedules.add("0 * * * *", "paused", missed="once", paused=True)
    clock.advance(3 * HOUR + 20 * MINUTE)
    async with open_scenario(talker(), clock=clock) as made:
        engine = made.engine
        await napping(engine)
        await answered(engine, 1)
        assert await runs(engine) == ["05-03 15:00+0200"]
        assert (await engine.events.list()).events[0].source == once.source
        found = {one.id: (one.skipped, one.next_fire_at) for one in await engine.schedules.list()}
        assert found == {skip.id: (3, NOON + 4 * HOUR), once.id: (2, NOON + 4 * HOUR), paused.id: (0, None)}


@pytest.mark.rule("EV-2")
async def test_a_schedule_never_overlaps_itself(open_scenario: Open) -> None:
    """While a run goes on the next is left out, by hand it is a conflict; another schedule is not held up."""
    clock, gate = FakeClock(NOON), Gate()
    script = [[wait(gate), say("slow")], say("other"), say("again")]
    async with open_scenario(script, clock=clock, triggers=False) as made:
        engine = made.engine
        slow = await engine.schedules.add("* * * * *", "slow", name="slow")
        clock.advance(MINUTE)
        await engine.schedules.tick()
        await gate.reached.wait()
        other = await engine.schedules.add("* * * * *", "other", name="other")
        for _ in range(3):
            clock.advance(MINUTE)
            await engine.schedules.tick()
            if (await engine.schedules.get(other.id)).last_id is not None:
                await engine.schedules.pause(other.id)
        assert await runs(engine) == ["05-03 12:01+0200", "05-03 12:02+0200"]
        held = await engine.schedules.get(slow.id)
        [session] = [one for one in (await engine.list_sessions()).sessions if one.title == "slow"]
        why = f"run_in_flight: the last run of this schedule is still running or waiting in session {session.id}"
        assert (held.skipped, held.last_error) == (3, why)
        with pytest.raises(SessionBusy):
            await engine.schedules.run(slow.id)
        gate.set()
        await ended(engine)
        clock.advance(MINUTE)
        await engine.schedules.tick()
        await ended(engine)
        assert (await runs(engine))[-1] == "05-03 12:05+0200"
        assert (await engine.schedules.get(slow.id)).last_error is None


async def test_pause_resume_change_run_and_remove(engine: tuple[clew.Engine, FakeClock]) -> None:
    """What was due while it was paused is not made up for; the next time is always shown."""
    made, clock = engine
    schedule = await made.schedules.add("0 * * * *", "go", missed="once")
    assert (await made.schedules.pause(schedule.id)).paused
    await passing(made, clock, NOON + 5 * HOUR + MINUTE, 30 * MINUTE)
    assert await runs(made) == []
    await made.schedules.run(schedule.id)
    await ended(made)
    assert await runs(made) == ["now"]
    resumed = await made.schedules.resume(schedule.id)
    assert (resumed.paused, resumed.next_fire_at) == (False, NOON + 6 * HOUR)
    changed = await made.schedules.change(schedule.id, cron="15 * * * *", timezone="Europe/Vienna", prompt="other")
    assert changed.next_fire_at == NOON + 5 * HOUR + 15 * MINUTE
    await passing(made, clock, NOON + 5 * HOUR + 16 * MINUTE, MINUTE)
    [newest, _] = (await made.list_sessions()).sessions
    assert transcript(await made.messages(newest.id)) == ["user: other", "assistant: done"]
    await made.schedules.remove(schedule.id)
    assert await made.schedules.list() == ()
    assert await made.schedules.tick() is None
    for call in (made.schedules.get, made.schedules.run, made.schedules.remove, made.schedules.pause):
        with pytest.raises(TriggerNotFound):
            await call(schedule.id)
        with pytest.raises(InvalidId):
            await call("sch_")


async def test_a_schedule_runs_where_it_is_told_to(engine: tuple[clew.Engine, FakeClock]) -> None:
    """In a session by its id, or one by its name, made once; runs in one session make a chain."""
    made, clock = engine
    session = await made.create_session(model="test/scripted")
    await made.schedules.add("0 * * * *", "by id", routing=Routing(session_id=session.id))
    await made.schedules.add("0 * * * *", "by key", routing=Routing(key="daily", title="Daily"))
    await passing(made, clock, NOON + 2 * HOUR, 30 * MINUTE)
    asked = {one.id: transcript(await made.messages(one.id))[::2] for one in (await made.list_sessions()).sessions}
    assert sorted(asked.values()) == [["user: by id"] * 2, ["user: by key"] * 2]
    assert "source" not in (await made.get_session(session.id)).metadata
    [keyed] = [id_ for id_ in asked if id_ != session.id]
    assert (await made.get_session(keyed)).metadata["source"] == "cron"


@pytest.mark.rule("ST-11")
async def test_a_session_takes_its_schedules_and_webhooks_along(engine: tuple[clew.Engine, FakeClock]) -> None:
    """Those that name it by its id; one that makes its session anew stays."""
    made, clock = engine
    session = await made.create_session(model="test/scripted")
    await made.schedules.add("0 * * * *", "go", routing=Routing(session_id=session.id))
    kept = await made.schedules.add("0 * * * *", "go", routing=Routing(key="k"))
    await made.webhooks.add("gone", routing=Routing(session_id=session.id))
    await made.webhooks.add("kept")
    await passing(made, clock, NOON + HOUR, 30 * MINUTE)
    await made.delete_session(session.id)
    assert [one.id for one in await made.schedules.list()] == [kept.id]
    assert [one.name for one in await made.webhooks.list()] == ["kept"]
    for hours in (1, 2):
        await passing(made, clock, NOON + hours * HOUR, 30 * MINUTE)
        # Of what is gone only that it came is known.
        assert {one.source for one in (await made.events.list()).events if one.data} == {kept.source}


async def test_a_look_at_many_schedules_reads_them_once(
    engine: tuple[clew.Engine, FakeClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all of them again for each would keep the loop busy for a quarter of a minute when there are many."""
    made, clock = engine
    for number in range(20):
        await made.schedules.add("0 * * * *", "go", missed="skip" if number % 2 else "once")
    store, reads = made.host.store, [0]
    list_schedules = store.list_schedules

    async def counted() -> tuple[Schedule, ...]:
        reads[0] += 1
        return await list_schedules()

    monkeypatch.setattr(store, "list_schedules", counted)
    await made.schedules.tick()
    clock.advance(HOUR + 2 * MINUTE)
    await made.schedules.tick()
    await ended(made)
    assert (reads, len(await runs(made))) == ([2], 10)


@pytest.mark.rule("EV-2")
async def test_a_schedule_that_is_changed_while_others_fire_does_what_it_says_now(
    engine: tuple[clew.Engine, FakeClock],
) -> None:
    """Paused or removed by what runs before it in the same look."""
    made, clock = engine
    kept = [await made.schedules.add("0 * * * *", "go") for _ in range(4)]
    router: Any = made.dispatcher._router
    receive = router.receive
    tasks: list[asyncio.Future[Any]] = []

    async def changing(*given: Any) -> Any:
        if not tasks:
            tasks.append(asyncio.ensure_future(made.schedules.pause(kept[2].id)))
            tasks.append(asyncio.ensure_future(made.schedules.remove(kept[3].id)))
            await asyncio.sleep(0)
        return await receive(*given)

    router.receive = changing
    clock.advance(HOUR)
    await made.schedules.tick()
    await asyncio.gather(*tasks)
    await ended(made)
    page = await made.events.list(direction="in")
    assert sorted(one.source for one in page.events) == sorted([kept[0].source, kept[1].source])


async def test_one_schedule_whose_session_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    """A damaged row costs those that need it and no more."""
    clock, url = FakeClock(NOON), f"sqlite:///{tmp_path}/s.db"
    providers = FakeProviders(talker())
    given: dict[str, Any] = {"config": clew.Config(), "clock": clock, "providers": providers, "triggers": False}
    async with clew.open(url, **given) as made:
        session = await made.create_session(model="test/scripted")
        broken = await made.schedules.add("0 * * * *", "go", routing=Routing(session_id=session.id))
        whole = await made.schedules.add("0 * * * *", "go")
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as raw:
        raw.execute("UPDATE chat_sessions SET permissions_json = '{' WHERE id = ?", (session.id,))
    async with clew.open(url, **given) as made:
        clock.advance(HOUR)
        await made.schedules.tick()
        await ended(made)
        page = await made.events.list(direction="in")
        assert [one.source for one in page.events] == [whole.source]
        assert str((await made.schedules.get(broken.id)).last_error).startswith("row_undecodable: ")


async def test_a_run_that_cannot_begin_is_noted_and_the_next_one_is_tried(
    engine: tuple[clew.Engine, FakeClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason stands in the schedule until a run begins again."""
    made, clock = engine
    schedule = await made.schedules.add("0 * * * *", "go")
    router: Any = made.dispatcher._router
    scope = router._scope

    async def refuse(**_: object) -> None:
        raise InvalidInput("the agent is gone")

    router._scope = scope._replace(draft=refuse)
    await passing(made, clock, NOON + HOUR, 30 * MINUTE)
    stuck = await made.schedules.get(schedule.id)
    told = (stuck.last_error, stuck.skipped, stuck.last_fired_at)
    assert told == ("invalid_input: the agent is gone", 1, None)
    router._scope = scope
    await passing(made, clock, NOON + 2 * HOUR, 30 * MINUTE)
    assert (await made.schedules.get(schedule.id)).last_error is None
    assert await runs(made) == ["05-03 14:00+0200"]


async def test_a_bug_in_one_run_is_noted_and_the_others_are_fired(engine: tuple[clew.Engine, FakeClock]) -> None:
    """Whatever it raises: the schedule says so, and those after it in the same look run."""
    made, clock = engine
    broken, whole = [await made.schedules.add("0 * * * *", name) for name in ("broken", "whole")]
    router: Any = made.dispatcher._router
    receive = router.receive

    async def failing(inbound: Any, *more: Any) -> Any:
        if inbound.source == broken.source:
            raise ValueError("out of luck")
        return await receive(inbound, *more)

    router.receive = failing
    await passing(made, clock, NOON + HOUR, 30 * MINUTE)
    assert (await made.schedules.get(broken.id)).last_error == "internal_error: out of luck"
    assert [one.source for one in (await made.events.list(direction="in")).events] == [whole.source]


@pytest.mark.rule("EV-2")
async def test_a_run_that_began_and_failed_says_so_until_the_next_one_begins() -> None:
    """One that fails every day must not look well; the reason is the turn's own, and is not stored twice."""
    clock = FakeClock(NOON)
    providers = FakeProviders(ScriptedModel([[fail(404, "no such model")], say("done")]))
    async with clew.open("memory:", config=clew.Config(), clock=clock, providers=providers, triggers=False) as made:
        schedule = await made.schedules.add("0 * * * *", "go")
        await passing(made, clock, NOON + HOUR, 30 * MINUTE)
        [session] = (await made.list_sessions()).sessions
        error = str((await made.schedules.get(schedule.id)).last_error)
        assert error.startswith(f"the run in {session.id} failed: ")
        assert "no such model" in error
        assert [one.last_error for one in await made.schedules.list()] == [error]
        assert [one.last_error for one in await made.store.list_schedules()] == [None]
        await passing(made, clock, NOON + 2 * HOUR, 30 * MINUTE)
        assert (await made.schedules.get(schedule.id)).last_error is None


@pytest.mark.rule("EV-2")
async def test_two_sessions_of_one_label_are_a_conflict_that_names_them(
    engine: tuple[clew.Engine, FakeClock],
) -> None:
    """Nothing is stored and nobody is guessed, until one of them is archived; a schedule says it in its last error."""
    made, clock = engine
    schedule = await made.schedules.add("0 * * * *", "go", routing=Routing(label="inbox"))
    ids = [(await made.create_session(model="test/scripted", metadata={"label": "inbox"})).id for _ in range(2)]
    said = (
        f"2 sessions have the label 'inbox': {ids[0]}, {ids[1]}; archive or delete all but one, or name a session "
        "by its id"
    )
    for call in (
        made.events.receive("test", "1", Routing(label="inbox"), text="x"),
        made.schedules.add("0 * * * *", "go", routing=Routing(label="inbox")),
        made.webhooks.add("door", routing=Routing(label="inbox")),
        made.schedules.run(schedule.id),
    ):
        with pytest.raises(RoutingConflict) as conflict:
            await call
        assert (str(conflict.value), conflict.value.ids["session_ids"]) == (said, ids)
    await passing(made, clock, NOON + HOUR, 30 * MINUTE)
    assert (await made.schedules.get(schedule.id)).last_error == f"routing_conflict: {said}"
    assert (await made.events.list()).events == ()
    await made.archive_session(ids[0])
    received = await made.events.receive("test", "1", Routing(label="inbox"), text="x")
    assert received.session_id == ids[1]
    await ended(made)


async def test_a_branch_does_not_take_what_comes_for_the_key_it_was_made_with(
    engine: tuple[clew.Engine, FakeClock],
) -> None:
    """Older versions copied the key of its parent, who alone is meant. Two that have it of their own are a conflict."""
    made, _ = engine
    first = await made.events.receive("test", "1", Routing(key="k"), text="x")
    await ended(made)
    branch = await made.branch(first.session_id, first.message_id)
    await made.store.commit(Unit(branch.id, (PatchSession(metadata={"routing_key": "k"}),)))
    again = await made.events.receive("test", "2", Routing(key="k"), text="x")
    assert again.session_id == first.session_id
    await ended(made)
    await made.create_session(model="test/scripted", metadata={"routing_key": "k"})
    with pytest.raises(RoutingConflict):
        await made.events.receive("test", "3", Routing(key="k"), text="x")


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "x"},
        {"cron": "0 0 30 2 *"},
        {"timezone": "Nowhere"},
        {"prompt": " "},
        {"prompt": "x" * 70_000},
        {"prompt": "\x00"},
        {"name": ""},
        {"name": "x" * 300},
        {"missed": "twice"},
        {"routing": Routing(label="a", key="b")},
        {"routing": Routing(agent="nobody")},
        {"routing": Routing(model="nonsense")},
        {"routing": Routing(session_id="x")},
        {"routing": Routing(session_id="ses_" + "0" * 26)},
    ],
)
async def test_what_is_no_schedule_is_refused_and_not_kept(
    engine: tuple[clew.Engine, FakeClock], given: dict[str, Any]
) -> None:
    """While somebody is there to mend it."""
    made, _ = engine
    with pytest.raises((clew.Invalid, clew.NotFound)):
        await made.schedules.add(**{"cron": "0 * * * *", "prompt": "go", **given})
    assert await made.schedules.list() == ()


async def test_only_what_can_be_changed_is_changed(engine: tuple[clew.Engine, FakeClock]) -> None:
    """Where it runs is not."""
    made, _ = engine
    schedule = await made.schedules.add("0 * * * *", "go")
    for changes in ({"routing": Routing()}, {"id": NOBODY}, {"cron": "x"}, {"missed": "x"}, {"prompt": ""}):
        with pytest.raises(InvalidInput):
            await made.schedules.change(schedule.id, **changes)
    assert await made.schedules.list() == (schedule,)
    assert isinstance(schedule, Schedule)


@pytest.mark.rule("EV-2", "FS-5")
@pytest.mark.parametrize("kind", ["jsonl", "json", "sqlite"])
async def test_a_schedule_whose_session_somebody_removed_says_so_and_the_others_run(kind: str, tmp_path: Path) -> None:
    """Not through clew, which takes the schedule along. It is paused and removed like any other; so is a webhook."""
    clock, place = FakeClock(NOON), tmp_path / "store"
    url = f"sqlite:///{place}" if kind == "sqlite" else f"{kind}:{place}"

    def opened() -> Any:
        return clew.open(url, providers=FakeProviders(talker()), config=clew.Config(), clock=clock, triggers=False)

    async with opened() as engine:
        gone = await engine.create_session(metadata=local_place(None))
        lost = await engine.schedules.add("0 * * * *", "in it", routing=Routing(session_id=gone.id))
        other = await engine.schedules.add("0 * * * *", "elsewhere", routing=Routing(key="k"))
        door = await engine.webhooks.add("door", routing=Routing(session_id=gone.id))
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(place)) as connection, connection:
            connection.execute("DELETE FROM chat_sessions WHERE id = ?", (gone.id,))
    elif kind == "jsonl":
        shutil.rmtree(place / "sessions" / gone.id)
    else:
        (place / "sessions" / f"{gone.id}.json").unlink()
    async with opened() as engine:
        await passing(engine, clock, NOON + 2 * HOUR, HOUR)
        told = {one.id: (one.skipped, one.last_error) for one in await engine.schedules.list()}
        assert told == {lost.id: (2, f"session_not_found: there is no session {gone.id}"), other.id: (0, None)}
        assert len(await runs(engine)) == 2
        assert (await engine.schedules.pause(lost.id)).paused
        await engine.schedules.remove(lost.id)
        assert [one.id for one in await engine.schedules.list()] == [other.id]
        assert (await engine.webhooks.change("door", paused=True)).paused
        assert (await engine.webhooks.rotate("door")).secret != door.secret
        await engine.webhooks.remove("door")
