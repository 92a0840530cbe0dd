"""Sessions: create, find, list, patch, delete."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from clew.ids import Mint
from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import Cursor, Moment, SessionQuery, Store
from clew.store.copied_line import CopiedMessage, CopiedTurn
from clew.store.deletion import delete_rows
from clew.store.pending_work import StreamTail
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL, Scribe, user_row
from clew.transcript.session import Model, Session, SessionState
from clew.transcript.turn import Turn, with_parent
from clew.transcript.usage import Usage


async def make(store: Store, mint: Mint, clock: FakeClock, **fields: Any) -> str:
    clock.advance(1)
    return (await Scribe.create(store, clock=clock, mint=mint, **fields)).session_id


async def listed(store: Store, **query: object) -> list[str]:
    page = await store.list_sessions(SessionQuery(**query))  # type: ignore[arg-type]
    return [session.id for session in page.sessions]


async def test_a_session_comes_back_as_it_was_given(store: Store, mint: Mint, clock: FakeClock) -> None:
    """Every field of the row, unknown metadata and permission keys included."""
    session = Session(
        id=mint.session(store.capabilities.session_ids),
        agent="explore",
        model=Model("anthropic", "some-model", "thinking"),
        created_at=1,
        updated_at=2,
        workspace_root="/srv/ärbeit",
        parent_id=mint.session(store.capabilities.session_ids),
        parent_message_id=mint.message(),
        permissions=[{"permission": "bash", "pattern": "ls*", "action": "allow", "later": {"x": [1, None]}}],
        metadata={"title": "Théseus 🧵", "future": {"deep": [1.5, True, None, ""]}},
        prompt_tokens=1,
        completion_tokens=2,
        reasoning_tokens=3,
        cache_read=4,
        cache_write=5,
        total_tokens=15,
        cost_usd=0.25,
        archived_at=9,
    )
    await store.commit(u.Unit(session.id, (u.InsertSession(session),)))
    assert await store.find_session(session.id) == session


async def test_a_session_that_is_not_there_is_none_and_writing_to_it_is_refused(store: Store, mint: Mint) -> None:
    """Readers get None, writers a refusal."""
    missing = mint.session(store.capabilities.session_ids)
    assert await store.find_session(missing) is None
    assert await store.load_state(missing) == SessionState()
    assert await store.load_messages(missing) == ()
    assert await store.commit(u.Unit(missing, (u.PatchSession(archived_at=1),))) == u.Refused("session_not_found")


async def test_a_session_is_not_made_twice(scribe: Scribe) -> None:
    """A second insert of the same id is refused and changes nothing."""
    before = await scribe.session()
    other = Session(id=scribe.session_id, agent="other", model=MODEL, created_at=0, updated_at=0)
    assert await scribe.try_commit(u.InsertSession(other)) == u.Refused("session_exists")
    assert await scribe.session() == before


@pytest.mark.rule("ST-6")
async def test_the_list_is_newest_first_and_leaves_out_what_was_put_aside(
    store: Store, mint: Mint, clock: FakeClock
) -> None:
    """Archived, ephemeral and subagent sessions are listed only on request."""
    plain = await make(store, mint, clock)
    archived = await make(store, mint, clock, archived_at=5)
    ephemeral = await make(store, mint, clock, metadata={"ephemeral": True})
    subagent = await make(store, mint, clock, metadata={"kind": "subagent"}, parent_id=plain)
    newest = await make(store, mint, clock)
    assert await listed(store) == [newest, plain]
    assert await listed(store, archived=True) == [newest, archived, plain]
    assert await listed(store, ephemeral=True) == [newest, ephemeral, plain]
    assert await listed(store, kind="subagent") == [subagent]
    pinned = await make(store, mint, clock, metadata={"pinned": True})
    mistaken = await make(store, mint, clock, metadata={"pinned": "true"})
    assert await listed(store, pinned=True) == [pinned]
    assert await listed(store) == [mistaken, pinned, newest, plain]
    assert await listed(store, kind="any", archived=True, ephemeral=True) == [
        mistaken,
        pinned,
        newest,
        subagent,
        ephemeral,
        archived,
        plain,
    ]


@pytest.mark.rule("ST-6")
async def test_the_list_can_be_narrowed(store: Store, mint: Mint, clock: FakeClock) -> None:
    """By agent, workspace, parent and text of the title, alone and together."""
    one = await make(store, mint, clock, agent="a", workspace_root="/w", metadata={"title": "Straße 100%"})
    two = await make(store, mint, clock, agent="b", workspace_root="/w", parent_id=one)
    three = await make(store, mint, clock, agent="b", workspace_root="/v", metadata={"title": "strassenbahn"})
    archived = await make(store, mint, clock, agent="b", workspace_root="/w", archived_at=1)
    assert await listed(store, agent="b") == [three, two]
    assert await listed(store, agent="b", archived=True) == [archived, three, two]
    assert await listed(store, workspace="/w") == [two, one]
    assert await listed(store, agent="b", workspace="/w") == [two]
    assert await listed(store, parent=one) == [two]
    assert await listed(store, parent=one, agent="a") == []
    assert await listed(store, title="STRASSE") == [three, one]
    assert await listed(store, title="100%") == [one]
    assert await listed(store, title="_") == []


@pytest.mark.rule("ST-6")
async def test_pages_follow_one_another_without_gap_or_double(store: Store, mint: Mint, clock: FakeClock) -> None:
    """The cursor is (updated_at, id), so sessions of one millisecond are neither lost nor shown twice."""
    ids = [(await Scribe.create(store, clock=clock, mint=mint)).session_id for _ in range(7)]
    listed_ids: list[str] = []
    cursor: Cursor | None = None
    while True:
        page = await store.list_sessions(SessionQuery(limit=3, cursor=cursor))
        listed_ids += [session.id for session in page.sessions]
        cursor = page.next
        if cursor is None:
            break
    assert listed_ids == sorted(ids, reverse=True)


@pytest.mark.rule("SV-5")
async def test_rename_archive_and_rules_leave_the_session_where_it_is_in_the_list(scribe: Scribe) -> None:
    """Only a user message and a step end move updated_at."""
    before = await scribe.session()
    await scribe.commit(u.PatchSession(metadata={"title": "x", "n": 1}))
    await scribe.commit(u.PatchSession(archived_at=7, permissions=({"permission": "*"},), model=Model("p", "m")))
    await scribe.commit(u.PatchSession(drop=("n",)))
    after = await scribe.session()
    assert (after.updated_at, after.title, after.metadata) == (before.updated_at, "x", {"title": "x"})
    assert (after.archived_at, after.permissions, after.model) == (7, [{"permission": "*"}], Model("p", "m"))
    await scribe.commit(u.PatchSession(archived_at=None))
    assert (await scribe.session()).archived_at is None


@pytest.mark.rule("RN-10")
async def test_a_title_of_clews_gives_way_to_a_persons_and_never_the_other_way(scribe: Scribe) -> None:
    """This holds for any order of reads; the position in the list stays."""
    before = await scribe.session()
    await scribe.commit(u.SetTitle("first words", "words"))
    assert (await scribe.session()).metadata == {"title": "first words", "naming": {"by": "words"}}
    await scribe.commit(u.SetTitle("first words", "words", 2))
    await scribe.commit(u.SetTitle("A name", "model", 2))
    assert (await scribe.session()).metadata == {"title": "A name", "naming": {"by": "model", "tries": 2}}
    await scribe.commit(u.PatchSession(metadata={"title": "mine"}, drop=("naming",)))
    await scribe.commit(u.SetTitle("Another", "model"))
    after = await scribe.session()
    assert (after.metadata, after.updated_at) == ({"title": "mine"}, before.updated_at)


async def test_children_are_found_by_their_parent_alone(store: Store, mint: Mint, clock: FakeClock) -> None:
    """Archived, ephemeral and subagent sessions are included, oldest first."""
    parent = await make(store, mint, clock)
    first = await make(store, mint, clock, parent_id=parent, archived_at=1)
    second = await make(store, mint, clock, parent_id=parent, metadata={"kind": "subagent"})
    assert [child.id for child in await store.list_children(parent)] == [first, second]


async def test_unsettled_sessions_are_told_of_all_or_among_some(store: Store, mint: Mint, clock: FakeClock) -> None:
    """One session has an open turn, one a queued message, one is idle."""
    opened, queued, settled = [await Scribe.create(store, clock=clock, mint=mint) for _ in range(3)]
    await opened.prompt("hello")
    row = user_row(mint, queued.session_id, "later", clock.now_ms())
    await queued.commit(u.InsertMessage(row), u.Enqueue(row.id, 5))
    await settled.turn("hello", text("hi"))
    assert {*await store.unsettled_sessions()} == {opened.session_id, queued.session_id}
    assert await store.unsettled_sessions([settled.session_id, opened.session_id]) == (opened.session_id,)
    assert await store.unsettled_sessions([queued.session_id]) == (queued.session_id,)
    assert await store.unsettled_sessions([]) == ()


@pytest.mark.rule("ST-11")
async def test_delete_takes_everything_that_hangs_on_the_session_and_nothing_else(
    store: Store, mint: Mint, clock: FakeClock, scribe: Scribe
) -> None:
    """Messages, turns, moves, queue, journal and unreferenced blobs are deleted; a branch keeps its own."""
    data, shared = b"only here", b"in both"
    branch = await Scribe.create(store, clock=clock, mint=mint, parent_id=scribe.session_id)
    turn_id, _, _ = await scribe.turn("hello", text("hi"))
    await branch.turn("hello", text("hi"))
    queued = user_row(mint, scribe.session_id, "later", clock.now_ms())
    digests = [hashlib.sha256(blob).hexdigest() for blob in (data, shared)]
    await scribe.commit(
        u.InsertMessage(queued),
        u.Enqueue(queued.id, 5),
        u.PutPrompt(hashlib.sha256(b"prompt").hexdigest(), "prompt", 1),
    )
    await scribe.commit(*(u.PutBlob(d, "text/plain", b, 1) for d, b in zip(digests, (data, shared), strict=True)))
    await branch.commit(u.PutBlob(digests[1], "text/plain", shared, 1))
    opened = await scribe.prompt("and now")
    recorder = opened.recorder()
    for chunk in text("cut off")[:2]:
        recorder.write(chunk)
    await recorder.flush()
    assert len(await store.pending_streams()) == 1

    await scribe.commit(u.DeleteSession())

    assert await store.find_session(scribe.session_id) is None
    assert await store.load_messages(scribe.session_id) == ()
    assert (await store.load_tree(scribe.session_id)).turns == {}
    assert await store.load_steps(turn_id) == ()
    assert await store.load_queue(scribe.session_id) == ()
    assert await store.pending_streams() == ()
    assert await store.load_tail(scribe.session_id, recorder.message.id) == StreamTail()
    assert await store.find_blob(digests[0]) is None
    assert (await store.find_blob(digests[1])) is not None
    assert (await branch.session()).parent_id == scribe.session_id
    assert len(await store.load_messages(branch.session_id)) == 2
    assert await store.session_ids() == (branch.session_id,)
    assert await check(store) == []


async def test_a_session_deleted_in_portions_is_gone_with_the_first_unit(
    store: Store, mint: Mint, clock: FakeClock
) -> None:
    """No read returns it, no unit finds it, and its alias is free; the portions then delete its rows."""
    scribe = await Scribe.create(store, clock=clock, mint=mint)
    turn_id, _, message_id = await scribe.turn("hello", text("hi"))
    queued = user_row(mint, scribe.session_id, "later", clock.now_ms())
    await scribe.commit(u.InsertMessage(queued), u.Enqueue(queued.id, 5))
    other = await make(store, mint, clock)
    id_ = scribe.session_id

    await scribe.commit(u.BeginDeletion())

    assert (await store.find_session(id_), await store.find_full_session(id_)) == (None, None)
    assert (await store.session_ids(), await listed(store)) == ((other,), [other])
    assert await store.load_queue(id_) == ()
    assert (await store.find_turn(turn_id), await store.load_messages(id_)) == (None, ())
    assert await store.unsettled_sessions() == ()
    refused = await store.commit(u.Unit(id_, (u.PatchSession(metadata={"title": "late"}),)))
    assert refused == u.Refused("session_not_found")
    assert await store.unfinished_sessions() == (id_,)
    await store.commit(u.Unit(other, (u.DeletePortion(),)))  # not one that is being deleted
    await delete_rows(store, id_)
    assert (await store.unfinished_sessions(), await store.session_ids()) == ((), (other,))
    assert await store.load_messages(id_) == ()
    assert (await store.find_turn(turn_id), await store.find_message(id_, message_id)) == (None, None)
    assert await check(store) == []


async def test_a_copy_in_portions_is_there_once_it_is_finished(store: Store, mint: Mint, clock: FakeClock) -> None:
    """No read returns it before; then it has the turns of all portions, one below the other, and their sums."""
    scribe = await Scribe.create(store, clock=clock, mint=mint)
    for prompt in ("one", "two", "three"):
        await scribe.turn(prompt, text("answer"), usage=Usage(input=2, output=1))
    line = (await store.load_line(scribe.session_id)).turns
    id_ = mint.session(store.capabilities.session_ids)
    child = Session(id=id_, agent="assistant", model=MODEL, created_at=5, updated_at=6)
    copies = [replace(one.turn, id=mint.turn(), session_id=child.id, origin_turn_id=one.turn.id) for one in line]
    below: Turn | None = None
    for copy, one in zip(copies, line, strict=True):
        messages = tuple(CopiedMessage(row.id, mint.message()) for row in one.messages)
        write = u.CopyLine(scribe.session_id, (CopiedTurn(copy, messages),), (), below, is_portion=True)
        first = () if below is not None else (u.InsertSession(child, unfinished=True),)
        await store.commit(u.Unit(child.id, (*first, write)))
        below = with_parent(copy, below)
        assert (await store.find_session(child.id), await store.session_ids()) == (None, (scribe.session_id,))
        assert (await store.find_turn(copy.id), await store.load_messages(child.id)) == (None, ())
    await store.commit(u.Unit(child.id, (u.FinishCopy(), u.MoveHead(copies[-1].id, 7, "branch"))))
    shown = await store.find_session(child.id)
    assert shown is not None
    assert (shown.usage, await store.unfinished_sessions()) == ((await scribe.session()).usage, ())
    copied = (await store.load_line(child.id)).turns
    assert [(one.turn.id, one.turn.depth) for one in copied] == [(copy.id, n) for n, copy in enumerate(copies)]
    assert [[part.data for row in one.messages for part in row.parts] for one in copied] == [
        [part.data for row in one.messages for part in row.parts] for one in line
    ]
    assert await check(store) == []


async def test_what_is_asked_at_once_is_answered_as_of_one_moment(store: Store, mint: Mint, clock: FakeClock) -> None:
    """Two reads are consistent, however many units are committed meanwhile."""
    session_id = await make(store, mint, clock)

    async def ask(reads: Moment) -> tuple[int, object]:
        state, session = await reads.load_state(session_id), await reads.find_session(session_id)
        return state.epoch, session.metadata.get("epoch", 0) if session is not None else None

    going: list[asyncio.Future[u.Outcome]] = []
    answers = [await store.at_once(session_id, ask)]
    for n in range(1, 9):
        writes = (u.SetEpoch(n), u.PatchSession(metadata={"epoch": n}))
        going.append(store.submit(u.Unit(session_id, writes)))
        answers.append(await store.at_once(session_id, ask))
    await asyncio.gather(*going)
    answers.append(await store.at_once(session_id, ask))
    assert all(epoch == expected for epoch, expected in answers)
    assert (answers[0], answers[-1]) == ((0, 0), (8, 8))
    missing = mint.session(store.capabilities.session_ids)
    assert await store.at_once(missing, lambda reads: reads.find_session(missing)) is None


async def test_a_store_has_a_name_of_its_own(store: Store) -> None:
    """The name distinguishes it from other stores."""
    named = await store.store_id()
    assert named != ""
    assert await store.store_id() == named


async def test_a_tail_is_what_the_journal_holds_beyond_the_parts(store: Store, mint: Mint, clock: FakeClock) -> None:
    """It continues without a gap after the last chunk in the parts; a message without a stream has none."""
    scribe = await Scribe.create(store, clock=clock, mint=mint)
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    assert await store.load_tail(scribe.session_id, recorder.message.id) == StreamTail()
    for chunk in text("one two three four")[:3]:
        recorder.write(chunk)
        await recorder.flush()
    tail = await store.load_tail(scribe.session_id, recorder.message.id)
    if tail.entries:
        assert [entry.n for entry in tail.entries] == [*range((tail.folded or 0) + 1, 4)]
    await recorder.close()
    assert (await store.load_tail(scribe.session_id, recorder.message.id)).entries == ()
