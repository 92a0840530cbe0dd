"""Runs that are stopped before they have begun: what they begin with is said all the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from clew.compaction.context import Context
from clew.session.context.context_fit import ContextFitter
from clew.session.prompt.submission import Submission
from clew.session.turn.run import AcquiredSession
from clew.session.turn.run_stream import RunStream
from clew.session.turn.runner import Runner
from clew.testing.scripted import call, say
from clew.transcript import chunk as c
from clew.transcript.message import Message

from .conftest import Open
from .test_stopped_words import Held


@pytest.mark.rule("SR-2", "SR-3")
async def test_a_message_after_a_warning_begins_before_it_is_aborted(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while the warning was being stored: a viewer was told of the abort of a message that had no beginning."""
    held, shown, show = Held(monkeypatch), list[str](), RunStream._show

    def noting(stream: RunStream, chunks: Sequence[c.Chunk]) -> None:
        shown.extend(chunk.type for chunk in chunks)
        show(stream, chunks)

    monkeypatch.setattr(RunStream, "_show", noting)
    async with open_scenario([*[call("ls", {})] * 3, say("never")]) as s:
        await s.begin()
        submission = await s.send("look")
        await held.reached.wait()
        assert await s.engine.abort(s.id)
        held.go.set()
        assert (await submission.wait()).status == "aborted"
        assert shown[shown.index("finish") + 1] == "start"
        assert (shown.count("start"), shown[-1]) == (2, "abort")
        assert await s.check() == []


@pytest.mark.rule("RN-8", "SR-3")
async def test_an_answer_is_kept_by_a_run_that_is_stopped_at_once(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answered was told so: the abort comes before the run that goes on with it has had its turn."""
    start = Runner.start

    def stopped(runner: Runner, taken: AcquiredSession) -> Submission:
        submission = start(runner, taken)
        run = runner._sessions.find_run(taken.config.session.id)
        if run is not None and taken.resumption is not None:
            run.abort("aborted by the user")
        return submission

    monkeypatch.setattr(Runner, "start", stopped)
    async with open_scenario([call("question", {"question": "Which?"}), say("never")]) as s:
        await s.begin()
        await s.prompt("ask")
        waiting = (await s.engine.get_status(s.id)).waiting
        await s.engine.answer_question(s.id, waiting[0].tool_call_id, "blue")
        await s.settled()
        assert await s.transcript() == ["user: ask", 'question {"question":"Which?"} → "blue"']
        assert await s.check() == []


@pytest.mark.rule("SR-3")
async def test_a_hook_that_does_not_heed_an_abort_does_not_get_a_model_asked(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on while the request is made to fit; what comes after that does not."""
    reached, fit = asyncio.Event(), ContextFitter.fit

    async def deaf(room: ContextFitter, live: Message | None, **options: Any) -> Context:
        if live is None:
            reached.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return await fit(room, live, **options)

    async def look(_: object) -> None:
        """With a say in requests, an answer does not begin with its prompt."""

    monkeypatch.setattr(ContextFitter, "fit", deaf)
    async with open_scenario([say("never")]) as s:
        s.engine.hook("before_model_call", look)
        await s.begin()
        submission = await s.send("look")
        await reached.wait()
        assert await s.engine.abort(s.id)
        outcome = await submission.wait()
        assert (outcome.status, s.model.requests) == ("aborted", [])
        assert await s.check() == []
