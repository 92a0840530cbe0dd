"""The budget: what a request is estimated at, what a provider has counted of it, and when it is too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.compaction.budget import (
    Count,
    Measured,
    Ruler,
    Size,
    Window,
    count_of,
    estimate_message,
    estimate_part,
    estimate_tokens,
    find_measured,
    fires,
    learn,
    plain_tokens,
    reaches,
    rollup_used,
    size_request,
    window_of,
)
from clew.compaction.policy import Policy, policy_for
from clew.config import CompactionConfig, PruningConfig
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

START = {"type": "step-start"}
MODEL = Model("demo", "echo")


def policy(preset: Any = "guide", **given_: Any) -> Policy:
    return policy_for(CompactionConfig(preset=preset, **given_), PruningConfig(), None)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(output: Any = "", state: str = "output-available", **given_: Any) -> dict[str, Any]:
    part = {"type": "tool-read", "toolCallId": "c1", "state": state, "input": {"path": "a"}, **given_}
    return {**part, "output": output} if state == "output-available" else part


def user(id_: str, words: str, **metadata: Any) -> Message:
    return Message(id_, "user", [text(words)], metadata)


def reply(id_: str, *parts: dict[str, Any], **metadata: Any) -> Message:
    return Message(id_, "assistant", list(parts), metadata)


def step(message_id: str, index: int, total: int, *, started_at: int = 10, model: Model = MODEL) -> Step:
    return Step(
        turn_id="t",
        index=index,
        message_id=message_id,
        usage=Usage(input=total - 3, output=1, reasoning=1, cache_read=1),
        model=model,
        started_at=started_at,
        finished_at=started_at + 1,
    )


# Estimates


@pytest.mark.rule("US-3")
def test_a_quarter_of_the_characters_and_a_tenth_on_top_rounded_up() -> None:
    """The plain count, which errs the other way, is rounded down."""
    assert [estimate_tokens(chars) for chars in (0, 1, 3, 4, 40, 41, 400)] == [0, 1, 1, 2, 11, 12, 110]
    assert [plain_tokens(chars) for chars in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


@pytest.mark.rule("US-3")
def test_a_part_counts_as_it_is_sent() -> None:
    """A call with its name, arguments and result; an image as a flat figure; no reasoning and no data."""
    given_ = '{"path":"a"}'
    parts: list[tuple[dict[str, Any], int]] = [
        (text("x" * 40), 11),
        (START, 0),
        ({"type": "reasoning", "text": "x" * 400}, 0),
        ({"type": "data-compaction", "data": {"summary": "x" * 400}}, 0),
        ({"type": "file", "mediaType": "image/png", "url": "data:" + "x" * 9_000}, 1_500),
        ({"type": "file", "mediaType": "a/b", "filename": "x" * 36}, 11),
        (tool("y" * 24), estimate_tokens(4 + len(given_) + 24)),
        (tool({"y": 1}), estimate_tokens(4 + len(given_) + len('{"y":1}'))),
        (tool(state="output-error", errorText="y" * 24), estimate_tokens(4 + len(given_) + 24)),
        (tool(state="output-denied", approval={"reason": "y" * 24}), estimate_tokens(4 + len(given_) + 24)),
        (tool(state="input-available"), estimate_tokens(4 + len(given_))),
    ]
    assert [estimate_part(part) for part, _ in parts] == [tokens for _, tokens in parts]


@pytest.mark.rule("US-3")
def test_a_message_has_a_few_tokens_beside_its_parts() -> None:
    """One that holds nothing that is sent takes none."""
    assert estimate_message(user("u", "x" * 40)) == 15
    assert estimate_message(reply("a", START, {"type": "reasoning", "text": "hm"})) == 0


# Thresholds


@pytest.mark.rule("CP-1")
def test_the_guide_fires_at_its_threshold() -> None:
    """used >= limit − min(20,000, max output)."""
    window = window_of(policy(), 200_000, 64_000)
    assert window == Window(200_000, 20_000, 180_000)
    assert [fires(policy(), window, used, 1) for used in (179_999, 180_000, 180_001)] == [False, True, True]


@pytest.mark.rule("CP-9")
def test_the_strict_presets_fire_above_their_threshold() -> None:
    """003 and 004 compare with >."""
    for preset, reserve in (("overlay", 16_384), ("turn", 20_000)):
        window = window_of(policy(preset), 200_000, 64_000)
        assert window == Window(200_000, reserve, 200_000 - reserve)
        at = window.threshold
        assert [fires(policy(preset), window, used, 1) for used in (at - 1, at, at + 1)] == [False, False, True]


@pytest.mark.rule("CP-9")
def test_the_checkpoint_fires_at_80_percent_and_from_six_messages_on() -> None:
    """79 % is not enough, and neither are five messages."""
    checkpoint = policy("checkpoint")
    window = window_of(checkpoint, 100, 10)
    assert window == Window(100, 10, 80)
    assert [fires(checkpoint, window, used, 6) for used in (79, 80)] == [False, True]
    assert [fires(checkpoint, window, 100, count) for count in (5, 6)] == [False, True]
    assert window_of(checkpoint, 99, 10).threshold == 80  # 79.2 is reached by 80, not by 79


@pytest.mark.rule("CP-12")
def test_nothing_fires_by_itself_when_compaction_is_off() -> None:
    """However much is used."""
    off = policy(enabled=False)
    assert not fires(off, window_of(off, 1_000, 100), 5_000, 50)


@pytest.mark.rule("PR-1", "PR-3")
def test_a_share_is_reached_at_it_or_above_it() -> None:
    """Exactly, whatever binary fractions make of it."""
    assert [reaches(used, 1_000, 0.6, strict=False) for used in (599, 600)] == [False, True]
    assert [reaches(used, 1_000, 0.3, strict=True) for used in (300, 301)] == [False, True]


# Sizes


@pytest.mark.rule("US-3")
def test_without_a_count_everything_is_estimated() -> None:
    """System prompt, tools, summary and history; together they are what is used."""
    messages = [
        user("s", "x" * 400, summary=True, synthetic=True),
        user("u", "x" * 40),
        reply("a", START, tool("y" * 24)),
    ]
    size = size_request(system_chars=40, tools_chars=80, messages=messages, measured=None)
    assert size == Size(
        used=11 + 22 + 114 + 15 + 15, measured=False, floor=(40 + 80 + 400 + 40 + 40) // 4,
        system=11, tools=22, summary=114, history=30, chars=600, others=12,
    )  # fmt: skip


@pytest.mark.rule("US-3")
def test_a_count_is_used_and_only_what_came_after_it_estimated() -> None:
    """The outputs of its last step, the parts behind it, and the messages after it."""
    messages = [
        user("u", "x" * 4_000),
        reply("a", START, tool("y" * 4_000), START, tool("y" * 40), tool("y" * 80), START, text("x" * 40)),
        user("u2", "x" * 40),
    ]
    size = size_request(system_chars=400, tools_chars=0, messages=messages, measured=Measured("a", 5, 5_000))
    assert size == Size(
        used=5_000 + (11 + 22) + 11 + 15, measured=True, floor=(400 + 4_000 + 4_000 + 40 + 80 + 40 + 40 + 48) // 4,
        system=110, tools=0, summary=0, history=5_059 - 110, chars=8_648, others=12,
    )  # fmt: skip


@pytest.mark.rule("US-3")
def test_three_counts_that_agree_tell_what_characters_take() -> None:
    """In between, with a tenth on top; fewer, small ones, unlikely ones and such that differ tell nothing."""
    usual = Ruler(provider_id="demo")
    dense = [Count(5_000, 10_000), Count(6_000, 11_000), Count(5_500, 11_000)]
    assert learn(dense, "demo") == Ruler(16_500, 32_000, "demo")
    assert learn([Count(1, 10_000), *dense], "demo") == Ruler(16_500, 32_000, "demo")
    assert estimate_tokens(3_200, Ruler(16_500, 32_000)) == 1_815
    for counts in (
        dense[1:],
        [Count(500, 1_000)] * 3,
        [Count(900, 10_000)] * 3,
        [Count(21_000, 10_000)] * 3,
        [*dense[1:], Count(2_500, 10_000)],
        [*dense[1:], Count(-9, 10_000)],
    ):
        assert learn(counts, "demo") == usual
    assert [plain_tokens(1_000, ruler) for ruler in (usual, Ruler(1, 2), Ruler(1, 5))] == [250, 250, 200]
    assert count_of(Usage(input=100, output=9, cache_read=20, cache_write=3), 500, 23) == Count(100, 500)


@pytest.mark.rule("US-3")
def test_signed_reasoning_counts_for_the_provider_it_came_from() -> None:
    """By what is shown or by what is sealed, whichever is longer; a message is never refused for it."""
    sealed = {"type": "reasoning", "text": "x" * 40, "providerMetadata": {"demo": {"signature": "s" * 400}}}
    shown = {**sealed, "text": "x" * 800}
    found = [[estimate_part(part, Ruler(provider_id=name)) for part in (sealed, shown)] for name in ("demo", "else")]
    assert found == [[110, 220], [0, 0]]
    assert estimate_part({"type": "reasoning", "text": "x" * 40}, Ruler(provider_id="demo")) == 0
    size = size_request(
        system_chars=0, tools_chars=0, messages=[reply("a", START, shown)], measured=None, ruler=Ruler(1, 4, "demo")
    )
    assert (size.used, size.floor, size.chars) == (224, 0, 800)


@pytest.mark.rule("US-3")
def test_a_count_of_a_message_that_is_not_sent_any_more_says_nothing() -> None:
    """Then it is an estimate, and marked so."""
    size = size_request(system_chars=0, tools_chars=0, messages=[user("u", "x" * 40)], measured=Measured("a", 1, 9_000))
    assert (size.used, size.measured) == (15, False)


@pytest.mark.rule("US-3")
def test_a_small_count_shrinks_what_was_estimated_of_it() -> None:
    """The shares always add up to what is used, and none is negative."""
    messages = [user("s", "x" * 400, summary=True), reply("a", START, text("hi"))]
    size = size_request(system_chars=400, tools_chars=400, messages=messages, measured=Measured("a", 2, 150))
    assert (size.used, size.system, size.tools, size.summary, size.history) == (150, 110, 40, 0, 0)


@pytest.mark.rule("US-3")
@given(
    st.integers(0, 500),
    st.integers(0, 500),
    st.lists(st.tuples(st.booleans(), st.integers(0, 300))),
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 400)),
)
def test_the_shares_add_up(
    system: int, tools: int, said: list[tuple[bool, int]], counted: tuple[int, int, int] | None
) -> None:
    """For any request and any count."""
    messages = [reply(str(i), START, text("x" * chars), summary=summary) for i, (summary, chars) in enumerate(said)]
    measured = Measured(str(counted[0]), counted[1], counted[2]) if counted else None
    size = size_request(system_chars=system, tools_chars=tools, messages=messages, measured=measured)
    shares = (size.system, size.tools, size.summary, size.history)
    assert sum(shares) == size.used
    assert min(shares) >= 0
    assert size.measured or size.used >= size.floor


@pytest.mark.rule("US-3")
def test_a_rollup_sums_the_usage_of_the_view() -> None:
    """All five kinds, of assistant messages only."""
    usage = {"input": 1, "output": 2, "reasoning": 3, "cache_read": 4, "cache_write": 5}
    messages = [reply("a", usage=usage), user("u", "x", usage=usage), reply("b", usage={"input": 100}), reply("c")]
    assert rollup_used(messages) == 115


# Which count holds


@pytest.mark.rule("US-3", "CP-10")
def test_the_newest_completed_step_counts() -> None:
    """Up to the start of the step after it, or to the end."""
    done = reply("a", START, text("1"), START, text("2"))
    steps = {"a": [step("a", 0, 50), step("a", 1, 90)], "old": [step("old", 0, 9)]}
    messages = [reply("old", START, text("0")), user("u", "x"), done]
    assert find_measured(messages, steps, MODEL, since=0) == Measured("a", 4, 90)
    going = reply("a", *done.parts, START, text("3"))
    assert find_measured([*messages[:2], going], steps, MODEL, since=0) == Measured("a", 4, 90)
    assert find_measured([*messages, user("u2", "y")], steps, MODEL, since=0) == Measured("a", 4, 90)
    assert find_measured(messages[:2], steps, MODEL, since=0) == Measured("old", 2, 9)


@pytest.mark.rule("CP-10")
def test_a_count_of_another_model_or_from_before_the_compaction_says_nothing() -> None:
    """Also when an older step of this model is there; the variant does not matter."""
    steps = {
        "a": [step("a", 0, 50)],
        "b": [step("b", 0, 60, started_at=20, model=Model("demo", "long"))],
    }
    messages = [reply("a", START, text("1")), reply("b", START, text("2"))]
    assert find_measured(messages, steps, MODEL, since=0) is None
    assert find_measured(messages, steps, Model("demo", "long", "high"), since=20) == Measured("b", 2, 60)
    assert find_measured(messages, steps, Model("demo", "long"), since=21) is None
    assert find_measured(messages, {}, MODEL, since=0) is None


@pytest.mark.rule("CP-10", "US-3")
def test_the_count_of_a_split_message_is_aligned_from_its_end() -> None:
    """By the steps that were dropped; without that only when its last step is plainly over."""
    steps = {"a": [step("a", index, 100 + index) for index in range(3)]}
    done = [reply("a", START, text("3"))]
    going = [reply("a", START, text("3"), START, text("4"))]
    begun = [reply("a", START, tool(state="input-available"))]
    assert find_measured(done, steps, MODEL, since=0, dropped={"a": 2}) == Measured("a", 2, 102)
    assert find_measured(going, steps, MODEL, since=0, dropped={"a": 2}) == Measured("a", 2, 102)
    assert find_measured(done, steps, MODEL, since=0, dropped={"a": 3}) is None
    assert find_measured(done, steps, MODEL, since=0) == Measured("a", 2, 102)
    assert find_measured(begun, steps, MODEL, since=0) is None
    assert find_measured([reply("a", START)], steps, MODEL, since=0) is None
