"""Pruning: which outputs go, in which order, until when, and which never do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.compaction.budget import estimate_tokens
from clew.compaction.policy import Policy, policy_for
from clew.compaction.prune import plan_prune
from clew.config import CompactionConfig, PruningConfig
from clew.transcript.message import Message
from clew.transcript.part import output_text
from clew.transcript.pruned import Pruned, prune_part

START = {"type": "step-start"}


def policy(preset: Any = "guide", **pruning: Any) -> Policy:
    return policy_for(CompactionConfig(preset=preset), PruningConfig(**pruning), None)


def call(chars: int, tool: str = "bash", state: str = "output-available", **given_: Any) -> dict[str, Any]:
    return {"type": f"tool-{tool}", "toolCallId": "c", "state": state, "input": given_, "output": "y" * chars}


def reply(id_: str, *parts: dict[str, Any]) -> Message:
    return Message(id_, "assistant", list(parts), {})


LAST = [reply(f"last{number}", START, {"type": "text", "text": "done"}) for number in range(3)]
"""The last three assistant messages are protected; these let the ones before them go."""


def plan(messages: Sequence[Message], rules: Policy | None = None, **given_: Any) -> tuple[Pruned, ...]:
    known: dict[str, Any] = {"used": 1_000, "limit": 1_000, "at": 7, "already": {}, "base_index": {}, **given_}
    return plan_prune([*messages, *LAST], rules or policy(), **known)


def taken(found: Sequence[Pruned]) -> list[tuple[str, int, int]]:
    return [(one.message_id, one.part, one.keep) for one in found]


# The guide


@pytest.mark.rule("PR-1")
def test_outputs_over_400_characters_become_stubs() -> None:
    """Completed ones only; the record tells what the output took."""
    messages = [
        reply("a", START, call(400), call(401)),
        reply("b", call(900, state="output-error"), call(900, state="input-available")),
        reply("c", {**call(900), "preliminary": True}),
        Message("u", "user", [{"type": "text", "text": "x" * 900}], {}),
    ]
    assert plan(messages, pressing=True) == (Pruned(0, "a", 2, estimate_tokens(401), 0, 7),)


@pytest.mark.rule("PR-1")
def test_pruning_begins_at_60_percent_of_the_window() -> None:
    """At it, not below it."""
    messages = [reply("a", call(2_000))]
    assert [len(plan(messages, used=used, limit=10_000)) for used in (5_999, 6_000)] == [0, 1]


@pytest.mark.rule("PR-1")
def test_the_oldest_outputs_go_first_and_on_until_there_is_room_for_many_more() -> None:
    """One output takes 1,100 tokens, its stub some 15. From 60 % on they go until it is below 40 %."""
    messages = [reply(name, call(4_000)) for name in "abcd"]
    stub = len("[output pruned to save room: about 1100 tokens]")
    gain = 1_100 - estimate_tokens(stub)
    used = [5_999, 6_000, 4_000 + 2 * gain - 1, 4_000 + 2 * gain, 4_000 + 3 * gain]
    assert [len(plan(messages, used=one, limit=10_000)) for one in used] == [0, 2, 2, 3, 4]
    assert taken(plan(messages, used=6_000, limit=10_000)) == [("a", 0, 0), ("b", 0, 0)]


@pytest.mark.rule("PR-1")
def test_a_prune_that_is_to_stop_where_it_begins_takes_only_what_is_too_much() -> None:
    """``until_pct`` is a setting; above the share where a prune begins it means nothing."""
    messages = [reply(name, call(4_000)) for name in "abcd"]
    assert [len(plan(messages, policy(until_pct=share), used=6_100, limit=10_000)) for share in (0.9, 0.6, 0.5)] == [
        1,
        1,
        2,
    ]


@pytest.mark.rule("PR-4")
def test_what_is_a_stub_already_is_not_taken_again() -> None:
    """Its bytes stay the same on every later turn."""
    stubbed = Pruned(1, "a", 0, 1_100, 0, 3)
    sent = reply("a", prune_part(call(4_000), stubbed))
    assert plan([sent, reply("b", call(4_000))], already={("a", 0): stubbed}) == (Pruned(0, "b", 0, 1_100, 0, 7),)
    assert plan([sent], already={("a", 0): stubbed}, aggressive=True, used=9_999) == ()


@pytest.mark.rule("PR-4", "CP-2")
def test_parts_are_counted_over_the_stored_message() -> None:
    """Of a split message the first parts are not sent."""
    assert taken(plan([reply("a", START, call(4_000))], base_index={"a": 10})) == [("a", 11, 0)]


@pytest.mark.rule("PR-1")
def test_an_output_that_would_not_get_smaller_stays() -> None:
    """A stub has a length of its own."""
    assert plan([reply("a", call(30))], policy(min_chars=10)) == ()


# Protection


@pytest.mark.rule("PR-2")
def test_results_the_loop_steers_by_are_protected() -> None:
    """todo, task and skill, however long and however pressing."""
    messages = [reply("a", call(9_000, "todo"), call(9_000, "task"), call(9_000, "skill"), call(9_000, "grep"))]
    dynamic = {**call(9_000), "type": "dynamic-tool", "toolName": "todo"}
    messages.append(reply("b", dynamic))
    assert taken(plan(messages, aggressive=True)) == [("a", 3, 0)]


@pytest.mark.rule("PR-2")
def test_the_last_three_assistant_messages_are_protected() -> None:
    """A summary and user messages between them do not count."""
    boundary = Message("s", "assistant", [{"type": "text", "text": "summary"}], {"summary": True})
    messages = [reply(name, call(900)) for name in "abcd"]
    between = [boundary, messages[0], messages[1], Message("u", "user", [], {}), messages[2], messages[3]]
    found = plan_prune(between, policy(), used=9, limit=9, at=7, already={}, base_index={}, by_hand=True)
    assert taken(found) == [("a", 0, 0)]


def running(id_: str, *parts: dict[str, Any]) -> Message:
    return Message(id_, "assistant", list(parts), {"turn_id": "now"})


@pytest.mark.rule("PR-2")
def test_of_the_running_turn_the_last_five_steps_are_protected() -> None:
    """Over all of its messages, and beside the last three answers of earlier turns."""
    before = [reply(name, call(900)) for name in "abcd"]
    first = running("x", *[START, call(900), call(900)] * 4)
    second = running("y", *[START, call(900)] * 3)
    found = plan_prune(
        [*before, first, second],
        policy(),
        used=9,
        limit=9,
        at=7,
        already={},
        base_index={},
        running="now",
        by_hand=True,
    )
    assert taken(found) == [("a", 0, 0), ("x", 1, 0), ("x", 2, 0), ("x", 4, 0), ("x", 5, 0)]
    alone = running("z", *[START, call(900)] * 7)
    assert taken(plan([alone], running="now", base_index={"z": 10}, by_hand=True)) == [("z", 11, 0), ("z", 13, 0)]


@pytest.mark.rule("PR-1", "PR-2")
def test_between_steps_a_prune_that_does_not_get_there_waits_until_it_presses() -> None:
    """Else each step would prune the one output that is five steps old by then."""
    messages = [running("x", *[START, call(4_000)] * 7)]
    few: dict[str, Any] = {"limit": 10_000, "running": "now"}
    assert [len(plan(messages, used=used, **few)) for used in (6_000, 6_200, 9_000)] == [2, 0, 0]
    assert len(plan(messages, used=9_000, pressing=True, **few)) == 2
    assert len(plan([reply("a", call(4_000))], used=9_000, **few)) == 1


@pytest.mark.rule("PR-1", "PR-5")
def test_a_prune_that_gains_little_for_what_is_read_again_waits_until_it_presses() -> None:
    """One output in front of four times as much text: with every turn one more would go, and all behind it is new."""
    one, two = [reply("a", call(2_000))], [reply("a", call(2_000)), reply("b", call(2_000))]
    said = {length: Message("u", "user", [{"type": "text", "text": "x" * length}], {}) for length in (7_000, 9_000)}
    few: dict[str, Any] = {"used": 6_000, "limit": 10_000}
    assert [len(plan([*one, said[length]], **few)) for length in said] == [1, 0]
    assert [len(plan([*one, said[9_000]], pressing=True, **few)), len(plan([*two, said[9_000]], **few))] == [1, 2]


@pytest.mark.rule("PR-2")
def test_the_newest_output_for_each_of_the_five_files_last_worked_on_is_protected() -> None:
    """By path, whatever the tool and the key it is given under; the sixth file is not."""
    messages = [
        reply("old", call(900, "read", path="six"), call(900, "read", path="five"), call(900, "read", path="./one")),
        reply("new", call(900, "read", path="five"), call(900, "write", file_path="four")),
        reply("new2", call(900, "edit", path="three"), call(900, "read_file", filePath="two")),
        reply("new3", call(900, "write_file", path="one"), call(900, "ls", path="x")),
    ]
    assert taken(plan(messages, by_hand=True)) == [("old", 0, 0), ("old", 1, 0), ("old", 2, 0), ("new3", 1, 0)]


# The two passes of 001


@pytest.mark.rule("PR-3")
def test_outputs_are_trimmed_above_30_percent_and_cleared_above_50() -> None:
    """The first and last 1,500 characters stay at first."""
    messages = [reply("a", call(60_000))]
    rules = policy("checkpoint")
    sizes = (30_000, 30_001, 50_000, 50_001)
    assert [taken(plan(messages, rules, used=used, limit=100_000)) for used in sizes] == [
        [],
        [("a", 0, 1_500)],
        [("a", 0, 1_500)],
        [("a", 0, 1_500)],
    ]
    # Trimming is not enough here: what is left is still above a half.
    assert taken(plan(messages, rules, used=90_000, limit=100_000)) == [("a", 0, 0)]
    shown = output_text(prune_part(call(60_000), plan(messages, rules, used=31_000, limit=100_000)[0]))
    assert shown is not None
    assert (shown[:1_500], shown[-1_500:], len(shown) < 3_100) == ("y" * 1_500, "y" * 1_500, True)


@pytest.mark.rule("PR-3")
def test_only_outputs_of_50_000_characters_and_more_are_taken() -> None:
    """49,999 stay."""
    messages = [reply("a", call(49_999), call(50_000))]
    assert taken(plan(messages, policy("checkpoint"), used=400_000, limit=1_000_000)) == [("a", 1, 1_500)]


@pytest.mark.rule("PR-3")
def test_below_the_total_nothing_is_pruned() -> None:
    """Of what may go: 50,000 characters together by default."""
    rules = policy("checkpoint", min_chars=1_000)
    small, enough = [reply("a", call(49_000), call(999))], [reply("a", call(49_000), call(1_001))]
    found = [taken(plan(messages, rules, used=90_000, limit=100_000)) for messages in (small, enough)]
    assert found == [[], [("a", 0, 0), ("a", 1, 0)]]
    assert taken(plan(small, policy("checkpoint", min_chars=1_000, min_total_chars=0), used=90_000, limit=100_000)) == [
        ("a", 0, 0)
    ]


@pytest.mark.rule("PR-3", "PR-4")
def test_a_trimmed_output_can_be_cleared_later() -> None:
    """It keeps the count of the whole output; it is not trimmed again."""
    trimmed = Pruned(1, "a", 0, estimate_tokens(60_000), 1_500, 3)
    messages = [reply("a", prune_part(call(60_000), trimmed)), reply("b", call(60_000))]
    rules = policy("checkpoint")
    already = {("a", 0): trimmed}
    assert taken(plan(messages, rules, used=31_000, limit=100_000, already=already)) == [("b", 0, 1_500)]
    cleared = plan([messages[0], reply("b", call(50_000))], rules, used=99_000, limit=100_000, already=already)
    assert cleared[0] == Pruned(0, "a", 0, estimate_tokens(60_000), 0, 7)


# On demand


@pytest.mark.rule("PR-1")
def test_by_hand_all_that_may_go_goes() -> None:
    """Whatever the threshold, also when pruning by itself is off."""
    messages = [reply("a", call(400), call(401), call(5_000))]
    off = policy(enabled=False)
    assert plan(messages, off) == ()
    assert taken(plan(messages, off, used=1, by_hand=True)) == [("a", 1, 0), ("a", 2, 0)]


@pytest.mark.rule("PR-3")
def test_the_aggressive_mode_takes_outputs_over_400_characters_at_once() -> None:
    """For once, after a provider said that the request was too long."""
    messages = [reply("a", call(400), call(401), call(49_000), call(900, "todo"))]
    rules = policy("checkpoint")
    assert plan(messages, rules, used=9_999, limit=10_000) == ()
    assert taken(plan(messages, rules, used=1, limit=10_000, aggressive=True)) == [("a", 1, 0), ("a", 2, 0)]


@pytest.mark.rule("PR-1", "PR-4")
@given(
    st.lists(st.lists(st.sampled_from([0, 50, 399, 401, 3_001, 60_000]), max_size=4), max_size=6),
    st.sampled_from(["guide", "checkpoint"]),
    st.integers(0, 60_000),
)
def test_pruning_settles(outputs: list[list[int]], preset: str, used: int) -> None:
    """Every record makes its output smaller, the oldest are taken, and what remains needs no second prune."""
    messages = [reply(f"m{number}", *(call(chars) for chars in sizes)) for number, sizes in enumerate(outputs)]
    rules = policy(preset)
    found = plan(messages, rules, used=used, limit=60_000)
    already = {(one.message_id, one.part): one for one in found}
    assert len(already) == len(found)
    saved = 0
    sent = []
    for message in messages:
        parts = []
        for index, part in enumerate(message.parts):
            one = already.get((message.id, index))
            parts.append(part if one is None else prune_part(part, one))
            now, before = len(output_text(parts[-1]) or ""), len(output_text(part) or "")
            assert now < before if one else now == before
            saved += estimate_tokens(before) - estimate_tokens(now)
        sent.append(msgspec.structs.replace(message, parts=parts))
    assert plan(sent, rules, used=used - saved, limit=60_000, already=already) == ()
