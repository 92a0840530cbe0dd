"""Owners: the owner and alias of a session, and the records that each owner can read."""

from __future__ import annotations

import hashlib

import pytest

from clew.ids import Mint
from clew.store import unit as u
from clew.store.base import SearchQuery, SessionQuery, Store
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL, Scribe
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Session
from clew.transcript.spend import UsageQuery
from clew.transcript.usage import Usage
from clew.triggers.values.ledger import EventQuery, LedgerEvent
from clew.triggers.values.webhook import Webhook

__all__ = [
    "test_a_session_is_found_by_the_name_its_owner_gave_it",
    "test_an_alias_is_given_once_by_each_owner",
    "test_calls_and_events_are_their_owners_also_when_the_session_is_gone",
    "test_lists_blobs_and_words_of_one_owner",
    "test_two_owners_may_use_the_same_label_and_the_same_webhook",
]


@pytest.mark.rule("OW-1", "EM-4")
async def test_a_session_is_found_by_the_name_its_owner_gave_it(store: Store, mint: Mint, clock: FakeClock) -> None:
    """An owner finds it by its id as well; another owner finds it by neither."""
    his = await Scribe.create(store, clock=clock, mint=mint, owner="ada", alias="chat 1")
    hers = await Scribe.create(store, clock=clock, mint=mint, owner="bob", alias="chat 1")
    free = await Scribe.create(store, clock=clock, mint=mint, alias="chat 1")
    plain = await Scribe.create(store, clock=clock, mint=mint)
    assert (await his.session()).owner == "ada"
    assert (await his.session()).alias == "chat 1"
    assert [await store.find_named("chat 1", owner) for owner in ("ada", "bob", "eve", None)] == [
        his.session_id,
        hers.session_id,
        None,
        free.session_id,
    ]
    for name in (his.session_id, plain.session_id):
        assert await store.find_named(name, None) == name
        assert await store.find_named(name, "bob") is None
    assert await store.find_named(his.session_id, "ada") == his.session_id
    await his.commit(u.DeleteSession())
    assert await store.find_named("chat 1", "ada") is None


@pytest.mark.rule("EM-4")
async def test_an_alias_is_given_once_by_each_owner(store: Store, mint: Mint, clock: FakeClock) -> None:
    """An alias that equals one of the owner's session ids is refused: it would never be found."""
    made = await Scribe.create(store, clock=clock, mint=mint, owner="ada", alias="one")
    for alias, owner, expected in (
        ("one", "ada", u.Refused("alias_taken")),
        (made.session_id, "ada", u.Refused("alias_taken")),
        ("one", "bob", u.Committed()),
        ("two", "ada", u.Committed()),
        ("one", None, u.Committed()),
    ):
        clock.advance(1)
        session = Session(
            id=mint.session(store.capabilities.session_ids),
            agent="assistant",
            model=MODEL,
            created_at=clock.now_ms(),
            updated_at=clock.now_ms(),
            owner=owner,
            alias=alias,
        )
        unit = u.Unit(session.id, (u.InsertSession(session),), (u.AliasIsFree(alias, owner),))
        assert await store.commit(unit) == expected


