"""Model calls and their sums: rows that are closed once and outlive their session, and consistent sums."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from clew.errors import ClewError
from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import SessionQuery, ShownPage, Store
from clew.testing.chunks import text
from clew.testing.scribe import MODEL, Scribe
from clew.transcript.model_call import ModelCall, without_session
from clew.transcript.session import Model, Spend
from clew.transcript.spend import GROUPINGS, UsageGroup, UsageQuery, UsageSums, report
from clew.transcript.usage import Usage

DAY = 86_400_000


def a_call(scribe: Scribe, asked_at: int = 1_000, **fields: Any) -> ModelCall:
    fields = {"purpose": "answer", "model": MODEL, "session_id": scribe.session_id, **fields}
    return ModelCall(id=scribe.mint.call(), asked_at=asked_at, **fields)


@pytest.mark.rule("US-5")
async def test_a_call_is_brought_up_to_date_until_it_is_closed(store: Store, scribe: Scribe) -> None:
    """After that, only the duration of its tools changes."""
    asked = a_call(scribe, message_id=scribe.mint.message(), turn_id=scribe.mint.turn(), step=0, workspace="/w")
    await scribe.commit(u.PutCall(asked))
    assert await store.load_calls(scribe.session_id) == await store.open_model_calls(scribe.session_id) == (asked,)
    updated = replace(asked, usage=Usage(100), first_chunk_at=1_500)
    await scribe.commit(u.PutCall(updated))
    assert await store.open_model_calls() == (updated,)
    closed = replace(updated, usage=Usage(100, 20, 3, 4, 5), cost_usd=0.25, ended="completed", ended_at=2_000)
    await scribe.commit(u.PutCall(closed))
    await scribe.commit(u.PutCall(replace(updated, tools_ms=70)))
    await scribe.commit(u.PutCall(replace(closed, usage=Usage(9), ended="failed", estimated=True, tools_ms=90)))
    assert await store.load_calls(scribe.session_id) == (replace(closed, tools_ms=90),)
    assert await store.open_model_calls() == ()


@pytest.mark.rule("US-5")
async def test_calls_outlive_their_session_without_its_id(store: Store, scribe: Scribe, other: Scribe) -> None:
    """An open call can be closed, and calls of other sessions are unchanged."""
    ids: dict[str, Any] = {"turn_id": scribe.mint.turn(), "message_id": scribe.mint.message()}
    ended, under_way = a_call(scribe, ended="completed", **ids), a_call(scribe, asked_at=DAY * 2, **ids)
    others = a_call(other, ended="completed")
    await scribe.commit(u.PutCall(ended), u.PutCall(under_way))
    await other.commit(u.PutCall(others))
    assert await store.load_calls(None) == ()
    await scribe.commit(u.DeleteSession())
    assert await scribe.try_commit(u.PutCall(under_way)) == u.Refused("session_not_found")
    assert await store.load_calls(None) == (without_session(ended), without_session(under_way))
    assert await store.open_model_calls() == ()
    closed = without_session(replace(under_way, ended="aborted", usage=Usage(7)))
    assert await store.commit(u.Unit(u.STORE_WIDE, (u.PutCall(closed),))) == u.Committed()
    assert await store.load_calls(None) == (without_session(ended), closed)
    assert await store.load_calls(other.session_id) == (others,)
    assert (await store.load_usage(UsageQuery("session")))[-1] == UsageGroup(2, 7, 0, 0, 0, 0, 0.0, 0, 1, key=None)


@pytest.mark.rule("US-5")
async def test_a_call_is_of_the_session_that_its_unit_is_of(store: Store, scribe: Scribe, other: Scribe) -> None:
    """Only calls of deleted sessions have no session."""
    call = a_call(scribe)
    for unit in (u.Unit(other.session_id, (u.PutCall(call),)), u.Unit(u.STORE_WIDE, (u.PutCall(call),))):
        with pytest.raises(ClewError):
            await store.commit(unit)
    assert await store.load_calls(scribe.session_id) == await store.load_calls(other.session_id) == ()


@pytest.mark.rule("US-1", "SV-5")
async def test_a_step_is_booked_when_its_call_ends_and_finished_after_its_tools(store: Store, scribe: Scribe) -> None:
    """Only the recorded usage is in the sums; both change `updated_at`."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    for chunk in text("hi"):
        await recorder.send(chunk)
    await recorder.flush()
    step = replace(opened.step(recorder.message.id, Usage(10, 5)), finished_at=5_000_000_000_000, cost_usd=0.5)
    await recorder.end_step(u.RecordStep(step))
    booked = await scribe.session()
    assert await store.load_steps(opened.id) == (step,)
    assert (booked.usage, booked.cost_usd, booked.updated_at) == (Usage(10, 5), 0.5, 5_000_000_000_000)
    with pytest.raises(ClewError):
        await scribe.commit(u.FinishStep(opened.id, 1, 6_000_000_000_000))
    await scribe.commit(u.FinishStep(opened.id, 0, 6_000_000_000_000))
    assert await store.load_steps(opened.id) == (replace(step, finished_at=6_000_000_000_000),)
    assert await scribe.session() == replace(booked, updated_at=6_000_000_000_000)
    await recorder.close(*opened.settling())
    assert await check(store) == []


