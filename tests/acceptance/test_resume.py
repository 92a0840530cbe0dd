"""Going on after a kill, and by itself: where nobody can be asked, and after a restart where the host was told so."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import clew
from clew.providers.base import ModelRequest, StepEnd
from clew.session.history.check import check
from clew.testing.clock import FakeClock
from clew.testing.scenario import Scenario, transcript
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, cut_after, fail, say, wait
from clew.transcript.turn import Turn
from clew.triggers.values.routing import Routing
from tests.acceptance.compacting import passing
from tests.acceptance.errands import allow
from tests.acceptance.triggered import answered, ended
from tests.rig.shop_child import shop_tools

from .conftest import Open

pytestmark = pytest.mark.rule("RN-8")
PAID: Final = 'charge {"card":1} → "paid"'
RESTART: Final = "error: aborted by host restart; its effects are unknown"


def killed(tmp_path: Path, moment: str) -> list[str]:
    """A shop that was killed at a moment; the effects it had had."""
    ledger = tmp_path / "ledger"
    command = [sys.executable, "-m", "tests.rig.shop_child", f"sqlite:///{tmp_path}/store.db", str(ledger), moment]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return ledger.read_text().splitlines()


@asynccontextmanager
async def reopened(tmp_path: Path, *script: Any, **settings: Any) -> AsyncIterator[tuple[Scenario, ScriptedModel]]:
    """The store after that, with a model that plays this."""
    model = ScriptedModel(script)
    url, tools = f"sqlite:///{tmp_path}/store.db", shop_tools(tmp_path / "ledger")
    async with clew.open(url, config=clew.Config(**settings), providers=FakeProviders(model), tools=tools) as engine:
        s = Scenario(engine, model, tmp_path)
        await s.begin()
        yield s, model
        assert await check(engine.store) == []


async def newest_turn(s: Scenario) -> Turn:
    tree = await s.engine.store.load_tree(s.id)
    return tree.turns[str(tree.open_turn_id or tree.head_turn_id)]


@pytest.mark.kill
@pytest.mark.parametrize(
    ("moment", "effects", "sent"),
    [
        ("text-delta", 1, []),
        ("reasoning-delta", 1, []),
        ("tool-input-delta", 1, []),
        ("ship", 2, [f"ship {{}} → {RESTART}"]),
        ("tool-output-available", 3, ['charge {"card":2} → "paid"', f"ship {{}} → {RESTART}"]),
    ],
)
async def test_a_turn_that_was_killed_goes_on_and_no_effect_comes_twice(
    tmp_path: Path, moment: str, effects: int, sent: list[str]
) -> None:
    """After its last complete step. By itself only while no tool was at work, and only where that is set."""
    had = killed(tmp_path, moment)
    assert len(had) == effects
    safe = not sent
    async with reopened(tmp_path, say("done"), resume="safe" if safe else "off") as (s, model):
        if not safe:
            await ended(s.engine)
            assert model.requests == []
            await s.engine.continue_turn(s.id)
        await s.settled()
        assert transcript(model.requests[0].messages) == ["user: buy", PAID, *sent]
        assert (await s.transcript())[-1] == "assistant: done"
        turn = await newest_turn(s)
        assert (turn.status, turn.resumed, len(model.requests)) == ("completed", 1 if safe else 0, 1)
    assert (tmp_path / "ledger").read_text().splitlines() == had


@pytest.mark.kill
async def test_a_turn_with_a_tool_at_work_does_not_go_on_by_itself(tmp_path: Path) -> None:
    """What it has done is not known: somebody looks first."""
    killed(tmp_path, "ship")
    async with reopened(tmp_path, say("done"), resume="safe") as (s, model):
        await ended(s.engine)
        assert ((await newest_turn(s)).status, model.requests) == ("failed", [])


async def test_a_host_that_ends_each_time_does_not_go_on_for_ever(tmp_path: Path) -> None:
    """Twice by itself; then the turn is left to somebody, who begins a new count."""
    gate = Gate()
    async with reopened(tmp_path, [say("one"), wait(gate)], resume="safe") as (s, _):
        await s.send("go")
        await gate.reached.wait()
    for times in (1, 2):
        gate = Gate()
        async with reopened(tmp_path, [say("more"), wait(gate)], resume="safe") as (s, model):
            await gate.reached.wait()
            turn = await newest_turn(s)
            assert (turn.status, turn.resumed) == ("running", times)
            assert transcript(model.requests[0].messages) == ["user: go"]
    async with reopened(tmp_path, say("done"), resume="safe") as (s, model):
        await ended(s.engine)
        assert ((await newest_turn(s)).status, model.requests) == ("failed", [])
        await (await s.engine.continue_turn(s.id)).wait()
        turn = await newest_turn(s)
        assert (turn.status, turn.resumed) == ("completed", 0)
        assert await s.transcript() == ["user: go", "assistant: one", *["assistant: more"] * 2, "assistant: done"]


async def test_without_the_setting_a_restart_leaves_the_turn_to_somebody(tmp_path: Path) -> None:
    """And what a command opens for a moment goes on with nothing either way."""
    gate = Gate()
    async with reopened(tmp_path, [say("one"), wait(gate)], resume="safe") as (s, _):
        await s.send("go")
        await gate.reached.wait()
    async with reopened(tmp_path, say("done")) as (s, model):
        await ended(s.engine)
        turn = await newest_turn(s)
        assert (turn.status, turn.error["code"], model.requests) == ("failed", "interrupted", [])


@pytest.mark.kill
async def test_an_answer_that_was_whole_when_its_process_died_is_complete(tmp_path: Path) -> None:
    """Only the end of it was not written down; nothing is left to go on with.

    A clew that settled a turn in a unit of its own left that; now the last step ends in the same one.
    """
    from tests.acceptance.test_run_kill import run

    code, _ = run(tmp_path, "")
    assert code == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as file, file:
        file.execute("UPDATE chat_turns SET status = 'running', settled_at = NULL")
        file.execute("UPDATE session_state SET open_turn_id = head_turn_id, head_turn_id = NULL")
        file.execute("DELETE FROM head_moves")
        of_model = "SELECT id FROM chat_messages WHERE role = 'assistant'"
        file.execute(f"DELETE FROM message_seals WHERE message_id IN ({of_model})")
    async with reopened(tmp_path, resume="safe") as (s, model):
        await ended(s.engine)
        turn = await newest_turn(s)
        assert (turn.status, turn.error, model.requests) == ("completed", {}, [])
        with pytest.raises(clew.errors.NothingToContinue):
            await s.engine.continue_turn(s.id)


# Where nobody can be asked


async def triggered(s: Scenario, clock: FakeClock) -> dict[str, Any]:
    """An event and its turn; what went out for it."""
    await allow(s, "charge")
    await s.engine.events.receive("test", "1", Routing(session_id=s.id), text="buy")
    await passing(clock, answered(s.engine, 1))
    [out] = (await s.engine.events.list(direction="out")).events
    return {"status": out.status, "text": out.data["text"]}


async def test_a_cut_goes_on_by_itself_where_nobody_can_be_asked(open_scenario: Open, tmp_path: Path) -> None:
    """In the same turn, after what was done; what goes out says how it really ended."""
    clock = FakeClock()
    script = [call("charge", {"card": 1}), cut_after(2, say("one two")), cut_after(3, call("ship", {})), say("done")]
    async with open_scenario(script, clock=clock, tools=shop_tools(tmp_path / "ledger")) as s:
        await s.begin()
        assert await triggered(s, clock) == {"status": "completed", "text": "done"}
        turn = await newest_turn(s)
        assert (turn.status, turn.resumed, len(turn.unsent)) == ("completed", 2, 2)
        assert transcript(s.model.requests[-1].messages) == ["user: buy", PAID]
        not_run = "error: the model's answer broke off before this call was complete; it was not run"
        seen = ["user: buy", PAID, "assistant: one  …", f"ship {{}} → {not_run}", "assistant: done"]
        assert await s.transcript() == seen
        assert (tmp_path / "ledger").read_text().splitlines() == ["charged 1"]
        assert await s.check() == []


async def test_a_connection_that_is_lost_each_time_is_given_up(open_scenario: Open) -> None:
    """After it went on twice."""
    clock = FakeClock()
    async with open_scenario([cut_after(2, say("one two"))] * 3, clock=clock) as s:
        await s.begin()
        submission = await s.send("go", attended=False)
        assert (await passing(clock, submission.wait())).status == "failed"
        assert ((await newest_turn(s)).resumed, len(s.model.requests)) == (2, 3)
        assert await s.check() == []


async def test_a_stream_that_just_ends_is_a_cut_too(open_scenario: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that does not say how it ended has not said that it did."""
    whole = ScriptedModel.stream

    async def unsaid(model: ScriptedModel, request: ModelRequest) -> Any:
        is_first = not model.requests
        async for item in whole(model, request):
            if not (is_first and isinstance(item, StepEnd)):
                yield item

    monkeypatch.setattr(ScriptedModel, "stream", unsaid)
    clock = FakeClock()
    async with open_scenario([say("half"), say("whole")], clock=clock) as s:
        await s.begin()
        submission = await s.send("go", attended=False)
        assert (await passing(clock, submission.wait())).status == "completed"
        assert await s.transcript() == ["user: go", "assistant: half", "assistant: whole"]
        assert transcript(s.model.requests[-1].messages) == ["user: go"]


