"""Sessions of other programs over HTTP: they go on, each owner has their own, and garbage leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

import clew
from clew.interop.programs.import_report import Program
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.integration.http_client import served
from tests.integration.moved_in import PROGRAMS, told

FILES = {
    "claude-code": PROGRAMS / "claude-code/2.1/-home-ada-maze/5e551011-0000-4000-8000-000000000001.jsonl",
    "codex": next((PROGRAMS / "codex/0.80/sessions").rglob("*.jsonl")),
    "pi": next((PROGRAMS / "pi/3").rglob("*.jsonl")),
}
SUMMARY = "They look for the thread; it is at the door."


def opencode() -> bytes:
    """The session of the files as ``opencode export`` writes it, behind its line for people."""
    root = PROGRAMS / "opencode/files/storage"

    def read(file: Path) -> Any:
        return json.loads(file.read_text())

    messages = [
        {"info": read(file), "parts": [read(part) for part in sorted((root / "part" / file.stem).glob("*"))]}
        for file in sorted(root.glob("message/*/*"))
    ]
    [info] = map(read, root.glob("session/*/*"))
    return b"Exporting session\n" + json.dumps({"info": info, "messages": messages}).encode()


def data_of(program: str) -> bytes:
    return opencode() if program == "opencode" else FILES[program].read_bytes()


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("program", [*FILES, "opencode"])
async def test_a_session_that_came_goes_on_with_its_history(program: str) -> None:
    """The model is sent the summary, then what follows it, with a result for each call; then it answers."""
    model = ScriptedModel((say("Here."),))
    async with served(providers=FakeProviders(model)) as client:
        came = await client.post(f"/api/import-from?program={program}", data_of(program))
        assert (came.status, came.json()["outcome"]) == (200, "new")
        session = came.json()["session_id"]
        assert (await client.prompt(session, "And now?", model="test/model")).status == 202
        await client.idle(session)
        sent = model.requests[0].messages
        words = [(message.role, *message.texts) for message in sent]
        assert (SUMMARY in words[0][1], words[-1]) == (True, ("user", "And now?"))
        assert ("user", "Go on.") in words
        assert all("left behind" not in text for _, *texts in words for text in texts)
        calls = [part for message in sent for part in message.parts if "toolCallId" in part]
        assert calls
        assert all(part["state"] in ("output-available", "output-error") for part in calls)
        shown = await client.messages(session)
        assert shown[-1]["parts"][-1]["text"] == "Here."


@pytest.mark.rule("IO-1")
@pytest.mark.rule("OW-1")
async def test_each_owner_brings_a_session_of_their_own(tmp_path: Path) -> None:
    """The same file of two owners is two sessions, under one name each; nobody sees the other's."""
    async with clew.open(f"sqlite:///{tmp_path}/s.db", providers=FakeProviders(ScriptedModel(()))) as engine:
        ada, bob = engine.scoped("ada", roots=[tmp_path]), engine.scoped("bob", roots=[tmp_path])
        first, second = [await one.import_from("pi", data_of("pi")) for one in (ada, bob)]
        assert (first.outcome, second.outcome, first.session_id != second.session_id) == ("new", "new", True)
        assert [(await one.import_from("pi", data_of("pi"))).outcome for one in (ada, bob)] == ["same", "same"]
        assert [session.id for session in (await bob.list_sessions()).sessions] == [second.session_id]
        name = "pi:0198b000-0000-7000-8000-000000000001"
        assert [(await one.get_session(name)).id for one in (ada, bob)] == [first.session_id, second.session_id]
        with pytest.raises(clew.SessionNotFound):
            await bob.get_session(first.session_id)


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("store", ["memory:", "jsonl:{}/l", "json:{}/j", "sqlite:///{}/s.db"])
async def test_every_store_knows_a_session_that_comes_again(tmp_path: Path, store: str) -> None:
    """Whatever form its ids have; and one that grew gets its new turns in each."""
    lines = data_of("pi").split(b"\n")
    async with clew.open(store.format(tmp_path), providers=FakeProviders(ScriptedModel(()))) as engine:
        cuts = [lines[:6], lines[:6], lines[:12], lines]
        came = [await engine.import_from("pi", b"\n".join(cut)) for cut in cuts]
        assert [one.outcome for one in came] == ["new", "same", "grown", "grown"]
        prompts = sum(message.is_prompt for message in await engine.messages(came[0].session_id, view="all"))
        assert sum(one.turns for one in came) == prompts == 4
        assert {one.session_id for one in came} == {came[0].session_id}
        assert [one.texts for one in await engine.messages(came[0].session_id)][-2:] == [["Go on."], []]


@pytest.mark.rule("IO-1", "IO-2")
@pytest.mark.parametrize("program", ["claude-code", "pi"])
async def test_what_went_out_again_changes_nothing_when_it_comes_back(
    program: Literal["claude-code", "pi"], tmp_path: Path
) -> None:
    """Its lines have other ids there; nobody went on with it here, and nobody is said to have."""
    async with clew.open(f"sqlite:///{tmp_path}/s.db", providers=FakeProviders(ScriptedModel(()))) as engine:
        came = await engine.import_from(program, data_of(program))
        before = told(json.loads(await engine.export(came.session_id, redact=False)))
        sent = await engine.export(came.session_id, program, redact=False)
        back = await engine.import_from(program, sent)
        assert (back.session_id, back.outcome, back.turns) == (came.session_id, "apart", 0)
        assert back.why == "it was continued here: new content of the file was not imported"
        assert told(json.loads(await engine.export(came.session_id, redact=False))) == before


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.rule("IO-1", "ST-12")
@pytest.mark.parametrize("program", [*FILES, "opencode"])
async def test_what_comes_is_the_same_on_postgresql(program: Program, tmp_path: Path, postgres_store_url: str) -> None:
    """All that an export tells of it, and that it is known when it comes again."""
    came: list[tuple[list[str], dict[str, Any]]] = []
    for store in (f"sqlite:///{tmp_path}/s.db", postgres_store_url):
        async with clew.open(store, providers=FakeProviders(ScriptedModel(()))) as engine:
            twice = [await engine.import_from(program, data_of(program)) for _ in range(2)]
            whole = json.loads(await engine.export(twice[0].session_id, redact=False))
            came.append(([one.outcome for one in twice], told(whole)))
    assert came[0] == came[1]
    assert came[0][0] == ["new", "same"]


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("body", [b"", b"{}", b"no", b'{"info": 5}', b"\xff\xfe", b"[" * 100_000, b"\x28\xb5\x2f\xfd"])
async def test_garbage_is_refused_and_leaves_nothing(body: bytes) -> None:
    """Of every program; one that is not known is refused, too."""
    async with served() as client:
        for program in (*FILES, "opencode", "word"):
            answer = await client.post(f"/api/import-from?program={program}", body)
            assert answer.status in (400, 422)
        assert (await client.get("/api/sessions")).json()["sessions"] == []
