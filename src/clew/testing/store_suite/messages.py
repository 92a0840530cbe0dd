"""Messages, parts, the turn tree, steps, and content stored once by digest."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from clew.errors import ClewError
from clew.ids import Mint
from clew.session.acquire.acquire import plan_open
from clew.session.acquire.loaded_session import LoadedSession
from clew.session.history.check import check
from clew.store import unit as u
from clew.store.base import Blob, Store
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.scribe import MODEL, Scribe, settled, user_row
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.projection import Hidden
from clew.transcript.turn import HeadMove, Step, Turn
from clew.transcript.usage import Usage

STRANGE: list[dict[str, Any]] = [
    {"type": "text", "text": "ok", "state": "done", "futureKey": {"n": 1.5, "list": [1, None, True, {"k": ""}]}},
    {"type": "hologram", "beam": "🧵", "big": 2**63 - 1, "small": -(2**63), "float": 1e-300},
    {"type": "tool-x", "toolCallId": "c", "state": "output-available", "input": {}, "output": "\u2028\u0001 é"},
]


def row_of(session_id: str, mint: Mint, parts: list[dict[str, Any]], **metadata: Any) -> MessageRow:
    rows = tuple(PartRow(mint.part(), index, data, 5, 5) for index, data in enumerate(parts))
    return MessageRow(mint.message(), session_id, "assistant", 5, 5, metadata, rows)


@pytest.mark.rule("ST-5")
async def test_unknown_keys_and_part_types_come_back_value_for_value(store: Store, scribe: Scribe) -> None:
    """Also after the message was saved again and its metadata patched."""
    row = row_of(scribe.session_id, scribe.mint, STRANGE, later={"x": [1, {"y": None}]}, usage={"input": 1})
    await scribe.commit(u.InsertMessage(row))
    assert await store.find_message(scribe.session_id, row.id) == row
    await scribe.commit(u.PutParts(row.id, row.parts), u.PatchMessage(row.id, 5, {"agent": "plan"}, ("usage",)))
    stored = await store.find_message(scribe.session_id, row.id)
    assert stored is not None
    assert [part.data for part in stored.parts] == STRANGE
    assert stored.metadata == {"later": {"x": [1, {"y": None}]}, "agent": "plan"}


async def test_a_part_is_replaced_in_place_and_keeps_its_id(store: Store, scribe: Scribe) -> None:
    """A second write of (message, index) changes the data, not the row's identity or age."""
    row = row_of(scribe.session_id, scribe.mint, STRANGE[:1])
    await scribe.commit(u.InsertMessage(row))
    grown = PartRow(scribe.mint.part(), 0, {"type": "text", "text": "longer"}, 9, 9)
    added = PartRow(scribe.mint.part(), 1, {"type": "step-start"}, 9, 9)
    await scribe.commit(u.PutParts(row.id, (grown, added)))
    stored = await store.find_message(scribe.session_id, row.id)
    assert stored is not None
    assert stored.parts == (PartRow(row.parts[0].id, 0, grown.data, 5, 9), added)


async def test_a_session_knows_whether_it_ever_held_a_file(store: Store, scribe: Scribe, other: Scribe) -> None:
    """A call id is found in any state of its message, and only in its own session."""
    file = {"type": "file", "mediaType": "text/plain", "url": "/api/blobs/x"}
    assert not await store.has_files(scribe.session_id)
    await scribe.commit(u.InsertMessage(row_of(scribe.session_id, scribe.mint, [{"type": "text", "text": "a"}, file])))
    assert [await store.has_files(one.session_id) for one in (scribe, other)] == [True, False]


