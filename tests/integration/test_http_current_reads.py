"""Pages of messages and lists of sessions say what the store says, whatever happened since they were read."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.fronts.http.sse import closing as closing_stream
from clew.live.base import Status
from clew.providers.base import ModelRequest
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.integration.http_client import HOST, TOKEN, AsgiClient, served
from tests.rig.program_002 import Program002
from tests.rounds import rounds

LIST = "/api/sessions?limit=3"


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, rounds(8)))])
async def test_what_is_kept_is_what_is_stored_whatever_happened(tmp_path: Path, seed: int) -> None:
    """Prompts, failures, rewinds, edits, compactions, sessions made, renamed, put away and deleted, runs that go on
    meanwhile, and other programs that write to the same file: each time against a server that keeps nothing."""
    path, chance, gate = tmp_path / "s.db", random.Random(seed), asyncio.Event()

    class Held(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
            await gate.wait()
            async for chunk in super().stream(request):
                yield chunk

    providers = FakeProviders(Held(otherwise=say("a word")))
    kinds = ["say", "say", "run", "rename", "archive", "new", "rewind", "compact", "delete", "foreign", "status"]
    async with served(providers=providers, store=f"sqlite:///{path}") as client:
        engine, ids = client.engine, [await client.session(title=f"s{n}") for n in range(4)]

        async def compare() -> None:
            asked = [LIST, "/api/sessions?archived=true", *(f"/api/sessions/{one}/messages?limit=4" for one in ids)]
            app = make_app(engine, token=TOKEN, hosts={HOST}, streams=Streams())
            fresh = AsgiClient(app, engine, client.streams)
            for one in asked * 2:
                kept, truth = await client.get(one), await fresh.get(one)
                assert (kept.status, kept.body) == (truth.status, truth.body), one

        for n in range(25):
            one = chance.choice(ids)
            users = [row["id"] for row in await client.messages(one) if row["role"] == "user"]
            gate.set()
            match chance.choice(kinds):
                case "say":
                    await client.chat(one, f"prompt {n}", f"u{n}")
                    await client.idle(one)
                case "run":
                    gate.clear()
                    submission = await engine.submit(one, f"prompt {n}")
                    assert submission.stream is not None
                    async with closing_stream(submission.stream.follow(replay=False)) as shown:
                        await anext(shown)
                    await compare()
                    gate.set()
                    await submission.wait()
                    await client.idle(one)
                case "rename":
                    await client.request("PATCH", f"/api/sessions/{one}", {"title": f"title {n}"})
                case "archive":
                    await client.request("PATCH", f"/api/sessions/{one}", {"archived": chance.random() < 0.5})
                case "new":
                    ids.append(await client.session(title=f"n{n}"))
                case "rewind" if users:
                    await client.post(f"/api/sessions/{one}/rewind", {"message_id": chance.choice(users)})
                case "status":
                    engine.host.live.set_status(one, Status("error", message=f"it failed {n}"))
                case "compact":
                    await client.post(f"/api/sessions/{one}/compact", {})
                case "delete" if len(ids) > 2:
                    await client.request("DELETE", f"/api/sessions/{one}")
                    ids.remove(one)
                case "foreign":
                    with closing(Program002(path)) as program:
                        program.say(one, f"theirs {n}")
                        program.answer(one, "said")
                    await compare()
                    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                        connection.execute(
                            "UPDATE chat_sessions SET metadata_json = json_set(metadata_json, '$.title', 'theirs')"
                        )
            await compare()


@pytest.mark.parametrize("name", ["workspace", "%77orkspace"])
async def test_a_list_by_a_name_of_a_folder_follows_where_that_leads(tmp_path: Path, name: str) -> None:
    """The disk says it, and not the store, however the name of the filter is spelt."""
    link = tmp_path / "link"
    async with served(store=f"sqlite:///{tmp_path}/s.db") as client:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            await client.engine.create_session(title=folder, workspace_root=tmp_path / folder)
        for folder in ("one", "two"):
            link.unlink(missing_ok=True)
            link.symlink_to(tmp_path / folder)
            listed = (await client.get(f"/api/sessions?{name}={link}")).json()["sessions"]
            assert [one["title"] for one in listed] == [folder]
