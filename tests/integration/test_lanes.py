"""Reads that go over much of a store, and reads of a few rows: the second never wait for the first."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.long_work import AT_ONCE, giving_way, run_long
from clew.store.sql import lines, statements
from clew.store.sql.statements import Statements
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.turn import Tree
from tests.integration.http_client import served


class Hold:
    """Keeps every read of one session's tree until it is told to let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session_id: str) -> None:
        self.inside = threading.Semaphore(0)
        self.go_on = threading.Event()
        load = lines.load_tree

        def held(sql: Statements, named: str) -> Tree:
            if named == session_id:
                self.inside.release()
                assert self.go_on.wait(30)
            return load(sql, named)

        monkeypatch.setattr(lines, "load_tree", held)


@pytest.fixture(autouse=True)
def few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two turns are a long session here."""
    monkeypatch.setattr(statements, "FEW_TURNS", 1)


async def test_a_prompt_and_a_list_pass_while_every_long_reader_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More exports and trees than there are readers for them, none of which comes to its end."""
    providers = FakeProviders(ScriptedModel([], otherwise=say("yes")))
    async with served(store=f"sqlite:///{tmp_path}/clew.db", providers=providers) as client:
        engine = client.engine
        long, short = await client.session(title="long"), await client.session(title="short")
        for text in ("one", "two", "three"):
            await (await engine.submit(long, text)).wait()
        hold = Hold(monkeypatch, long)
        paths = [f"/api/sessions/{long}/export"] * (AT_ONCE + 2)
        asked = [asyncio.create_task(client.get(path)) for path in paths]
        for _ in range(AT_ONCE):
            assert await asyncio.to_thread(hold.inside.acquire, timeout=30)
        assert not hold.inside.acquire(blocking=False)
        ended = await (await engine.submit(short, "hello")).wait()
        listed = await client.get("/api/sessions")
        told: dict[str, Any] = {one["title"]: one["status"]["state"] for one in listed.json()["sessions"]}
        assert (ended.status, told) == ("completed", {"short": "idle", "long": "idle"})
        assert not any(task.done() for task in asked)
        hold.go_on.set()
        assert {(await task).json()["session"]["id"] for task in asked} == {long}


async def test_questions_put_at_once_move_to_the_long_lane_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found to be long in the middle is asked again from the start, and answered as of one moment."""
    providers = FakeProviders(ScriptedModel([], otherwise=say("yes")))
    async with clew.open(f"sqlite:///{tmp_path}/clew.db", config=clew.Config(), providers=providers) as engine:
        session_id = (await engine.create_session()).id
        for text in ("one", "two", "three"):
            await (await engine.submit(session_id, text)).wait()
        threads: list[str] = []

        async def ask(moment: Any) -> tuple[Any, Any]:
            threads.append(threading.current_thread().name.rpartition("_")[0])
            return await moment.find_session(session_id), await moment.load_tree(session_id)

        found = await engine.store.at_once(session_id, ask)
        assert threads == ["clew-reader", "clew-long-reader"]
        assert found == (await engine.store.find_session(session_id), await engine.store.load_tree(session_id))


async def test_long_work_shortens_turns_and_puts_back_what_was_set() -> None:
    """Only while it goes on, and only once for all that goes on."""
    usual = sys.getswitchinterval()
    during = await asyncio.gather(*(run_long(sys.getswitchinterval) for _ in range(3)))
    with giving_way(), giving_way():
        inner = sys.getswitchinterval()
    assert {*during, inner} == {inner}
    assert inner < usual
    assert sys.getswitchinterval() == usual
