"""What the page asks for beside the conversation: the server, the samples, a turn off the line, the files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import __version__
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.fronts.samples import SAMPLES, fill
from clew.session.api import Engine
from clew.store.unit import Outcome, Unit
from clew.testing.scripted import call, cut_after, fail, hang, say
from tests.integration.http_client import HOST, TOKEN, AsgiClient, served, texts

LABELS = ["demo:branches", "demo:compacted", "demo:waiting", "demo:queue", "demo:long"]


async def test_the_server_says_what_it_is_and_where_it_was_started(tmp_path: Path) -> None:
    """Only to who has the token; the file of the store is not named."""
    async with demo_client(tmp_path) as client:
        answer = await client.get("/api/server")
        assert (answer.status, answer.json()) == (
            200,
            {
                "version": __version__,
                "store": "memory",
                "workspace_root": str(tmp_path),
                "chunk_durable": True,
                "search": True,
                "losses": [],
                "owner": None,
                "triggers": True,
            },
        )
        assert (await client.get("/api/server", headers={"authorization": None})).status == 401
    async with served(store=f"sqlite:///{tmp_path}/s.db") as client:
        told = (await client.get("/api/server")).json()
        assert (told["store"], told["workspace_root"], told["search"]) == ("sqlite", None, True)


@contextlib.asynccontextmanager
async def demo_client(folder: Path, store: str = "memory:") -> AsyncIterator[AsgiClient]:
    """The real providers, in a server that was started in a folder."""
    async with clew.open(store) as engine:
        streams = Streams()
        app = make_app(engine, token=TOKEN, hosts={HOST}, streams=streams, workspace_root=folder)
        yield AsgiClient(app, engine, streams)


async def test_the_samples_are_made_once_however_many_ask(tmp_path: Path) -> None:
    """Two at once get the same; so does who comes later, and one who left early took nothing away."""
    async with demo_client(tmp_path) as client:
        created = client.engine.subscribe()
        gone = asyncio.ensure_future(client.post("/api/examples"))
        assert (await anext(created)).type == "session_created"
        gone.cancel()
        first, second = await asyncio.gather(client.post("/api/examples"), client.post("/api/examples", {}))
        assert (first.status, second.status, first.body) == (200, 200, second.body)
        assert [session["label"] for session in first.json()["sessions"]] == LABELS
        assert (await client.post("/api/examples")).body == first.body
        listed = (await client.get("/api/sessions?limit=200")).json()["sessions"]
        assert len(listed) == 7
        assert len({session["title"] for session in listed}) == 7


async def test_a_server_whose_folder_is_gone_makes_no_samples() -> None:
    """They need one to work in; the answer says so."""
    async with served() as client:
        answer = await client.post("/api/examples")
        assert (answer.status, answer.code) == (409, "conflict")


async def test_making_the_long_sample_leaves_the_loop_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written in many small units, and between any two of them others have their turn."""
    monkeypatch.setattr("clew.fronts.samples.SAMPLES", {"demo:long": SAMPLES["demo:long"]})
    async with clew.open("memory:") as engine:
        others = 0
        seen: list[int] = []
        commit = engine.store.commit

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        async def watched(unit: Unit) -> Outcome:
            if len(unit.writes) > 10:
                seen.append(others)
            return await commit(unit)

        monkeypatch.setattr(engine.store, "commit", watched)
        task = asyncio.ensure_future(other())
        await fill(engine, tmp_path)
        task.cancel()
    assert (len(seen), len(set(seen))) == (20, 20)


async def test_what_was_left_half_made_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its branches, so that no two have one title; sessions of the user's with such a title stay."""

    async def broken(engine: Engine, session_id: str) -> None:
        await make(engine, session_id)
        raise RuntimeError("the power went")

    title, make = SAMPLES["demo:branches"]
    samples = dict(SAMPLES)
    async with clew.open("memory:") as engine:
        own = await engine.create_session(title="Sample: of mine")
        monkeypatch.setattr("clew.fronts.samples.SAMPLES", {**samples, "demo:branches": (title, broken)})
        with pytest.raises(RuntimeError):
            await fill(engine, tmp_path)
        assert len((await engine.list_sessions()).sessions) == 4
        monkeypatch.setattr("clew.fronts.samples.SAMPLES", samples)
        made = await fill(engine, tmp_path)
        assert [(session.label, session.workspace_root) for session in made] == [
            (label, str(tmp_path)) for label in LABELS
        ]
        left = (await engine.list_sessions()).sessions
        assert sorted(str(session.title) for session in left) == sorted({str(session.title) for session in left})
        assert (len(left), own.id in {session.id for session in left}) == (8, True)
        assert all("sample" not in session.metadata for session in made)


