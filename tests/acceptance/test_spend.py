"""What was spent is booked when a model call ends, and what is not known of one that broke off is estimated, marked."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import clew
from clew.errors import RunAborted
from clew.providers.base import ModelInfo
from clew.session.api import Engine
from clew.session.history.check import check
from clew.store.unit import PatchSession, PutCall, Unit
from clew.testing.clock import FakeClock
from clew.testing.scripted import (
    FakeProviders,
    Gate,
    Piece,
    ScriptedModel,
    call,
    chunks,
    fail,
    report,
    say,
    then,
    wait,
)
from clew.tools.base import Tool
from clew.transcript import chunk as c
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.acceptance.compacting import bulk
from tests.acceptance.triggered import ended

pytestmark = pytest.mark.rule("US-1", "US-5")

SAID = Usage(input=14_350, output=1, cache_read=600)
"""What Anthropic says before the first word: all of the input, and a count of the output that has only begun."""
FORTY = "forty characters of an answer, no more.."
ALLOWED = ({"permission": "*", "pattern": "*", "action": "allow"},)


def open_text(text: str = FORTY) -> Piece:
    """A text that has only begun."""
    return chunks(c.TextStart("t"), c.TextDelta("t", text))


def open_thought(text: str = FORTY) -> Piece:
    return chunks(c.ReasoningStart("r"), c.ReasoningDelta("r", text))


def open_call() -> Piece:
    """Arguments that are being written: with the name of the tool thirty characters."""
    return chunks(c.ToolInputStart("c", "pause"), c.ToolInputDelta("c", '{"x":"seventeen more chr'))


PHASES: dict[str, tuple[list[Piece], Usage]] = {
    "before the first chunk": ([report(SAID)], SAID),
    "in text": ([report(SAID), open_text()], msgspec.structs.replace(SAID, output=11)),
    "in reasoning": ([report(SAID), open_thought()], msgspec.structs.replace(SAID, reasoning=11)),
    "in arguments": ([report(SAID), open_call()], msgspec.structs.replace(SAID, output=9)),
    "where less is estimated than was said": (
        [report(SAID), open_text("hi"), report(Usage(14_350, 30, 0, 600, 0))],
        Usage(14_350, 30, 0, 600, 0),
    ),
}
"""Where a call breaks off: what came of it, and what it is booked with."""


def pausing(gate: Gate) -> Tool:
    @clew.tool
    async def pause() -> str:
        """Wait."""
        await gate.wait()
        return "rested"

    return pause


@asynccontextmanager
async def opened(
    at: Path,
    model: ScriptedModel,
    *tools: Tool,
    kind: str = "sqlite",
    cheap: ScriptedModel | None = None,
    clock: FakeClock | None = None,
    window: int = 200_000,
    **helpers: Any,
) -> AsyncIterator[Engine]:
    """An engine on the store in a folder. A thousand tokens cost a dollar, whoever used them."""
    known = ModelInfo(model=Model("test", "model"), window=window, max_output=1_000, **helpers)
    models = {"test": model, **({"cheap": cheap} if cheap is not None else {})}
    providers = FakeProviders(models, infos=[known], cost=lambda _, used: used.total / 1000)
    url = f"sqlite:///{at}/store.db" if kind == "sqlite" else f"{kind}:{at}/store"
    async with clew.open(url, config=clew.Config(), providers=providers, tools=tools, clock=clock) as engine:
        yield engine


def died(at: Path) -> Path:
    """The store as a process that is killed now leaves it."""
    return Path(shutil.copytree(at, at.with_name("after")))


async def begin(engine: Engine, title: str | None = "spend", *, allowed: bool = True) -> str:
    place = {"workerId": "local", "workspaceId": "here"}  # which a json: store wants to know
    session = await engine.create_session(title=title, metadata=place)
    await engine.store.commit(Unit(session.id, (PatchSession(permissions=ALLOWED if allowed else ()),)))
    return session.id


def told(calls: Sequence[ModelCall]) -> list[tuple[str, str, Usage, bool]]:
    return [(one.purpose, one.ended, one.usage, one.estimated) for one in calls]


async def books(engine: Engine, session_id: str) -> dict[str, Any]:
    """What is known of a session's spend, in all the places that tell of it."""
    session, calls = await engine.get_session(session_id), await engine.store.load_calls(session_id)
    used = [dict(m.metadata["usage"]) for m in await engine.messages(session_id) if "usage" in m.metadata]
    owed = [one.cost_usd for one in calls if one.purpose == "answer" and one.ended != "completed"]
    assert sum(one.pop("broken_off_usd", 0) for one in used) == pytest.approx(sum(owed))
    assert session.cost_usd == pytest.approx(sum(one.cost_usd for one in calls if one.purpose == "answer"))
    assert all(one.cost_usd == pytest.approx(one.usage.total / 1000) for one in calls)
    return {"sums": session.usage, "messages": used, "calls": told(calls)}


