"""What goes with a session that is deleted: its prompts that nobody else names, and what its tools left on disk."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, say, then, wait
from tests.integration.http_client import HOST, TOKEN, AsgiClient

SECRET = "Never tell anybody about the Minotaur."
STORES = ["memory", "sqlite", "jsonl", "json"]


@clew.tool
async def shout(times: int) -> str:
    """Say it loudly."""
    return "MINOTAUR " * times


@contextlib.asynccontextmanager
async def hosting(tmp_path: Path, kind: str, *script: Any, **config: Any) -> AsyncIterator[AsgiClient]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/store.db"}
    url = urls.get(kind, f"{kind}:{tmp_path}/store")
    providers = FakeProviders(ScriptedModel(script, otherwise=say("fine")))
    async with clew.open(url, config=Config(**config), providers=providers, tools=[shout]) as engine:
        streams = Streams()
        yield AsgiClient(make_app(engine, token=TOKEN, hosts={HOST}, streams=streams), engine, streams)


async def prompts_of(engine: Engine, session_id: str) -> set[str]:
    tree = await engine.store.load_tree(session_id)
    return {digest for turn in tree.turns for step in await engine.store.load_steps(turn) for digest in step.prompts}


async def kept(engine: Engine, digests: set[str]) -> set[str]:
    return {digest for digest in digests if await engine.store.find_prompt(digest) is not None}


async def deleted(client: AsgiClient, session_id: str) -> None:
    assert (await client.request("DELETE", f"/api/sessions/{session_id}")).status == 204


def on_disk(tmp_path: Path) -> str:
    """Everything that is stored, as one text."""
    said = []
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        if path.name in ("store.db", "cache.db"):
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                said += [str(row) for row in db.execute("SELECT body FROM system_prompts")]
                said += [str(row) for row in db.execute("SELECT data_json FROM event_log")]
        elif not path.name.startswith(("store.db", "cache.db")):
            said.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(said)


@pytest.mark.rule("ST-11")
@pytest.mark.parametrize("kind", STORES)
async def test_a_system_prompt_nobody_else_names_goes_with_its_session(kind: str, tmp_path: Path) -> None:
    """Those that another session names stay until that one goes, too."""
    async with hosting(tmp_path, kind, event_log=kind in ("memory", "sqlite")) as client:
        engine = client.engine
        first, twin = [await client.session(metadata={"system_prompt": SECRET}) for _ in range(2)]
        other = await client.session()
        for session in (first, twin, other):
            await client.chat(session, "hello")
        secret, plain = await prompts_of(engine, first), await prompts_of(engine, other)
        assert (await prompts_of(engine, twin), len(secret | plain)) == (secret, 3)  # the tools are the same
        await deleted(client, first)
        assert await kept(engine, secret) == secret
        await deleted(client, twin)
        assert await kept(engine, secret | plain) == plain
        assert SECRET not in on_disk(tmp_path)
        await deleted(client, other)
        assert await kept(engine, secret | plain) == set()
        # It comes again with the next session that has it.
        again = await client.session(metadata={"system_prompt": SECRET})
        await client.chat(again, "hello")
        assert await kept(engine, secret) == await prompts_of(engine, again) == secret


@pytest.mark.parametrize("kind", STORES)
async def test_a_prompt_that_a_run_is_about_to_name_is_there_when_it_does(kind: str, tmp_path: Path) -> None:
    """Its twin is deleted between the model's call and the end of the step."""
    gate = Gate()
    async with hosting(tmp_path, kind, say("fine"), then(wait(gate), say("late"))) as client:
        first, second = [await client.session(metadata={"system_prompt": SECRET}) for _ in range(2)]
        await client.chat(first, "hello")
        secret = await prompts_of(client.engine, first)
        await client.prompt(second, "hello")
        await gate.reached.wait()
        await deleted(client, first)
        gate.set()
        await client.idle(second)
        assert await kept(client.engine, secret) == await prompts_of(client.engine, second) == secret


@pytest.mark.parametrize("kind", STORES)
async def test_a_turn_without_a_single_step_leaves_no_prompt_behind(kind: str, tmp_path: Path) -> None:
    """Nothing names it, so nobody would ever take it away."""
    async with hosting(tmp_path, kind, fail(401)) as client:
        session = await client.session(metadata={"system_prompt": SECRET})
        await client.chat(session, "hello")
        assert await prompts_of(client.engine, session) == set()
        await deleted(client, session)
    assert SECRET not in on_disk(tmp_path)


def spilled(*folders: Path) -> list[Path]:
    return [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and "MINOTAUR" in path.read_text()
    ]


async def test_a_memory_store_leaves_nothing_of_a_long_output_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is open the model can read on in a file; afterwards there is none."""
    data, temporary = tmp_path / "data", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    rules = [{"permission": "shout", "pattern": "*", "action": "allow"}]
    async with hosting(tmp_path, "memory", call("shout", {"times": 200_000}), say("heard")) as client:
        session = await client.session()
        await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": rules})
        await client.chat(session, "shout")
        [path] = spilled(temporary)
        assert str(path) in json.dumps(await client.messages(session))
        assert spilled(data) == []
    assert (spilled(data, temporary), list(temporary.iterdir())) == ([], [])


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_a_tool_spilled_goes_with_its_session(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that of another session stays."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shouting = [call("shout", {"times": 200_000}), say("heard")] * 2
    rules = [{"permission": "shout", "pattern": "*", "action": "allow"}]
    async with hosting(tmp_path, kind, *shouting) as client:
        first, second = [await client.session() for _ in range(2)]
        for session in (first, second):
            await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": rules})
            await client.chat(session, "shout")
        assert len(spilled(client.engine.host.spill)) == 2
        await deleted(client, first)
        assert [path.parent.name for path in spilled(client.engine.host.spill)] == [second]
