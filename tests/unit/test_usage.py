"""Token counts: five kinds that do not overlap, and how a step is booked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.transcript.message import MessageRow
from clew.transcript.metadata import merge, usage_of
from clew.transcript.model_call import book_message, book_session, sum_usage
from clew.transcript.session import Model, Session
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

MODEL = Model("demo", "echo")
SESSION = Session(id="s1", agent="assistant", model=MODEL, created_at=100, updated_at=100)

counts = st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts, counts)


def a_step(usage: Usage, **fields: Any) -> Step:
    given_ = {"turn_id": "t1", "index": 0, "message_id": "m1", "model": MODEL, "started_at": 200, "finished_at": 300}
    return Step(usage=usage, **{**given_, **fields})


def a_message(id_: str, role: Any, metadata: dict[str, Any]) -> MessageRow:
    return MessageRow(id_, "s1", role, 100, 100, metadata)


# US-1: disjoint kinds.


@pytest.mark.rule("US-1")
def test_a_providers_counts_are_taken_apart() -> None:
    """Its input contains what the cache served and took, its output contains the reasoning."""
    usage = Usage.from_inclusive(
        input_tokens=1000, output_tokens=300, reasoning_tokens=120, cache_read_tokens=600, cache_write_tokens=150
    )
    assert usage == Usage(input=250, output=180, reasoning=120, cache_read=600, cache_write=150)
    assert usage.total == 1300


@pytest.mark.rule("US-1")
@pytest.mark.parametrize(
    ("given_", "usage"),
    [
        ({"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 25}, Usage(0, 5, 0, 25, 0)),
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 6, "cache_write_tokens": 6},
            Usage(0, 5, 0, 6, 6),
        ),
        ({"input_tokens": 10, "output_tokens": 5, "reasoning_tokens": 7}, Usage(10, 0, 7, 0, 0)),
        ({"input_tokens": -1, "output_tokens": -1}, Usage()),
        ({"input_tokens": 10, "output_tokens": 5, "reasoning_tokens": -3}, Usage(10, 5, 0, 0, 0)),
        ({"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": -3, "cache_write_tokens": -3}, Usage(10, 5)),
        ({"input_tokens": 10**30, "output_tokens": 5}, Usage(1 << 40, 5)),
        ({"input_tokens": 10, "output_tokens": 10**30, "cache_read_tokens": 10**30}, Usage(0, 1 << 40, 0, 1 << 40)),
    ],
)
def test_a_provider_that_contradicts_itself_never_yields_a_negative(given_: dict[str, int], usage: Usage) -> None:
    """Parts larger than the whole, counts below zero, and such as no store holds."""
    assert Usage.from_inclusive(**given_) == usage


@pytest.mark.rule("US-1")
@given(counts, counts, counts, counts, counts)
def test_every_token_is_counted_once(fresh: int, read: int, written: int, said: int, thought: int) -> None:
    """Whatever the five are, a provider's two sums are their total."""
    usage = Usage.from_inclusive(
        input_tokens=fresh + read + written,
        output_tokens=said + thought,
        reasoning_tokens=thought,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    assert usage == Usage(fresh, said, thought, read, written)
    assert usage.total == fresh + read + written + said + thought


@given(usages, usages, usages)
def test_usages_add_kind_by_kind(one: Usage, two: Usage, three: Usage) -> None:
    """In any order, and nothing is added by nothing."""
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert one + Usage() == one
    assert (one + two).total == one.total + two.total
    assert msgspec.structs.astuple(one + two) == tuple(
        map(sum, zip(msgspec.structs.astuple(one), msgspec.structs.astuple(two), strict=True))
    )


# What a message carries.


@pytest.mark.parametrize(
    ("metadata", "usage"),
    [
        ({}, Usage()),
        ({"usage": {"input": 3, "output": 2}}, Usage(3, 2)),
        ({"usage": {"input": 3, "cost": "unknown keys are no matter"}}, Usage(3)),
        ({"usage": None}, Usage()),
        ({"usage": 7}, Usage()),
        ({"usage": {"input": "three"}}, Usage()),
        ({"usage": {"input": 1.5}}, Usage()),
    ],
)
def test_usage_that_cannot_be_read_is_none(metadata: dict[str, Any], usage: Usage) -> None:
    """Another program may have written it."""
    assert usage_of(metadata) == usage


@pytest.mark.rule("US-1")
def test_a_step_adds_to_what_earlier_steps_of_the_message_used() -> None:
    """Usage is the message's; model and prompt are those of its newest step; all else stays, nothing is changed."""
    metadata = {"usage": {"input": 1, "output": 2}, "model": {"provider_id": "old", "model_id": "old"}, "x": [1]}
    before = msgspec.json.encode(metadata)
    booked = book_message(metadata, a_step(Usage(10, 20, 30, 40, 50), prompt_digest="abc"))
    assert booked == {
        "usage": {"input": 11, "output": 22, "reasoning": 30, "cache_read": 40, "cache_write": 50},
        "model": {"provider_id": "demo", "model_id": "echo"},
        "x": [1],
        "system_prompt_digest": "abc",
    }
    assert msgspec.json.encode(metadata) == before
    assert "system_prompt_digest" not in book_message({}, a_step(Usage()))


# US-2, SV-5: the session's sums.


@pytest.mark.rule("US-2", "SV-5")
def test_a_step_adds_to_the_sessions_sums() -> None:
    """Five sums, their total, the cost, and the moment the step ended; nothing else of the row moves."""
    once = book_session(SESSION, Usage(1, 2, 3, 4, 5), 0.25, 300)
    twice = book_session(once, Usage(10, 20, 30, 40, 50), 0.5, 400)
    assert twice == msgspec.structs.replace(
        SESSION,
        prompt_tokens=11,
        completion_tokens=22,
        reasoning_tokens=33,
        cache_read=44,
        cache_write=55,
        total_tokens=165,
        cost_usd=0.75,
        updated_at=400,
    )
    assert twice.usage == Usage(11, 22, 33, 44, 55)


@pytest.mark.rule("SV-5")
def test_a_clock_that_stepped_back_does_not_move_a_session_back() -> None:
    """`updated_at` only grows."""
    assert book_session(SESSION, Usage(), 0.0, 50).updated_at == 100


@pytest.mark.rule("US-2")
def test_the_sums_are_over_assistant_messages_alone() -> None:
    """What another role carries is not counted, nor what a compaction's summariser used."""
    used = {"usage": {"input": 5, "reasoning": 1}}
    rows = [
        a_message("1", "user", used),
        a_message("2", "assistant", used),
        a_message("3", "system", used),
        a_message("4", "assistant", {}),
        a_message("5", "assistant", {"usage": {"cache_write": 2}}),
    ]
    assert sum_usage(rows) == Usage(5, 0, 1, 0, 2)
    assert sum_usage([]) == Usage()


@pytest.mark.rule("US-2", "SV-5")
@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), usages)))
def test_booking_steps_one_by_one_gives_the_sums_over_the_messages(steps: list[tuple[str, Usage]]) -> None:
    """Whichever messages they belong to; and the total is the sum of the five."""
    session = SESSION
    messages: dict[str, dict[str, Any]] = {"m1": {}, "m2": {}, "m3": {}}
    for message_id, usage in steps:
        step = a_step(usage, message_id=message_id)
        session = book_session(session, step.usage, step.cost_usd, step.finished_at)
        messages[message_id] = book_message(messages[message_id], step)
    total = sum_usage(a_message(id_, "assistant", metadata) for id_, metadata in messages.items())
    assert session.usage == total == sum((usage for _, usage in steps), Usage())
    assert session.total_tokens == total.total


# Merging metadata.


def test_metadata_is_merged_key_by_key() -> None:
    """Given keys are set, dropped ones go, the rest stays as it was; a value is replaced whole."""
    old = {"a": 1, "b": {"x": 1}, "c": 3}
    assert merge(old, {"b": {"y": 2}, "d": None}, ("c", "missing")) == {"a": 1, "b": {"y": 2}, "d": None}
    assert merge(old, {"a": 2}, ("a",)) == {"b": {"x": 1}, "c": 3}
    assert old == {"a": 1, "b": {"x": 1}, "c": 3}