async def test_a_message_is_found_in_its_own_session_only(store: Store, scribe: Scribe, other: Scribe) -> None:
    """A message is found by clew's id and by the client's, which no answer has; a reused one gives both, oldest
    first."""
    one = user_row(scribe.mint, scribe.session_id, "a", 5, {"client_message_id": "u1"})
    two = user_row(scribe.mint, scribe.session_id, "b", 6, {"client_message_id": "u1"})
    reply = msgspec.structs.replace(
        user_row(scribe.mint, scribe.session_id, "c", 7, {"client_message_id": "u1"}), role="assistant"
    )
    await scribe.commit(*settled(one), *settled(two), *settled(reply))
    assert await store.find_message(other.session_id, one.id) is None
    assert await store.load_client_messages(other.session_id, "u1") == ()
    assert await store.load_client_messages(scribe.session_id, "u1") == (one, two)
    assert await store.load_client_messages(scribe.session_id, "u") == ()


async def test_messages_are_read_a_few_at_a_time(store: Store, scribe: Scribe, other: Scribe) -> None:
    """By their ids, which come in the order of the messages; an id of another session is not found."""
    rows = [user_row(scribe.mint, scribe.session_id, text, at) for text, at in (("b", 6), ("a", 5), ("c", 7))]
    theirs = user_row(scribe.mint, other.session_id, "x", 5)
    assert await store.load_message_ids(scribe.session_id) == ()
    await scribe.commit(*(write for row in rows for write in settled(row)))
    await other.commit(*settled(theirs))
    b, a, c = rows
    assert await store.load_message_ids(scribe.session_id) == (a.id, b.id, c.id)
    assert await store.load_messages(scribe.session_id, among=(c.id, a.id, theirs.id)) == (a, c)
    assert await store.load_messages(scribe.session_id, among=()) == ()


@pytest.mark.rule("SV-7")
async def test_only_the_metadata_of_a_settled_message_can_change(store: Store, scribe: Scribe) -> None:
    """Hiding, queueing and patching leave role, parts and order as they were; the seal proves it."""
    _, user_id, assistant_id = await scribe.turn("hello", text("hi there"))
    before = await store.load_messages(scribe.session_id)
    seals = await store.seals(scribe.session_id)
    assert seals == {row.id: row.seal for row in before}
    await scribe.commit(
        u.PatchMessage(user_id, 10**13, {"snapshot_id": "s"}),
        u.SetHidden({user_id: Hidden(5, "rewind"), assistant_id: Hidden(5, "rewind")}),
    )
    await scribe.commit(u.SetHidden({user_id: None}))
    after = await store.load_messages(scribe.session_id)
    assert [(row.id, row.role, row.parts, row.created_at) for row in after] == [
        (row.id, row.role, row.parts, row.created_at) for row in before
    ]
    assert after[0].metadata == {"snapshot_id": "s"}
    assert {key: after[1].metadata[key] for key in ("hidden_at", "hidden_by")} == {
        "hidden_at": 5,
        "hidden_by": "rewind",
    }
    await scribe.commit(u.SetHidden({assistant_id: None}))
    assert (await store.load_messages(scribe.session_id))[1].metadata == before[1].metadata
    assert await check(store) == []


async def test_the_judge_sees_a_settled_message_that_was_changed(store: Store, scribe: Scribe) -> None:
    """A part written after the seal no longer matches it."""
    _, _, assistant_id = await scribe.turn("hello", text("hi there"))
    await scribe.commit(u.PutParts(assistant_id, (PartRow("", 1, {"type": "text", "text": "forged"}, 1, 1),)))
    assert [problem.id for problem in await check(store)] == [assistant_id]


@pytest.mark.rule("BR-6")
async def test_the_head_moves_when_the_turn_has_settled_and_not_before(store: Store, scribe: Scribe) -> None:
    """While a turn is open the line runs through it; completed, aborted and failed ones all become the head."""
    parent = None
    for status in ("completed", "aborted", "failed"):
        opened = await scribe.prompt(f"a turn that ends {status}")
        state = await store.load_state(scribe.session_id)
        assert (state.head_turn_id, state.open_turn_id) == (parent, opened.id)
        line = await store.load_line(scribe.session_id)
        assert line.turns[-1].messages == (opened.user,)
        recorder = opened.recorder()
        for chunk in text("answer"):
            recorder.write(chunk)
        await recorder.close(*opened.settling(status))
        tree = await store.load_tree(scribe.session_id)
        assert (tree.head_turn_id, tree.open_turn_id) == (opened.id, None)
        turn = tree.turns[opened.id]
        assert (turn.status, turn.parent_turn_id, turn.settled_at) == (status, parent, scribe.clock.now_ms())
        parent = opened.id
    assert await check(store) == []


