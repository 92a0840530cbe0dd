"""Schedules, webhooks and the events ledger from the command line, alone and beside a server."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.errors import TriggerNotFound
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.remote.wire import Wire
from clew.store.unit import STORE_WIDE, PutSchedule, Unit
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.signature import sign
from tests.acceptance.triggered import napping
from tests.integration.http_client import texts
from tests.integration.http_document import check_answer
from tests.integration.processes import command, serving
from tests.integration.test_cli_commands import failed
from tests.integration.test_cli_history import Say, say, talk

__all__ = ["say"]


def holds(say: Say, method: str, path: str, status: int, *words: str) -> Any:
    """The command's JSON is an answer of that operation."""
    code, out, err = say(*words, "--json")
    assert code == 0, (words, err)
    check_answer(method, path, status, {"content-type": "application/json"}, out.encode())
    return json.loads(out)


def test_a_schedule_is_added_shown_paused_resumed_run_and_removed(say: Say) -> None:
    """Each with what it prints; run here, it is waited for."""
    code, out, err = say(
        "schedule", "add", "0 9 * * MON-FRI", "hello", "--timezone", "Europe/Vienna", "--model", "demo/echo"
    )
    assert (code, err) == (0, "")
    id_ = out.strip()
    code, out, _ = say("schedule", "ls")
    assert re.fullmatch(rf"{id_}  \d{{4}}-\d\d-\d\d 0[78]:00:00Z  0 9 \* \* MON-FRI Europe/Vienna  hello\n", out)
    code, out, _ = say("schedule", "pause", id_)
    assert (code, "next    paused\n" in out, "last    never\n" in out) == (0, True, True)
    assert say("schedule", "ls")[1] == f"{id_}  paused                0 9 * * MON-FRI Europe/Vienna  hello\n"
    code, out, _ = say("schedule", "run", id_)
    session_id = out.strip()
    assert (code, say("show", session_id)[1]) == (0, "user: hello\nassistant: hello\n")
    code, out, _ = say("schedule", "resume", id_)
    assert (code, "next    paused" in out, "last    never" in out) == (0, False, False)
    code, out, _ = say("events", "--source", f"schedule:{id_}")
    assert [line.split()[2] for line in out.splitlines()] == ["out", "in"]
    assert out.splitlines()[0].endswith(f"{session_id}  completed")
    assert say("schedule", "rm", id_) == (0, f"deleted {id_}\n", "")
    assert say("schedule", "ls") == (0, "", "")
    for verb in ("show", "pause", "resume", "run", "rm"):
        failed(say("schedule", verb, id_), 3, "trigger_not_found")
        failed(say("schedule", verb, "nonsense"), 2, "invalid_id")
    failed(say("schedule", "add", "nonsense", "x"), 2, "invalid_input")
    failed(say("schedule", "add", "* * * * *", "x", "--timezone", "Nowhere"), 2, "invalid_input")
    failed(say("schedule", "add", "* * * * *", "x", "--label", "a", "--key", "b"), 2, "invalid_input")


@pytest.mark.rule("EV-5")
def test_what_an_agent_has_scheduled_is_listed_shown_and_removed(say: Say) -> None:
    """Beside what people keep: once, by whom, and what is wrong with it."""
    session_id = talk("one")

    async def keep() -> None:
        async with clew.open(config="user", triggers=False) as engine:
            own = Schedule(
                id=engine.mint.schedule(),
                cron="",
                at=2_000_000_000_000,
                next_fire_at=2_000_000_000_000,
                prompt="look again",
                by="agent",
                routing=Routing(session_id=session_id),
                created_at=1,
            )
            other = engine.mint.schedule()
            broken = msgspec.structs.replace(own, id=other, last_error="x: it\ncannot", next_fire_at=None)
            await engine.store.commit(Unit(STORE_WIDE, (PutSchedule(own), PutSchedule(broken))))

    asyncio.run(keep())
    code, out, _ = say("schedule", "ls")
    first, second = out.splitlines()
    id_ = first.split()[0]
    assert (code, first) == (0, f"{id_}  2033-05-18 03:33:20Z  once UTC  look again")
    assert second.endswith("never                 once UTC  look again  ! x: it cannot")
    _, out, _ = say("schedule", "show", id_)
    assert [line for line in out.splitlines() if line.startswith(("cron", "by", "where"))] == [
        "cron    once UTC",
        "by      the agent of its session",
        f"where   session_id {session_id}",
    ]
    assert say("schedule", "rm", id_)[0] == 0
    assert say("schedule", "ls")[1] == f"{second}\n"


