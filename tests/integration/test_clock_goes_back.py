"""Rows of a session sort by their times as its conversation goes, also when the clock goes back (002)."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.providers.base import ProviderFailure
from clew.session.api import Engine
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from tests.acceptance.compacting import summary
from tests.rig.program_002 import Program002

pytestmark = pytest.mark.rule("ST-16")

_NOON = 1_790_000_000_000
_HOUR = 3_600_000


@pytest.fixture(params=["sqlite", "postgresql", "jsonl", "json"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_store_url"))
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else f"{request.param}:{tmp_path}/files"


@asynccontextmanager
async def opened(store: str, clock: FakeClock, *script: Any) -> AsyncIterator[Engine]:
    live: Any = {"live": "local"} if store.startswith("postgres") else {}
    providers = FakeProviders(ScriptedModel(script))
    async with clew.open(store, clock=clock, providers=providers, config=clew.Config(), **live) as engine:
        yield engine


async def new_session(engine: Engine) -> str:
    return (await engine.create_session(metadata={"workerId": "w", "workspaceId": "w"})).id


async def assert_in_order(engine: Engine, session_id: str, roles: str) -> None:
    """All rows by time are the conversation, and no part is older than its message or than the part before it."""
    shown = await engine.messages(session_id)
    assert "".join(message.role[0] for message in shown) == roles
    by_time = await engine.messages(session_id, view="all")
    assert [message.id for message in by_time] == [message.id for message in shown]
    times = [message.metadata["created_at"] for message in shown]
    assert times == sorted(times)
    for message in shown:
        row = await engine.store.find_message(session_id, message.id)
        assert row is not None
        if message.role == "user":
            continue  # one that was queued was written before it was sent
        made = [row.created_at, *(part.created_at for part in row.parts)]
        assert made == sorted(made)
        assert all(part.updated_at >= part.created_at for part in row.parts)
        assert row.updated_at >= row.created_at


async def ask(engine: Engine, session_id: str, text: str, **options: Any) -> None:
    await (await engine.submit(session_id, text, **options)).wait()


async def test_turns_of_one_process_stay_in_order(store: str) -> None:
    """With calls of tools, after an hour back, and again after another."""
    clock = FakeClock(_NOON)
    look = [call("read", {"path": "nothing.txt"})]
    async with opened(store, clock, say("one"), look, say("two"), say("three"), say("four")) as engine:
        session_id = await new_session(engine)
        await ask(engine, session_id, "first")
        for text in ("second", "third", "fourth"):
            clock.set_wall(clock.now_ms() - _HOUR)
            await ask(engine, session_id, text)
        await assert_in_order(engine, session_id, "uauauaua")


async def test_a_clock_that_goes_back_while_a_turn_runs_or_waits_in_the_queue(store: str) -> None:
    """The answer under way, what is queued behind it, and what comes of that."""
    clock, gate = FakeClock(_NOON), Gate()
    async with opened(store, clock, [wait(gate), say("one")], say("two"), say("three")) as engine:
        session_id = await new_session(engine)
        first = await engine.submit(session_id, "first")
        await gate.reached.wait()
        clock.set_wall(clock.now_ms() - _HOUR)
        second = await engine.submit(session_id, "second")
        clock.set_wall(clock.now_ms() - _HOUR)
        gate.set()
        await first.wait()
        await second.wait()
        await ask(engine, session_id, "third")
        await assert_in_order(engine, session_id, "uauaua")


@pytest.mark.parametrize("how", ["prompt", "continue", "again"])
async def test_a_restart_with_an_older_clock(store: str, how: str) -> None:
    """Another process, whose ids are older than those that are there."""
    down = ProviderFailure("down", kind="invalid", provider_id="test")
    async with opened(store, FakeClock(_NOON), say("one"), down) as engine:
        session_id = await new_session(engine)
        await ask(engine, session_id, "first")
        if how != "prompt":
            await ask(engine, session_id, "second", message_id="mine")
    async with opened(store, FakeClock(_NOON - _HOUR), say("two"), say("three")) as engine:
        if how == "continue":
            await (await engine.continue_turn(session_id)).wait()
        elif how == "again":
            rewound = await engine.rewind(session_id, "mine", run=True)
            assert rewound.submission is not None
            await rewound.submission.wait()
        else:
            await ask(engine, session_id, "second")
        await ask(engine, session_id, "third")
        shown = [
            message for message in await engine.messages(session_id, view="all") if "hidden_at" not in message.metadata
        ]
        assert [message.id for message in shown] == [message.id for message in await engine.messages(session_id)]
        assert shown[-1].parts[-1]["text"] == "three"


@pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
async def test_a_summary_and_what_follows_it(store: str) -> None:
    """The marker stands where it was made."""
    async with opened(store, FakeClock(_NOON), *(say(f"answer {n} " + "word " * 400) for n in range(4))) as engine:
        session_id = await new_session(engine)
        for n in range(4):
            await ask(engine, session_id, f"prompt {n}")
    async with opened(store, FakeClock(_NOON - _HOUR), say(summary("go on")), say("on")) as engine:
        await engine.compact(session_id)
        await ask(engine, session_id, "more")
        rows = await engine.messages(session_id, view="all")
        assert [message.role for message in rows[-3:]] == ["assistant", "user", "assistant"]
        assert rows[-3].metadata.get("summary") is True
        times = [message.metadata["created_at"] for message in rows]
        assert times == [*[_NOON] * 8, _NOON + 1, _NOON + 2, _NOON + 3]


async def test_replicas_whose_clocks_disagree(postgres_store_url: str) -> None:
    """Each takes turns on one session; the one behind by an hour sorts nothing before what it answers."""
    ahead, behind = FakeClock(_NOON), FakeClock(_NOON - _HOUR)
    async with (
        opened(postgres_store_url, ahead, say("one"), say("three")) as one,
        opened(postgres_store_url, behind, say("two"), say("four")) as two,
    ):
        session_id = await new_session(one)
        for n, engine in enumerate((one, two, one, two)):
            await ask(engine, session_id, f"prompt {n}")
        await assert_in_order(one, session_id, "uauauaua")


async def test_another_program_of_the_three_tables_reads_the_same_conversation(tmp_path: Path) -> None:
    """It sorts by time, and knows no turns."""
    path, session_id, expected = tmp_path / "store.db", "", [""]
    for n, text in enumerate(("first", "second", "third")):
        async with opened(f"sqlite:///{path}", FakeClock(_NOON - n * _HOUR), say(f"re {text}")) as engine:
            session_id = session_id or await new_session(engine)
            await ask(engine, session_id, text)
            expected = [message.id for message in await engine.messages(session_id)]
    with closing(Program002(path)) as program:
        assert [message["id"] for message in program.conversation(session_id)] == expected
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT id FROM chat_messages ORDER BY created_at, rowid").fetchall()
    assert [row[0] for row in rows] == expected