@pytest.mark.rule("BR-6")
async def test_the_head_is_read_fresh_for_each_message(store: Store, scribe: Scribe) -> None:
    """A prompt built on a head that has moved since is refused; nothing of it is stored."""
    stale = await store.load_state(scribe.session_id)
    await scribe.turn("first", text("one"))
    row = user_row(scribe.mint, scribe.session_id, "second", scribe.clock.now_ms())
    assert await store.commit(plan_open(LoadedSession(scribe.session_id, stale), scribe.mint.turn(), row)) == u.Refused(
        "stale_epoch"
    )
    assert await store.find_message(scribe.session_id, row.id) is None
    fresh = await store.load_state(scribe.session_id)
    moved = u.MoveHead(None, 1, "rewind")
    await scribe.commit(moved)
    assert await store.commit(plan_open(LoadedSession(scribe.session_id, fresh), scribe.mint.turn(), row)) == u.Refused(
        "head_moved"
    )


@pytest.mark.rule("BR-9")
async def test_every_head_move_is_in_the_reflog(store: Store, scribe: Scribe) -> None:
    """The log has source, target, time and reason of each move, oldest first."""
    first, _, _ = await scribe.turn("one", text("1"))
    second, _, _ = await scribe.turn("two", text("2"))
    at = scribe.clock.now_ms()
    await scribe.commit(u.MoveHead(first, at + 1, "rewind"))
    await scribe.commit(u.MoveHead(None, at + 2, "rewind"))
    await scribe.commit(u.MoveHead(second, at + 3, "goto"))
    tree = await store.load_tree(scribe.session_id)
    session = scribe.session_id
    assert tree.moves == (
        HeadMove(1, session, None, first, at, "turn"),
        HeadMove(2, session, first, second, at, "turn"),
        HeadMove(3, session, second, first, at + 1, "rewind"),
        HeadMove(4, session, first, None, at + 2, "rewind"),
        HeadMove(5, session, None, second, at + 3, "goto"),
    )
    assert tree.head_turn_id == (await scribe.session()).head_turn_id == second


async def test_depth_and_nearest_compaction_are_worked_out_where_a_turn_is_stored(
    store: Store, scribe: Scribe, mint: Mint
) -> None:
    """The store derives depth and compaction itself. Several roots are allowed."""
    root, child, marker, below, other = (mint.turn() for _ in range(5))
    turns = [(root, None, "normal"), (child, root, "normal"), (marker, child, "compaction"), (below, marker, "normal")]
    for turn_id, parent, kind in [*turns, (other, None, "normal")]:
        turn = Turn(
            id=turn_id,
            session_id=scribe.session_id,
            parent_turn_id=parent,
            created_at=1,
            kind=kind,  # type: ignore[arg-type]
            status="completed",
            depth=77,
        )
        await scribe.commit(u.OpenTurn(turn))
    tree = await store.load_tree(scribe.session_id)
    assert {t.id: (t.depth, t.compaction_turn_id) for t in tree.turns.values()} == {
        root: (0, None),
        child: (1, None),
        marker: (2, marker),
        below: (3, marker),
        other: (0, None),
    }


