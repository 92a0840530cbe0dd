"""``clew rebuild``: a store made anew from its event log, from the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import clew
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, wait
from clew.testing.scripted import say as answer
from tests.integration.test_cli_history import Say, say, talk

__all__ = ["say"]


@pytest.mark.rule("ST-10")
def test_a_store_is_rebuilt_from_its_log_and_compared(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switched on in the settings after a talk; a row changed behind the log's back is told, and is exit code 7."""
    session = talk("first", "second")
    code, _, err = say("rebuild", str(tmp_path / "early.db"))
    assert (code, "event_log = true" in err) == (2, True)
    folder = tmp_path / "settings" / "clew"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("event_log = true\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    assert say("archive", session)[0] == 0
    target = tmp_path / "rebuilt.db"
    code, out, _ = say("rebuild", str(target))
    assert code == 0
    assert out.endswith(f" facts, 1 sessions, equal to the store: {target}\n")
    assert say("show", session, "--store", f"sqlite:///{target}") == say("show", session)
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE chat_sessions SET agent = 'another'")
    code, out, _ = say("rebuild", str(tmp_path / "second.db"), "--json")
    told = json.loads(out)
    assert (code, told["sessions"], len(told["differences"])) == (7, 1, 1)
    assert told["differences"][0] == {"what": "a row of chat_sessions differs", "session_id": None, "id": session}
    code, out, _ = say("rebuild", str(tmp_path / "third.db"))
    assert (code, out.splitlines()[0]) == (7, f"{session}: a row of chat_sessions differs")


@pytest.mark.rule("ST-10", "ST-13")
def test_a_log_of_a_version_that_did_not_hide_what_was_cancelled_gives_back_the_store(say: Say, tmp_path: Path) -> None:
    """The store was brought up to date when it was opened; its log says what was said then."""
    gate, path = Gate(), tmp_path / "store.db"
    providers = FakeProviders(ScriptedModel([[wait(gate), answer("one")]]))

    async def cancel() -> None:
        config = clew.Config(event_log=True)
        async with clew.open(f"sqlite:///{path}", config=config, providers=providers) as engine:
            session = await engine.create_session(title="a")
            first = await engine.submit(session.id, "go")
            await gate.reached.wait()
            await engine.submit(session.id, "never")
            [queued] = await engine.queue(session.id)
            await engine.cancel_queued(session.id, queued.id)
            gate.set()
            await first.wait()

    asyncio.run(cancel())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        told = "UPDATE event_log SET data_json = json_remove(data_json, '$.metadata.hidden_at', '$.metadata.hidden_by')"
        assert connection.execute(f"{told} WHERE data_json LIKE '%cancelled_at%'").rowcount == 1
    code, out, _ = say("rebuild", str(tmp_path / "rebuilt.db"))
    assert (code, "equal to the store" in out) == (0, True), out


@pytest.mark.rule("ST-10", "ST-11", "ST-13")
def test_a_session_that_another_program_deleted_leaves_the_log_too(say: Say, tmp_path: Path) -> None:
    """At the next opening: nothing of what was said stays in the file, and a rebuilt store does not have it."""
    kept, deleted = talk("kept"), talk("a secret word")
    path = tmp_path / "store.db"

    async def keep() -> None:
        async with clew.open(f"sqlite:///{path}", config=clew.Config(event_log=True)):
            pass

    asyncio.run(keep())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM chat_sessions WHERE id = ?", (deleted,))
    asyncio.run(keep())
    with closing(sqlite3.connect(path)) as connection:
        facts = list(connection.execute("SELECT type FROM event_log WHERE stream_id = ?", (deleted,)))
    code, out, _ = say("rebuild", str(tmp_path / "rebuilt.db"))
    assert (facts, code, " 1 sessions, equal to the store" in out) == ([("session.deleted",)], 0, True), out
    assert kept in say("ls", "--store", f"sqlite:///{tmp_path}/rebuilt.db")[1]
