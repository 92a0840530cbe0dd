"""Events: taken once, one session and a chain, and something goes out for each, whatever dies in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import DuplicateEvent, InvalidInput, ModelFailed
from clew.failpoints import arm, disarm
from clew.session.history.check import check
from clew.testing.scenario import transcript
from clew.testing.scripted import Gate, call, fail, hang, say, wait
from clew.triggers.router import MAX_CONTENT
from clew.triggers.values.ledger import LedgerEvent
from clew.triggers.values.routing import Routing
from tests.acceptance.compacting import summary
from tests.acceptance.conftest import Open
from tests.acceptance.triggered import answered
from tests.rounds import ON_POSTGRESQL

INBOX = Routing(label="inbox")


async def ledger(engine: clew.Engine, **query: Any) -> list[tuple[str, str, str | None]]:
    """The ledger, oldest first: direction, source id, status."""
    page = await engine.events.list(**query)
    return [(one.direction, one.source_id, one.status) for one in reversed(page.events)]


async def rows(engine: clew.Engine) -> tuple[LedgerEvent, ...]:
    return (await engine.events.list(limit=200)).events


@pytest.mark.rule("EV-1", "EV-2")
async def test_an_event_becomes_a_turn_and_something_goes_out_for_it(open_scenario: Open) -> None:
    """The message carries the envelope, the session its label; both events name the turn."""
    async with open_scenario([say("seen")]) as made:
        engine = made.engine
        got = await engine.events.receive("github", "42", INBOX, text="look", payload={"ref": "main"}, type="push")
        await answered(engine, 1)
        session = await engine.get_session(got.session_id)
        naming = {"title": 'look { "ref": "main" }', "naming": {"by": "words"}}
        assert session.metadata == {"source": "api", "label": "inbox", **naming}
        user, assistant = await engine.messages(session.id)
        assert (user.id, transcript([user, assistant])) == (
            got.message_id,
            ["user: look", 'user: {\n  "ref": "main"\n}', "assistant: seen"],
        )
        trigger = user.metadata["trigger"]
        assert trigger == {"source": "github", "fired_at": trigger["fired_at"], "auth_subject": "local"}
        out, inbound = await rows(engine)
        turn_id = user.metadata["turn_id"]
        assert (inbound.id, inbound.turn_id, inbound.type, inbound.data) == (
            got.event_id,
            turn_id,
            "push",
            {"text": "look", "payload": {"ref": "main"}},
        )
        assert (out.direction, out.source, out.source_id, out.turn_id) == ("out", "github", "42", turn_id)
        assert (out.message_id, out.status, out.data) == (assistant.id, "completed", {"text": "seen"})
        assert await ledger(engine, turn_id=turn_id) == [("in", "42", None), ("out", "42", "completed")]
        assert await made.check() == []


@pytest.mark.rule("EV-1")
async def test_the_same_event_again_is_answered_alike_and_runs_once(open_scenario: Open) -> None:
    """At once, later, and after a restart; with other content it is a conflict."""
    async with open_scenario([say("one")]) as made:
        take = made.engine.events.receive
        first, *others = await asyncio.gather(*(take("test", "1", INBOX, text="x", type="t") for _ in range(8)))
        assert others == [first] * 7
        for changed in ({"text": "y", "type": "t"}, {"text": "x"}, {"text": "x", "type": "t", "payload": 1}):
            with pytest.raises(DuplicateEvent):
                await take("test", "1", INBOX, **changed)
        await answered(made.engine, 1)
    async with open_scenario() as made:
        assert await made.engine.events.receive("test", "1", INBOX, text="x", type="t") == first
        assert await ledger(made.engine) == [("in", "1", None), ("out", "1", "completed")]
        assert made.model.requests == []


@pytest.mark.rule("EV-1")
async def test_many_events_at_once_make_one_session_and_a_chain(open_scenario: Open) -> None:
    """Twenty tasks with one key: each turn hangs below the one before it, and each has its answer."""

    async with open_scenario([say(f"answer {n}") for n in range(20)]) as made:
        engine = made.engine
        key = Routing(key="room-7")
        got = await asyncio.gather(*(engine.events.receive("test", f"e{n}", key, text=f"{n}") for n in range(20)))
        await answered(engine, 20)
        [session_id] = {one.session_id for one in got}
        assert [one.id for one in (await engine.list_sessions()).sessions] == [session_id]
        turns = (await engine.tree(session_id)).turns
        assert [turn.parent_turn_id for turn in turns] == [None, *(turn.id for turn in turns[:-1])]
        assert {one[2] for one in await ledger(engine, direction="out", limit=200)} == {"completed"}
        assert len({one.turn_id for one in await rows(engine)}) == 20
        assert await made.check() == []


@pytest.mark.rule("EV-1")
async def test_rewind_compaction_and_branch_leave_the_ledger_as_it_is(open_scenario: Open) -> None:
    """Not a row changes, and none is added."""
    async with open_scenario([say(f"{n} " + "word " * 300) for n in range(6)] + [say(summary("events"))] * 4) as made:
        engine = made.engine
        for n in range(5):
            await engine.events.receive("test", f"{n}", INBOX, text=f"event {n} " + "word " * 300)
            await answered(engine, n + 1)
        before = await rows(engine)
        session_id = before[0].session_id
        messages = await engine.messages(session_id)
        await engine.compact(session_id)
        await engine.branch(session_id, messages[3].id)
        await engine.rewind(session_id, messages[2].id, mode="edit")
        assert await rows(engine) == before
        assert len(before) == 10


@pytest.mark.rule("EV-2")
async def test_nobody_is_asked_in_a_turn_that_nobody_typed(open_scenario: Open) -> None:
    """What would be asked is denied, and the turn ends by itself; also for one that waited in the queue."""
    script = [
        call("bash", {"command": "touch made"}),
        say("could not"),
        call("bash", {"command": "touch made"}),
        say("no"),
    ]
    async with open_scenario(script) as made:
        routing = Routing(label="inbox", workspace_root=str(made.workspace))
        got = await made.engine.events.receive("test", "0", routing, text="do it")
        await made.engine.events.receive("test", "1", routing, text="do it")
        await answered(made.engine, 2)
        said = transcript(await made.engine.messages(got.session_id))
        assert ["error: " in line or "denied" in line for line in said if line.startswith("bash ")] == [True, True]
        assert (await made.engine.get_status(got.session_id)).waiting == ()
        assert list(made.workspace.iterdir()) == []


async def test_a_failure_goes_out_too_and_does_not_stop_the_next(open_scenario: Open) -> None:
    """Nobody is there to say go on; what a person has queued still waits for them."""
    gate = Gate()
    async with open_scenario([[wait(gate), say("x")], fail(400), say("third"), say("mine")]) as made:
        engine = made.engine
        first = await engine.events.receive("test", "1", INBOX, text="one")
        await gate.reached.wait()
        await engine.events.receive("test", "2", INBOX, text="two")
        await engine.events.receive("test", "3", INBOX, text="three")
        await engine.submit(first.session_id, "mine")
        gate.set()
        await answered(engine, 3)
        assert await ledger(engine, direction="out") == [
            ("out", "1", "completed"),
            ("out", "2", "failed"),
            ("out", "3", "completed"),
        ]
        failed = next(one for one in await rows(engine) if one.status == "failed")
        assert failed.data["error"]["code"] == "model_failed"


async def test_an_event_whose_message_is_cancelled_goes_out_as_cancelled(open_scenario: Open) -> None:
    """And one that is aborted as aborted."""
    async with open_scenario([hang(), say("x")]) as made:
        engine = made.engine
        await engine.events.receive("test", "1", INBOX, text="one")
        second = await engine.events.receive("test", "2", INBOX, text="two")
        await engine.cancel_queued(second.session_id, second.message_id)
        assert await ledger(engine, direction="out") == [("out", "2", "cancelled")]
        await engine.abort(second.session_id)
        await answered(engine, 2)
        assert await ledger(engine, direction="out") == [("out", "2", "cancelled"), ("out", "1", "aborted")]


async def test_what_cannot_be_taken_leaves_nothing_behind(open_scenario: Open) -> None:
    """No session, no event: names that are none, a model that is not there, nothing to say, too much of it."""
    async with open_scenario() as made:
        engine = made.engine
        for source, source_id, routing, content in [
            ("schedule", "1", INBOX, {"text": "x"}),
            ("hook:x", "1", INBOX, {"text": "x"}),
            ("", "1", INBOX, {"text": "x"}),
            ("test", "", INBOX, {"text": "x"}),
            ("test", "a b", INBOX, {"text": "x"}),
            ("test", "1", INBOX, {}),
            ("test", "1", INBOX, {"text": ""}),
            ("test", "1", INBOX, {"text": "x", "type": "a b"}),
            ("test", "1", INBOX, {"payload": "x" * MAX_CONTENT}),
            ("test", "1", Routing(), {"text": "x"}),
            ("test", "1", Routing(label="a", key="b"), {"text": "x"}),
            ("test", "1", Routing(label=" "), {"text": "x"}),
            ("test", "1", Routing(key="x", agent="nobody"), {"text": "x"}),
            ("test", "1", Routing(key="x", model="nonsense"), {"text": "x"}),
            ("test", "1", Routing(key="x", workspace_root="not-there"), {"text": "x"}),
        ]:
            with pytest.raises((clew.Invalid, ModelFailed)):
                await engine.events.receive(source, source_id, routing, **content)
        with pytest.raises(clew.SessionNotFound):
            await engine.events.receive("test", "1", Routing(session_id="ses_" + "0" * 26), text="x")
        with pytest.raises(InvalidInput):
            await engine.events.list(limit=0)
        with pytest.raises(InvalidInput):
            await engine.events.list(cursor="x")
        assert (await engine.list_sessions(kind="any")).sessions == ()
        assert await rows(engine) == ()


# What dies in between


@pytest.mark.rule("EV-1")
async def test_an_event_in_the_queue_of_a_dead_process_runs_at_the_next_open(open_scenario: Open) -> None:
    """The one that ran is not run again, the one that waited runs once, and a person's prompt goes on waiting."""
    async with open_scenario([hang()]) as made:
        engine = made.engine
        first = await engine.events.receive("test", "1", INBOX, text="one")
        await engine.submit(first.session_id, "mine")
        await engine.events.receive("test", "2", INBOX, text="two")
        # As a dead process leaves it: nothing is settled.
        runner: Any = engine._runtime.runner
        runner._announce_end = runner._start_next = _nothing
    async with open_scenario([say("second")], triggers=False) as made:
        # Who opens the store for a moment closes what is over, and begins nothing.
        assert await ledger(made.engine) == [("in", "1", None), ("in", "2", None), ("out", "1", "aborted")]
        assert [message.parts[0]["text"] for message in await made.engine.queue(first.session_id)] == ["mine", "two"]
    # On a shared store whoever is there next goes on with the whole of a queue (RP-4).
    waits = [] if ON_POSTGRESQL else ["mine"]
    async with open_scenario([say("second")] * (2 - len(waits))) as made:
        await answered(made.engine, 2)
        async with made.engine._runtime.sessions.lock(first.session_id):
            pass
        assert await ledger(made.engine, direction="out") == [("out", "1", "aborted"), ("out", "2", "completed")]
        assert [message.parts[0]["text"] for message in await made.engine.queue(first.session_id)] == waits
        assert len(made.model.requests) == 2 - len(waits)
        assert await made.check() == []