async def test_the_end_of_a_line_can_be_read_alone(store: Store, scribe: Scribe) -> None:
    """A line is limited by the number of turns, by an earlier turn, or by a message."""
    turns = [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(6)]
    whole = await store.load_line(scribe.session_id)
    assert whole.complete
    assert [entry.turn.id for entry in whole.turns] == [turn[0] for turn in turns]
    assert [row.id for entry in whole.turns for row in entry.messages] == [id_ for t in turns for id_ in t[1:]]
    end = await store.load_line(scribe.session_id, turns=2)
    assert (end.turns, end.complete) == (whole.turns[-2:], False)
    middle = await store.load_line(scribe.session_id, through=turns[3][0], turns=2)
    assert (middle.turns, middle.complete) == (whole.turns[2:4], False)
    back = await store.load_line(scribe.session_id, back_to_message=turns[2][2])
    assert (back.turns, back.complete) == (whole.turns[2:], False)
    off = await store.load_line(scribe.session_id, back_to_message=scribe.mint.message())
    assert (off.turns, off.complete) == (whole.turns, True)
    short = await store.load_line(scribe.session_id, turns=99)
    assert (short.turns, short.complete) == (whole.turns, True)


async def test_a_message_may_stand_in_two_turns(store: Store, scribe: Scribe, mint: Mint) -> None:
    """A resend's sibling turn starts with the same row; the line shows it through the turn it came by."""
    first, user_id, _ = await scribe.turn("again", text("one"))
    sibling = Turn(id=mint.turn(), session_id=scribe.session_id, parent_turn_id=None, created_at=2, status="unanswered")
    await scribe.commit(u.OpenTurn(sibling), u.LinkMessage(sibling.id, user_id), u.MoveHead(sibling.id, 3, "rewind"))
    line = await store.load_line(scribe.session_id, back_to_message=user_id)
    assert [(entry.turn.id, [row.id for row in entry.messages]) for entry in line.turns] == [(sibling.id, [user_id])]
    await scribe.commit(u.SetTurn(sibling.id, "running"))
    assert (await store.load_state(scribe.session_id)).open_turn_id == sibling.id
    assert (await store.load_tree(scribe.session_id)).links[first][0] == user_id


@pytest.mark.rule("SV-5", "US-2", "US-1")
async def test_a_step_is_booked_once_into_message_and_session(store: Store, scribe: Scribe) -> None:
    """Two steps add up on the message; the session's sums, with costs, are those of its assistant messages."""
    opened = await scribe.prompt("count")
    recorder = opened.recorder()
    mid = recorder.message.id
    created = (await scribe.session()).updated_at
    scribe.clock.advance(10)  # type: ignore[attr-defined]
    steps = [opened.step(mid, Usage(100, 20, 5, 40, 7)), opened.step(mid, Usage(1, 2, 3, 4, 5))]
    for number, step in enumerate(steps):
        for chunk in [*tool_call("x", {"a": 1}, id=f"c{number}"), *tool_output("y", call=f"c{number}")]:
            recorder.write(chunk)
        await recorder.end_step(u.RecordStep(step))
    await recorder.close(*opened.settling())
    session = await scribe.session()
    assert session.usage == Usage(101, 22, 8, 44, 12)
    assert (session.total_tokens, session.cost_usd) == (187, 0.0)
    assert session.updated_at == created + 10
    message = await store.find_message(scribe.session_id, mid)
    assert message is not None
    assert message.metadata == {
        "usage": {"input": 101, "output": 22, "reasoning": 8, "cache_read": 44, "cache_write": 12},
        "model": {"provider_id": MODEL.provider_id, "model_id": MODEL.model_id},
    }
    assert await store.load_steps(opened.id) == tuple(steps)
    assert await check(store) == []


