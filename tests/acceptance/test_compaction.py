"""Compaction as a session lives it: when it fires, what it writes, what the model and the person see afterwards."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.agents.catalog import builtin_agents
from clew.errors import MessageNotFound, RunAborted, SessionBusy, SessionNotFound
from clew.runtime.compact import Compacted, Plan
from clew.runtime.hooks import HookRefused
from clew.testing.clock import FakeClock
from clew.testing.scripted import Gate, ScriptedModel, call, fail, say, then, wait
from clew.tools.base import Tool
from clew.transcript.session import Model
from clew.transcript.usage import Usage

from .compacting import Compacting, answer, bulk, info, opened, settings, summary, texts

THRESHOLD = 9_000
"""Of a window of 10,000 with a maximal output of 1,000."""


async def talk(s: Compacting, count: int, *, used: int | None = None, tokens: int = 500) -> None:
    """So many turns of which each word is heavy; ``used`` is what the provider counts at the last of them."""
    for n in range(count):
        s.model.add(answer(bulk(f"re{n}", tokens), used if n == count - 1 else 100))
        await s.say(bulk(f"ask{n}", tokens))


def large(name: str, tokens: int) -> Tool:
    """A tool whose output takes so many tokens."""

    async def run() -> str:
        """Gives much back."""
        return bulk(name, tokens)

    run.__name__ = name
    return clew.tool(run)


# CP-1: when


@pytest.mark.rule("CP-1", "CP-10")
@pytest.mark.parametrize(("short", "kinds"), [(0, ["compaction", "normal"]), (1, ["normal"])])
async def test_it_fires_at_the_threshold_and_not_one_token_below(tmp_path: Path, short: int, kinds: list[str]) -> None:
    """What the provider counted and what is estimated of the new message are one sum."""
    async with opened(tmp_path) as s:
        await s.begin()
        new = 11 + 4  # forty characters, and the borders of a message
        await talk(s, 3, used=THRESHOLD - new - short)
        await s.say("n" * 40)
        assert (await s.kinds())[3:] == kinds
        assert len(s.summariser.requests) == len(kinds) - 1
        await s.is_sound()


@pytest.mark.rule("CP-1", "BR-9", "CP-4")
async def test_a_compaction_for_an_open_turn_lies_between_the_head_and_that_turn(tmp_path: Path) -> None:
    """Its turn is below the old head, the open turn below it, one deeper; the reflog tells of both moves."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 3, used=THRESHOLD)
        before = await s.tree()
        outcome = await s.say("now")
        after = await s.tree()
        *old, compaction, turn = await s.turns()
        assert [t.id for t in old] == [t.id for t in before.turns.values()]
        assert (compaction.kind, compaction.status, compaction.parent_turn_id, compaction.depth) == (
            "compaction",
            "completed",
            before.head_turn_id,
            3,
        )
        assert (turn.id, turn.parent_turn_id, turn.depth, turn.compaction_turn_id) == (
            outcome.turn_id,
            compaction.id,
            4,
            compaction.id,
        )
        moves = [(move.from_turn_id, move.to_turn_id, move.why) for move in after.moves[-2:]]
        assert moves == [
            (before.head_turn_id, compaction.id, "compaction"),
            (compaction.id, turn.id, "turn"),
        ]
        assert outcome.status == "completed"
        await s.is_sound()