def expected(ended: str, usage: Usage, *, estimated: bool = True) -> dict[str, Any]:
    mark = {"estimated": True} if estimated else {}
    return {
        "sums": usage,
        "messages": [{**msgspec.to_builtins(usage), **mark}],
        "calls": [("answer", ended, usage, estimated)],
    }


# Answers


@pytest.mark.parametrize("phase", PHASES)
async def test_an_abort_books_what_was_said_and_an_estimate_of_the_rest(tmp_path: Path, phase: str) -> None:
    """On the message, in the session's sums and in the call's row, marked."""
    gate, (pieces, usage) = Gate(), PHASES[phase]
    async with opened(tmp_path, ScriptedModel([[*pieces, wait(gate)], say("on")])) as engine:
        id_ = await begin(engine)
        sent = await engine.submit(id_, "go")
        await gate.reached.wait()
        await engine.abort(id_)
        assert (await sent.wait()).status == "aborted"
        assert await books(engine, id_) == expected("aborted", usage)
        assert await engine.store.load_steps(sent.turn_id or "") == ()
        assert (await (await engine.submit(id_, "next")).wait()).status == "completed"
        assert await check(engine.store) == []


@pytest.mark.parametrize("phase", PHASES)
async def test_a_provider_that_dies_is_owed_what_it_said_and_an_estimate_of_the_rest(
    tmp_path: Path, phase: str
) -> None:
    """And is not asked again once something was shown."""
    pieces, usage = PHASES[phase]
    async with opened(tmp_path, ScriptedModel([[*pieces, fail(kind="unknown")]])) as engine:
        id_ = await begin(engine)
        assert (await (await engine.submit(id_, "go")).wait()).status == "failed"
        assert await books(engine, id_) == expected("cut", usage)


async def kept(engine: Engine, session_id: str) -> None:
    """Until everything that was on its way to the store is there: units of a session are written in order."""
    for _ in range(5):
        await engine.store.commit(Unit(session_id, (PatchSession(metadata={"label": "waited for"}),)))


@pytest.mark.parametrize(("kind", "phase"), [*(("sqlite", phase) for phase in PHASES), ("jsonl", "in text")])
async def test_recovery_books_what_the_journal_kept_once(tmp_path: Path, kind: str, phase: str) -> None:
    """A second recovery changes nothing."""
    gate, (pieces, usage) = Gate(), PHASES[phase]
    async with opened(tmp_path / "before", ScriptedModel([[*pieces, wait(gate)]]), kind=kind) as engine:
        id_ = await begin(engine)
        await engine.submit(id_, "go")
        await gate.reached.wait()
        await kept(engine, id_)
        left = died(tmp_path / "before")
    for _ in range(2):
        async with opened(left, ScriptedModel(), kind=kind) as engine:
            assert await books(engine, id_) == expected("interrupted", usage)
            assert await check(engine.store) == []