@pytest.mark.rule("SV-5")
async def test_usage_on_the_wire_changes_no_sum(store: Store, scribe: Scribe) -> None:
    """Usage in a stream's message metadata is ignored; only that at the step's end counts."""
    opened = await scribe.prompt("count")
    recorder = opened.recorder()
    mid = recorder.message.id
    recorder.write(c.Start(message_id=mid, message_metadata={"usage": {"input": 999}, "hidden_at": 1, "mine": 1}))
    for chunk in text("hello"):
        recorder.write(chunk)
    await recorder.end_step(u.RecordStep(opened.step(mid, Usage(1, 1))))
    recorder.write(c.Finish(finish_reason="stop", message_metadata={"usage": {"input": 999}, "turn_id": "x"}))
    await recorder.close(*opened.settling())
    assert (await scribe.session()).total_tokens == 2
    message = await store.find_message(scribe.session_id, mid)
    assert message is not None
    assert message.metadata["usage"] == {"input": 1, "output": 1, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    assert set(message.metadata) == {"usage", "model", "mine"}


@pytest.mark.rule("US-2")
async def test_the_judge_sees_sums_that_do_not_add_up(store: Store, scribe: Scribe) -> None:
    """A message's usage patched from outside no longer matches the session."""
    _, _, assistant_id = await scribe.turn("hello", text("hi"))
    await scribe.commit(u.PatchMessage(assistant_id, 1, {"usage": {"input": 1}}))
    assert len(await check(store)) == 2


async def test_prompts_blobs_and_project_rules_are_kept_once(store: Store, scribe: Scribe, other: Scribe) -> None:
    """A second write under the same digest keeps the first; a set of rules is replaced completely."""
    digest, prompt = (hashlib.sha256(content).hexdigest() for content in (b"data", b"be kind"))
    await scribe.commit(u.PutPrompt(prompt, "be kind", 1), u.PutBlob(digest, "image/png", b"data", 1))
    await scribe.commit(u.PutPrompt(prompt, "be kind", 2), u.PutBlob(digest, "text/html", b"data", 2))
    assert await store.blob_bytes() in (0, len(b"data"))  # files measure those on disk
    await other.commit(u.LinkBlob(digest))
    assert await store.find_prompt(prompt) == "be kind"
    assert await store.find_prompt(digest) is None
    assert await store.find_blob(digest) == Blob(digest, "image/png", b"data")
    rules = ({"permission": "bash", "pattern": "*", "action": "ask", "note": [1]},)
    await scribe.commit(u.PutProjectRules("/w", rules, 1))
    assert await store.load_project_rules("/w") == rules
    await scribe.commit(u.PutProjectRules("/w", (), 2))
    assert await store.load_project_rules("/w") == ()
    assert await store.load_project_rules("/v") == ()


async def test_a_seal_is_kept_for_a_message(store: Store, scribe: Scribe) -> None:
    """And replaced when the message settles again after it went on."""
    row = row_of(scribe.session_id, scribe.mint, STRANGE)
    await scribe.commit(u.InsertMessage(row), u.SealMessage(row.id, "a"))
    await scribe.commit(u.SealMessage(row.id, "b"))
    assert await store.seals(scribe.session_id) == {row.id: "b"}


async def test_writes_do_not_reach_into_another_session(store: Store, scribe: Scribe, other: Scribe) -> None:
    """A unit of one session that names a message or a turn of another fails and changes nothing."""
    turn_id, user_id, _ = await other.turn("mine", text("yes"))
    step = Step(turn_id=turn_id, index=0, message_id=user_id, usage=Usage(1), model=MODEL, started_at=1, finished_at=1)
    before = await store.load_messages(other.session_id), await store.load_tree(other.session_id)
    for write in (
        u.PatchMessage(user_id, 1, {"x": 1}),
        u.PutParts(user_id, (PartRow("", 0, {"type": "text", "text": "stolen"}, 1, 1),)),
        u.SetTurn(turn_id, "running"),
        u.MoveHead(turn_id, 1, "goto"),
        u.LinkMessage(turn_id, user_id),
        u.SetHidden({user_id: Hidden(1, "rewind")}),
        u.SealMessage(user_id, "x"),
        u.RecordStep(step),
    ):
        with pytest.raises(ClewError):
            await scribe.commit(write)
    assert (await store.load_messages(other.session_id), await store.load_tree(other.session_id)) == before
