"""Compaction as a session lives it: when it fires, what it writes, what the model and the person see afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.context.compact import Compacted
from clew.testing.scripted import call, fail, then
from clew.transcript.usage import Usage
from tests.acceptance.large_talks import THRESHOLD, large, pairs, talk, talk_on

from .compacting import answer, bulk, opened, settings

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


@pytest.mark.rule("US-3", "CP-1")
async def test_a_rollup_fires_where_turns_are_tiny(tmp_path: Path) -> None:
    """Source 000:59-65. A summary may be longer than such turns: what they were billed leaves the sum with them."""
    async with opened(tmp_path, config=settings(context_measure="rollup")) as s:
        await s.begin()
        for n in range(7):
            s.model.add(answer("ok", 1_500))
            await s.say(f"hi {n}")
        await s.say("one more")
        assert await s.kinds() == [*["normal"] * 6, "compaction", "normal", "normal"]
        assert (await s.view())[:2] == ["user: summary the goal", "user: hi 5"]
        assert 2 * 1_500 <= (await s.engine.context(s.id)).used < 4_500
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
            tokens_before=part["tokens_before"],
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
        assert "compact the session (compaction is disabled here)" in (outcome.error or {})["message"]
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
