"""The start of an answer is stored with its prompt: one unit, where nothing has to be done in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import pytest

import clew
from clew.config import SavePolicy
from clew.providers.base import ModelRequest, Provider, ProviderFailure, StepEnd, UsageUpdate
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.history.check import check
from clew.session.prompt.submission import Submission
from clew.session.turn.run import Run
from clew.session.turn.runner import Runner
from clew.store.base import Store
from clew.store.unit import Unit
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript import chunk as c
from clew.transcript.usage import Usage

from .test_spend import begin, opened, told

pytestmark = pytest.mark.rule("SV-1", "US-5")
STARTED = ["InsertMessage", "LinkMessage", "MarkFolded", "PutCall"]


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What every unit writes that takes a session for a new turn."""
    taken: list[list[str]] = []
    commit = LiveSessions.commit

    async def noted(self: LiveSessions, unit: Unit) -> None:
        names = [type(write).__name__ for write in unit.writes]
        if "OpenTurn" in names:
            taken.append(names)
        await commit(self, unit)

    monkeypatch.setattr(LiveSessions, "commit", noted)
    return taken


class Looking(ScriptedModel):
    """Looks at the store when it is asked, before it says anything."""

    def __init__(self) -> None:
        super().__init__([say("hello")])
        self.store: Store
        self.session_id = ""
        self.found: list[object] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | UsageUpdate | StepEnd, None]:
        rows = (await self.store.load_line(self.session_id)).turns[-1].messages
        self.found += [(row.role, [part.data for part in row.parts]) for row in rows]
        self.found += [
            (one.message_id == rows[-1].id, one.ended) for one in await self.store.load_calls(self.session_id)
        ]
        async for item in super().stream(request):
            yield item


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "json"])
async def test_an_answer_and_its_call_begin_in_the_unit_of_the_prompt(
    tmp_path: Path, units: list[list[str]], kind: str
) -> None:
    """Before the model is asked, all of it is there."""
    model = Looking()
    async with opened(tmp_path, model, kind=kind) as engine:
        session_id = await begin(engine)
        model.store, model.session_id = engine.store, session_id
        assert (await (await engine.submit(session_id, "go")).wait()).status == "completed"
        calls = await engine.store.load_calls(session_id)
    # A file of 001 holds no answer that nobody has said anything of.
    assert [names[-4:] == STARTED for names in units] == [kind != "json"]
    assert model.found == [
        ("user", [{"type": "text", "text": "go"}]),
        ("assistant", [{"type": "step-start"}]),
        (True, "asked"),
    ]
    assert [(one.ended, one.estimated) for one in calls] == [("completed", False)]


async def test_who_stops_an_answer_before_its_model_is_asked_pays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the call is there by then, and says so."""
    begun, model = Runner._start_run, ScriptedModel([say("never")])

    def stopped(runner: Runner, run: Run) -> Submission:
        submission = begun(runner, run)
        run.abort("aborted by the user")
        return submission

    monkeypatch.setattr(Runner, "_start_run", stopped)
    async with opened(tmp_path, model) as engine:
        session_id = await begin(engine)
        seen = [chunk["type"] async for chunk in engine.run(session_id, "go")]
        calls = await engine.store.load_calls(session_id)
    assert (seen, model.requests) == (["start", "start-step", "abort"], [])
    assert told(calls) == [("answer", "aborted", Usage(), False)]


async def test_who_has_a_say_in_requests_finds_the_prompt_stored(tmp_path: Path, units: list[list[str]]) -> None:
    """A hook may take its time, or refuse: the prompt does not wait for it."""
    async with opened(tmp_path, ScriptedModel([say("one"), say("two")])) as engine:
        session_id, stored = await begin(engine), []

        async def look(request: ModelRequest) -> None:
            stored.append([text for message in await engine.messages(session_id) for text in message.texts])

        await (await engine.submit(session_id, "go")).wait()
        engine.hook("before_model_call", look)
        await (await engine.submit(session_id, "go on")).wait()
    assert stored == [["go", "one", "go on"]]
    assert [names[-4:] == STARTED for names in units] == [True, False]


async def test_a_file_is_stored_before_it_is_sent(tmp_path: Path, units: list[list[str]]) -> None:
    """It is no part of what the store can give before the prompt is there."""
    model = ScriptedModel([say("seen")])
    file = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGVsbG8gdGhlcmU="}
    async with opened(tmp_path, model) as engine:
        session_id = await begin(engine)
        await (await engine.submit(session_id, [{"type": "text", "text": "look"}, file])).wait()
    assert any("hello there" in text for message in model.requests[0].messages for text in message.texts)
    assert [names[-4:] == STARTED for names in units] == [False]


@pytest.mark.parametrize("save_on", ["chunk", "step"])
async def test_an_answer_begins_whenever_its_chunks_are_stored(
    tmp_path: Path, units: list[list[str]], save_on: Literal["chunk", "step"]
) -> None:
    """Viewers get its beginning once, and the message has it once, even with a buffer that holds less."""
    policy = SavePolicy(save_on=save_on, save_buffer_size=1)
    config, providers = clew.Config(save=policy), FakeProviders(ScriptedModel([say("hello")]))
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=config, providers=providers) as engine:
        session_id = await begin(engine)
        seen = [chunk["type"] async for chunk in engine.run(session_id, "go")]
        parts = [part["type"] for part in (await engine.messages(session_id))[-1].parts]
        assert await check(engine.store) == []
    assert [names[-4:] == STARTED for names in units] == [True]
    assert seen == ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"]
    assert parts == ["step-start", "text"]


async def test_a_provider_that_cannot_be_asked_any_more_is_told_of_by_the_run(
    tmp_path: Path, units: list[list[str]]
) -> None:
    """The prompt is stored all the same, and nothing was asked: there is no row of a call."""

    class Lost(FakeProviders):
        """There when it is looked who answers, and then no more."""

        lost = False

        def get(self, provider_id: str) -> Provider:
            if self.lost:
                raise ProviderFailure("no key", kind="auth", provider_id=provider_id)
            return super().get(provider_id)

    async def lose(_: object) -> None:
        providers.lost = True

    providers = Lost(ScriptedModel([say("never")]))
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=clew.Config(), providers=providers) as engine:
        session_id = await begin(engine)
        engine.hook("message.user", lose)
        outcome = await (await engine.submit(session_id, "go")).wait()
        messages = await engine.messages(session_id)
        assert await engine.store.load_calls(session_id) == ()
    assert (outcome.status, [message.role for message in messages]) == ("failed", ["user", "assistant"])
    assert [names[-4:] == STARTED for names in units] == [False]