@pytest.mark.rule("OW-1")
async def test_lists_blobs_and_words_of_one_owner(store: Store, mint: Mint, clock: FakeClock) -> None:
    """The owner combines with any other filter; a query without an owner lists all sessions."""
    made = {}
    for name, owner in (("a", "ada"), ("b", "bob"), ("c", "ada"), ("d", None)):
        clock.advance(1)
        made[name] = await Scribe.create(store, clock=clock, mint=mint, owner=owner, agent=name, workspace_root="/w")
    names = {scribe.session_id: name for name, scribe in made.items()}

    async def listed(**query: object) -> str:
        found = await store.list_sessions(SessionQuery(**query))  # type: ignore[arg-type]
        shown = await store.list_shown(SessionQuery(**query))  # type: ignore[arg-type]
        assert [one.id for one in found.sessions] == [one.id for one in shown.sessions]
        return "".join(names[one.id] for one in found.sessions)

    assert await listed() == "dcba"
    assert await listed(owner="ada") == "ca"
    assert await listed(owner="ada", limit=1) == "c"
    assert await listed(owner="ada", agent="a", workspace="/w") == "a"
    assert await listed(owner="bob", agent="a") == ""
    assert await listed(owner="bob", kind="any", archived=True, ephemeral=True) == "b"
    assert await listed(owner="bob", parent=made["a"].session_id) == ""
    assert await listed(owner="eve") == ""

    data = b"the picture"
    digest = hashlib.sha256(data).hexdigest()
    await made["a"].commit(u.PutBlob(digest, "image/png", data, 1))
    await made["d"].commit(u.LinkBlob(digest))
    found = [await store.find_blob(digest, owner) for owner in (None, "ada", "bob")]
    assert [blob and blob.data for blob in found] == [data, data, None]

    if store.capabilities.search:
        for scribe in made.values():
            await scribe.turn("the minotaur 牛", text("yes"))
        for owner, expected in (("ada", "ac"), ("bob", "b"), ("eve", ""), (None, "abcd")):
            for words in ("minotaur", "牛"):
                page = await store.search(SearchQuery(words, owner=owner))
                assert "".join(sorted(names[hit.session_id] for hit in page.hits)) == expected
                assert page.total == len(expected)


@pytest.mark.rule("OW-1", "US-3")
async def test_calls_and_events_are_their_owners_also_when_the_session_is_gone(
    store: Store, mint: Mint, clock: FakeClock
) -> None:
    """The cost stays with the owner; the store itself records the owner of an event."""
    for owner in ("ada", "bob", None):
        scribe = await Scribe.create(store, clock=clock, mint=mint, owner=owner)
        call = ModelCall(
            id=mint.call(),
            purpose="answer",
            model=MODEL,
            asked_at=5,
            session_id=scribe.session_id,
            usage=Usage(10, 1),
            cost_usd=0.5,
            ended="completed",
            ended_at=6,
            owner=owner,
        )
        event = LedgerEvent(
            id=mint.event(),
            direction="in",
            source="api",
            source_id=str(owner),
            session_id=scribe.session_id,
            message_id=None,
            at=1,
        )
        await scribe.commit(u.PutCall(call), u.AddEvent(event), guards=[u.EventIsNew("in", "api", str(owner))])
        if owner == "ada":
            await scribe.commit(u.DeleteSession())
    groups = await store.load_usage(UsageQuery("owner"))
    assert [(group.key, group.calls, group.cost_usd) for group in groups] == [
        ("ada", 1, 0.5),
        ("bob", 1, 0.5),
        (None, 1, 0.5),
    ]
    assert [group.key for group in await store.load_usage(UsageQuery("owner", owner="ada"))] == ["ada"]
    for owner, expected in (("ada", ["ada"]), ("bob", ["bob"]), ("eve", []), (None, ["None", "bob", "ada"])):
        page = await store.list_events(EventQuery(owner=owner))
        assert [one.source_id for one in page.events] == expected
        page = await store.list_events(EventQuery(owner=owner, source="api"))
        assert [one.source_id for one in page.events] == expected


@pytest.mark.rule("OW-1")
async def test_two_owners_may_use_the_same_label_and_the_same_webhook(
    store: Store, mint: Mint, clock: FakeClock
) -> None:
    """Each owner has a namespace of names."""
    made = {}
    for owner in ("ada", "bob", None):
        made[owner] = await Scribe.create(store, clock=clock, mint=mint, owner=owner, metadata={"label": "inbox"})
        door = Webhook(name="door", secret="whsec_x", created_at=1, owner=owner)
        await store.commit(u.Unit(u.STORE_WIDE, (u.PutWebhook(door),)))
    for owner, scribe in made.items():
        [found] = await store.load_routed("label", "inbox", owner)
        assert found.id == scribe.session_id
    assert await store.load_routed("label", "inbox", "eve") == ()
    hooks = await store.list_webhooks()
    assert {(hook.name, hook.owner) for hook in hooks} == {("door", "ada"), ("door", "bob"), ("door", None)}
    await store.commit(u.Unit(u.STORE_WIDE, (u.DropWebhook(hooks[0].key),)))
    assert await store.list_webhooks() == hooks[1:]
