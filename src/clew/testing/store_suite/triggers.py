"""The event ledger, schedules and webhooks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clew.errors import ClewError
from clew.ids import Mint
from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import Store
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL, Scribe
from clew.transcript.session import Session
from clew.triggers.values.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook


def event(scribe: Scribe, source_id: str, direction: Direction = "in", **fields: Any) -> LedgerEvent:
    given = {"source": "test", "session_id": scribe.session_id, "message_id": None, "at": 5, **fields}
    return LedgerEvent(id=scribe.mint.event(), direction=direction, source_id=source_id, **given)


def guard(one: LedgerEvent) -> u.EventIsNew:
    return u.EventIsNew(one.direction, one.source, one.source_id, one.attempt)


async def add(scribe: Scribe, *events: LedgerEvent) -> None:
    for one in events:
        await scribe.commit(u.AddEvent(one), guards=[guard(one)])


async def listed_events(store: Store, **query: Any) -> list[tuple[str, str]]:
    page = await store.list_events(EventQuery(**query))
    return [(one.direction, one.source_id) for one in page.events]


@pytest.mark.rule("EV-1")
async def test_an_event_comes_back_as_it_was_given_with_its_number(scribe: Scribe) -> None:
    """Every field is stored, including unknown keys of its data."""
    content = {"payload": {"deep": [1, None, "🧵"]}}
    routing = {"label": "in 🧵"}
    one = event(scribe, "a", type="push", digest="d", routing=routing, data=content, message_id="msg_x")
    other = event(scribe, "a", "out", turn_id="trn_x", status="completed", data={"text": "done"})
    await add(scribe, one, other)
    page = await scribe.store.list_events(EventQuery())
    expected = (msgspec.structs.replace(other, seq=2), msgspec.structs.replace(one, seq=1))
    assert page == EventPage(expected, None)
    assert await scribe.store.find_event("in", "test", "a") == expected[1]
    assert await scribe.store.find_event("out", "test", "b") is None


@pytest.mark.rule("EV-1")
async def test_an_event_is_in_the_ledger_once(scribe: Scribe, store: Store, mint: Mint) -> None:
    """It is unique by direction, source and id over all sessions, also in a unit that creates its session."""
    one = event(scribe, "a")
    await add(scribe, one)
    again = msgspec.structs.replace(one, id=scribe.mint.event())
    assert await scribe.try_commit(
        u.PatchSession(metadata={"x": 1}), u.AddEvent(again), guards=[guard(again)]
    ) == u.Refused("event_exists")
    assert "x" not in (await scribe.session()).metadata
    session = Session(id=mint.session(), agent="assistant", model=MODEL, created_at=1, updated_at=1)
    elsewhere = msgspec.structs.replace(again, session_id=session.id)
    unit = u.Unit(session.id, (u.InsertSession(session), u.AddEvent(elsewhere)), (guard(elsewhere),))
    assert await store.commit(unit) == u.Refused("event_exists")
    assert await store.find_session(session.id) is None
    # Without its guard it is an error, and nothing of the unit is written.
    with pytest.raises(ClewError):
        await scribe.commit(u.PatchSession(metadata={"x": 1}), u.AddEvent(again))
    with pytest.raises(ClewError):
        await scribe.commit(u.AddEvent(msgspec.structs.replace(elsewhere, source_id="b")))
    assert "x" not in (await scribe.session()).metadata
    await add(scribe, event(scribe, "a", "out"), event(scribe, "a", source="other"))
    assert await listed_events(store) == [("in", "a"), ("out", "a"), ("in", "a")]


@pytest.mark.rule("EV-2")
async def test_a_digest_is_new_but_for_the_events_taken_since_then(scribe: Scribe, store: Store) -> None:
    """Only events of the same source count, without duplicates, later attempts and outgoing events."""
    one = event(scribe, "a", digest="d", at=100)
    await add(
        scribe,
        event(scribe, "old", digest="d", at=50),
        event(scribe, "other", digest="e", at=90),
        one,
        event(scribe, "a", "out", digest="d", at=110),
        event(scribe, "a", digest="d", at=120, attempt=2),
        event(scribe, "b", digest="d", at=120, status="duplicate"),
    )
    found = {since: await store.find_repeated("test", "d", since) for since in (0, 60, 100, 101)}
    assert [None if hit is None else hit.source_id for hit in found.values()] == ["old", "a", "a", None]
    assert await store.find_repeated("elsewhere", "d", 0) is None
    for source, digest, since, refused in (
        ("test", "d", 100, True),
        ("test", "d", 101, False),
        ("test", "f", 0, False),
        ("elsewhere", "d", 0, False),
    ):
        outcome = await scribe.try_commit(
            u.PatchSession(metadata={"x": 1}), guards=[u.DigestIsNew(source, digest, since)]
        )
        assert isinstance(outcome, u.Refused) is refused, (source, digest, since)


async def test_the_ledger_is_listed_newest_first_by_page_and_by_filter(
    store: Store, scribe: Scribe, other: Scribe
) -> None:
    """The filters are session, source, turn and direction, alone and together."""
    turn, user, assistant = await scribe.turn("go", text("gone"))
    await add(
        scribe,
        event(scribe, "a", message_id=user),
        event(scribe, "a", "out", message_id=assistant, turn_id=turn),
        event(scribe, "b", source="second"),
    )
    await add(other, event(other, "c"), event(other, "d"))
    assert await listed_events(store) == [("in", "d"), ("in", "c"), ("in", "b"), ("out", "a"), ("in", "a")]
    assert await listed_events(store, session_id=scribe.session_id) == [("in", "b"), ("out", "a"), ("in", "a")]
    assert await listed_events(store, source="second") == [("in", "b")]
    assert await listed_events(store, turn_id=turn) == [("out", "a"), ("in", "a")]
    assert await listed_events(store, turn_id=turn, direction="in") == [("in", "a")]
    assert await listed_events(store, turn_id=turn, session_id=other.session_id) == []
    assert await listed_events(store, session_id=scribe.session_id, source="test", direction="out") == [("out", "a")]
    first = await store.list_events(EventQuery(limit=2))
    second = await store.list_events(EventQuery(limit=2, before=first.next))
    third = await store.list_events(EventQuery(limit=2, before=second.next))
    assert [len(page.events) for page in (first, second, third)] == [2, 2, 1]
    assert [page.next is None for page in (first, second, third)] == [False, False, True]


async def test_an_inbound_event_names_the_first_turn_of_its_message(scribe: Scribe) -> None:
    """The turn begins after the event was stored; nothing is written for it."""
    opened = await scribe.prompt("go")
    await add(scribe, event(scribe, "a", message_id=opened.user.id), event(scribe, "b", message_id="msg_none"))
    found = {one.source_id: one.turn_id for one in await scribe.store.open_events(scribe.session_id)}
    assert found == {"a": opened.id, "b": None}


async def test_an_event_is_open_until_something_went_out_for_it(
    store: Store, scribe: Scribe, other: Scribe, mint: Mint
) -> None:
    """They are listed oldest first, of one session or of all."""
    await add(scribe, event(scribe, "b"), event(scribe, "a"))
    await add(other, event(other, "c"))
    assert [found.source_id for found in await store.open_events()] == ["b", "a", "c"]
    await add(scribe, event(scribe, "b", "out"))
    assert [found.source_id for found in await store.open_events()] == ["a", "c"]
    assert [found.source_id for found in await store.open_events(scribe.session_id)] == ["a"]
    assert await store.open_events(mint.session()) == ()


@pytest.mark.rule("EV-4")
async def test_another_attempt_is_open_until_something_went_out_for_it_too(scribe: Scribe, store: Store) -> None:
    """An incoming event is found as first stored, an outgoing one as last stored; the message has the newest
    attempt."""
    opened = await scribe.prompt("go")
    first = event(scribe, "a", message_id=opened.user.id, data={"text": "go"})
    failed = event(scribe, "a", "out", turn_id=opened.id, status="failed")
    await add(scribe, first, failed)
    assert await store.open_events() == ()
    again = msgspec.structs.replace(
        first, id=scribe.mint.event(), attempt=2, turn_id="trn_later", data={"why": "again"}
    )
    await add(scribe, again)
    assert await scribe.try_commit(u.AddEvent(again), guards=[guard(again)]) == u.Refused("event_exists")
    for found in (await store.open_events(), await store.open_events(scribe.session_id)):
        assert found == (msgspec.structs.replace(again, seq=3),)
    assert await store.find_event_of_message(scribe.session_id, opened.user.id) == found[0]
    assert await store.find_event_of_message(scribe.session_id, "msg_none") is None
    incoming, outgoing = await store.find_event("in", "test", "a"), await store.find_event("out", "test", "a")
    assert (incoming, outgoing) == (
        msgspec.structs.replace(first, seq=1, turn_id=opened.id),
        msgspec.structs.replace(failed, seq=2),
    )
    done = event(scribe, "a", "out", turn_id="trn_later", status="completed", attempt=2)
    await add(scribe, done)
    assert (await store.open_events(), await store.open_events(scribe.session_id)) == ((), ())
    assert await store.find_event("out", "test", "a") == msgspec.structs.replace(done, seq=4)


SCHEDULE = Schedule(id="sch_1", cron="0 9 * * *", prompt="go", created_at=1, timezone="Europe/Vienna", next_fire_at=7)
WEBHOOK = Webhook(name="door", secret="whsec_x", created_at=1, prompt="look", routing=Routing(label="inbox"))


async def wide(store: Store, *writes: u.Write) -> None:
    assert await store.commit(u.Unit(u.STORE_WIDE, writes)) == u.Committed()


async def test_schedules_and_webhooks_are_kept_replaced_and_dropped(store: Store) -> None:
    """They need no session, and each has a name of its own."""
    await wide(store, u.PutSchedule(SCHEDULE), u.PutWebhook(WEBHOOK))
    assert await store.list_schedules() == (SCHEDULE,)
    assert await store.list_webhooks() == (WEBHOOK,)
    changed = msgspec.structs.replace(SCHEDULE, paused=True, last_error="x", routing=Routing(key="k", model=MODEL))
    rotated = msgspec.structs.replace(WEBHOOK, secret="whsec_y")
    await wide(
        store, u.PutSchedule(changed), u.PutWebhook(rotated), u.PutWebhook(msgspec.structs.replace(WEBHOOK, name="b"))
    )
    assert await store.list_schedules() == (changed,)
    assert [(one.name, one.secret) for one in await store.list_webhooks()] == [("b", "whsec_x"), ("door", "whsec_y")]
    await wide(store, u.DropSchedule("sch_1"), u.DropWebhook("door"), u.DropWebhook("never"))
    assert await store.list_schedules() == ()
    assert [one.name for one in await store.list_webhooks()] == ["b"]


@pytest.mark.rule("ST-11", "EV-4")
async def test_what_hangs_on_a_session_goes_with_it(store: Store, mint: Mint, clock: FakeClock) -> None:
    """Its schedules and webhooks and the data of its events are deleted; those of others, or without a session, stay.

    An event itself stays, so that it is known when it is delivered again; it is open no more.
    """
    one = await Scribe.create(store, clock=clock, mint=mint)
    other = await Scribe.create(store, clock=clock, mint=mint)
    events: dict[str, LedgerEvent] = {}
    for name, scribe in (("one", one), ("other", other)):
        routing = Routing(session_id=scribe.session_id)
        events[name] = event(scribe, name, data={"text": name}, digest=name, routing={"key": name}, message_id="msg_x")
        await add(scribe, events[name])
        await wide(
            store,
            u.PutSchedule(msgspec.structs.replace(SCHEDULE, id=f"sch_{name}", routing=routing)),
            u.PutWebhook(msgspec.structs.replace(WEBHOOK, name=name, routing=routing)),
        )
    await wide(store, u.PutSchedule(SCHEDULE), u.PutWebhook(WEBHOOK))
    await one.commit(u.DeleteSession())
    assert [found.id for found in await store.list_schedules()] == ["sch_1", "sch_other"]
    assert [found.name for found in await store.list_webhooks()] == ["door", "other"]
    bare = msgspec.structs.replace(events["one"], seq=1, data={})
    whole = msgspec.structs.replace(events["other"], seq=2)
    assert (await store.list_events(EventQuery())).events == (whole, bare)
    assert await store.find_event("in", "test", "one") == bare
    assert [found.source_id for found in await store.open_events()] == ["other"]
    assert await store.open_events(one.session_id) == ()
    with pytest.raises(ClewError):
        await wide(store, u.PutSchedule(msgspec.structs.replace(SCHEDULE, routing=Routing(session_id=one.session_id))))
    assert await check(store) == []


async def test_a_session_is_found_by_its_label_or_its_routing_key(store: Store, mint: Mint, clock: FakeClock) -> None:
    """All sessions that are neither archived nor subagents are found, oldest first."""
    made = {}
    for name, metadata in (
        ("subagent", {"label": "inbox", "kind": "subagent"}),
        ("archived", {"label": "inbox"}),
        ("first", {"label": "inbox", "routing_key": "k"}),
        ("second", {"label": "inbox"}),
        ("odd", {"label": 7, "routing_key": ["k"]}),
    ):
        clock.advance(1)
        made[name] = await Scribe.create(store, clock=clock, mint=mint, metadata=metadata)
    await made["archived"].commit(u.PatchSession(archived_at=9))
    for kind, name, expected in (
        ("label", "inbox", ("first", "second")),
        ("routing_key", "k", ("first",)),
        ("label", "k", ()),
        ("routing_key", "", ()),
    ):
        found = await store.load_routed(kind, name)  # type: ignore[arg-type]
        assert [one.id for one in found] == [made[each].session_id for each in expected]
    await made["first"].commit(u.DeleteSession())
    [left] = await store.load_routed("label", "inbox")
    assert left.id == made["second"].session_id


@pytest.mark.rule("EV-4")
async def test_an_event_of_a_session_that_is_gone_is_nobodys(store: Store, mint: Mint, clock: FakeClock) -> None:
    """The ledger of another store is copied completely; the events of an existing session belong to that session."""
    scribe = await Scribe.create(store, clock=clock, mint=mint)
    gone = msgspec.structs.replace(event(scribe, "gone"), session_id=mint.session(), data={})
    await wide(store, u.AddEvent(gone))
    assert await listed_events(store) == [("in", "gone")]
    for unit in (
        u.Unit(u.STORE_WIDE, (u.AddEvent(event(scribe, "there")),)),
        u.Unit(scribe.session_id, (u.AddEvent(msgspec.structs.replace(gone, source_id="other")),)),
    ):
        with pytest.raises(ClewError):
            await store.commit(unit)
    assert await store.open_events() == ()


async def test_projects_with_rules_are_listed(store: Store) -> None:
    """They are found by name."""
    assert await store.list_projects() == ()
    for project in ("/b", "/a"):
        await wide(store, u.PutProjectRules(project, ({"permission": "bash", "pattern": "*", "action": "deny"},), 1))
    assert await store.list_projects() == ("/a", "/b")
