"""Pruning: which outputs go, in which order, until when, and which never do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.compaction.budget import Window, estimate_message, estimate_part, estimate_tokens
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
"""The last three steps are protected; these let the ones before them go."""


def plan(messages: Sequence[Message], rules: Policy | None = None, **given_: Any) -> tuple[Pruned, ...]:
    """What is pruned before the last steps. ``usable`` is next to nothing unless given, so that no output of some size
    is protected by its age, nor a prune too small."""
    limit = given_.pop("limit", 1_000)
    window = Window(limit, limit - given_.pop("usable", 10), limit)
    known: dict[str, Any] = {"used": 1_000, "window": window, "at": 7, "already": {}, "base_index": {}, **given_}
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
def test_a_message_without_steps_is_one() -> None:
    """As other programs write them. A summary and user messages between them do not count."""
    boundary = Message("s", "assistant", [{"type": "text", "text": "summary"}], {"summary": True})
    messages = [reply(name, call(900)) for name in "abcd"]
    between = [boundary, messages[0], messages[1], Message("u", "user", [], {}), messages[2], messages[3]]
    found = plan_prune(between, policy(), used=9, window=Window(9, 0, 9), at=7, already={}, base_index={}, by_hand=True)
    assert taken(found) == [("a", 0, 0)]


def running(id_: str, *parts: dict[str, Any]) -> Message:
    return Message(id_, "assistant", list(parts), {"turn_id": "now"})


@pytest.mark.rule("PR-2", "CP-16")
def test_the_last_three_steps_are_protected_over_all_turns() -> None:
    """However large they are, of the running turn and of the one before it."""
    before = reply("x", *[START, call(900), call(900)] * 4)
    now = running("y", *[START, call(900)] * 2)
    known: dict[str, Any] = {
        "used": 9_999,
        "window": Window(9_999, 9_989, 9_999),
        "at": 7,
        "already": {},
        "base_index": {},
    }
    ways: list[dict[str, Any]] = [{}, {"by_hand": True}, {"aggressive": True}]
    for asked in ways:
        found = plan_prune([before, now], policy(), **known, **asked)
        assert taken(found) == [("x", index, 0) for index in (1, 2, 4, 5, 7, 8)]
    assert taken(plan_prune([now], policy(), **{**known, "base_index": {"y": 10}}, pressing=True)) == []


@pytest.mark.rule("CP-16")
def test_the_newest_outputs_are_protected_up_to_a_quarter_of_what_is_usable() -> None:
    """By tokens over all turns, todos and short outputs included; an output that is only partly within is not."""
    older = [reply(name, START, call(4_000)) for name in "abcdef"]
    known: dict[str, Any] = {"used": 9_000, "limit": 10_000}
    gone = [taken(plan(older, **known, usable=usable)) for usable in (4_000, 7_900, 8_000)]
    assert [[name for name, *_ in one] for one in gone] == [[*"abcde"], [*"abcde"], [*"abcd"]]
    steered = [*older, reply("t", START, call(4_000, "todo"))]
    assert [name for name, *_ in taken(plan(steered, **known, usable=8_000))] == [*"abcde"]
    # A person who asks, and a provider that refused, leave only the newest steps.
    asked = [taken(plan(older, **{**known, how: True}, usable=8_000)) for how in ("by_hand", "aggressive")]
    assert [[name for name, *_ in one] for one in asked] == [[*"abcdef"]] * 2
    # 001 says nothing of tokens.
    rules = policy("checkpoint", min_chars=3_000, min_total_chars=0)
    assert [name for name, *_ in taken(plan(older, rules, **known, usable=8_000))] == [*"abcdef"]


@pytest.mark.rule("CP-16")
def test_a_prune_frees_a_fifth_of_what_is_usable_or_waits_until_the_request_would_not_fit() -> None:
    """Outputs of 1,000 tokens, with stubs of 12; a quarter of 9,900 holds two of them."""
    few: dict[str, Any] = {"used": 9_000, "limit": 10_000}
    few_old = [reply(name, START, call(4_000)) for name in "abcd"]
    for rules in (policy(), policy("checkpoint", min_chars=3_000, min_total_chars=0, keep_chars=10)):
        for inside in (False, True):
            assert (
                len(plan(few_old, rules, **few, usable=9_900 if rules.preset == "guide" else 21_000, inside=inside))
                == 0
            )
            assert len(plan(few_old, rules, **few, usable=9_900, inside=inside, pressing=True)) > 0
    assert len(plan([reply("z", START, call(4_000)), *few_old], **few, usable=9_900)) == 3


@pytest.mark.rule("CP-16", "PR-5")
def test_between_steps_a_prune_makes_room_for_twelve_steps_or_waits_until_a_summary_is_due() -> None:
    """Else the next one would come a few steps later, and a provider would read all again."""

    def turn(steps: int) -> list[Message]:
        return [running("x", *[START, call(4_000)] * steps)]

    few: dict[str, Any] = {"limit": 40_000, "usable": 36_000, "inside": True}
    found = {steps: len(plan(turn(steps), used=1_100 * steps + 3_000, **few)) for steps in range(19, 25)}
    # A quarter of 36,000 holds nine outputs.
    assert found == {19: 0, 20: 0, 21: 0, 22: 13, 23: 13, 24: 13}
    assert len(plan(turn(21), used=26_100, **few, due=True)) == 12
    assert len(plan(turn(21), used=26_100, **{**few, "inside": False})) == 10


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


_SIZES = [0, 50, 399, 401, 900, 3_001, 8_000, 30_000]


@st.composite
def histories(draw: st.DrawFn) -> list[list[list[dict[str, Any]]]]:
    """Turns of steps of calls: of files and of others, protected ones, some short."""
    tools = st.sampled_from(["bash", "bash", "grep", "read", "write", "todo", "skill"])

    def made(chars: int, tool: str, n: int) -> dict[str, Any]:
        return call(chars, tool, **({"path": f"file{n}"} if tool in ("read", "write") else {}))

    calls_ = st.builds(made, st.sampled_from(_SIZES), tools, st.integers(0, 7))
    return draw(st.lists(st.lists(st.lists(calls_, max_size=3), min_size=1, max_size=8), min_size=1, max_size=8))


@pytest.mark.rule("CP-16", "PR-2", "PR-4")
@given(histories(), st.sampled_from(["guide", "overlay", "turn", "checkpoint"]), st.sampled_from([8_000, 20_000]))
@settings(max_examples=150)
def test_at_every_change_what_goes_is_older_than_what_stays(
    turns: list[list[list[dict[str, Any]]]], preset: str, limit: int
) -> None:
    """The history is sent step by step. Each time: nothing younger goes before something older that may; never the
    last three steps, nor the newest quarter; at least a fifth is freed, or the request would not fit."""
    rules = policy(preset, min_chars=400, min_total_chars=0, keep_chars=100)
    window = Window(limit, limit // 10, limit - limit // 10)
    already: dict[tuple[str, int], Pruned] = {}
    stored: list[Message] = []
    for number, steps in enumerate(turns):
        messages = stored
        for count in range(1, len(steps) + 1):
            parts = [part for step in steps[:count] for part in (START, *step)]
            messages = [*stored, Message(f"m{number}", "assistant", parts, {"turn_id": f"t{number}"})]
            sent = [_shown(message, already) for message in messages]
            used = 500 + sum(estimate_message(message) for message in sent)
            pressing = used > limit
            known: dict[str, Any] = {"window": window, "at": 1, "already": already, "base_index": {}}
            asked: dict[str, Any] = {"inside": count > 1, "due": used >= window.threshold, "pressing": pressing}
            found = plan_prune(sent, rules, used=used, **known, **asked)
            assert found == plan_prune(sent, rules, used=used, **known, **asked)
            if not found:
                continue
            _check_change(sent, found, already, rules, window)
            already.update({(one.message_id, one.part): one for one in found})
            freed = used - 500 - sum(estimate_message(_shown(message, already)) for message in messages)
            assert pressing or freed * 10 >= window.usable // 5 * 11 - 11 * len(found)
        stored = messages


def _shown(message: Message, already: dict[tuple[str, int], Pruned]) -> Message:
    parts = [
        prune_part(part, one) if (one := already.get((message.id, index))) else part
        for index, part in enumerate(message.parts)
    ]
    return msgspec.structs.replace(message, parts=parts)


def _check_change(
    sent: list[Message],
    found: Sequence[Pruned],
    already: dict[tuple[str, int], Pruned],
    rules: Policy,
    window: Window,
) -> None:
    """By a plain walk of its own over all parts, oldest first."""
    walk = [(message.id, index, part) for message in sent for index, part in enumerate(message.parts)]
    steps = [place for place, (_, _, part) in enumerate(walk) if part == START]
    goes = {(one.message_id, one.part) for one in found}
    gone = [place for place, (name, index, _) in enumerate(walk) if (name, index) in goes]
    assert max(gone) < (steps[-3] if len(steps) >= 3 else 0)
    newest_files: dict[str, int] = {}
    for place in reversed(range(len(walk))):
        path = walk[place][2].get("input", {}).get("path")
        if path is not None and path not in newest_files and len(newest_files) < 5:
            newest_files[path] = place
    for place in range(max(gone)):
        name, index, part = walk[place]
        whole = output_text(part) or ""
        may_stay = part.get("type") in ("tool-todo", "tool-skill") or place in newest_files.values()
        if (name, index) not in goes and (name, index) not in already and len(whole) > 400:
            assert may_stay, (place, gone)
    if rules.preset != "checkpoint":
        kept = sum(estimate_part({**part, "input": {}}) for _, _, part in walk[max(gone) :] if output_text(part))
        assert kept * 40 > window.usable * 11