async def _nothing(*_: object) -> None:
    return


@pytest.mark.rule("EV-1")
async def test_what_did_not_go_out_goes_out_at_the_next_open(open_scenario: Open) -> None:
    """Once, however often it is opened."""
    async with open_scenario([say("said")]) as made:
        arm("ledger.before_outbound=raise")
        try:
            got = await made.engine.events.receive("test", "1", INBOX, text="one")
            async for status in made.engine.watch_status(got.session_id):
                if status.state == "idle":
                    break
        finally:
            disarm()
        assert await ledger(made.engine) == [("in", "1", None)]
    for _ in range(2):
        async with open_scenario() as made:
            assert await ledger(made.engine) == [("in", "1", None), ("out", "1", "completed")]
            assert (await rows(made.engine))[0].data == {"text": "said"}


CHILD = """
import asyncio, sys
import clew
from clew.triggers.values.routing import Routing

async def main():
    async with clew.open(sys.argv[1], config=clew.Config()) as engine:
        for n in range(3):
            await engine.events.receive("test", str(n), Routing(key="k", model="demo/echo"), text=f"event {n}")
            print(n, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


CHILD_AGAIN = """
import asyncio, sys
import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, fail, say
from clew.triggers.values.routing import Routing
from tests.acceptance.triggered import answered, ended

