"""An agent that schedules its own next turn: asked for, bounded, seen and removed by people, kept over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.store.unit import PutProjectRules, Unit
from clew.testing.clock import FakeClock
from clew.testing.scenario import transcript
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import MAX_OWN, Schedule
from tests.acceptance.conftest import Open
from tests.acceptance.test_schedules import HOUR, MINUTE, NOON, passing
from tests.acceptance.triggered import answered, ended, napping
from tests.integration.http_client import AsgiClient, chat_body, served

LATER = call("schedule", {"prompt": "look again", "in_minutes": 10})
DAILY = call("schedule", {"prompt": "look around", "cron": "0 9 * * *", "timezone": "Europe/Vienna"})
ALLOWED = [{"permission": "schedule", "pattern": "*", "action": "allow"}]


async def asked(client: AsgiClient, *, allowed: bool = False) -> str:
    """A session in which the first prompt was sent; its id."""
    session_id = str((await client.post("/api/sessions", {"model": "test/scripted"})).json()["id"])
    if allowed:
        await client.engine.set_permissions(session_id, ALLOWED)
    await client.post("/api/chat", chat_body(session_id, "keep an eye on it", "u1"))
    await ended(client.engine)
    return session_id


def outputs(messages: list[dict[str, Any]]) -> list[str]:
    """What came of the calls: an output's keys, or the error."""
    parts = [part for message in messages for part in message["parts"] if part["type"].startswith("tool-")]
    return [part.get("errorText") or " ".join(sorted(part["output"])) for part in parts]


@pytest.mark.rule("EV-5")
async def test_an_agent_goes_on_by_itself_once_a_human_has_said_yes() -> None:
    """Nothing is kept before; then it is listed, fires once in the same session, and is gone."""
    clock = FakeClock(NOON)
    async with served([LATER], say("I will look again."), say("all is well"), clock=clock, triggers=False) as client:
        session_id = await asked(client)
        [request] = (await client.status(session_id))["waiting"]
        explained = await client.engine.explain_permission(session_id, "schedule", "once")
        assert (request["tool"], explained.action) == ("schedule", "ask")
        assert (await client.get("/api/schedules")).json() == {"schedules": []}
        answer = {"decision": "once"}
        path = f"/api/sessions/{session_id}/approvals/{request['approval_id']}"
        assert (await client.post(path, answer)).status < 300
        await ended(client.engine)
        [kept] = (await client.get("/api/schedules")).json()["schedules"]
        due = NOON + 10 * MINUTE
        assert kept == {
            **kept,
            "cron": "",
            "at": due,
            "by": "agent",
            "prompt": "look again",
            "next_fire_at": due,
            "missed": "once",
            "routing": {"session_id": session_id},
        }
        await passing(client.engine, clock, NOON + HOUR, 5 * MINUTE)
        assert (await client.get("/api/schedules")).json() == {"schedules": []}
        messages = await client.messages(session_id)
        assert [message["parts"][-1].get("text") for message in messages] == [
            "keep an eye on it",
            "I will look again.",
            "look again",
            "all is well",
        ]
        assert messages[2]["metadata"]["trigger"] == {"source": "agent", "fired_at": due, "schedule_id": kept["id"]}
        events = (await client.get("/api/events/ledger")).json()["events"]
        assert [(one["direction"], one["source"], one["source_id"]) for one in events] == [
            ("out", f"schedule:{kept['id']}", str(due)),
            ("in", f"schedule:{kept['id']}", str(due)),
        ]


@pytest.mark.rule("EV-5")
async def test_people_see_what_an_agent_has_scheduled_and_remove_it() -> None:
    """By cron, in its session; removed, it never fires. It may be paused and run like any other."""
    clock = FakeClock(NOON)
    async with served([DAILY], *[say("ok")] * 3, clock=clock, triggers=False) as client:
        session_id = await asked(client, allowed=True)
        [kept] = (await client.get("/api/schedules")).json()["schedules"]
        assert (kept["cron"], kept["timezone"], kept["by"], kept["at"]) == ("0 9 * * *", "Europe/Vienna", "agent", None)
        path = f"/api/schedules/{kept['id']}"
        assert (await client.request("PATCH", path, {"paused": True})).json()["paused"]
        assert (await client.post(f"{path}/run")).json()["session_id"] == session_id
        await ended(client.engine)
        assert (await client.request("DELETE", path)).status == 204
        await passing(client.engine, clock, NOON + 48 * HOUR, HOUR)
        asked_for = [one for one in await client.messages(session_id) if one["role"] == "user"]
        assert [one["parts"][0]["text"] for one in asked_for] == ["keep an eye on it", "look around"]