@pytest.mark.rule("CP-1", "CP-5")
async def test_inside_a_turn_earlier_turns_are_summarised_and_the_turn_stays_whole(tmp_path: Path) -> None:
    """The request for the next step holds the summary, the user's message and the step so far."""
    look = large("look", 1_500)
    script = [
        answer(bulk("re0"), 100),
        answer(bulk("re1"), 100),
        then(call("look", {}), usage=Usage(7_600, 5)),
        answer("done"),
    ]
    async with opened(tmp_path, script, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        await s.say(bulk("ask0"))
        await s.say(bulk("ask1"))
        await s.say("go")
        assert s.sent() == ["user: summary the goal", "user: go", f"assistant: look → {bulk('look')[:24]}"]
        assert await s.kinds() == ["normal", "normal", "compaction", "normal"]
        assert "split" not in (await s.parts())[0]
        assert (await s.transcript())[-1] == "assistant: done"
        await s.is_sound()


@pytest.mark.rule("CP-1", "CP-2", "CP-5")
async def test_a_turn_that_is_too_large_by_itself_is_split_at_the_start_of_a_step(tmp_path: Path) -> None:
    """Its user message stays, its newest steps stay, and the part the split names is the start of a step."""

    @clew.tool
    async def look(n: int) -> str:
        """Gives much back."""
        return bulk(f"out{n}", 2_600)

    script = [*(call("look", {"n": n}) for n in range(4)), answer("done")]
    async with opened(tmp_path, script, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        outcome = await s.say("go")
        assert outcome.status == "completed"
        [part] = await s.parts()
        rows = {row.id: row for row in await s.engine.store.load_messages(s.id)}
        split = part["split"]
        parts = rows[split["message_id"]].parts
        assert parts[split["from_part"]].type == "step-start"
        assert rows[part["tail_start_id"]].role == "user"
        assert (part["turns"], part["strategy"]) == (1, "summary")
        assert s.sent()[:2] == ["user: summary the goal", "user: go"]
        assert sum(len(p.data.get("output", "")) for p in parts) == 4 * len(bulk("out0", 2_600))
        for step in range(5):
            assert (await s.engine.request(outcome.turn_id, step)).proven
        await s.is_sound()


@pytest.mark.rule("CP-1", "PR-1")
async def test_inside_a_turn_outputs_are_pruned_before_anything_is_summarised(tmp_path: Path) -> None:
    """Old outputs are enough: nothing is summarised, and what is stored stays whole."""
    look = large("look", 1_800)
    script: list[Any] = []
    for n in range(4):
        script += [then(call("look", {}), usage=Usage(100, 5)), answer(f"re{n}", 2_000 * (n + 1))]
    async with opened(tmp_path, script, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        for n in range(4):
            await s.say(f"ask{n}")
        s.model.add(answer("last"))
        await s.say("last")
        assert await s.kinds() == ["normal"] * 5
        stubs = [line for line in s.sent() if "[output pruned" in line]
        assert len(stubs) >= 1
        outputs = [part.get("output") for m in await s.engine.messages(s.id) for part in m.parts if "output" in part]
        assert outputs == [bulk("look", 1_800)] * 4
        await s.is_sound()


@pytest.mark.rule("CP-1", "CP-8")
async def test_a_provider_that_says_it_was_too_much_gets_less_once(tmp_path: Path) -> None:
    """Whatever was counted: the turn is compacted and asked again; a second refusal is a clear error."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 3, used=500)
        s.model.add(fail(kind="overflow", text="prompt is too long"), answer("fits now"))
        assert (await s.say("go")).status == "completed"
        assert s.sent(-2)[0] == f"user: {bulk('ask0')[:4]}"
        assert s.sent()[0] == "user: summary the goal"
        assert (await s.transcript())[-1] == "assistant: fits now"

        await talk(s, 2, used=500)
        s.model.add(*[fail(kind="overflow", text="prompt is too long")] * 2)
        asked = len(s.model.requests)
        outcome = await s.say("again")
        assert (outcome.status, (outcome.error or {})["code"]) == ("failed", "context_too_large")
        assert len(s.model.requests) == asked + 2
        assert (await s.say("and now")).status == "completed"
        await s.is_sound()


@pytest.mark.rule("CP-1", "CP-6")
async def test_by_hand_with_a_focus(tmp_path: Path) -> None:
    """Whatever the size; the focus goes into the request and into the record. Again there is nothing to do."""
    async with opened(tmp_path) as s:
        await s.begin()
        empty = (await s.engine.context(s.id)).used
        assert await s.engine.compact(s.id) == Compacted(compacted=False, tokens_before=empty, tokens_after=empty)
        await talk(s, 4, used=7_000)
        done = await s.engine.compact(s.id, "the colour of the roof")
        [part] = await s.parts()
        visible = await s.engine.messages(s.id)
        used = (await s.engine.context(s.id)).used
        assert done == Compacted(
            compacted=True,
            message_id=visible[0].id,
            strategy="summary",
            tokens_before=7_000,
            tokens_after=used,
            turns=2,
        )
        assert (part["auto"], part["focus"], part["tokens_after"]) == (False, "the colour of the roof", used)
        assert (
            "special attention to this: the colour of the roof" in s.summariser.requests[0].messages[0].parts[0]["text"]
        )
        again = await s.engine.compact(s.id)
        assert again == Compacted(compacted=False, tokens_before=used, tokens_after=used)
        assert len(s.summariser.requests) == 1
        await s.is_sound()


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
            "tokens_before": THRESHOLD + 10,
            "tokens_after": part["tokens_after"],
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


async def talk_on(s: Compacting, first: int, end: int, tokens: int = 500) -> None:
    for n in range(first, end):
        s.model.add(answer(bulk(f"re{n}", tokens), 100))
        await s.say(bulk(f"ask{n}", tokens))


def pairs(first: int, end: int) -> list[str]:
    return [line for n in range(first, end) for line in (f"user: ask{n}", f"assistant: re{n}")]


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
        await asyncio.wait_for(listening, 5)
        assert told == [{"session_id": s.id, **msgspec.to_builtins(done), "auto": False}]
        assert told[0]["turns"] == 2
        first = await s.engine.compaction(s.id, done.message_id or "")
        assert (texts(first.messages), first.previous_id) == (pairs(0, 2), None)
        assert first.data == (await s.parts())[0]
        await talk_on(s, 4, 6)
        again = await s.engine.compact(s.id)
        second = await s.engine.compaction(s.id, again.message_id or "")
        assert (texts(second.messages), second.previous_id) == (pairs(2, 4), done.message_id)
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
        assert (request.temperature, request.max_output_tokens) == (0.3, 1_454)
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
    with sqlite3.connect(path) as database:
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


# CP-12: settings


@pytest.mark.rule("CP-12")
@pytest.mark.parametrize("by_session", [False, True])
async def test_switched_off_nothing_fires_and_too_much_is_a_clear_error(tmp_path: Path, by_session: bool) -> None:
    """By the user's settings or the session's own; by hand it still works, and helps."""
    config = None if by_session else settings(enabled=False)
    metadata = {"compaction": {"enabled": False}} if by_session else {}
    async with opened(tmp_path, config=config) as s:
        await s.begin(metadata=metadata)
        await talk(s, 4, used=9_500, tokens=800)
        s.model.add(fail(kind="overflow", text="too long"))
        outcome = await s.say("go")
        assert (outcome.status, (outcome.error or {})["code"]) == ("failed", "context_too_large")
        assert "compact the session (compaction is off here)" in (outcome.error or {})["message"]
        assert await s.kinds() == ["normal"] * 5
        await talk_on(s, 5, 8, tokens=800)
        refused = await s.say(bulk("more", 1_500))
        assert (refused.status, (refused.error or {})["code"]) == ("refused", "context_too_large")
        assert s.summariser.requests == []
        assert (await s.engine.compact(s.id)).compacted
        assert (await s.say(bulk("more", 1_500))).status == "completed"
        await s.is_sound()


@pytest.mark.rule("CP-12")
async def test_a_session_has_its_own_settings_before_the_users(tmp_path: Path) -> None:
    """Reserve and tail as the session says; the rest as the user does."""
    async with opened(tmp_path, config=settings(reserve_tokens=1_000, tail_turns=1)) as s:
        await s.begin(metadata={"compaction": {"reserve_tokens": 4_000, "tail_turns": 3, "tail_budget_pct": 0.9}})
        assert (await s.engine.context(s.id)).threshold == 6_000
        await talk(s, 5, used=6_000, tokens=300)
        await s.say("go on")
        assert s.sent() == ["user: summary the goal", *pairs(3, 5), "user: go on"]


# What happens meanwhile


@pytest.mark.rule("SR-7")
async def test_a_message_sent_during_a_compaction_by_hand_runs_after_it(tmp_path: Path) -> None:
    """It is queued; what would move the head is refused."""
    gate = Gate()
    async with opened(tmp_path, summaries=[[wait(gate), say(summary("x"))]]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        compacting = asyncio.create_task(s.engine.compact(s.id))
        await gate.reached.wait()
        status = await s.engine.get_status(s.id)
        assert (status.state, status.message) == ("busy", "summarising earlier turns")
        sent = await s.send("next")
        assert sent.queued
        with pytest.raises(SessionBusy):
            await s.engine.compact(s.id)
        with pytest.raises(SessionBusy):
            await s.engine.prune(s.id)
        with pytest.raises(SessionBusy):
            await s.engine.delete_session(s.id)
        gate.set()
        assert (await compacting).compacted
        assert (await sent.wait()).status == "completed"
        assert s.sent() == ["user: summary x", *pairs(2, 4), "user: next"]
        await s.settled()
        await s.is_sound()


@pytest.mark.rule("SR-3")
async def test_a_compaction_by_hand_can_be_aborted(tmp_path: Path) -> None:
    """Nothing was written, and the session takes the next prompt; an interrupting one aborts it by itself."""
    first, second = Gate(), Gate()
    async with opened(tmp_path, summaries=[wait(first), wait(second)]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        compacting = asyncio.create_task(s.engine.compact(s.id))
        await first.reached.wait()
        assert await s.engine.abort(s.id)
        with pytest.raises(RunAborted):
            await compacting
        assert (await s.engine.get_status(s.id)).state == "idle"
        compacting = asyncio.create_task(s.engine.compact(s.id))
        await second.reached.wait()
        sent = await s.send("me first", on_busy="interrupt")
        with pytest.raises(RunAborted):
            await compacting
        assert (await sent.wait()).status == "completed"
        await s.settled()
        assert await s.kinds() == ["normal"] * 5
        assert s.summariser.closed_early == 2
        await s.is_sound()


@pytest.mark.rule("SR-3", "CP-1")
async def test_a_turn_that_is_aborted_while_it_makes_room_is_aborted(tmp_path: Path) -> None:
    """The status said what it was doing; its message stays, the queue goes on."""
    gate = Gate()
    async with opened(tmp_path, summaries=[wait(gate)]) as s:
        await s.begin()
        await talk(s, 4, used=9_500)
        sent = await s.send("go")
        await gate.reached.wait()
        status = await s.engine.get_status(s.id)
        assert (status.state, status.message) == ("busy", "summarising earlier turns")
        turn = (await s.turns())[-1]
        assert (turn.status, turn.id) == ("compacting", sent.turn_id)
        await s.engine.abort(s.id)
        assert (await sent.wait()).status == "aborted"
        await s.settled()
        assert await s.kinds() == ["normal"] * 5
        assert (await s.transcript())[-1] == "user: go"
        assert (await s.say("again")).status == "completed"
        assert (await s.kinds())[5:] == ["compaction", "normal"]
        await s.is_sound()


@pytest.mark.rule("RN-6")
async def test_a_hook_may_refuse_a_compaction_or_change_its_focus(tmp_path: Path) -> None:
    """By hand the refusal is told; a turn goes on without; observers learn what became of it."""
    async with opened(tmp_path) as s:
        seen: list[Compacted] = []
        mind = ["refuse", "refuse", "focus"]

        async def before(plan: Plan) -> Plan:
            if mind.pop(0) == "refuse":
                raise ValueError("not now")
            return msgspec.structs.replace(plan, focus="the hook's own")

        async def after(done: Compacted) -> None:
            seen.append(done)

        s.engine.hook("before_compaction", before)
        s.engine.hook("after_compaction", after)
        await s.begin()
        await talk(s, 4, used=9_100)
        with pytest.raises(HookRefused, match="not now"):
            await s.engine.compact(s.id)
        assert (await s.say("go")).status == "completed"
        assert await s.kinds() == ["normal"] * 5
        done = await s.engine.compact(s.id)
        await s.engine.host.hooks.drain()
        assert (await s.parts())[0]["focus"] == "the hook's own"
        assert seen == [done]
        assert len(s.summariser.requests) == 1


@pytest.mark.rule("ST-11")
@pytest.mark.parametrize("inside", [False, True])
async def test_a_session_may_be_deleted_while_it_is_summarised(tmp_path: Path, inside: bool) -> None:
    """By force; whoever waited is told, and nothing is left."""
    gate = Gate()
    async with opened(tmp_path, summaries=[wait(gate)]) as s:
        await s.begin()
        await talk(s, 4, used=9_500)
        if inside:
            sent = await s.send("go")
            waiting = asyncio.create_task(sent.wait())
        else:
            waiting = asyncio.create_task(s.engine.compact(s.id))  # type: ignore[arg-type]
        await gate.reached.wait()
        with pytest.raises(SessionBusy):
            await s.engine.delete_session(s.id)
        await s.engine.delete_session(s.id, force=True)
        if inside:
            assert (await waiting).status == "aborted"
        else:
            with pytest.raises(RunAborted):
                await waiting
        with pytest.raises(SessionNotFound):
            await s.engine.get_session(s.id)
        assert await s.engine.store.session_ids() == ()
        assert await s.check() == []


@pytest.mark.rule("CP-1", "RW-2")
async def test_room_is_made_for_an_unanswered_turn_that_is_the_head(tmp_path: Path) -> None:
    """A resend that is run: the summary goes above it, not below, and it is the head again once answered."""
    async with opened(tmp_path) as s:
        await s.begin()
        await talk(s, 4, used=500)
        sent = await s.send("once more")
        await sent.wait()
        await s.settled()
        await s.engine.rewind(s.id, sent.message_id)
        head = (await s.tree()).head_turn_id
        assert (await s.turns())[-1].status == "unanswered"
        s.model.add(fail(kind="overflow", text="too long"), answer("second"))
        await (await s.engine.continue_turn(s.id)).wait()
        await s.settled()
        assert await s.kinds() == ["normal"] * 4 + ["compaction", "normal"]
        assert (await s.tree()).head_turn_id == head
        assert (await s.transcript())[-1] == "assistant: second"
        await s.is_sound()


@pytest.mark.rule("CP-1", "RN-1")
async def test_room_is_made_for_a_turn_that_goes_on_after_its_step_limit(tmp_path: Path) -> None:
    """It is the head while it runs; the summary goes above it, and the requests before and after are proven."""

    @clew.tool
    async def look(n: int) -> str:
        """Gives much back."""
        return bulk(f"out{n}", 700)

    async with opened(tmp_path, tools=[look], window=12_000) as s:
        await s.begin()
        await s.allow("look")
        await talk(s, 2, used=500)
        s.model.add(*(call("look", {"n": n}) for n in range(10)))
        outcome = await s.say("go")
        assert outcome.stopped == "step_limit"
        s.model.add(fail(kind="overflow", text="too long"), answer("done"))
        outcome = await (await s.engine.continue_turn(s.id)).wait()
        await s.rest()
        assert outcome.status == "completed"
        assert (await s.kinds())[:2] == ["normal", "normal"]
        assert (await s.kinds())[-1] == "normal"
        assert set((await s.kinds())[2:-1]) == {"compaction"}
        assert (await s.tree()).head_turn_id == outcome.turn_id
        assert [(await s.engine.request(outcome.turn_id, n)).proven for n in range(11)] == [True] * 11
        await s.is_sound()


@pytest.mark.rule("CP-5")
async def test_when_nothing_settled_fits_the_tail_begins_at_the_newest_user_message(tmp_path: Path) -> None:
    """An answer larger than the window stands before it."""
    async with opened(tmp_path, infos=[info("test/large", 1_000_000)]) as s:
        await s.begin()
        s.model.add(answer(bulk("long", 12_000), 100))
        await s.say("tell me all", model="test/large")
        sent = await s.send("go", model="test/model")
        assert (await sent.wait()).status == "completed"
        await s.rest()
        [part] = await s.parts()
        assert (part["tail_start_id"], part["turns"], part["messages"]) == (sent.message_id, 1, 2)
        assert s.sent() == ["user: summary the goal", "user: go"]
        await s.is_sound()


@pytest.mark.rule("CP-5")
async def test_by_hand_a_settled_turn_that_is_too_large_is_summarised_too(tmp_path: Path) -> None:
    """Then nothing is kept, and the tail begins at the marker itself."""
    async with opened(tmp_path) as s:
        await s.begin()
        s.model.add(answer(bulk("long", 12_000), 100))
        await s.say("tell me all")
        done = await s.engine.compact(s.id)
        assert (await s.parts())[0]["tail_start_id"] == done.message_id
        assert await s.view() == ["user: summary the goal"]
        await s.say("go on")
        assert s.sent() == ["user: summary the goal", "user: go on"]
        assert (await s.engine.messages(s.id))[0].id == done.message_id
        await s.is_sound()


@pytest.mark.rule("CP-9", "CP-5")
@pytest.mark.parametrize(("preset", "kept"), [("overlay", 5), ("turn", 8)])
async def test_a_preset_that_keeps_tokens_keeps_the_newest_messages(tmp_path: Path, preset: str, kept: int) -> None:
    """20,000 and 30,000 of them; a message takes 4,004 here, and a tail may begin with an answer."""
    async with opened(tmp_path, config=settings(preset=preset), window=200_000) as s:
        await s.begin()
        await talk(s, 8, used=500, tokens=4_000)
        await s.engine.compact(s.id)
        assert (await s.view())[1:] == pairs(0, 8)[-kept:]
        await s.is_sound()


@pytest.mark.rule("CP-3", "CP-5", "CP-11", "RN-2")
async def test_a_tail_may_begin_at_a_warning_inside_a_turn_and_nothing_falls_between(tmp_path: Path) -> None:
    """What stood before the warning is told by the summary that made room, and is found under it."""

    @clew.tool
    async def look() -> str:
        """Gives much back."""
        return bulk("out", 7_000)

    script = [call("look", {}), call("look", {}), then(call("look", {}), usage=Usage(9_500, 5)), answer("done")]
    async with opened(tmp_path, script, tools=[look]) as s:
        await s.begin()
        await s.allow("look")
        outcome = await s.say("go")
        assert outcome.status == "completed"
        rows = [
            row
            for entry in (await s.engine.store.load_line(s.id)).turns
            for row in entry.messages
            if entry.turn.kind == "normal"
        ]
        assert [row.role for row in rows] == ["user", "assistant", "user", "assistant"]
        assert (await s.parts())[-1]["tail_start_id"] == rows[2].id
        tree = await s.tree()
        told = {row.id: 0 for row in rows}
        for turn in await s.turns():
            if turn.kind == "compaction":
                for message in (await s.engine.compaction(s.id, tree.links[turn.id][0])).messages:
                    told[message.id] += len(message.parts)
        for message in (await s.engine.messages(s.id, view="model"))[1:]:
            told[message.id] += len(message.parts)
        assert told == {row.id: len(row.parts) for row in rows}
        assert [(await s.engine.request(outcome.turn_id, n)).proven for n in range(4)] == [True] * 4
        await s.is_sound()


@pytest.mark.rule("CP-1", "RN-6")
async def test_a_hook_that_refuses_leaves_a_turn_that_has_no_room_refused(tmp_path: Path) -> None:
    """Nothing else can be done; the summariser is not asked, and the text is handed back."""
    async with opened(tmp_path, infos=[info("test/large", 1_000_000)]) as s:

        async def before(plan: Plan) -> None:
            raise ValueError("not now")

        s.engine.hook("before_compaction", before)
        await s.begin()
        s.model.add(answer(bulk("long", 12_000), 100))
        await s.say("tell me all", model="test/large")
        outcome = await s.say("go", model="test/model")
        assert (outcome.status, (outcome.error or {})["text"]) == ("refused", "go")
        assert s.summariser.requests == []
        await s.is_sound()


@pytest.mark.rule("CP-1")
async def test_a_large_message_is_taken_when_a_short_summary_leaves_room_for_it(tmp_path: Path) -> None:
    """Where nothing else can be sent, there need be no room to spare; one a little larger is refused."""
    async with opened(tmp_path, goal="x") as s:
        await s.begin()
        fixed = (await s.engine.context(s.id)).used
        s.model.add(answer(bulk("re", 1_500), 100))
        await s.say(bulk("ask", 1_500))
        assert (await s.say(bulk("most", 10_000 - fixed - 200))).status == "completed"
        assert [part["strategy"] for part in await s.parts()] == ["summary"]
        assert (await s.say(bulk("more", 10_000 - fixed - 20))).status == "refused"
        assert (await s.say("less")).status == "completed"
        await s.is_sound()
