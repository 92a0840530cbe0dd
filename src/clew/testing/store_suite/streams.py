"""Streams in flight and what is unfinished; copies of a line; and the watcher of a store."""

from __future__ import annotations

import msgspec

from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import OpenCall, Store
from clew.store.copied_line import CopiedMessage, CopiedTurn
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import projection_of
from clew.transcript.session import Session

replace = msgspec.structs.replace


async def test_chunks_are_read_until_the_parts_hold_them(store: Store, scribe: Scribe) -> None:
    """A message has its stored parts and the journalled chunks beyond them."""
    opened = await scribe.prompt("hello")
    now, mid = scribe.clock.now_ms(), scribe.mint.message()
    row = MessageRow(mid, scribe.session_id, "assistant", now, now, {})
    chunks: list[c.Chunk] = [c.TextStart("t"), c.TextDelta("t", "one "), c.TextDelta("t", "two"), c.TextEnd("t")]
    entries = tuple(u.JournalEntry(n, 0, chunk) for n, chunk in enumerate(chunks, 1))
    part = PartRow(scribe.mint.part(), 0, {"type": "text", "text": "one ", "state": "streaming"}, now, now)
    await scribe.commit(u.InsertMessage(row), u.LinkMessage(opened.id, mid), u.AppendChunks(mid, entries[:2]))
    assert await _text(store, scribe.session_id, mid) == "one "
    [pending] = await store.pending_streams()
    assert (pending.session_id, pending.message.id, pending.entries) == (scribe.session_id, mid, entries[:2])

    await scribe.commit(u.PutParts(mid, (part,)), u.MarkFolded(mid, 2), u.AppendChunks(mid, entries[2:]))
    assert await _text(store, scribe.session_id, mid) == "one two"
    assert [pending.entries for pending in await store.pending_streams(scribe.session_id)] == [entries[2:]]

    whole = replace(part, data={"type": "text", "text": "one two", "state": "done"})
    seal = u.SealMessage(mid, replace(row, parts=(whole,)).seal)
    await scribe.commit(u.PutParts(mid, (whole,)), u.MarkFolded(mid, 4), seal, *opened.settling())
    assert await store.pending_streams() == ()
    assert await _text(store, scribe.session_id, mid) == "one two"
    assert await check(store) == []


async def _text(store: Store, session_id: str, message_id: str) -> str:
    message = await store.find_message(session_id, message_id)
    assert message is not None
    return "".join(part.data["text"] for part in message.parts)


async def test_open_calls_and_the_newest_message_are_found(store: Store, scribe: Scribe, clock: FakeClock) -> None:
    """A call is open until it has a result; the newest message is the one created last."""
    assert await store.newest_message_at(scribe.session_id) == 0
    await scribe.turn("look", [*tool_call("read", {"path": "/x"}, id="done"), *tool_output("y", call="done")])
    assert await store.open_calls(scribe.session_id) == ()
    clock.advance(10)
    _, user, reply = await scribe.turn("again", tool_call("read", {"path": "/x"}, id="open"))
    newest = await store.find_message(scribe.session_id, user)
    assert newest is not None
    assert await store.newest_message_at(scribe.session_id) == newest.created_at
    message = await store.find_message(scribe.session_id, reply)
    assert message is not None
    [call] = [part for part in message.parts if part.data.get("toolCallId") == "open"]
    assert await store.open_calls(scribe.session_id) == (OpenCall(reply, call),)


async def test_sessions_whose_newest_turn_failed_are_named(store: Store, scribe: Scribe, other: Scribe) -> None:
    """Until a later turn completes."""
    ids = [scribe.session_id, other.session_id]
    await scribe.turn("hello", text("hi"), status="failed")
    await other.turn("hello", text("hi"))
    assert await store.failed_sessions(ids) == (scribe.session_id,)
    assert await store.failed_sessions([other.session_id]) == ()
    await scribe.turn("again", text("hi"))
    assert await store.failed_sessions(ids) == ()


async def test_a_copied_line_is_a_line_of_its_own(store: Store, scribe: Scribe, clock: FakeClock) -> None:
    """It has the messages with new ids, and stays when its source is deleted."""
    turn_id, *ids = await scribe.turn("hello", text("hi"))
    source, mint = await scribe.session(), scribe.mint
    copy_id, copied_turn_id = mint.session(store.capabilities.session_ids), mint.turn()
    copies = {id_: mint.message() for id_ in ids}
    found = await store.find_turn(turn_id)
    assert found is not None
    turn = replace(found, id=copied_turn_id, session_id=copy_id, origin_turn_id=turn_id)
    copied = CopiedTurn(turn, tuple(CopiedMessage(id_, new) for id_, new in copies.items()))
    session = Session(id=copy_id, agent=source.agent, model=source.model, created_at=5, updated_at=5)
    head = u.MoveHead(copied_turn_id, clock.now_ms(), "turn")
    unit = u.Unit(copy_id, (u.InsertSession(session), u.CopyLine(scribe.session_id, (copied,)), head))
    assert await store.commit(unit) == u.Committed()
    original = {row.id: row for row in await store.load_messages(scribe.session_id)}
    await scribe.commit(u.DeleteSession())
    rows = {row.id: row for row in await store.load_messages(copy_id)}
    assert (await store.load_tree(copy_id)).links == {copied_turn_id: tuple(copies.values())}
    for id_, new in copies.items():
        assert rows[new].role == original[id_].role
        assert [part.data for part in rows[new].parts] == [part.data for part in original[id_].parts]
        assert {part.id for part in rows[new].parts}.isdisjoint(part.id for part in original[id_].parts)
        assert projection_of(rows[new].metadata) == (None, None)
    assert await check(store) == []


async def test_a_watcher_gets_what_is_durable_and_nothing_else(store: Store, scribe: Scribe) -> None:
    """Each committed unit once, none that was refused or that failed."""
    seen: list[u.Unit] = []
    store.watch(seen.append)
    units = [u.Unit(scribe.session_id, (u.PatchSession(metadata={"n": n}),)) for n in range(3)]
    for unit in units:
        await store.commit(unit)
    await scribe.try_commit(u.PatchSession(metadata={"n": 9}), guards=[u.EpochIs(5)])
    assert seen == units


async def test_what_was_released_is_read_as_before(store: Store, scribe: Scribe) -> None:
    """Releasing frees memory and changes nothing."""
    await scribe.turn("hello", text("hi"))
    before = await store.find_full_session(scribe.session_id)
    await store.release(scribe.session_id)
    assert await store.find_full_session(scribe.session_id) == before


async def test_an_open_store_is_sound_and_can_be_written(store: Store, scribe: Scribe) -> None:
    """Neither check changes anything."""
    await scribe.turn("hello", text("hi"))
    before = await store.find_full_session(scribe.session_id)
    await store.check_writable()
    assert await store.verify() == ()
    assert await store.find_full_session(scribe.session_id) == before