@pytest.mark.parametrize("end", ["abort", "kill"])
async def test_a_call_of_which_nothing_was_said_is_booked_by_the_size_of_its_request(tmp_path: Path, end: str) -> None:
    """A provider that never answered may bill what it was sent: nobody knows, so it is estimated. Also of `json:`."""
    gate = Gate()
    async with opened(tmp_path / "before", ScriptedModel([wait(gate)]), kind="json") as engine:
        id_ = await begin(engine)
        sent = await engine.submit(id_, "x" * 40_000)
        await gate.reached.wait()
        await kept(engine, id_)
        left = died(tmp_path / "before")
        await engine.abort(id_)
        await sent.wait()
        told_after = await books(engine, id_)
    if end == "kill":
        async with opened(left, ScriptedModel(), kind="json") as engine:
            told_after = await books(engine, id_)
    [(_, ended, used, estimated)] = told_after["calls"]
    assert (ended, estimated) == ({"abort": "aborted", "kill": "interrupted"}[end], True)
    assert 11_000 <= used.input <= 13_000
    assert told_after == expected(ended, used)


@pytest.mark.rule("SV-5")
@pytest.mark.parametrize("end", ["abort", "kill"])
async def test_what_a_call_used_is_booked_before_its_tools_run(tmp_path: Path, end: str) -> None:
    """Read while the tool runs, after an abort in it, and after a kill in it: the same, and nothing is estimated."""
    gate, used = Gate(), Usage(input=14_350, output=20)
    model = ScriptedModel([then(call("pause", {}), usage=used)])
    async with opened(tmp_path / "before", model, pausing(gate)) as engine:
        id_ = await begin(engine)
        sent = await engine.submit(id_, "go")
        await gate.reached.wait()
        booked = expected("completed", used, estimated=False)
        assert await books(engine, id_) == booked
        [step] = await engine.store.load_steps(sent.turn_id or "")
        assert (step.usage, step.finish_reason) == (used, "tool-calls")
        left = died(tmp_path / "before")
        await engine.abort(id_)
        assert (await sent.wait()).status == "aborted"
        if end == "abort":
            assert await books(engine, id_) == booked
            assert await check(engine.store) == []
    if end == "kill":
        for _ in range(2):
            async with opened(left, ScriptedModel()) as engine:
                assert await books(engine, id_) == booked
                assert await check(engine.store) == []


async def test_every_try_has_a_row_and_a_refused_one_costs_nothing(tmp_path: Path) -> None:
    """One that had counted its input before it broke off is owed that, although nothing of it was shown."""
    tries: list[Any] = [
        fail(429, retry_after_ms=0),
        fail(503, retry_after_ms=0),
        [report(SAID), fail(529, retry_after_ms=0)],
    ]
    used = Usage(input=7, output=3)
    async with opened(tmp_path, ScriptedModel([*tries, then(say("done"), usage=used)])) as engine:
        id_ = await begin(engine)
        assert (await (await engine.submit(id_, "go")).wait()).status == "completed"
        assert await books(engine, id_) == {
            "sums": SAID + used,
            "messages": [{**msgspec.to_builtins(SAID + used), "estimated": True}],
            "calls": [
                ("answer", "failed", Usage(), False),
                ("answer", "failed", Usage(), False),
                ("answer", "cut", SAID, True),
                ("answer", "completed", used, False),
            ],
        }


