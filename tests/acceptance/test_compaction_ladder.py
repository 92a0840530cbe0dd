"""The failure ladder: what becomes of a compaction whose summariser fails, in every way it can."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import CompactionError
from clew.fronts.http.problem import problem as problem_response
from clew.providers.base import ModelRequest
from clew.testing.clock import FakeClock
from clew.testing.scripted import call, fail, hang, say, then
from clew.transcript.usage import Usage
from tests.acceptance.looking import look

from .compacting import Compacting, Playing, answer, bulk, info, opened, passing, settings, summary

BUSY = fail(503, "busy")


async def talk(s: Compacting, count: int, *, used: int | None = None, tokens: int = 500) -> None:
    for n in range(count):
        s.model.add(answer(bulk(f"re{n}", tokens), used if n == count - 1 else 100))
        await s.say(bulk(f"ask{n}", tokens))


async def full(s: Compacting, **fields: Any) -> None:
    """A session whose next call has to make room, and could also go on without."""
    await s.begin(**fields)
    await talk(s, 4, used=9_500)


async def overfull(s: Compacting, tokens: int = 1_000, **fields: Any) -> None:
    """A session whose next call cannot be sent as it is: it grew on a model with a larger window."""
    await s.begin(**fields)
    for n in range(6):
        s.model.add(answer(bulk(f"re{n}", tokens), 100))
        await s.say(bulk(f"ask{n}", tokens), model="test/large")


LARGE = [info("test/large", 1_000_000)]


@pytest.mark.rule("CP-8")
async def test_a_failure_in_passing_is_tried_again_twice(tmp_path: Path) -> None:
    """Then the summary is there; the status said why it took longer."""
    clock = FakeClock()
    async with opened(tmp_path, summaries=[BUSY, BUSY], clock=clock) as s:
        await passing(clock, full(s))
        said: list[str] = []
        told = s.engine.host.live.set_status

        def listen(session_id: str, status: Any) -> None:
            said.append(status.message or "")
            told(session_id, status)

        s.engine.host.live.set_status = listen  # type: ignore[method-assign]
        await passing(clock, s.say("go"))
        assert len(s.summariser.requests) == 3
        assert (await s.parts())[0]["strategy"] == "summary"
        again = [line for line in said if line.startswith("summarising failed; retrying in ")]
        assert len(again) == 2
        await s.is_sound()


@pytest.mark.rule("CP-8")
async def test_after_three_failures_the_turn_goes_on_uncompacted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same cut is not tried again in that turn; the next turn tries."""
    clock = FakeClock()
    look = _tool(500)
    async with opened(
        tmp_path, summaries=[BUSY] * 3, clock=clock, tools=[look], config=settings(pruning={"enabled": False})
    ) as s:
        await passing(clock, full(s))
        await s.allow("look")
        s.model.add(call("look", {}), answer("done", 9_500))
        with caplog.at_level(logging.WARNING, "clew.context"):
            outcome = await passing(clock, s.say("go"))
        assert outcome.status == "completed"
        assert await s.kinds() == ["normal"] * 5
        assert s.sent()[0].startswith("user: ask0")
        assert len(s.summariser.requests) == 3
        assert [record.getMessage() for record in caplog.records] == [
            f"session {s.id} continues uncompacted: the summariser failed: busy"
        ]
        await passing(clock, s.say("next"))
        assert (await s.kinds())[5:] == ["compaction", "normal"]
        await s.is_sound()


def _tool(tokens: int) -> Any:
    @clew.tool
    async def look() -> str:
        """Gives much back."""
        return bulk("look", tokens)

    return look


@pytest.mark.rule("CP-8")
async def test_a_wait_that_would_be_too_long_is_not_waited_for(tmp_path: Path) -> None:
    """A provider that asks for a minute is not tried again."""
    clock = FakeClock()
    async with opened(tmp_path, summaries=[fail(429, "slow down", retry_after_ms=60_000)], clock=clock) as s:
        await passing(clock, full(s))
        assert (await passing(clock, s.say("go"))).status == "completed"
        assert len(s.summariser.requests) == 1