@pytest.mark.rule("US-1", "US-2")
async def test_a_call_that_broke_off_is_in_the_sums_and_is_no_step(store: Store, scribe: Scribe) -> None:
    """Its message marks the counts as estimated, also after a step that was counted in full."""
    turn_id, _, message_id = await scribe.turn("hello", text("hi"), usage=Usage(10, 5))
    before = await scribe.session()
    await scribe.commit(u.RecordUsage(message_id, Usage(100, 0, 0, 7), 0.125, before.updated_at + 9))
    row = await store.find_message(scribe.session_id, message_id)
    counts = {"input": 110, "output": 5, "reasoning": 0, "cache_read": 7, "cache_write": 0}
    assert row is not None
    assert row.metadata["usage"] == {**counts, "estimated": True, "broken_off_usd": 0.125}
    after = await scribe.session()
    assert (after.usage, after.total_tokens, after.cost_usd) == (Usage(110, 5, 0, 7), 122, before.cost_usd + 0.125)
    assert (after.updated_at, len(await store.load_steps(turn_id))) == (before.updated_at, 1)
    assert await check(store) == []


@pytest.mark.rule("US-5")
async def test_the_sums_of_all_groupings_are_the_same(store: Store, scribe: Scribe, other: Scribe) -> None:
    """Costs are exact to the billionth, and independent of the other contents of the store."""
    await scribe.turn("hello", text("hi"), usage=Usage(999, 999))
    used = Usage(1, 20, 300, 4_000, 50_000)
    calls = [
        a_call(who, DAY * day + day, usage=used, cost_usd=0.1, model=Model("demo", name), **fields)
        for who, day, name, fields in (
            (scribe, 1, "echo", {"workspace": "/b", "ended": "completed"}),
            (scribe, 1, "tools", {"workspace": "/b", "ended": "failed", "estimated": True, "purpose": "title"}),
            (scribe, 2, "echo", {"workspace": "/a", "ended": "cut", "estimated": True, "purpose": "summary"}),
            (other, 3, "echo", {}),
        )
    ]
    for call in calls:
        await (scribe if call.session_id == scribe.session_id else other).commit(u.PutCall(call))

    def group(key: str | None, n: int, estimated: int) -> UsageGroup:
        counts = {name: getattr(used, name) * n for name in used.__struct_fields__}
        return UsageGroup(key=key, calls=n, cost_usd=round(0.1 * n, 9), estimated=estimated, unpriced=0, **counts)

    by = {name: await store.load_usage(UsageQuery(name)) for name in GROUPINGS}
    assert by == {
        "day": (group("1970-01-02", 2, 1), group("1970-01-03", 1, 1), group("1970-01-04", 1, 0)),
        "model": (group("demo/echo", 3, 1), group("demo/tools", 1, 1)),
        "session": tuple(sorted((group(scribe.session_id, 3, 2), group(other.session_id, 1, 0)), key=_key)),
        "workspace": (group("/a", 1, 1), group("/b", 2, 1), group(None, 1, 0)),
        "owner": (group(None, 4, 2),),
    }
    total = UsageSums(4, 4, 80, 1_200, 16_000, 200_000, 0.4, 2, 0)
    assert {name: report(groups).total for name, groups in by.items()} == dict.fromkeys(GROUPINGS, total)
    within = UsageQuery("day", since=DAY + 1, until=DAY * 3 + 3)
    assert await store.load_usage(within) == (group("1970-01-02", 2, 1), group("1970-01-03", 1, 1))
    assert await store.load_usage(UsageQuery("model", since=DAY * 9)) == ()


@pytest.mark.rule("US-5")
async def test_a_session_has_spent_what_its_subagents_have_and_nothing_of_its_branches(
    store: Store, scribe: Scribe, other: Scribe
) -> None:
    """Subagents of subagents are included, with one query for any number of sessions."""

    async def child(parent: Scribe, **metadata: Any) -> Scribe:
        given: dict[str, Any] = {"parent_id": parent.session_id, "metadata": metadata}
        return await Scribe.create(store, mint=scribe.mint, clock=scribe.clock, **given)

    sub = await child(scribe, kind="subagent")
    below, branch = await child(sub, kind="subagent"), await child(scribe)
    for power, who in enumerate((scribe, sub, below, branch)):
        tokens = 10**power
        await who.commit(u.PutCall(a_call(who, usage=Usage(tokens, tokens), cost_usd=0.1)))
    ids = [who.session_id for who in (scribe, sub, below, branch, other)]
    nothing = Spend(0, 0, 0.0, 0)
    spent = (Spend(3, 222, 0.3, 2), Spend(2, 220, 0.2, 1), Spend(1, 200, 0.1, 0), Spend(1, 2_000, 0.1, 0), nothing)
    assert await store.load_spend(ids) == dict(zip(ids, spent, strict=True))
    gone = scribe.mint.session(store.capabilities.session_ids)
    assert await store.load_spend([gone]) == {gone: nothing}
    assert await store.load_spend([]) == {}
    await sub.prompt("still at it")
    every = SessionQuery(limit=4, kind="any")
    page, listed = await store.list_shown(every), await store.list_sessions(every)
    shown = tuple(replace(session, spend=dict(zip(ids, spent, strict=True))[session.id]) for session in listed.sessions)
    assert len(shown) == 4
    # Sessions of the same millisecond are ordered by id.
    assert page == ShownPage(shown, listed.next, frozenset(one.id for one in shown if one.id == sub.session_id))


def _key(group: UsageGroup) -> str:
    return group.key or ""