def test_a_webhook_prints_its_secret_once(say: Say) -> None:
    """When it is made and when it is made anew, and nowhere else."""
    code, secret, _ = say("hook", "add", "builds", "--prompt", "look", "--label", "inbox", "--model", "demo/echo")
    assert (code, secret.startswith("whsec_")) == (0, True)
    assert say("hook", "ls") == (0, "builds  open  standard  label inbox\n", "")
    assert say("hook", "pause", "builds")[1].splitlines()[:2] == ["name    builds", "state   paused"]
    assert "state   open" in say("hook", "resume", "builds")[1]
    code, other, _ = say("hook", "rotate", "builds")
    assert (code, other.startswith("whsec_"), other != secret) == (0, True, True)
    for words in (("hook", "ls"), ("hook", "show", "builds"), ("events",)):
        for more in ((), ("--json",)):
            assert "whsec_" not in say(*words, *more)[1]
    failed(say("hook", "add", "builds"), 4, "conflict")
    failed(say("hook", "add", "No Name"), 2, "invalid_input")
    assert say("hook", "rm", "builds") == (0, "deleted builds\n", "")
    for verb in ("show", "pause", "resume", "rotate", "rm"):
        failed(say("hook", verb, "builds"), 3, "trigger_not_found")


@pytest.mark.rule("EV-2")
def test_a_webhook_is_signed_as_its_sender_does(say: Say, tmp_path: Path) -> None:
    """With the secret that the sender made, from a file: it is printed neither then nor later."""
    failed(say("hook", "add", "pay", "--scheme", "stripe"), 2, "invalid_input")
    failed(say("hook", "add", "pay", "--scheme", "stripe", "--secret-file", str(tmp_path / "no")), 2, "invalid_input")
    failed(say("hook", "add", "pay", "--scheme", "paypal"), 2, "usage")
    kept = tmp_path / "secret"
    kept.write_text("whsec_0123456789abcdef\n")
    assert say("hook", "add", "pay", "--scheme", "stripe", "--secret-file", str(kept)) == (
        0,
        "saved pay\n",
        "clew: deliveries go to POST /api/hooks/pay of `clew serve`\n",
    )
    assert say("hook", "ls") == (0, "pay  open  stripe  a new session each time\n", "")
    assert "scheme  stripe\n" in say("hook", "show", "pay")[1]
    failed(say("hook", "rotate", "pay"), 2, "invalid_input")
    kept.write_text("whsec_another0123456789")
    code, out, _ = say("hook", "rotate", "pay", "--secret-file", str(kept), "--json")
    assert (code, "whsec_" in out, json.loads(out)["scheme"]) == (0, False, "stripe")


def test_json_of_these_commands_is_an_answer_of_the_api(say: Say) -> None:
    """By the document."""
    added = holds(say, "POST", "/api/schedules", 201, "schedule", "add", "0 9 * * *", "hello", "--model", "demo/echo")
    path = f"/api/schedules/{added['id']}"
    holds(say, "GET", "/api/schedules", 200, "schedule", "ls")
    for verb, method in (("show", "GET"), ("pause", "PATCH"), ("resume", "PATCH")):
        holds(say, method, path, 200, "schedule", verb, added["id"])
    holds(say, "POST", f"{path}/run", 202, "schedule", "run", added["id"])
    holds(say, "POST", "/api/hooks", 201, "hook", "add", "door")
    holds(say, "GET", "/api/hooks", 200, "hook", "ls")
    for verb, method in (("show", "GET"), ("pause", "PATCH"), ("resume", "PATCH")):
        holds(say, method, "/api/hooks/door", 200, "hook", verb, "door")
    holds(say, "POST", "/api/hooks/door/rotate", 200, "hook", "rotate", "door")
    page = holds(say, "GET", "/api/events/ledger", 200, "events", "--limit", "1")
    rest = holds(say, "GET", "/api/events/ledger", 200, "events", "--limit", "1", "--cursor", page["next_cursor"])
    assert [one["direction"] for one in (*page["events"], *rest["events"])] == ["out", "in"]