async def test_a_provider_that_counts_with_every_word_does_not_have_every_word_written_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is written anew when a quarter has come to it. An abort books the last that was said all the same."""
    gate = Gate()
    counted = [report(Usage(100, n)) for n in range(1, 401)]
    words = [piece for one in counted for piece in (one, chunks(c.TextDelta("t", "w ")), wait(_Breath()))]
    model = ScriptedModel([[chunks(c.TextStart("t")), *words, wait(gate)]])
    async with opened(tmp_path, model, kind="json") as engine:
        session_id = await begin(engine)
        written: list[Unit] = []
        submit, submit_all = engine.store.submit, engine.store.submit_all

        def noting(unit: Unit) -> Any:
            written.append(unit)
            return submit(unit)

        def noting_all(units: Sequence[Unit], *given: Any, **more: Any) -> None:
            written.extend(units)
            submit_all(units, *given, **more)

        monkeypatch.setattr(engine.store, "submit", noting)
        monkeypatch.setattr(engine.store, "submit_all", noting_all)
        submission = await engine.submit(session_id, "go")
        await gate.reached.wait()
        await engine.abort(session_id)
        await submission.wait()
        # Counted now: how many of them waited for a unit that was under way says only how fast the disk is.
        rows = [write for unit in written for write in unit.writes if isinstance(write, PutCall)]
        counts = [row.call.usage.output for row in rows]
        assert counts == [0, *_each_a_quarter_more(400), 400]
        assert await books(engine, session_id) == expected("aborted", Usage(100, 400))


def _each_a_quarter_more(last: int) -> list[int]:
    counts = [1]
    for n in range(2, last + 1):
        if 4 * n > 5 * counts[-1]:
            counts.append(n)
    return counts


class _Breath(asyncio.Event):
    """As between two events of a wire: what was written meanwhile can be stored."""

    async def wait(self) -> Literal[True]:
        await asyncio.sleep(0)
        return True


async def test_model_time_and_tool_time_are_apart(tmp_path: Path) -> None:
    """Asked, first chunk, ended; the time of the tools is added when the step ends."""
    gate, clock = Gate(), FakeClock()

    async def slow(ctx: Any = None) -> str:
        """Take a second."""
        clock.advance(1_000)
        return "done"

    model = ScriptedModel([[wait(gate), call("slow", {})], say("fine")])
    async with opened(tmp_path, model, clew.tool(slow), clock=clock) as engine:
        id_ = await begin(engine)
        sent = await engine.submit(id_, "go")
        await gate.reached.wait()
        asked = clock.now_ms()
        clock.advance(250)
        gate.set()
        await sent.wait()
        first, second = await engine.store.load_calls(id_)
        at = (first.asked_at, first.first_chunk_at, first.ended_at, first.tools_ms)
        assert at == (asked, asked + 250, asked + 250, 1_000)
        assert (second.asked_at, second.tools_ms, second.step) == (asked + 1_250, 0, 1)
        steps = await engine.store.load_steps(sent.turn_id or "")
        assert [(step.started_at, step.finished_at) for step in steps] == [
            (asked, asked + 1_250),
            (asked + 1_250, asked + 1_250),
        ]


async def test_the_time_of_a_call_that_a_human_allowed_is_added_when_it_ran(tmp_path: Path) -> None:
    """The time they took to answer is nobody's."""
    clock = FakeClock()

    @clew.tool
    async def slow() -> str:
        """Take a second."""
        clock.advance(1_000)
        return "done"

    async with opened(tmp_path, ScriptedModel([call("slow", {}), say("fine")]), slow, clock=clock) as engine:
        id_ = await begin(engine, allowed=False)
        sent = await engine.submit(id_, "go")
        async for status in engine.watch_status(id_):
            if status.waiting:
                break
        clock.advance(60_000)
        await engine.answer(id_, status.waiting[0].approval_id or "", "once")
        assert (await sent.wait()).status == "completed"
        assert [one.tools_ms for one in await engine.store.load_calls(id_)] == [1_000, 0]


async def test_an_answer_that_nobody_counted_is_estimated(tmp_path: Path) -> None:
    """A wire without usage, and a reply cut off at its limit; the next request is not measured by it."""
    silent = then(say(FORTY), usage=Usage())
    silent.data["usage"] = "not reported"
    async with opened(tmp_path, ScriptedModel([silent])) as engine:
        id_ = await begin(engine)
        await (await engine.submit(id_, "x" * 40_000)).wait()
        [(_, ended, used, estimated)] = (found := await books(engine, id_))["calls"]
        assert (ended, used.output, estimated) == ("completed", 11, True)
        assert used.input > 11_000
        assert found == expected("completed", used)
        assert (await engine.context(id_)).measured is False


# Subagents, summaries, titles


@pytest.mark.parametrize("end", ["abort", "kill"])
async def test_a_subagent_books_in_its_own_session(tmp_path: Path, end: str) -> None:
    """What its parent's call used is the parent's, what its own call had said is its own."""
    gate, used = Gate(), Usage(input=100, output=10)
    script: list[Any] = [then(call("task", {"prompt": "look"}), usage=used), [report(SAID), open_text(), wait(gate)]]
    async with opened(tmp_path / "before", ScriptedModel(script)) as engine:
        id_ = await begin(engine)
        sent = await engine.submit(id_, "go")
        await gate.reached.wait()
        [child] = await engine.store.list_children(id_)
        await kept(engine, child.id)
        left = died(tmp_path / "before")
        await engine.abort(id_)
        await sent.wait()
        # Its subagent is told to end, and does so beside it.
        await ended(engine)
        seen = [await books(engine, id_), await books(engine, child.id)]
    if end == "kill":
        async with opened(left, ScriptedModel()) as engine:
            seen = [await books(engine, id_), await books(engine, child.id)]
    broken = expected("aborted" if end == "abort" else "interrupted", msgspec.structs.replace(SAID, output=11))
    assert seen == [expected("completed", used, estimated=False), broken]