@pytest.mark.rule("CP-6", "CP-8")
async def test_a_summariser_that_hangs_holds_a_turn_for_its_configured_time(tmp_path: Path) -> None:
    """Source 000:185. Once for the whole turn, with retries and in each later step; its connection is closed."""
    clock, hanging = FakeClock(), Playing(otherwise=hang())
    config = settings(summary_timeout_s=600, pruning={"enabled": False})
    async with opened(tmp_path, summaries=hanging, clock=clock, tools=[look], config=config, window=20_000) as s:
        await s.begin()
        await s.allow("look")
        await passing(clock, talk(s, 4, tokens=1_000))
        times: list[float] = []

        def step(request: ModelRequest) -> Any:
            times.append(clock.monotonic_ms())
            return then(call("look", {"n": len(times), "size": 1_500}), usage=Usage(18_900, 5))

        entries: list[Any] = [step, step, step, answer("done", 18_900)]
        s.model.add(*entries)
        assert (await passing(clock, s.say("go"), step_ms=5_000)).status == "completed"
        # Fake time goes on while threads work, by 5 s each time.
        assert 600_000 <= times[-1] - times[0] < 1_100_000
        assert (len(hanging.requests), hanging.closed_early) == (1, 1)
        assert await s.kinds() == ["normal"] * 5


@pytest.mark.rule("CP-8")
async def test_the_fallbacks_of_a_summary_share_its_configured_time(tmp_path: Path) -> None:
    """Source 000:185,188. A chunk that hangs is not called again: the middle is left out as soon as the time is up."""
    clock = FakeClock()
    entries = [fail(kind="overflow", text="too long"), say(summary("one chunk")), hang(), hang()]
    async with opened(tmp_path, summaries=entries, infos=LARGE, clock=clock) as s:
        await passing(clock, overfull(s))
        assert (await passing(clock, s.say("go", model="test/model"))).status == "completed"
        assert len(s.summariser.requests) == 3
        assert [part["strategy"] for part in await s.parts()] == ["drop_middle"]


@pytest.mark.rule("CP-8")
async def test_retries_are_switched_off_by_a_count_of_none(tmp_path: Path) -> None:
    """``retry_on_transient`` is the number of them."""
    clock = FakeClock()
    async with opened(tmp_path, summaries=[BUSY], clock=clock, config=settings(retry_on_transient=0)) as s:
        await passing(clock, full(s))
        await passing(clock, s.say("go"))
        assert len(s.summariser.requests) == 1
        assert await s.kinds() == ["normal"] * 5


@pytest.mark.rule("CP-6")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("", id="empty"),
        pytest.param("I cannot do that.", id="malformed"),
        pytest.param("## Goal\n- (none)\n## Progress\n## Key Decisions\n## Next Steps\n", id="a template"),
        pytest.param(summary("x", *(f"line {n} of too many" for n in range(800))), id="too long"),
    ],
)
async def test_an_answer_that_is_no_summary_is_rejected(tmp_path: Path, bad: str) -> None:
    """Asked once more; if that does not help the turn goes on as it is, and nothing was replaced by it."""
    async with opened(tmp_path, summaries=[say(bad), say(summary("good"))]) as s:
        await full(s)
        await s.say("go")
        assert s.sent()[0] == "user: summary good"
        assert len(s.summariser.requests) == 2
    async with opened(tmp_path, summaries=[say(bad), say(bad)]) as s:
        await full(s)
        assert (await s.say("go")).status == "completed"
        assert await s.kinds() == ["normal"] * 5
        s.summariser.add(say(bad), say(bad))
        with pytest.raises(CompactionError):
            await s.engine.compact(s.id)
        assert (await s.engine.get_status(s.id)).state == "idle"
        await s.is_sound()