async def main():
    providers = FakeProviders(ScriptedModel([fail(400), say("now")]))
    async with clew.open(sys.argv[1], config=clew.Config(), providers=providers) as engine:
        got = await engine.events.receive("test", "1", Routing(key="k"), text="event")
        await answered(engine, 1)
        await ended(engine)
        await engine.continue_turn(got.session_id)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def killed(folder: Path, url: str, point: str, child: str = CHILD) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "CLEW_FAILPOINTS": point, "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    return subprocess.run([sys.executable, "-c", child, url], env=env, capture_output=True, timeout=60, check=False)


@pytest.mark.kill
@pytest.mark.rule("EV-4")
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize(
    ("point", "end"), [("ledger.before_outbound=kill@2", "completed"), ("run.before_model_call=kill@2", "failed")]
)
async def test_a_kill_around_the_end_of_another_attempt_is_told_once(
    tmp_path: Path, kind: str, point: str, end: str
) -> None:
    """What came of it is in the ledger after the next opening, however often that is, and the first attempt stays."""
    url = f"sqlite:///{tmp_path}/store.db" if kind == "sqlite" else f"{kind}:{tmp_path}/store"
    child = killed(tmp_path, url, point, CHILD_AGAIN)
    assert child.returncode == -signal.SIGKILL, child.stderr
    for _ in range(2):
        async with clew.open(url, config=clew.Config()) as engine:
            told = [(one.direction, one.attempt, one.status) for one in reversed(await rows(engine))]
            assert told == [("in", 1, None), ("out", 1, "failed"), ("in", 2, None), ("out", 2, end)]
            assert await check(engine.store) == []