@pytest.mark.parametrize("end", ["abort", "kill"])
async def test_a_summary_that_breaks_off_has_a_row(tmp_path: Path, end: str) -> None:
    """And so has each try before it; none of them is in the session's sums, which are those of its answers."""
    gate, cheap = Gate(), ScriptedModel()
    cheap.add(fail(500, retry_after_ms=0), say("this is no summary"), [report(SAID), open_text(FORTY * 50), wait(gate)])
    model = ScriptedModel(otherwise=say("ok"))
    by = Model("cheap", "model")
    async with opened(tmp_path / "before", model, cheap=cheap, window=10_000, summariser=by) as engine:
        id_ = await begin(engine)
        for text in ("one", "two", "three", "four"):
            await (await engine.submit(id_, bulk(text))).wait()
        compacting = asyncio.create_task(engine.compact(id_))
        await gate.reached.wait()
        await kept(engine, id_)
        left = died(tmp_path / "before")
        await engine.abort(id_)
        with pytest.raises(RunAborted):
            await compacting
        await kept(engine, id_)
        seen = await books(engine, id_)
    if end == "kill":
        async with opened(left, ScriptedModel()) as engine:
            seen = await books(engine, id_)
    five, answers = Usage(10, 5), [("answer", "completed", Usage(10, 5), False)] * 4
    assert seen["sums"] == Usage(40, 20)
    assert seen["calls"] == [
        *answers,
        ("summary", "failed", Usage(), False),
        ("summary", "completed", five, False),
        (
            "summary",
            "aborted" if end == "abort" else "interrupted",
            msgspec.structs.replace(SAID, output=550),
            True,
        ),
    ]


@pytest.mark.parametrize("end", ["said", "refused", "cut", "closed", "kill", "deleted"])
async def test_a_title_has_a_row_however_it_ends(tmp_path: Path, end: str) -> None:
    """Also when its session was deleted meanwhile: the row stays, without it. A prompt meanwhile leaves it alone."""
    gate, broken = Gate(), msgspec.structs.replace(SAID, output=11)
    last: dict[str, Any] = {"said": then(wait(gate), say("A title")), "refused": [wait(gate), fail(400)]}
    cheap = ScriptedModel([last.get(end, [report(SAID), open_text(), wait(gate), fail(400)])])
    model = ScriptedModel([say("ok"), say("on")])
    async with opened(tmp_path / "before", model, cheap=cheap, titler=Model("cheap", "model")) as engine:
        id_ = await begin(engine, title=None)
        await (await engine.submit(id_, "go")).wait()
        await gate.reached.wait()
        await (await engine.submit(id_, "next")).wait()
        await kept(engine, id_)
        assert [one.ended for one in await engine.store.load_calls(id_)] == ["completed", "asked", "completed"]
        left = died(tmp_path / "before")
        other = await begin(engine)
        if end == "deleted":
            await engine.delete_session(id_)
        if end == "closed":
            await engine.close(within_s=0)
        gate.set()
        own = None if end == "deleted" else id_
        while any(one.is_open for one in await engine.store.load_calls(own)):
            await kept(engine, other)
        found = await engine.store.load_calls(own)
    if end == "kill":
        async with opened(left, ScriptedModel()) as engine:
            found = await engine.store.load_calls(id_)
    wanted = {
        "said": ("completed", Usage(10, 5), False),
        "refused": ("failed", Usage(), False),
        "closed": ("aborted", broken, True),
        "kill": ("interrupted", SAID, True),
    }
    titles = [(one.ended, one.usage, one.estimated) for one in found if one.purpose == "title"]
    assert titles == [wanted.get(end, ("cut", broken, True))]
