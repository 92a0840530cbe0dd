"""A damaged index of a store that is opened for reading: rebuilt first, refused, or named; never read as if whole."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import clew
from clew.errors import StoreUnavailable
from clew.testing.scripted import say
from tests.integration.command_line import Run, run
from tests.integration.http_client import served
from tests.integration.sqlite_files import engine_on, path
from tests.integration.test_faults_indexes import damage

__all__ = ["path", "run"]

pytestmark = pytest.mark.rule("ST-14")


async def make(path: Path) -> str:
    """Store two sessions and return the one that has messages; the other one is only listed."""
    async with served(say("in the harbour"), store=f"sqlite:///{path}") as client:
        await client.session(title="only listed")
        session = await client.session(title="asked")
        await client.prompt(session, "where?")
        await client.idle(session)
        return session


@pytest.mark.parametrize(
    ("index", "command"),
    [
        ("chat_sessions_listed", ("ls", "--json")),
        ("chat_turns_by_session", ("tree", "ID")),
        ("chat_turns_by_session", ("show", "ID")),
        ("chat_turns_by_session", ("reflog", "ID")),
        ("model_calls_by_session", ("ls", "--json")),
    ],
)
async def test_a_command_that_only_reads_leaves_nothing_out(
    path: Path, run: Run, index: str, command: tuple[str, ...]
) -> None:
    """The index is rebuilt before the command reads by it."""
    session = await make(path)
    words = [session if word == "ID" else word for word in command]
    known = await asyncio.to_thread(run, *words, "--store", f"sqlite:///{path}")
    assert known[0] == 0, known
    damage(path, index, session)
    found = await asyncio.to_thread(run, *words, "--store", f"sqlite:///{path}")
    assert found[:2] == known[:2]


async def test_a_reader_is_refused_until_the_index_was_rebuilt(path: Path) -> None:
    """It cannot rebuild the index, and says who does."""
    session = await make(path)
    damage(path, "chat_sessions_listed", session)
    with pytest.raises(StoreUnavailable, match="an index of chat_sessions misses rows; open"):
        async with clew.open(f"sqlite:///{path}", config=clew.Config(), read_only=True):
            pass
    async with engine_on(path) as engine:
        listed = await engine.list_sessions()
    async with engine_on(path, read_only=True) as engine:
        assert await engine.list_sessions() == listed
    assert {one.title for one in listed.sessions} == {"asked", "only listed"}


async def test_a_reader_beside_an_owner_logs_the_damage(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The owner compared them when it opened the store; a check beside it goes on to name every problem."""
    session = await make(path)
    async with engine_on(path):
        damage(path, "chat_sessions_listed", session)
        caplog.set_level(logging.WARNING, "clew.store")
        async with engine_on(path, read_only=True) as engine:
            assert engine.store.url == f"sqlite:///{path}"
    assert "chat_sessions is damaged: row " in caplog.text