@pytest.mark.rule("CP-6")
async def test_a_summary_that_is_not_smaller_than_what_it_replaces_is_rejected(tmp_path: Path) -> None:
    """By hand the reason is told, and nothing was written; where none could be smaller nobody is asked."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 3, used=100, tokens=20)
        assert not (await s.engine.compact(s.id)).compacted
        await talk(s, 3, used=100, tokens=40)
        s.summariser.add(*[say(summary("x", "y" * 1_500))] * 2)
        with pytest.raises(CompactionError, match="not a summary: the summary was rejected: it has about"):
            await s.engine.compact(s.id)
        assert await s.kinds() == ["normal"] * 6


@pytest.mark.rule("CP-6", "CP-8")
async def test_a_cheap_model_that_cannot_be_had_is_replaced_by_the_one_that_answers(tmp_path: Path) -> None:
    """Without a key for it, say; the record names who wrote it."""
    async with opened(tmp_path, summaries=[fail(401, "no key")]) as s:
        await full(s)
        s.model.add(say(summary("by myself")), answer("done"))
        await s.say("go")
        [part] = await s.parts()
        assert (part["model"], part["strategy"]) == ("test/model", "summary")
        assert s.sent()[0] == "user: summary by myself"
        assert len(s.summariser.requests) == 1


# Too large


def at_most(tokens: int) -> Playing:
    """A summariser whose window is smaller than it says: it takes so many tokens of history."""

    def play(request: ModelRequest) -> Any:
        text = request.messages[0].parts[0]["text"]
        return say(summary("in parts")) if len(text) // 4 <= tokens else fail(kind="overflow", text="too long")

    return Playing(otherwise=play)


@pytest.mark.rule("CP-8")
async def test_what_is_too_large_to_summarise_goes_without_its_outputs(tmp_path: Path) -> None:
    """The first step of the ladder; the strategy says so."""
    summaries = at_most(3_000)
    async with opened(
        tmp_path, summaries=summaries, tools=[_tool(4_000)], infos=LARGE, config=settings(pruning={"enabled": False})
    ) as s:
        await s.begin()
        await s.allow("look")
        s.model.add(call("look", {}), answer("seen", 100))
        await s.say("look")
        await talk(s, 3, used=100)
        done = await s.engine.compact(s.id)
        assert (done.strategy, len(summaries.requests)) == ("prune", 2)
        assert "[output pruned to save room" in summaries.requests[1].messages[0].parts[0]["text"]


@pytest.mark.rule("CP-8")
async def test_then_in_chunks_each_carrying_the_summary_so_far(tmp_path: Path) -> None:
    """Nothing is left out: every message is in one of the chunks. What overflowed is not sent a second time."""
    summaries = at_most(3_500)
    async with opened(tmp_path, summaries=summaries, infos=LARGE) as s:
        await overfull(s)
        assert (await s.say("go", model="test/model")).status == "completed"
        [part] = await s.parts()
        assert part["strategy"] == "chunked"
        asked = [request.messages[0].parts[0]["text"] for request in summaries.requests]
        assert len(set(asked)) == len(asked)
        good = [text for text in asked if len(text) // 4 <= 3_500]
        told = "".join(good)
        assert [f"[User]: ask{n}" in told and f"[Assistant]: re{n}" in told for n in range(5)] == [True] * 5
        assert ["<previous-summary>" in text for text in good] == [False] + [True] * (len(good) - 1)
        assert part["usage"]["input"] == 10 * len(good)
        await s.is_sound()


@pytest.mark.rule("CP-8")
async def test_then_the_middle_is_dropped_by_rule(tmp_path: Path) -> None:
    """No summariser at all is needed for it; what the user demanded is kept, and everything stays readable."""
    summaries = at_most(0)
    async with opened(tmp_path, summaries=summaries, infos=LARGE) as s:
        await s.begin()
        s.model.add(answer("ok", 100))
        await s.say("Never touch the cellar door.", model="test/large")
        await overfull(s)
        assert (await s.say("go", model="test/model")).status == "completed"
        [part] = await s.parts()
        assert part["strategy"] == "drop_middle"
        assert "Never touch the cellar door." in part["summary"]
        assert "messages were left out; they are stored and can be recalled" in part["summary"]
        assert "model" not in part
        assert s.sent()[-1] == "user: go"
        assert len([m for m in await s.engine.messages(s.id, view="all") if m.role == "user"]) == 8
        await s.is_sound()


@pytest.mark.rule("CP-8", "CP-12")
@pytest.mark.parametrize(
    ("off", "strategy"),
    [
        (("prune_tool_outputs",), "chunked"),
        (("chunked_summarize",), "prune"),
        (("prune_tool_outputs", "chunked_summarize"), "drop_middle"),
        (("prune_tool_outputs", "chunked_summarize", "drop_middle"), None),
    ],
)
async def test_each_step_can_be_switched_off(tmp_path: Path, off: tuple[str, ...], strategy: str | None) -> None:
    """Source 000:186. Without any of them the turn is refused with ways out, and the text is handed back."""
    config = settings(smart_recovery=dict.fromkeys(off, False), pruning={"enabled": False})
    async with opened(
        tmp_path,
        summaries=at_most(3_500),
        tools=[_tool(9_000)],
        infos=[info("test/large", 10**6, tools=True)],
        config=config,
    ) as s:
        await s.begin()
        await s.allow("look")
        s.model.add(call("look", {}), answer("seen", 100))
        await s.say("look", model="test/large")
        for n in range(2):
            s.model.add(answer(bulk(f"re{n}", 600), 100))
            await s.say(bulk(f"ask{n}", 600), model="test/large")
        outcome = await s.say("go", model="test/model")
        if strategy is not None:
            assert outcome.status == "completed"
            assert [part["strategy"] for part in await s.parts()] == [strategy]
        else:
            error = outcome.error or {}
            assert (outcome.status, error["code"], error["text"]) == ("refused", "context_too_large", "go")
            assert (
                "send less, or choose a model with a larger window, or branch with the newest turns" in error["message"]
            )
            picked = error["branch"]
            assert error["ways"] == [
                {"operation": "prune", "command": f"clew prune {s.id}"},
                {
                    "operation": "branch",
                    "command": f"clew branch {s.id} {picked['from_message_id']} --start {picked['start_message_id']}",
                },
                {"operation": "create_session", "command": "clew chat"},
            ]
            branch = await s.engine.branch(s.id, **error["branch"])
            sent = await s.engine.submit(branch.id, error["text"])
            assert (await sent.wait()).status == "completed"
        await s.is_sound()


@pytest.mark.rule("CP-8")
async def test_a_compaction_by_hand_that_fails_for_size_names_the_ways_out(tmp_path: Path) -> None:
    """Source 000:186. As a problem over HTTP it has the commands; nothing was written."""
    config = settings(smart_recovery=dict.fromkeys(("prune_tool_outputs", "chunked_summarize", "drop_middle"), False))
    async with opened(tmp_path, summaries=at_most(0), config=config) as s:
        await s.begin()
        await talk(s, 4, used=100)
        with pytest.raises(
            CompactionError, match="prune its tool outputs, branch from a later message, or start"
        ) as no:
            await s.engine.compact(s.id)
        response = problem_response(no.value)
        problem = json.loads(bytes(response.body))
        assert (response.status_code, problem["code"]) == (422, "compaction_failed")
        assert [way["command"].split()[1] for way in problem["ways"]] == ["prune", "branch", "chat"]
        assert await s.kinds() == ["normal"] * 4


@pytest.mark.rule("CP-8")
@pytest.mark.parametrize("failure", [fail(401, "no key"), fail(503, "busy"), say(""), hang()])
async def test_what_cannot_be_sent_as_it_is_never_waits_for_a_summariser_that_fails(
    tmp_path: Path, failure: Any
) -> None:
    """Whatever ails it: going on uncompacted is no way here, so the middle is dropped."""
    clock = FakeClock()
    infos = [*LARGE, info("test/model", 10_000, summariser="cheap/model")]
    async with opened(tmp_path, summaries=Playing(otherwise=failure), infos=infos, clock=clock) as s:
        await passing(clock, overfull(s))
        outcome = await passing(clock, s.say("go", model="test/model"))
        assert outcome.status == "completed"
        [part] = await s.parts()
        assert (part["strategy"], "warning" in part) == ("drop_middle", True)
        await s.is_sound()


@pytest.mark.rule("CP-8")
async def test_after_the_provider_refused_it_a_failing_summariser_does_not_stop_the_turn(tmp_path: Path) -> None:
    """What the provider calls too long cannot be sent, whatever was counted."""
    async with opened(tmp_path, summaries=Playing(otherwise=say("no"))) as s:
        await s.begin()
        await talk(s, 4, used=5_000)
        s.model.add(fail(kind="overflow", text="too long"), answer("fits"))
        assert (await s.say("go")).status == "completed"
        assert [part["strategy"] for part in await s.parts()] == ["drop_middle"]


@pytest.mark.rule("CP-1", "CP-8")
async def test_a_cut_whose_summary_failed_is_tried_once_more_when_it_must_go(tmp_path: Path) -> None:
    """While everything fits, a failure is not repeated with each step; once it does not fit the middle is left out."""
    model, bad = Playing(otherwise=answer()), Playing(otherwise=say("no summary at all"))
    config = settings(pruning={"enabled": False})
    async with opened(tmp_path, model, bad, tools=[look], config=config, window=20_000) as s:
        await s.begin()
        await s.allow("look")
        await talk(s, 4, tokens=1_000)
        asked: list[int] = []

        def step(request: ModelRequest) -> Any:
            asked.append(len(bad.requests))
            # From the second step on compaction is due; what it would cut off stays the same.
            used = 12_000 if len(asked) == 1 else 18_900
            return then(call("look", {"n": len(asked), "size": 1_500}), usage=Usage(used, 5))

        model.add(*[step] * 9, answer("done", 400))
        assert (await s.say("look")).status == "completed"
        made = await s.parts()
        assert asked == [0, 0, *[2] * 7]
        assert (len(bad.requests), [part["strategy"] for part in made]) == (4, ["drop_middle"])
        await s.is_sound()


@pytest.mark.rule("CP-8", "US-2")
async def test_what_failed_tries_cost_is_in_the_record(tmp_path: Path) -> None:
    """All of the summariser's calls together."""
    async with opened(tmp_path, summaries=[say("no"), say(summary("yes"))]) as s:
        await full(s)
        await s.say("go")
        assert (await s.parts())[0]["usage"] == {
            "input": 20,
            "output": 10,
            "reasoning": 0,
            "cache_read": 0,
            "cache_write": 0,
        }
        assert (await s.engine.get_session(s.id)).total_tokens == 3 * 100 + 9_500 + Usage(10, 5).total


@pytest.mark.rule("CP-1", "CP-8")
async def test_a_compaction_that_would_gain_next_to_nothing_is_not_made_at_every_call(tmp_path: Path) -> None:
    """A large message in the open turn keeps it above the threshold; the summary is written once."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 4, used=500)
        for n in range(3):
            s.model.add(answer(f"short{n}"))
            assert (await s.say(bulk("huge", 7_300))).status == "completed"
        assert (await s.kinds()).count("compaction") == len(s.summariser.requests) <= 3
        calls = len(s.summariser.requests)
        s.model.add(answer("x", 9_200), answer("y", 9_300))
        await s.say("tiny")
        await s.say("tiny")
        assert len(s.summariser.requests) <= calls + 1
        await s.is_sound()