@pytest.mark.rule("EV-5")
async def test_where_nobody_can_be_asked_nothing_is_scheduled() -> None:
    """A turn that a trigger began does not begin another, unless somebody has allowed that before."""
    async with served([LATER], say("then not"), [LATER], say("done"), clock=FakeClock(NOON), triggers=False) as client:
        routing = Routing(key="k", model="test/scripted")
        first = await client.engine.events.receive("test", "1", routing, text="go")
        await ended(client.engine)
        assert await client.engine.schedules.list() == ()
        assert "denied" in outputs(await client.messages(first.session_id))[0]
        await client.engine.set_permissions(first.session_id, ALLOWED)
        await client.engine.events.receive("test", "2", routing, text="go")
        await ended(client.engine)
        assert [one.by for one in await client.engine.schedules.list()] == ["agent"]


@pytest.mark.rule("EV-5")
async def test_an_agent_keeps_so_many_and_none_too_soon_too_often_or_too_far_off() -> None:
    """Each refusal is a sentence for the model; nothing of it is kept. What people keep does not count."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "name one of"),
        ({"in_minutes": 5, "cron": "0 9 * * *"}, "name one of"),
        ({"in_minutes": 4}, "must be between 5 minutes and a year"),
        ({"in_minutes": 10**15}, "must be between 5 minutes and a year"),
        ({"at": "2027-05-03T10:01"}, "must be between 5 minutes and a year"),
        ({"at": "tomorrow"}, "is not a time"),
        ({"at": "2027-05-04T12:00", "timezone": "Nowhere"}, "is not a known time zone"),
        ({"cron": "* * * * *"}, "more often than every 5 minutes"),
        ({"cron": "0,1 9 * * *"}, "more often than every 5 minutes"),
        ({"cron": "nonsense"}, "cron is five fields"),
        ({"cron": "0 0 30 2 *"}, "is not a schedule"),
    ]
    calls = [call("schedule", {"prompt": "x", **args}) for args, _ in wrong]
    good = [call("schedule", {"prompt": f"n{n}", "at": f"2027-05-04T12:{5 * n:02}"}) for n in range(MAX_OWN + 1)]
    async with served(calls, good, say("enough"), clock=FakeClock(NOON), triggers=False) as client:
        await client.engine.schedules.add("* * * * *", "a person's", routing=Routing(model="test/scripted"))
        session_id = await asked(client, allowed=True)
        told = outputs(await client.messages(session_id))
        for said, (args, why) in zip(told, wrong, strict=False):
            assert why in said, (args, said)
        assert told[len(wrong) :] == [
            *["next schedule_id"] * MAX_OWN,
            f"this session already has {MAX_OWN} schedules of its own; a user can remove some",
        ]
        listed = await client.engine.schedules.list()
        assert [one.prompt for one in listed] == ["a person's", *[f"n{n}" for n in range(MAX_OWN)]]


@pytest.mark.rule("EV-5")
async def test_several_of_its_own_do_not_come_closer_together_than_one_may() -> None:
    """Five that come every five minutes, a minute apart, would be a turn a minute: each is held against the others."""
    wanted: list[tuple[dict[str, Any], bool]] = [
        ({"cron": "*/10 * * * *"}, True),
        ({"cron": "1-59/10 * * * *"}, False),
        ({"cron": "8 9 1 1 *", "timezone": "Europe/Vienna"}, False),
        ({"at": "2027-05-04T12:04"}, False),
        ({"at": "2027-05-04T12:05"}, True),
        ({"in_minutes": 15, "at": None}, True),
        ({"cron": "15 * * * *"}, False),
        ({"cron": "25 13 1 1 *"}, True),
    ]
    calls = [call("schedule", {"prompt": "x", **args}) for args, _ in wanted]
    async with served(calls, say("enough"), clock=FakeClock(NOON), triggers=False) as client:
        session_id = await asked(client, allowed=True)
        told = outputs(await client.messages(session_id))
        assert ["next schedule_id" in said for said in told] == [kept for _, kept in wanted]
        assert all("is within 5 minutes of sch_" in said for said in told if "next" not in said)


@pytest.mark.rule("EV-5")
async def test_a_subagent_schedules_nothing(tmp_path: Path) -> None:
    """Its session ends with its task, whatever the project allows."""
    script = [[call("task", {"prompt": "do it"})], [LATER], say("I cannot"), say("done")]
    async with served(*script, clock=FakeClock(NOON), triggers=False) as client:
        body = {"model": "test/scripted", "workspace_root": str(tmp_path)}
        session_id = str((await client.post("/api/sessions", body)).json()["id"])
        rules = tuple({**ALLOWED[0], "permission": name} for name in ("schedule", "task"))
        project = (await client.engine.get_session(session_id)).workspace_root or ""
        await client.engine.store.commit(Unit(session_id, (PutProjectRules(project, rules, 1),)))
        await client.post("/api/chat", chat_body(session_id, "go", "u1"))
        await ended(client.engine)
        [child] = (await client.engine.list_sessions(kind="subagent")).sessions
        assert "ends with its task" in outputs(await client.messages(child.id))[0]
        assert await client.engine.schedules.list() == ()


@pytest.mark.rule("EV-5")
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "json"])
async def test_what_an_agent_has_scheduled_is_there_after_a_restart_and_made_up_for(
    kind: str, open_scenario: Open, tmp_path: Path
) -> None:
    """However late, once; deleting the session takes what is scheduled in it along."""
    clock, url = FakeClock(NOON), f"sqlite:///{tmp_path}/s.db" if kind == "sqlite" else f"{kind}:{tmp_path}/s"
    async with open_scenario([[LATER, DAILY], say("ok")], clock=clock, url=url, triggers=False) as made:
        await made.begin()
        await made.engine.set_permissions(made.id, ALLOWED)
        await made.prompt("keep an eye on it")
        kept = await made.engine.schedules.list()
    clock.advance(5 * HOUR)
    async with open_scenario([say("all is well")], clock=clock, url=url) as made:
        await made.begin()
        await napping(made.engine)
        await answered(made.engine, 1)
        await ended(made.engine)
        assert transcript(await made.engine.messages(made.id))[-2:] == ["user: look again", "assistant: all is well"]
        [left] = await made.engine.schedules.list()
        assert (left.id, left.skipped) == (next(one.id for one in kept if one.cron), 0)
        await made.engine.delete_session(made.id)
        assert await made.engine.schedules.list() == ()


async def test_one_that_fires_once_and_cannot_stays_and_says_why(tmp_path: Path) -> None:
    """Until somebody runs or removes it. Its time cannot come again, and a cron expression makes another of it."""
    clock = FakeClock(NOON)
    providers = FakeProviders(ScriptedModel([[LATER], say("ok"), say("again")]))
    async with clew.open("memory:", config=clew.Config(), clock=clock, providers=providers, triggers=False) as engine:
        session = await engine.create_session(model="test/scripted")
        await engine.set_permissions(session.id, ALLOWED)
        async for _ in engine.run(session.id, "go"):
            pass
        router: Any = engine.dispatcher._router
        receive = router.receive

        async def failing(*_: Any) -> Any:
            raise clew.InvalidInput("the agent is gone")

        router.receive = failing
        await passing(engine, clock, NOON + HOUR, 5 * MINUTE)
        [stuck] = await engine.schedules.list()
        assert (stuck.last_error, stuck.next_fire_at, stuck.skipped) == ("invalid_input: the agent is gone", None, 1)
        with pytest.raises(clew.InvalidInput, match="this one-time schedule is in the past"):
            await engine.schedules.change(stuck.id, prompt="other")
        changed = await engine.schedules.change(stuck.id, cron="0 9 * * *")
        assert isinstance(changed, Schedule)
        assert (changed.at, changed.next_fire_at) == (None, NOON + 23 * HOUR)
        await engine.schedules.remove(stuck.id)
        router.receive = receive