async def test_the_messages_of_a_turn_are_there_after_a_rewind() -> None:
    """As they were on the line, by the turn's id; one that does not exist is 404."""
    async with served(say("one"), say("two"), say("three")) as client:
        session = await client.session()
        for number, words in enumerate(("a", "b", "c")):
            await client.chat(session, words, f"u{number}")
        before = await client.messages(session)
        turn = before[2]["metadata"]["turn_id"]
        assert (await client.get(f"/api/turns/{turn}/messages")).json() == {"messages": before[2:4]}
        assert (await client.post(f"/api/sessions/{session}/rewind", {"message_id": "u0"})).status == 200
        off = (await client.get(f"/api/turns/{turn}/messages")).json()["messages"]
        assert [(m["role"], texts(m), m["metadata"]["turn_id"], m["metadata"]["hidden_by"]) for m in off] == [
            ("user", "b", turn, "rewind"),
            ("assistant", "two", turn, "rewind"),
        ]
        assert (await client.get("/api/turns/trn_" + "0" * 26 + "/messages")).code == "turn_not_found"
        assert (await client.get("/api/turns/nonsense/messages")).code == "invalid_id"


async def test_the_files_of_the_line_are_listed(tmp_path: Path) -> None:
    """Those a rewind took off it are not; a session without any has an empty list."""
    (tmp_path / "a.txt").write_text("hello")
    script: list[Any] = [
        call("read", {"path": "a.txt"}),
        say("done"),
        call("read", {"path": str(tmp_path / "a.txt")}),
        say("again"),
    ]
    async with served(*script) as client:
        session = await client.session(workspace_root=str(tmp_path))
        files = f"/api/sessions/{session}/files"
        assert (await client.get(files)).json() == {"files": [], "next_cursor": None}
        for number in range(2):
            await client.chat(session, "look", f"u{number}")
        [one] = (await client.get(files)).json()["files"]
        messages = await client.messages(session)
        last_at = one.pop("last_at")
        assert last_at >= messages[-1]["metadata"]["created_at"]
        assert one == {
            "path": "a.txt",
            "read": True,
            "modified": False,
            "count": 2,
            "changes": 0,
            "last_turn_id": messages[-1]["metadata"]["turn_id"],
        }
        newest = (await client.get(f"{files}?limit=1")).json()
        assert [newest["files"][0]["count"], newest["next_cursor"]] == [1, messages[0]["metadata"]["turn_id"]]
        # The head goes back to where the cursor is: what that leads to is the same.
        await client.post(f"/api/sessions/{session}/rewind", {"message_id": "u1", "mode": "edit"})
        older = (await client.get(f"{files}?limit=1&cursor={newest['next_cursor']}")).json()
        assert older == (await client.get(files)).json()
        assert (await client.get(f"{files}?limit=1&cursor=trn_{'0' * 26}")).code == "turn_not_found"
        [one] = (await client.get(files)).json()["files"]
        assert (one["count"], one["last_turn_id"]) == (1, messages[0]["metadata"]["turn_id"])
        assert (await client.get(f"/api/sessions/ses_{'0' * 26}/files")).code == "session_not_found"


async def ends(client: AsgiClient, session: str, view: str = "visible") -> list[tuple[str, Any]]:
    answer = await client.get(f"/api/sessions/{session}/messages?view={view}")
    return [(m["role"], m["metadata"].get("turn")) for m in answer.json()["messages"]]


async def test_how_a_turn_ended_is_in_its_messages() -> None:
    """A failure before and after the first word, an abort; in the views for people, not in the model's."""
    script: list[Any] = [fail(401), say("well"), cut_after(3, say("half an answer"), by=fail(400)), [say("no"), hang()]]
    async with served(*script) as client:
        session = await client.session()
        await client.chat(session, "one", "u1")
        role, told = (await ends(client, session))[-1]
        assert (told["status"], sorted(told["error"])) == ("failed", ["cause", "code", "message"])
        await client.chat(session, "two", "u2")
        assert (await ends(client, session))[-1] == ("assistant", None)
        await client.chat(session, "three", "u3")
        role, told = (await ends(client, session))[-1]
        assert (role, told["status"], sorted(told["error"])) == ("assistant", "failed", ["cause", "code", "message"])
        await client.prompt(session, "four")
        await client.post(f"/api/sessions/{session}/abort")
        await client.idle(session)
        assert (await ends(client, session))[-1][1] == {"status": "aborted", "stopped": "aborted by the user"}
        assert [told and told["status"] for _, told in await ends(client, session, "all") if told] == [
            "failed",
            "failed",
            "aborted",
        ]
        assert [told for _, told in await ends(client, session, "model") if told] == []


async def test_a_request_says_which_rule_asked_and_why(tmp_path: Path) -> None:
    """In the part that waits: the rule with its scope, what it asked about, and a sentence."""
    rules = [{"permission": "bash", "pattern": "touch *", "action": "ask"}]
    async with served(call("bash", {"command": "touch b"})) as client:
        session = await client.session(workspace_root=str(tmp_path))
        assert (await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": rules})).status == 200
        await client.chat(session, "go", "u1")
        [part] = [part for part in (await client.messages(session))[-1]["parts"] if "approval" in part]
        told = part["approval"]["descriptor"]
        assert (told["rule"]["permission"], told["rule"]["pattern"], told["rule"]["action"]) == (
            "bash",
            "touch *",
            "ask",
        )
        assert (told["scope"], told["target"]["value"]) == ("session", "touch b")
        assert told["reason"] == "the session rule `bash touch *` asks"
