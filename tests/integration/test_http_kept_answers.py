"""Pages of messages and lists of sessions that are answered from memory say what the store says."""

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
from clew.fronts.http.kept_answers import KeptAnswers, Place
from clew.fronts.http.sse import Streams
from clew.fronts.http.sse import closing as closing_stream
from clew.live.base import Status
from clew.providers.base import ModelRequest
from clew.store.sql.sqlite.pool import ReaderPool
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.integration.http_client import HOST, TOKEN, AsgiClient, served
from tests.rig.program_002 import Program002
from tests.rounds import rounds

LIST = "/api/sessions?limit=3"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The sessions that were read, one by one."""
    read: list[str | None] = []
    run, at_once = ReaderPool.run, ReaderPool.at_once

    async def ran(self: ReaderPool, call: Any, session_id: str | None = None, **how: Any) -> Any:
        read.append(session_id)
        return await run(self, call, session_id, **how)

    async def asked(self: ReaderPool, ask: Any, session_id: str | None = None, **how: Any) -> Any:
        read.append(session_id)
        return await at_once(self, ask, session_id, **how)

    monkeypatch.setattr(ReaderPool, "run", ran)
    monkeypatch.setattr(ReaderPool, "at_once", asked)
    return read


async def test_what_has_not_changed_is_read_once(tmp_path: Path, reads: list[str | None]) -> None:
    """A page and the list: again after a prompt, and neither for what happens in another session's stream."""
    providers = FakeProviders(ScriptedModel(otherwise=say("yes")))
    async with served(providers=providers, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id, other = await client.session(title="a"), await client.session(title="b")
        await client.chat(session_id, "hello", "u1")
        await client.idle(session_id)
        pages = [f"/api/sessions/{one}/messages?limit=20" for one in (session_id, other)]
        for path in (*pages, LIST):
            answers = [(await client.get(path)).body for _ in range(2)]
            # The first look at a session finds out whether others have written to it.
            reads.clear()
            assert [(await client.get(path)).body for _ in range(2)] == answers
            assert reads == []
        await client.chat(session_id, "more", "u2")
        await client.idle(session_id)
        reads.clear()
        texts = [(await client.get(path)).body.count(b'"role"') for path in pages]
        assert (texts, reads) == ([4, 0], [session_id])
        listed = (await client.get(LIST)).json()["sessions"]
        assert ([one["title"] for one in listed], reads) == (["a", "b"], [session_id, None])


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


async def test_answers_that_are_kept_have_a_bound_in_bytes() -> None:
    """What was used longest ago goes first; one that is larger than all of it is not kept."""
    async with served() as client:
        kept = KeptAnswers(client.engine, max_bytes=20_000)
        places = [Place("s", b"%d" % n, 1) for n in range(40)]
        for n, place in enumerate(places):
            kept.keep(place, None, bytes(100 * (n % 7)))
            assert kept.bytes <= 20_000
            kept.find(places[0])
        held = [kept.find(place) is not None for place in places]
        assert (held[0], held[1], held[-1]) == (True, False, True)
        kept.keep(places[0], None, bytes(30_000))
        assert kept.find(places[0]) is None