@pytest.mark.kill
@pytest.mark.rule("EV-1")
@pytest.mark.parametrize(
    "point",
    [
        "writer.after_commit_before_ack=kill@1",
        "run.before_model_call=kill@1",
        "run.before_settle=kill@2",
        "ledger.before_outbound=kill@1",
    ],
)
async def test_a_kill_at_any_point_loses_no_event_and_runs_none_twice(tmp_path: Path, point: str) -> None:
    """What was acknowledged is in the ledger, and after the next open each has one answer and one turn."""
    url = f"sqlite:///{tmp_path}/store.db"
    child = killed(tmp_path, url, point)
    assert child.returncode == -signal.SIGKILL, child.stderr
    told = child.stdout.decode().split()
    async with clew.open(url, config=clew.Config()) as engine:
        inbound = [one.source_id for one in (await engine.events.list(direction="in")).events]
        assert set(told) <= set(inbound)
        await answered(engine, len(inbound))
        found = await ledger(engine)
        assert sorted(one[:2] for one in found) == sorted(
            (direction, source_id) for direction in ("in", "out") for source_id in inbound
        )
        if inbound:
            [session] = (await engine.list_sessions()).sessions
            tree = await engine.tree(session.id)
            assert len(tree.turns) == len(inbound)
        assert await check(engine.store) == []
