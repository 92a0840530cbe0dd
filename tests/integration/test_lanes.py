"""Reads that go over much of a store, and reads of a few rows: the second never wait for the first."""

from __future__ import annotations

import asyncio
import gc
import socket
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import StoreClosed
from clew.fronts.http import serve
from clew.fronts.token import Token
from clew.long_work import AT_ONCE, let_go
from clew.session.history.check import check
from clew.store.base import get_session
from clew.store.sql import line_reader, statements
from clew.store.sql.statements import Statements
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.turn import Tree
from tests.integration.http_client import served


class Hold:
    """Keeps every read of one session's tree until it is told to let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session_id: str) -> None:
        self.inside = threading.Semaphore(0)
        self.go_on = threading.Event()
        load = line_reader.load_tree

        def held(sql: Statements, named: str) -> Tree:
            if named == session_id:
                self.inside.release()
                assert self.go_on.wait(60)
            return load(sql, named)

        monkeypatch.setattr(line_reader, "load_tree", held)


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
            assert await asyncio.to_thread(hold.inside.acquire, timeout=60)
        assert not hold.inside.acquire(blocking=False)
        ended = await (await engine.submit(short, "hello")).wait()
        listed = await client.get("/api/sessions")
        told: dict[str, Any] = {one["title"]: one["status"]["state"] for one in listed.json()["sessions"]}
        assert (ended.status, told) == ("completed", {"short": "idle", "long": "idle"})
        assert not any(task.done() for task in asked)
        hold.go_on.set()
        assert {(await task).json()["session"]["id"] for task in asked} == {long}


async def test_a_near_view_of_a_long_session_is_none_until_its_line_is_kept(tmp_path: Path) -> None:
    """So a prompt is stored before much is read for the model."""
    providers = FakeProviders(ScriptedModel([], otherwise=say("yes")))
    store = f"sqlite:///{tmp_path}/clew.db"
    async with clew.open(store, providers=providers) as engine:
        session = await engine.create_session()
        for text in ("one", "two", "three"):
            await (await engine.submit(session.id, text)).wait()
    async with clew.open(store, providers=providers) as engine:

        async def near() -> Any:
            return await engine.store.find_view(session.id, keep_damaged=True, kept=True, near=True)

        assert await near() is None
        await (await engine.submit(session.id, "four")).wait()
        view = await near()
        assert view == await engine.store.find_view(session.id, keep_damaged=True)
        assert len(view.turns) == 4


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


async def test_what_another_program_just_wrote_is_taken_in_before_questions_are_answered(tmp_path: Path) -> None:
    """They are put in a reader's thread, however recently the session was written; and not once the store is closed."""
    async with clew.open(f"sqlite:///{tmp_path}/clew.db", config=clew.Config()) as engine:
        session_id, store = (await engine.create_session(title="old")).id, engine.store
        threads: list[str] = []

        async def title(moment: Any) -> str | None:
            threads.append(threading.current_thread().name.rpartition("_")[0])
            return (await get_session(moment, session_id)).title

        assert await store.at_once(session_id, title) == "old"
        with closing(sqlite3.connect(tmp_path / "clew.db")) as other, other:
            other.execute("UPDATE chat_sessions SET metadata_json = json_set(metadata_json, '$.title', 'new')")
        assert await store.at_once(session_id, title) == "new"
        await engine.patch_session(session_id, title="newer")
        assert await store.at_once(session_id, title) == "newer"
        assert threads == ["clew-reader"] * 3
    with pytest.raises(StoreClosed):
        await store.at_once(session_id, title)


async def test_long_work_changes_no_setting_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the switch interval nor the garbage collector: these belong to the program that embeds clew."""
    # Nothing that goes on beside it, as a title that is looked for, is long here.
    monkeypatch.setattr(statements, "FEW_TURNS", 200)
    providers = FakeProviders(ScriptedModel([], otherwise=say("yes")))
    async with served(store=f"sqlite:///{tmp_path}/clew.db", providers=providers) as client:
        session_id = await client.session()
        for text in ("one", "two", "three"):
            await (await client.engine.submit(session_id, text)).wait()
        changed: list[object] = []
        monkeypatch.setattr(sys, "setswitchinterval", changed.append)
        for name in ("set_threshold", "disable", "freeze"):
            monkeypatch.setattr(gc, name, lambda *given: changed.append(given))
        for path in ("export", "export?format=html", "messages?view=all", "messages", "messages?view=model"):
            assert (await client.get(f"/api/sessions/{session_id}/{path}")).status == 200
        exported = (await client.get(f"/api/sessions/{session_id}/export")).json()
        assert (await client.post("/api/import", exported)).status == 201
        assert await check(client.engine.store) == []
        assert changed == []


async def test_much_is_freed_beside_the_loop_once_nobody_has_it() -> None:
    """One after the other, in a thread for long work; a few are freed where they are."""
    freed: list[bool] = []
    done = threading.Event()

    class Row:
        def __del__(self) -> None:
            freed.append(threading.current_thread() is threading.main_thread())
            if len(freed) == 2_000:
                done.set()

    def hold(count: int) -> None:
        rows = tuple(Row() for _ in range(count))
        let_go(rows)

    hold(2_000)
    await asyncio.sleep(0)
    assert await asyncio.to_thread(done.wait, 60)
    assert freed == [False] * 2_000
    freed.clear()
    hold(3)
    assert freed == [True] * 3


async def test_a_server_that_is_up_does_not_go_through_what_it_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told before it says where it is, and only there: an engine in somebody's program leaves it alone."""
    stop = serve._Stop()
    said: list[str] = []

    def freeze() -> None:
        said.append(capsys.readouterr().out)
        stop.requested.set()

    monkeypatch.setattr(gc, "freeze", freeze)
    async with clew.open("memory:"):
        assert said == []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        await serve._serve("memory:", None, listener, Token("t", chosen=False), stop, open_page=False)
    assert said == [""]
    assert capsys.readouterr().out.startswith("clew http://127.0.0.1:")
