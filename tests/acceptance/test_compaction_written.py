"""What a compaction writes, what is seen of it, what the summariser is asked, and what presets change."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.agents.catalog import builtin_agents
from clew.compaction.budget import estimate_message
from clew.errors import MessageNotFound, SessionBusy
from clew.testing.clock import FakeClock
from clew.testing.scripted import Gate, ScriptedModel, call, fail, say, then, wait
from clew.tools.decorator import tool
from clew.transcript.repetition import WARNING
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.acceptance.large_talks import THRESHOLD, large, pairs, talk, talk_on

from .compacting import answer, bulk, info, opened, settings, summary, texts


@tool(name="read")
async def read_anything(path: str) -> str:
    """Read a file, wherever it is."""
    return f"what is in {len(path)} letters"


# CP-2, CP-3, CP-4: what is written and what is seen


@pytest.mark.rule("CP-2", "US-2")
async def test_the_part_says_all_there_is_to_say(tmp_path: Path) -> None:
    """Every key of it; the summariser's usage is there and in no sum."""
    async with opened(tmp_path, summaries=[then(say(summary("build it")), usage=Usage(900, 60))]) as s:
        await s.begin()
        await talk(s, 3, used=THRESHOLD)
        before = (await s.engine.get_session(s.id)).total_tokens
        await s.say("Never use tabs. go on")
        rows = [row for row in await s.engine.store.load_messages(s.id) if row.role == "user"]
        replies = [row for row in await s.engine.store.load_messages(s.id) if row.role == "assistant"]
        [part] = await s.parts()
        text = summary("build it").rstrip() + "\n"
        assert part == {
            "summary": text,
            "tail_start_id": rows[2].id,
            "auto": True,
            "summary_tokens": -(-len(text) * 11 // 40),
            "tokens_before": part["tokens_before"],
            "tokens_after": part["tokens_after"],
            "summarised_tokens": part["summarised_tokens"],
            "strategy": "summary",
            "turns": 2,
            "messages": 4,
            "range": {"from_message_id": rows[0].id, "through_message_id": replies[1].id},
            "read_files": [],
            "modified_files": [],
            "directives": [],
            "usage": {"input": 900, "output": 60, "reasoning": 0, "cache_read": 0, "cache_write": 0},
            "model": "cheap/model",
        }
        assert part["tokens_after"] < part["tokens_before"]
        marker = (await s.engine.messages(s.id))[0]
        assert (marker.role, marker.metadata["synthetic"], marker.metadata["summary"]) == ("assistant", True, True)
        assert (await s.engine.get_session(s.id)).total_tokens == before + 15


@pytest.mark.rule("CP-14")
async def test_the_figures_of_a_compaction_compare_like_with_like(tmp_path: Path) -> None:
    """The context before and after by one measure, whatever a provider counted; what was summarised is between them."""
    async with opened(tmp_path, summaries=[say(summary("first")), say(summary("second"))]) as s:
        await s.begin()
        await talk(s, 4, used=7_000)
        gone = 0
        for _ in range(2):
            await s.engine.compact(s.id)
            part = (await s.parts())[-1]
            now = estimate_message((await s.engine.messages(s.id, view="model"))[0])
            assert part["tokens_before"] - part["tokens_after"] == part["summarised_tokens"] + gone - now
            assert part["tokens_after"] == (await s.engine.context(s.id)).used
            gone = now
            await talk_on(s, 4, 7)


@pytest.mark.rule("CP-14", "CP-7")
async def test_each_file_has_one_name_from_the_workspace_on(tmp_path: Path) -> None:
    """However a call named it; what lies outside keeps its whole path."""
    (tmp_path / "workspace" / "src").mkdir(parents=True)
    inside, outside = tmp_path / "workspace" / "src" / "a.py", tmp_path / "b.py"
    for path in (inside, outside):
        path.write_text("x = 1\n")
    named = ["src/a.py", "./src/../src/a.py", str(inside), str(outside), "../b.py"]
    script = [then(*(call("read", {"path": path}) for path in named)), answer(bulk("word"))]
    async with opened(tmp_path, script, tools=[read_anything]) as s:
        await s.begin(workspace_root=str(tmp_path / "workspace"))
        await s.allow("read")
        await s.say("look at them")
        await talk(s, 3, used=500)
        await s.engine.compact(s.id)
        [part] = await s.parts()
        assert (part["read_files"], part["modified_files"]) == ([str(outside), "src/a.py"], [])
        assert f"<read-files>\n{outside}\nsrc/a.py\n</read-files>" in part["summary"]


@pytest.mark.rule("CP-2", "BR-8")
async def test_the_turn_of_a_compaction_tells_its_figures_without_its_marker(tmp_path: Path) -> None:
    """Through which turn was summarised, from which on was kept, and how many tokens before and after."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 4, used=7_000)
        await s.engine.compact(s.id)
        one, two, three, _, compaction = await s.turns()
        [part] = await s.parts()
        assert compaction.data == {
            "summarized_through_turn_id": two.id,
            "first_kept_turn_id": three.id,
            "tokens_before": part["tokens_before"],
            "tokens_after": part["tokens_after"],
            "strategy": "summary",
            "turns": 2,
            "tail_start_id": part["tail_start_id"],
        }
        assert one.kind == "normal"


@pytest.mark.rule("CP-3", "CP-4", "CP-11")
async def test_the_model_sees_the_summary_and_the_tail_and_the_person_one_line(tmp_path: Path) -> None:
    """Twice compacted: the second starts at the tail of the first, and carries its summary on."""
    async with opened(tmp_path, summaries=[say(summary("first")), say(summary("second"))]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        await s.engine.compact(s.id)
        assert await s.view() == ["user: summary first", *pairs(2, 4)]
        frame = (await s.engine.messages(s.id, view="model"))[0]
        assert frame.parts[0]["text"].endswith(f"\n\n<summary>\n{(await s.parts())[0]['summary']}\n</summary>")
        await talk_on(s, 4, 7)
        await s.engine.compact(s.id)
        assert await s.view() == ["user: summary second", *pairs(5, 7)]
        asked = s.summariser.requests[1].messages[0].parts[0]["text"]
        assert "<previous-summary>\n## Goal\n- first" in asked
        told = [f"[User]: ask{n}" in asked for n in range(7)]
        assert told == [False, False, True, True, True, False, False]
        marker, *rest = await s.engine.messages(s.id)
        assert marker.parts[0]["type"] == "data-compaction"
        assert texts(rest) == pairs(5, 7)
        everything = await s.engine.messages(s.id, view="all")
        assert texts([m for m in everything if not m.metadata.get("summary")]) == pairs(0, 7)
        hidden = [m.metadata.get("hidden_by") for m in everything if not m.metadata.get("summary")]
        assert hidden == ["compaction"] * 10 + [None] * 4
        await s.is_sound()


@pytest.mark.rule("CP-5")
async def test_two_turns_are_kept_while_they_take_a_quarter_and_else_the_newest(tmp_path: Path) -> None:
    """A quarter of what is usable is 2,250 tokens here; one turn more than that and a warning says so."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 4, used=500, tokens=500)
        await s.engine.compact(s.id)
        assert (await s.view())[1:] == pairs(2, 4)
        assert "warning" not in (await s.parts())[0]
        await talk_on(s, 4, 6, tokens=1_200)
        await s.engine.compact(s.id)
        assert (await s.view())[1:] == pairs(5, 6)
        assert (await s.parts())[1]["warning"] == (
            "the last 2 turns take more than their share; only the newest is kept"
        )


@pytest.mark.rule("CP-11")
async def test_everybody_is_told_and_can_look_at_what_was_summarised(tmp_path: Path) -> None:
    """The event, the marker before the first kept message, and the way back to every word of it."""
    async with opened(tmp_path, summaries=[say(summary("first")), say(summary("second"))]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        told: list[Any] = []
        ready = asyncio.Event()

        async def listen() -> None:
            stream = s.engine.subscribe()
            async for event in stream:
                ready.set()
                if event.type == "context_compacted":
                    told.append(event.data)
                    return

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        done = await s.engine.compact(s.id)
        await asyncio.wait_for(listening, 60)
        assert told == [{"session_id": s.id, **msgspec.to_builtins(done), "auto": False}]
        assert told[0]["turns"] == 2
        first = await s.engine.compaction(s.id, done.message_id or "")
        assert (texts(first.messages), first.previous_id) == (pairs(0, 2), None)
        assert first.data == (await s.parts())[0]
        await talk_on(s, 4, 6)
        again = await s.engine.compact(s.id)
        second = await s.engine.compaction(s.id, again.message_id or "")
        assert (texts(second.messages), second.previous_id) == (pairs(2, 4), done.message_id)
        # What stands behind both is told, not only what the newer one added.
        assert (first.data.get("turns_in_all"), second.data["turns"], second.data["turns_in_all"]) == (None, 2, 4)
        with pytest.raises(MessageNotFound):
            await s.engine.compaction(s.id, first.messages[0].id)


@pytest.mark.rule("CP-11", "CP-2")
async def test_what_a_split_compaction_summarised_ends_inside_a_message(tmp_path: Path) -> None:
    """Only the steps before the split are shown, also of a second one in the same turn."""

    @clew.tool
    async def look(n: int) -> str:
        """Gives much back."""
        return bulk(f"out{n}", 2_600)

    script = [*(call("look", {"n": n}) for n in range(8)), answer("done")]
    async with opened(tmp_path, script, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        outcome = await s.say("go")
        assert outcome.status == "completed"
        markers = [turn for turn in await s.turns() if turn.kind == "compaction"]
        tree = await s.tree()
        reports = [await s.engine.compaction(s.id, tree.links[turn.id][0]) for turn in markers]
        assert len(reports) >= 2
        told = [
            part["input"]["n"] for report in reports for m in report.messages for part in m.parts if "input" in part
        ]
        assert told == list(range(len(told)))
        sent = [part["input"]["n"] for m in s.model.requests[-1].messages for part in m.parts if "input" in part]
        assert told + sent == list(range(8))
        for step in range(9):
            assert (await s.engine.request(outcome.turn_id, step)).proven, step
        await s.is_sound()


# CP-6, CP-7: what the summariser is asked


@pytest.mark.rule("CP-6")
async def test_the_summariser_gets_one_call_without_tools(tmp_path: Path) -> None:
    """The cheap model, cool, at most a quarter of the window, its own prompt, and the history as labelled text."""
    look = large("look", 300)
    async with opened(tmp_path, [call("look", {}), answer("seen", 100)], tools=[look], window=6_000) as s:
        await s.begin()
        await s.allow("look")
        await s.say("have a look")
        await talk(s, 3, used=500, tokens=500)
        await s.engine.compact(s.id)
        [request] = s.summariser.requests
        assert request.model == Model("cheap", "model")
        assert (request.temperature, request.max_output_tokens, list(request.tools)) == (0.2, 1_250, [])
        assert request.system == builtin_agents()["summary"].prompt
        [message] = request.messages
        text = message.parts[0]["text"]
        assert message.role == "user"
        called = f"[Assistant tool calls]: look()\n[Tool result]: {bulk('look', 300)}\n"
        assert f"[User]: have a look\n{called}[Assistant]: seen" in text
        assert s.model.requests[0].tools


@pytest.mark.rule("CP-7")
async def test_files_are_tracked_across_compactions(tmp_path: Path) -> None:
    """Read ones and changed ones; a file that is changed later is no longer listed as only read."""
    script: list[Any] = [
        [call("read", {"path": "a.txt"}), call("read", {"path": "b.txt"})],
        answer("read", 100),
        call("write", {"path": "c.txt", "content": "new"}),
        answer("written", 100),
    ]
    more: list[Any] = [call("write", {"path": "a.txt", "content": "x"}), answer("changed", 100)]
    async with opened(tmp_path, script, tools=[large("look", 10)], window=30_000) as s:
        (s.workspace / "a.txt").write_text("one")
        (s.workspace / "b.txt").write_text("two")
        await s.begin(workspace_root=str(s.workspace))
        await s.allow("read", "write")
        await s.say(bulk("read"))
        await s.say("write one")
        await talk(s, 2, used=500)
        await s.engine.compact(s.id)
        [part] = await s.parts()
        assert (part["read_files"], part["modified_files"]) == (["a.txt", "b.txt"], ["c.txt"])
        assert part["summary"].endswith(
            "\n\n<read-files>\na.txt\nb.txt\n</read-files>\n\n<modified-files>\nc.txt\n</modified-files>\n"
        )
        s.model.add(*more)
        await s.say(bulk("change"))
        await talk(s, 2, used=500)
        await s.engine.compact(s.id)
        _, part = await s.parts()
        assert (part["read_files"], part["modified_files"]) == (["b.txt"], ["a.txt", "c.txt"])
        assert "<read-files>\nb.txt\n</read-files>" in part["summary"]
        assert "read-files" not in s.summariser.requests[1].messages[0].parts[0]["text"]


@pytest.mark.rule("CP-6")
async def test_what_the_user_demanded_is_kept_word_for_word(tmp_path: Path) -> None:
    """Also by a summariser that left it out, and through the next compaction."""
    async with opened(tmp_path) as s:
        await s.begin()
        s.model.add(answer("ok", 100))
        await s.say("Never touch the cellar door.")
        await talk(s, 3, used=500)
        await s.engine.compact(s.id)
        await talk_on(s, 3, 6)
        await s.engine.compact(s.id)
        for part in await s.parts():
            assert '## Constraints & Preferences\n- "Never touch the cellar door."\n' in part["summary"]
            assert [one["text"] for one in part["directives"]] == ["Never touch the cellar door."]


# CP-9: presets


@pytest.mark.slow
@pytest.mark.rule("CP-9")
@pytest.mark.parametrize(
    ("preset", "window", "fires_at"),
    [("guide", 100_000, 80_000), ("overlay", 100_000, 83_617), ("turn", 100_000, 80_001)],
)
async def test_a_preset_fires_where_its_source_says(tmp_path: Path, preset: str, window: int, fires_at: int) -> None:
    """At the threshold or strictly above it; the model's maximal output is 20,000 and more."""
    config = settings(preset=preset)
    for used, kinds in ((fires_at - 1, []), (fires_at, ["compaction"])):
        async with opened(tmp_path, config=config, window=window, max_output=30_000) as s:
            await s.begin()
            await talk(s, 5, used=used - 15, tokens=8_000)
            await s.say("n" * 40)
            assert (await s.kinds())[5:-1] == kinds, used


@pytest.mark.rule("SP-1", "PR-5", "CP-9")
async def test_checkpoint_says_the_time_before_each_prompt_and_never_in_the_system_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source 001:64. Each request begins with the one before it; other presets send no time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    day = 24 * 3_600_000
    for preset in ("checkpoint", "guide"):
        clock = FakeClock(now_ms=20_000 * day)
        async with opened(tmp_path, config=settings(preset=preset), clock=clock) as s:
            await s.begin()
            await s.say("one")
            clock.advance(90 * 60_000)
            await s.say("two")
            parts = ([part for one in request.messages for part in one.parts] for request in s.model.requests)
            first, second = ([part["text"] for part in request if "text" in part] for request in parts)
            told = [f"[When this was sent:]\nTime: 2024-10-04 {at} (Europe/Berlin)" for at in ("02:00", "03:30")]
            expected = [told[0], "one", "ok", told[1], "two"] if preset == "checkpoint" else ["one", "ok", "two"]
            assert (second, second[: len(first)]) == (expected, first)
            assert len({request.system for request in s.model.requests}) == 1
            assert "Time: " not in s.model.requests[0].system
            await s.is_sound()


@pytest.mark.rule("RN-2", "CP-9")
async def test_checkpoint_takes_equal_calls_with_other_results_for_a_circle(tmp_path: Path) -> None:
    """Source 001:72. Elsewhere a result that changes is progress."""
    results: list[int] = []

    @clew.tool
    async def poll() -> int:
        """Count."""
        results.append(len(results))
        return results[-1]

    ended = []
    for preset in ("checkpoint", "guide"):
        async with opened(tmp_path, config=settings(preset=preset), tools=[poll]) as s:
            await s.begin()
            await s.allow("poll")
            for _ in range(4):
                s.model.add(call("poll", {}))
            s.model.add(answer("done"))
            ended.append((await s.say("go")).stopped)
            warned = [text for one in s.model.requests[-1].messages for text in one.texts if text == WARNING]
            assert len(warned) == len(ended) % 2
    assert (ended, results) == (["doom_loop", None], [*range(8)])


@pytest.mark.rule("CP-9", "CP-3")
async def test_checkpoint_looks_after_the_turn_and_writes_a_pair(tmp_path: Path) -> None:
    """At 80 % and six messages; four turns stay, both halves of the pair say that they are a summary."""
    async with opened(tmp_path, config=settings(preset="checkpoint")) as s:
        await s.begin()
        await talk(s, 2, used=8_000, tokens=400)
        assert await s.kinds() == ["normal"] * 2
        await talk_on(s, 2, 5, tokens=400)
        s.model.add(answer("re5", 7_999))
        await s.say("ask5")
        assert await s.kinds() == ["normal"] * 6
        s.model.add(answer("re6", 8_000))
        await s.say("ask6")
        assert await s.kinds() == ["normal"] * 7 + ["compaction"]
        boundary, text, *kept = await s.engine.messages(s.id, view="model")
        assert [(m.role, m.metadata["summary"], m.metadata["synthetic"]) for m in (boundary, text)] == [
            ("user", True, True),
            ("assistant", True, True),
        ]
        assert text.parts[0]["text"] == (await s.parts())[0]["summary"]
        assert texts(kept) == pairs(3, 7)
        request = s.summariser.requests[0]
        assert (request.temperature, request.max_output_tokens) == (0.3, 1_481)
        assert (await s.parts())[0]["frame"] == "pair"
        await s.is_sound()


@pytest.mark.rule("CP-9")
async def test_checkpoint_is_never_fatal_and_never_in_the_way(tmp_path: Path) -> None:
    """A failure is only logged; a prompt that comes right behind a turn is not turned away for nothing."""
    summaries = ScriptedModel(otherwise=fail(401, "no key"))
    async with opened(tmp_path, config=settings(preset="checkpoint"), summaries=summaries) as s:
        await s.begin()
        for n in range(6):
            s.model.add(answer(bulk("re", 400), 8_500 if n == 5 else 100))
            await s.prompt(bulk("ask", 400))  # refused when the session is busy
        await s.rest()
        assert await s.kinds() == ["normal"] * 6
        assert len(summaries.requests) == 1
        assert (await s.say("go on")).status == "completed"
        await s.is_sound()


@pytest.mark.rule("CP-9")
async def test_a_prompt_during_the_look_after_a_turn_waits_for_it(tmp_path: Path) -> None:
    """It is queued, and runs on the compacted session."""
    gate = Gate()
    async with opened(tmp_path, config=settings(preset="checkpoint"), summaries=[[wait(gate), say(summary("x"))]]) as s:
        await s.begin()
        for n in range(6):
            s.model.add(answer(bulk("re", 400), 8_500 if n == 5 else 100))
            await s.say(bulk("ask", 400)) if n < 5 else await (await s.send(bulk("ask", 400))).wait()
        await gate.reached.wait()
        assert (await s.engine.get_status(s.id)).state == "busy"
        with pytest.raises(SessionBusy):
            await s.prompt("now")
        waiting = await s.send("then")
        assert waiting.queued
        gate.set()
        assert (await waiting.wait()).status == "completed"
        assert s.sent()[-1] == "user: then"
        assert await s.kinds() == ["normal"] * 6 + ["compaction", "normal"]
        await s.settled()


# CP-10: reading


@pytest.mark.rule("CP-10", "US-3")
async def test_reading_writes_nothing(tmp_path: Path) -> None:
    """A session over its threshold is read in every way; the whole store is as it was, and nobody was asked."""
    path = tmp_path / "store.db"
    async with opened(tmp_path, url=f"sqlite:///{path}") as s:
        await s.begin()
        await talk(s, 4, used=500)
        done = await s.engine.compact(s.id)
        await talk_on(s, 4, 6)
        s.model.add(answer("full", 9_500))
        outcome = await s.say("last")
        before = _dump(path)
        for view in ("visible", "all", "model"):
            await s.engine.messages(s.id, view=view)
        await s.engine.context(s.id)
        await s.engine.context(s.id, model="test/other")
        await s.engine.tree(s.id)
        await s.engine.reflog(s.id)
        await s.engine.compaction(s.id, done.message_id or "")
        await s.engine.turn(outcome.turn_id)
        assert (await s.engine.request(outcome.turn_id)).proven
        assert _dump(path) == before
        assert len(s.summariser.requests) == 1


def _dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        return list(database.iterdump())


@pytest.mark.rule("CP-10")
async def test_what_another_model_counted_never_fires(tmp_path: Path) -> None:
    """The same words on another model are estimated."""
    other = ScriptedModel(otherwise=answer())
    async with opened(tmp_path, infos=[info("other/model", 10_000)], more={"other": other}) as s:
        await s.begin()
        await talk(s, 3, used=9_999, tokens=600)
        await s.say("go on", model="other/model")
        assert await s.kinds() == ["normal"] * 4
        assert len(other.requests[0].messages) == 7


@pytest.mark.rule("CP-10", "US-3")
async def test_what_was_counted_before_a_compaction_never_fires_again(tmp_path: Path) -> None:
    """Also when the clock stands still: what a step was sent decides, not its time."""
    clock = FakeClock()
    async with opened(tmp_path, clock=clock) as s:
        await s.begin()
        await talk(s, 4, used=9_900, tokens=500)
        await s.engine.compact(s.id)
        report = await s.engine.context(s.id)
        assert (report.measured, report.used < 3_000) == (False, True)
        s.model.add(answer("small", 2_500))
        await s.say("go on")
        assert len(s.summariser.requests) == 1
        assert (await s.engine.context(s.id)).used == 2_500
