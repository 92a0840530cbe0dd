"""What comes from other programs is paid once, shown where its file says, and left alone where people went on."""

from __future__ import annotations

import json
from typing import Any

import pytest

import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, say


def pi(*lines: dict[str, Any]) -> bytes:
    """A session of pi's, of these lines."""
    header = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-03-01T09:00:00.000Z", "cwd": "/maze"}
    return "".join(json.dumps(line) + "\n" for line in (header, *lines)).encode()


def line(own: str, parent: str | None, role: str, words: str, used: int = 0) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": words}]}
    if role == "assistant":
        usage = {"input": used, "output": 1, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": used / 1000}}
        message |= {"provider": "test", "model": "m", "usage": usage, "stopReason": "stop"}
    at = f"2026-03-01T09:00:{int(own):02}.000Z"
    return {"type": "message", "id": own, "parentId": parent, "timestamp": at, "message": message}


def opened(model: ScriptedModel | None = None) -> Any:
    return clew.open("memory:", providers=FakeProviders(model or ScriptedModel([])))


@pytest.mark.rule("IO-1")
async def test_an_answer_that_two_turns_begin_with_is_paid_once() -> None:
    """Somebody went on from the middle of a turn: what was said until there stands in both."""
    file = pi(
        line("1", None, "user", "look"),
        line("2", "1", "assistant", "first", 10),
        line("3", "2", "assistant", "second", 20),
        line("4", "2", "user", "rather this"),
        line("5", "4", "assistant", "third", 30),
    )
    async with opened() as engine:
        came = await engine.import_from("pi", file)
        whole = json.loads(await engine.export(came.session_id))
        assert sorted(step["usage"]["input"] for step in whole["steps"]) == [10, 20, 30]
        session = await engine.get_session(came.session_id)
        assert (session.usage.input, round(session.cost_usd, 6)) == (60, 0.06)
        said = [message.texts for message in await engine.messages(came.session_id)]
        assert said == [["look"], ["first"], ["rather this"], ["third"]]


@pytest.mark.rule("IO-1")
async def test_what_is_new_stays_out_of_a_session_that_was_rewound_here() -> None:
    """It is told, and the conversation stays where somebody has put it."""
    begun = (
        line("1", None, "user", "one"),
        line("2", "1", "assistant", "first", 10),
        line("3", "2", "user", "two"),
        line("4", "3", "assistant", "second", 20),
    )
    grown = (*begun, line("5", "4", "user", "three"), line("6", "5", "assistant", "third", 30))
    async with opened() as engine:
        session_id = (await engine.import_from("pi", pi(*begun))).session_id
        first = next(one.id for one in (await engine.tree(session_id)).turns if one.parent_turn_id is None)
        await engine.set_head(session_id, first)
        before = [message.texts for message in await engine.messages(session_id)]
        came = await engine.import_from("pi", pi(*grown))
        assert (came.session_id, came.outcome, came.turns) == (session_id, "apart", 0)
        assert came.why == "it was rewound, here or in the other program: new content of the file was not imported"
        assert [message.texts for message in await engine.messages(session_id)] == before == [["one"], ["first"]]


@pytest.mark.rule("IO-1")
async def test_what_the_other_program_went_back_to_is_in_the_conversation_again() -> None:
    """Left once and gone back to later: what is hidden here is what the file has left by now."""
    begun = (
        line("1", None, "user", "one"),
        line("2", "1", "assistant", "first", 1),
        line("3", "2", "user", "two"),
        line("4", "3", "assistant", "second", 1),
        line("5", "2", "user", "rather this"),
        line("6", "5", "assistant", "third", 1),
    )
    back = (line("7", "4", "user", "no, on with it"), line("8", "7", "assistant", "fourth", 1))
    async with opened() as engine:
        session_id = (await engine.import_from("pi", pi(*begun))).session_id
        assert await hidden(engine, session_id) == ["two", "second"]
        came = await engine.import_from("pi", pi(*begun, *back))
        assert (came.outcome, came.turns) == ("grown", 1)
        assert await hidden(engine, session_id) == ["rather this", "third"]
        said = [text for message in await engine.messages(session_id) for text in message.texts]
        assert said == ["one", "first", "two", "second", "no, on with it", "fourth"]


async def hidden(engine: clew.Engine, session_id: str) -> list[str]:
    whole = json.loads(await engine.export(session_id))
    left = [row for row in whole["messages"] if "hidden_at" in row["metadata"]]
    return [part["data"]["text"] for row in left for part in row["parts"] if "text" in part["data"]]


@pytest.mark.rule("IO-1")
async def test_a_summary_that_kept_the_end_of_a_turn_keeps_that_alone() -> None:
    """A model that goes on is sent the summary, the end that was kept, and nothing that was summarised."""
    model = ScriptedModel([say("here")])
    summary = {"type": "compaction", "id": "4", "parentId": "3", "timestamp": "2026-03-01T09:00:04.000Z"}
    file = pi(
        line("1", None, "user", "look"),
        line("2", "1", "assistant", "first", 1),
        line("3", "2", "assistant", "second", 1),
        {**summary, "summary": "They looked.", "firstKeptEntryId": "3", "tokensBefore": 100},
    )
    async with opened(model) as engine:
        session_id = (await engine.import_from("pi", file)).session_id
        await (await engine.submit(session_id, "and now?", model="test/model")).wait()
        sent = "\n".join(text for message in model.requests[0].messages for text in message.texts)
        assert [words in sent for words in ("They looked.", "second", "and now?", "first", "look\n")] == [
            *(True, True, True),
            *(False, False),
        ]


@pytest.mark.rule("IO-1")
async def test_a_session_that_was_put_away_there_is_put_away_here() -> None:
    times = {"created": 1_772_355_600_000, "updated": 1_772_355_601_000, "archived": 1_772_355_602_000}
    said = {"info": {"id": "m", "role": "user", "time": times}, "parts": [{"id": "p", "type": "text", "text": "hi"}]}
    async with opened() as engine:
        for name, kept in (("away", times), ("here", {**times, "archived": None})):
            info = {"id": name, "directory": "/maze", "title": name, "version": "1.0.0", "time": kept}
            came = await engine.import_from("opencode", json.dumps({"info": info, "messages": [said]}).encode())
            assert ((await engine.get_session(came.session_id)).archived_at is not None) == (name == "away")
        assert [one.title for one in (await engine.list_sessions()).sessions] == ["here"]