async def test_a_person_a_refusal_and_an_abort_end_a_turn_that_breaks_off(open_scenario: Open) -> None:
    """A person says go on; a provider that refuses would refuse again; whoever aborts means it."""
    gate = Gate()
    refused = cut_after(2, say("one two"), by=fail(400))
    script = [cut_after(2, say("one two")), refused, [say("one"), wait(gate)]]
    async with open_scenario(script) as s:
        await s.begin()
        assert (await (await s.send("go")).wait()).status == "failed"
        assert (await (await s.send("go", attended=False)).wait()).status == "failed"
        submission = await s.send("go", attended=False)
        await gate.reached.wait()
        await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        assert [turn.resumed for turn in (await s.engine.store.load_tree(s.id)).turns.values()] == [0, 0, 0]


async def test_an_abort_in_the_wait_before_it_goes_on_ends_it(open_scenario: Open) -> None:
    """Nobody has to sit it out."""
    async with open_scenario([cut_after(2, say("one two"))], clock=FakeClock()) as s:
        await s.begin()
        submission = await s.send("go", attended=False)
        async for status in s.engine.watch_status(s.id):
            if status.state == "retrying":
                break
        await s.engine.abort(s.id)
        assert ((await submission.wait()).status, len(s.model.requests)) == ("aborted", 1)
        await asyncio.sleep(0)
        assert await s.check() == []
