"""The end of an engine: whatever its runs still do with the store comes before the store is closed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from clew.transcript.metadata import local_place
from tests.acceptance.compacting import Compacting, answer, bulk, opened, settings, summary
from tests.integration.command_line import Run
from tests.integration.command_line import run as run


async def test_a_run_that_has_just_settled_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its outcome is known, and the session is still to be let go of."""
    providers = FakeProviders(ScriptedModel([say("done")]))
    looking: list[str] = []
    looked: list[str] = []
    async with clew.open(f"json:{tmp_path}/store", config=Config(), providers=providers) as engine:
        release = engine.store.release

        async def late(session_id: str) -> None:
            looking.append(session_id)
            for _ in range(50):
                await asyncio.sleep(0)
            looked.append(session_id)
            await release(session_id)

        session = await engine.create_session(metadata=local_place(None))
        monkeypatch.setattr(engine.store, "release", late)
        submission = await engine.submit(session.id, "hello")
        await submission.wait()
        while len(looking) == len(looked):  # noqa: ASYNC110  # it is left in the middle of a look
            await asyncio.sleep(0)
        begun = len(looked)
    assert (len(looked) > begun, looked) == (True, looking)
    assert [one.message for one in caplog.records if one.levelno >= logging.ERROR] == []


@pytest.mark.rule("SR-10")
@pytest.mark.parametrize("url", ["sqlite:///{}/store.db", "jsonl:{}/store", "json:{}/store"])
async def test_closing_right_after_a_turn_waits_for_its_title_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    """Twelve times: what was begun after the turn needs the store, and has it until it is done."""
    for number in range(12):
        where = url.format(tmp_path / str(number))
        (tmp_path / str(number)).mkdir()
        async with clew.open(where, config=Config(), providers=FakeProviders(ScriptedModel([say("hi")]))) as engine:
            session = await engine.create_session(metadata=local_place(None))
            await (await engine.submit(session.id, "hello there")).wait()
        async with clew.open(where, config=Config(), read_only=True) as engine:
            assert (await engine.get_session(session.id)).title == "hello there"
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []


async def fill(s: Compacting) -> None:
    """Turns of which the last one makes a summary necessary; only that is not waited for."""
    for number in range(6):
        s.model.add(answer(bulk("re", 400), 8_500 if number == 5 else 100))
        await (s.say(bulk("ask", 400)) if number < 5 else (await s.send(bulk("ask", 400))).wait())


@pytest.mark.rule("SR-10")
async def test_closing_waits_for_the_summary_after_a_turn_within_a_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that comes is stored; one that does not come ends with the engine. Neither is an error."""
    given: dict[str, Any] = {"config": settings(preset="checkpoint")}
    gate, never = Gate(), Gate()
    url = f"json:{tmp_path}/store"
    async with opened(tmp_path, summaries=[[wait(gate), say(summary("kept"))]], url=url, **given) as s:
        await s.begin()
        await fill(s)
        asyncio.get_running_loop().call_later(0.05, gate.set)
    async with opened(tmp_path, url=url, **given) as s:
        await s.begin()
        assert await s.kinds() == ["normal"] * 6 + ["compaction"]
    async with opened(tmp_path, summaries=[wait(never)], **given) as s:
        await s.begin()
        await fill(s)
        await never.reached.wait()
        await s.engine.close(within_s=0.05)
        assert await s.kinds() == ["normal"] * 6
    assert [one.message for one in caplog.records if one.levelno >= logging.ERROR] == []


@clew.tool
async def nothing() -> str:
    """Do nothing."""
    return "done"


@pytest.mark.parametrize("busy_with", ["an answer", "a subagent", "a summary"])
def test_an_engine_ends_with_a_loop_that_is_given_up(tmp_path: Path, busy_with: str) -> None:
    """As at a second Ctrl-C: all that is in it is cancelled at once, runs too. The next opening settles the turn."""
    gate, url = Gate(), f"sqlite:///{tmp_path}/store.db"
    script = {"an answer": [wait(gate)], "a subagent": [call("task", {"prompt": "look"}), wait(gate)], "a summary": []}
    given: dict[str, Any] = {"config": settings(preset="checkpoint"), "tools": [nothing], "url": url}

    waited: list[asyncio.Timeout] = []

    async def talk() -> None:
        waited.append(asyncio.timeout(60))
        async with waited[0], opened(tmp_path, script[busy_with], [wait(gate)], **given) as s:
            await s.begin()
            await s.allow("task")
            await (fill(s) if busy_with == "a summary" else s.send("go"))
            await gate.reached.wait()
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.Event().wait()

    async def look() -> None:
        async with opened(tmp_path, **given) as s:
            await s.begin()
            assert (await s.engine.get_status(s.id)).state == "idle"
            assert (await s.say("and now")).status == "completed"
            await s.is_sound()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(talk())
    assert not waited[0].expired()
    asyncio.run(look())


@pytest.mark.rule("SR-10", "CP-9")
def test_a_command_ends_with_the_summary_of_its_turn_stored(run: Run, tmp_path: Path) -> None:
    """On a store that makes room after a turn: the next command finds the summary that the last one owed."""
    store, words = ("--store", f"json:{tmp_path}/sessions"), "word " * 150
    assert run("run", f"1 {words}", "--model", "demo/small", *store)[0] == 0
    session_id = run("ls", *store)[1].split()[0]
    tree: list[str] = []
    for number in range(2, 8):
        assert run("run", f"{number} {words}", "--session", session_id, *store)[0] == 0
        tree = run("tree", session_id, *store)[1].splitlines()
        if "(summary, head)" in tree[-1]:
            return
    raise AssertionError(tree)