def test_a_command_that_opens_the_store_for_a_moment_fires_nothing(say: Say) -> None:
    """It would have to abort what it began."""
    session_id = talk("one")
    say("schedule", "add", "* * * * *", "x", "--missed", "once", "--model", "demo/echo")

    async def make_due() -> None:
        async with clew.open(config="user", triggers=False) as engine:
            [schedule] = await engine.schedules.list()
            due = msgspec.structs.replace(schedule, next_fire_at=(schedule.next_fire_at or 0) - 600_000)
            await engine.store.commit(Unit(STORE_WIDE, (PutSchedule(due),)))

    asyncio.run(make_due())
    say("archive", session_id)
    assert say("events") == (0, "", "")
    asyncio.run(_served_for_a_moment())
    assert [line.split()[2] for line in say("events")[1].splitlines()] == ["out", "in"]


async def _served_for_a_moment() -> None:
    """The control: who keeps the store open fires what is due."""
    async with clew.open(config="user") as engine:
        await napping(engine)


async def test_a_relative_folder_is_kept_as_the_one_it_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger fires in whatever process has the store then, from wherever that was started."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    async with clew.open("memory:") as engine:
        routing = Routing(key="k", workspace_root="work")
        schedule = await engine.schedules.add("* 1 * * *", "x", routing=routing)
        hook = await engine.webhooks.add("door", routing=routing)
        assert [one.routing.workspace_root for one in (schedule, hook)] == [str(tmp_path / "work")] * 2
        assert (await engine.schedules.get(schedule.id)).routing.workspace_root == str(tmp_path / "work")


@pytest.mark.service
async def test_beside_a_server_it_is_the_server_that_keeps_and_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added by a command, run by the server; a delivery signed with the printed secret comes in."""
    (tmp_path / "here" / "work").mkdir(parents=True)
    async with serving(tmp_path) as server:
        monkeypatch.chdir(tmp_path / "here")
        client = server.client
        code, out, err = await command(tmp_path, "schedule", "add", "0 0 1 1 *", "hello", "--model", "demo/echo")
        assert (code, err) == (0, "")
        remote = RemoteEngine(Wire(f"http://127.0.0.1:{client.port}", client.token))
        [schedule] = await remote.schedules.list()
        assert schedule.id == out.strip()
        assert (await remote.schedules.change(schedule.id, paused=True)).paused
        received = await remote.schedules.run(schedule.id)
        await client.idle(received.session_id)
        assert [texts(one) for one in await client.messages(received.session_id)] == ["hello", "hello"]
        kept = await remote.schedules.add("* 1 * * *", "x", routing=Routing(session_id=received.session_id))
        assert await remote.schedules.get(kept.id) == kept
        await remote.schedules.remove(kept.id)
        # A relative folder is one of the process that names it, not of the server's.
        there = await remote.schedules.add("* 1 * * *", "x", routing=Routing(key="k", workspace_root="work"))
        assert there.routing.workspace_root == str(tmp_path / "here" / "work")
        await remote.schedules.remove(there.id)
        door = await remote.webhooks.add("door", routing=Routing(key="k", model="demo/echo"))
        assert (await remote.webhooks.get("door")).secret == ""
        door = await remote.webhooks.rotate("door")
        stamp, body = time.time_ns() // 1_000_000_000, b'{"type": "ping"}'
        headers = {
            "authorization": None,
            "webhook-id": "d1",
            "webhook-timestamp": str(stamp),
            "webhook-signature": sign(door.secret, "d1", stamp, body),
        }
        answer = await client.post("/api/hooks/door", body, headers=headers)
        assert answer.status == 202
        session_id = answer.json()["session_id"]
        await client.idle(session_id)
        page = await remote.events.list(session_id=session_id)
        assert [one.direction for one in page.events] == ["out", "in"]
        assert (await remote.webhooks.change("door", paused=True)).paused
        assert [one.name for one in await remote.webhooks.list()] == ["door"]
        await remote.webhooks.remove("door")
        with pytest.raises(TriggerNotFound):
            await remote.webhooks.get("door")
