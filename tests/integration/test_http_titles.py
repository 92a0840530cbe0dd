"""What sessions are called: first words at once, then a title from a model, and a person's word over both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.providers.base import ModelInfo
from clew.session.prompt.event_replies import EventReplies
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, hang, say, wait
from clew.transcript.session import Model
from tests.integration.http_client import AsgiClient, served

LONG = "please look at " + "every word of " * 8 + "it"
WORDS = "please look at every word of every word of every word of every word of every…"
STORES = ["memory:", "sqlite:///{}/s.db", "json:{}/j", "jsonl:{}/l"]
OWNED = {"workerId": "w", "workspaceId": "p"}
"""What a ``json:`` store wants to know of a session."""
pytestmark = pytest.mark.rule("RN-10")


def providers(answers: list[Any], titles: list[Any]) -> tuple[ScriptedModel, FakeProviders]:
    """A model that answers, and another that is asked for titles."""
    titler = ScriptedModel(titles)
    info = ModelInfo(model=Model("test", "model"), window=200_000, max_output=4_000, titler=Model("cheap", "titler"))
    return titler, FakeProviders({"test": ScriptedModel(answers), "cheap": titler}, infos=[info])


@contextlib.asynccontextmanager
async def named(
    answers: list[Any], titles: list[Any], **options: Any
) -> AsyncIterator[tuple[AsgiClient, ScriptedModel]]:
    titler, fake = providers(answers, titles)
    async with served(providers=fake, **options) as client:
        yield client, titler


async def title(client: AsgiClient, session_id: str) -> Any:
    """The title a list shows, and how clew came by it."""
    listed = (await client.get("/api/sessions?kind=any&ephemeral=true")).json()["sessions"]
    [session] = [one for one in listed if one["id"] == session_id]
    return session["title"], session["metadata"].get("naming")


async def becomes(client: AsgiClient, session_id: str, told: Any) -> None:
    """Wait until the session is called so; naming goes on beside everything else."""
    async with asyncio.timeout(60), client.open("GET", "/api/events") as reply:
        events = reply.frames()
        await anext(events)
        while await title(client, session_id) != told:
            await anext(events)


async def prompt(client: AsgiClient, session_id: str, text: str = "go on") -> None:
    await client.prompt(session_id, text)
    await client.idle(session_id)


async def test_a_session_has_its_first_words_at_once_and_then_a_title() -> None:
    """As soon as the message is taken, cut at a word; the model that names is told what was asked."""
    gate = Gate()
    async with named([[wait(gate), say("a")], say("b")], [say('"Every word"\n')]) as (client, titler):
        session_id = await client.session()
        assert await title(client, session_id) == (None, None)
        await client.prompt(session_id, f"\n{LONG}")
        assert await title(client, session_id) == (WORDS, {"by": "words"})
        await gate.reached.wait()
        gate.set()
        await becomes(client, session_id, ("Every word", {"by": "model"}))
        await prompt(client, session_id)
        assert [request.messages[0].parts[0]["text"] for request in titler.requests] == [LONG]


@pytest.mark.parametrize("ending", ["failed", "aborted", "waiting", "refused by the provider"])
async def test_the_title_comes_whatever_came_of_the_first_turn(ending: str) -> None:
    """Nothing of an answer is needed for it."""
    gate = Gate()
    answers = {
        "failed": fail(kind="unknown"),
        "aborted": hang(gate),
        "waiting": call("question", {"questions": [{"question": "which?", "options": ["a", "b"]}]}),
        "refused by the provider": fail(401),
    }
    async with named([answers[ending]], [say("A name")]) as (client, _):
        session_id = await client.session()
        await client.prompt(session_id, "look at this")
        if ending == "aborted":
            await gate.reached.wait()
            await client.post(f"/api/sessions/{session_id}/abort")
        await becomes(client, session_id, ("A name", {"by": "model"}))


async def test_a_message_of_files_alone_is_called_as_they_are() -> None:
    """Until a model has seen what was said to them."""
    gate = Gate()
    async with named([say("It is a list of fruit.")], [[wait(gate), say("Fruit")]]) as (client, titler):
        session_id = await client.session()
        file = {
            "type": "file",
            "mediaType": "text/plain",
            "filename": "fruit.txt",
            "url": "data:text/plain;base64,YQ==",
        }
        await client.post(f"/api/sessions/{session_id}/prompt", {"parts": [file]})
        assert await title(client, session_id) == ("fruit.txt", {"by": "words"})
        await gate.reached.wait()
        gate.set()
        await becomes(client, session_id, ("Fruit", {"by": "model"}))
        assert titler.requests[0].messages[0].parts[0]["text"] == "[fruit.txt]\nIt is a list of fruit."


async def test_a_titler_that_fails_is_asked_again_after_the_next_turns_and_then_no_more() -> None:
    """The words stay meanwhile; three tries, whether it fails, says nothing or takes too long."""
    clock, gate = FakeClock(), Gate()
    titles = [fail(503), hang(gate), say("  \n")]
    async with named([say("1"), say("2"), say("3"), say("4")], titles, clock=clock) as (client, titler):
        session_id = await client.session()
        await prompt(client, session_id, "look here")
        await becomes(client, session_id, ("look here", {"by": "words", "tries": 1}))
        await prompt(client, session_id)
        await gate.reached.wait()
        clock.advance(20_000)
        await becomes(client, session_id, ("look here", {"by": "words", "tries": 2}))
        await prompt(client, session_id)
        await becomes(client, session_id, ("look here", {"by": "words", "tries": 3}))
        await prompt(client, session_id)
        await client.engine.close()
        assert len(titler.requests) == 3


async def test_a_turn_that_ends_again_and_again_does_not_ask_again_and_again() -> None:
    """However often it is continued: three tries are all."""
    async with named([fail(kind="unknown")] * 5, [fail(503)] * 5) as (client, titler):
        session_id = await client.session()
        await prompt(client, session_id, "look here")
        for tries in (1, 2, 3, 3, 3):
            await becomes(client, session_id, ("look here", {"by": "words", "tries": tries}))
            await client.post(f"/api/sessions/{session_id}/continue")
            await client.idle(session_id)
        await client.engine.close()
        assert len(titler.requests) == 3


async def test_what_failed_once_is_named_after_the_next_turn() -> None:
    """Also of a session of an older clew, which has no name from its first turn."""
    async with named([say("1"), say("2")], [fail(503), say("A name")]) as (client, _):
        session_id = await client.session()
        await prompt(client, session_id, "look here")
        await becomes(client, session_id, ("look here", {"by": "words", "tries": 1}))
        await client.request("PATCH", f"/api/sessions/{session_id}", {"metadata": {"title": None}})
        await prompt(client, session_id)
        await becomes(client, session_id, ("A name", {"by": "model"}))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("how", ["title", "metadata"])
async def test_what_a_person_named_is_not_named_again(store: str, how: str, tmp_path: Path) -> None:
    """Not even by a model that was asked before they did."""
    gate = Gate()
    options = {"store": store.format(tmp_path)}
    async with named([say("1"), say("2")], [[wait(gate), say("A name")]], **options) as (client, titler):
        session_id = await client.session(metadata=OWNED)
        await client.prompt(session_id, "look here")
        await gate.reached.wait()
        body = {"title": "mine"} if how == "title" else {"metadata": {"title": "mine"}}
        await client.request("PATCH", f"/api/sessions/{session_id}", body)
        gate.set()
        await client.idle(session_id)
        await prompt(client, session_id)
        given = await client.session(title="given", metadata=OWNED)
        await client.prompt(given, "hello")
        assert (await title(client, given), await title(client, session_id)) == (("given", None), ("mine", None))
        assert len(titler.requests) == 1


@pytest.mark.rule("US-5")
async def test_a_triggered_session_gets_a_title_and_a_subagent_keeps_the_words_of_its_task() -> None:
    """Nobody looks for a subagent by its name: no title is asked for, or paid for."""
    answers = [call("task", {"prompt": "count the files"}), say("two"), say("done"), say("seen")]
    titles = [say("Parent"), say("An event")]
    async with named(answers, titles) as (client, titler):
        session_id = await client.session()
        rule = {"permission": "task", "pattern": "*", "action": "allow"}
        await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": [rule]})
        await prompt(client, session_id, "work")
        await becomes(client, session_id, ("Parent", {"by": "model"}))
        [child] = (await client.get("/api/sessions?kind=subagent")).json()["sessions"]
        event = {"source": "mail", "source_id": "1", "routing": {"key": "k"}, "text": "news from home"}
        triggered = (await client.post("/api/events", event)).json()["session_id"]
        await becomes(client, triggered, ("An event", {"by": "model"}))
        asked = [request.messages[0].parts[0]["text"] for request in titler.requests]
        assert asked == ["work", "news from home"]
        assert await title(client, child["id"]) == ("count the files", {"by": "words"})
        spent = {one["key"]: one["calls"] for one in (await client.get("/api/usage?by=session")).json()["groups"]}
        assert spent == {session_id: 3, child["id"]: 1, triggered: 2}


@pytest.mark.parametrize("store", STORES)
async def test_a_branch_is_called_after_what_it_branched_from_with_a_mark(store: str, tmp_path: Path) -> None:
    """Numbered where there is one already; a title that was given stays as it is, and none is asked for."""
    answers = [say("1"), say("2")]
    async with named(answers, [say("A name")], store=store.format(tmp_path)) as (client, titler):
        session_id = await client.session(metadata=OWNED)
        await prompt(client, session_id, "look here")
        await becomes(client, session_id, ("A name", {"by": "model"}))

        async def branch(of: str, **body: Any) -> Any:
            last = (await client.messages(of))[-1]
            if not body:
                turn = last["metadata"]["turn_id"]
                return (await client.post(f"/api/turns/{turn}/fork", {})).json()
            body["from_message_id"] = last["id"]
            return (await client.post(f"/api/sessions/{of}/branch", body)).json()

        first = await branch(session_id, metadata={"x": 1})
        made = [first, await branch(session_id), await branch(first["id"], metadata={}), await branch(first["id"])]
        made.append(await branch(session_id, metadata={"title": "mine"}))
        names = ["A name (branch)", "A name (branch 2)", "A name (branch 3)", "A name (branch 4)", "mine"]
        assert [(one["title"], one["metadata"].get("naming")) for one in made] == [(name, None) for name in names]
        await prompt(client, first["id"])
        assert (await title(client, first["id"]))[0] == "A name (branch)"
        assert len(titler.requests) == 1


@pytest.mark.rule("SR-10")
@pytest.mark.parametrize("ends", ["by itself", "stopped by closing"])
async def test_a_turn_that_ends_while_the_engine_closes_is_named_only_if_it_ended_by_itself(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that belongs to a turn which has ended is still done; for one that was cut off nothing is begun."""
    gate, closing = Gate(), list[asyncio.Task[tuple[str, ...]]]()
    told = EventReplies.settle
    titler, fake = providers([[wait(gate), say("1")]], [say("A name")])
    url = f"sqlite:///{tmp_path}/s.db"
    async with clew.open(url, config=clew.Config(), providers=fake) as engine:

        async def close_meanwhile(self: EventReplies, session_id: str) -> None:
            if not closing:
                closing.append(asyncio.create_task(engine.close()))
                while engine._runtime.sessions.is_open(session_id):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            await told(self, session_id)

        monkeypatch.setattr(EventReplies, "settle", close_meanwhile)
        session = await engine.create_session()
        await engine.submit(session.id, "look here")
        await gate.reached.wait()
        if ends == "by itself":
            gate.set()
        else:
            closing.append(asyncio.create_task(engine.close()))
        while not closing:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await closing[0]
    async with clew.open(url, config=clew.Config(), read_only=True) as engine:
        again = await engine.get_session(session.id)
        name = ("A name", {"by": "model"}) if ends == "by itself" else ("look here", {"by": "words"})
        assert (again.title, again.naming) == name
        assert len(titler.requests) == (ends == "by itself")


async def test_first_words_are_stored_with_the_message_and_a_title_ends_with_the_engine(tmp_path: Path) -> None:
    """Closing aborts a model that is still thinking about a name; the words are there when it is opened again."""
    gate = Gate()
    titler, fake = providers([say("1")], [hang(gate)])
    url = f"sqlite:///{tmp_path}/s.db"
    async with clew.open(url, config=clew.Config(), providers=fake) as engine:
        session = await engine.create_session()
        await engine.submit(session.id, "look here")
        await gate.reached.wait()
    assert (len(titler.requests), titler.closed_early) == (1, 1)
    async with clew.open(url, config=clew.Config(), read_only=True) as engine:
        again = await engine.get_session(session.id)
        assert (again.title, again.naming) == ("look here", {"by": "words"})
