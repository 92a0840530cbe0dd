"""Going back: rewind, un-rewind, and any turn of the reflog. Nothing is ever lost by it."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import (
    InvalidId,
    InvalidInput,
    MessageNotFound,
    NewerTurns,
    NothingToUndo,
    NotSupported,
    RewindTargetInvalid,
    SessionBusy,
    SnapshotFailed,
    TurnNotFound,
)
from clew.history.check import check
from clew.history.rewind import Rewound
from clew.history.tree import ReflogEntry
from clew.runtime.heading import load_tails, parent_before
from clew.store.unit import (
    InsertMessage,
    LinkMessage,
    MoveHead,
    MoveTurn,
    OpenTurn,
    SealMessage,
    SetHidden,
    SetTurn,
    Unit,
    Write,
)
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, say, wait
from clew.transcript.line import line_messages, line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.project import project, projection_of
from clew.transcript.seal import seal_of
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.view import Compaction, Split

from .conftest import Open


@pytest.fixture(params=["sqlite", "memory"])
def open_both(request: pytest.FixtureRequest, open_scenario: Open) -> Open:
    """A scenario on each store; on the one that lies in a file, opening it again is a restart."""

    def opened(script: Any = (), **options: Any) -> Any:
        return open_scenario(script, **options, **({"url": "memory:"} if request.param == "memory" else {}))

    return opened


def echo() -> ScriptedModel:
    """A model that answers whatever it is asked with the words it was asked."""
    return ScriptedModel(otherwise=lambda request: say(f"re {request.messages[-1].parts[0]['text']}"))


async def talk(s: Scenario, *prompts: str) -> list[str]:
    """Prompts, each answered; the ids of their messages."""
    sent = []
    for text in prompts:
        submission = await s.send(text)
        await submission.wait()
        await s.settled()
        sent.append(submission.message_id)
    return sent


async def rows_of(s: Scenario) -> dict[str, MessageRow]:
    """Every message as it is stored."""
    return {row.id: row for row in await s.engine.store.load_messages(s.id)}


async def tree_of(s: Scenario) -> Tree:
    return await s.engine.store.load_tree(s.id)


async def turn_of(s: Scenario, message_id: str) -> Turn:
    """The turn on the line that holds a message."""
    return next(turn for turn, held in line_messages(await tree_of(s)) if held == message_id)


async def hidden_by(s: Scenario) -> dict[str, object]:
    return {row.id: row.metadata["hidden_by"] for row in (await rows_of(s)).values() if "hidden_by" in row.metadata}


async def project_again(s: Scenario) -> None:
    """Bring the projections up to date after the tree was written by hand."""
    tree = await tree_of(s)
    truth = project(tree, await load_tails(s.engine.store, s.id, tree))
    await commit(s, SetHidden({id_: truth.get(id_) for id_ in await rows_of(s)}))


async def commit(s: Scenario, *writes: Write) -> None:
    await s.engine.store.commit(Unit(s.id, writes))


async def summarise(s: Scenario, tail_start_id: str | None, summary: str = "so far", **data: Any) -> tuple[str, str]:
    """A compaction as the runtime writes one; the ids of its turn and its marker."""
    host = s.engine.host
    tree, now = await tree_of(s), host.clock.now_ms()
    turn = Turn(
        id=host.mint.turn(),
        session_id=s.id,
        parent_turn_id=tree.head_turn_id,
        created_at=now,
        kind="compaction",
        status="completed",
        settled_at=now,
        data={"tail_start_id": tail_start_id},
    )
    body = {"summary": summary, "tail_start_id": tail_start_id, "auto": False, "summary_tokens": 2, **data}
    part = PartRow(host.mint.part(), 0, {"type": "data-compaction", "data": body}, now, now)
    row = MessageRow(host.mint.message(), s.id, "assistant", now, now, {"synthetic": True}, (part,))
    await commit(
        s,
        OpenTurn(turn),
        InsertMessage(row),
        SealMessage(row.id, seal_of([part.data])),
        LinkMessage(turn.id, row.id),
        MoveHead(turn.id, now, "compaction"),
    )
    await project_again(s)
    return turn.id, row.id


async def is_sound(s: Scenario) -> None:
    """The judge finds nothing."""
    assert await s.check() == []


# RW-1, RW-2


@pytest.mark.rule("RW-1")
async def test_what_comes_after_a_rewind_leaves_the_line_and_nothing_is_deleted(open_both: Open) -> None:
    """For each user message: what followed gets hidden_at at the time of the move, and every row is still there."""
    async with open_both(echo()) as s:
        await s.begin()
        users = await talk(s, "one", "two", "three")
        before = await rows_of(s)
        line = [held for _, held in line_messages(await tree_of(s))]
        for place, user in reversed(list(enumerate(users))):
            left = await s.engine.rewind(s.id, user, mode="edit")
            assert left.hidden == tuple(line[2 * place : 2 * place + 2])
            after = await rows_of(s)
            at = (await tree_of(s)).moves[-1].at
            for id_ in left.hidden:
                kept = {**before[id_].metadata, "hidden_at": at, "hidden_by": "rewind"}
                assert after[id_] == msgspec.structs.replace(before[id_], metadata=kept)
            assert set(after) == set(before)
            await is_sound(s)
        assert await s.transcript() == []


@pytest.mark.rule("RW-2")
async def test_a_resend_makes_an_unanswered_sibling_that_holds_the_same_row(open_both: Open) -> None:
    """Nothing runs; a prompt goes below it; sent once more, nothing is written."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two, three = await talk(s, "one", "two", "three")
        rewound = await s.engine.rewind(s.id, two)
        tree = await tree_of(s)
        sibling = tree.turns[str(rewound.head_turn_id)]
        assert (sibling.status, tree.head_turn_id, tree.links[sibling.id]) == ("unanswered", sibling.id, (two,))
        assert sibling.parent_turn_id == (await turn_of(s, one)).id
        assert await s.transcript() == ["user: one", "assistant: re one", "user: two"]
        assert len(s.model.requests) == 3
        assert three in rewound.hidden
        assert two not in rewound.hidden
        again = await s.engine.rewind(s.id, two)
        assert (again, await tree_of(s)) == (Rewound(sibling.id, ()), tree)
        await talk(s, "four")
        assert (await tree_of(s)).turns[str((await tree_of(s)).head_turn_id)].parent_turn_id == sibling.id
        assert await s.transcript() == [
            "user: one",
            "assistant: re one",
            "user: two",
            "user: four",
            "assistant: re four",
        ]
        await is_sound(s)


@pytest.mark.rule("RW-2")
async def test_an_edit_hands_the_text_back_and_may_empty_the_session(open_both: Open) -> None:
    """The head goes to the parent, or to nothing; a prompt then begins a second root."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        first = (await turn_of(s, one)).id
        rewound = await s.engine.rewind(s.id, two, mode="edit")
        assert (rewound.head_turn_id, rewound.draft, rewound.submission) == (first, "two", None)
        rewound = await s.engine.rewind(s.id, one, mode="edit", text="uno")
        assert (rewound.head_turn_id, rewound.draft) == (None, "uno")
        assert len(s.model.requests) == 2
        await talk(s, "eins")
        roots = [turn for turn in (await tree_of(s)).turns.values() if turn.parent_turn_id is None]
        assert len(roots) == 2
        assert await s.transcript() == ["user: eins", "assistant: re eins"]
        await is_sound(s)


@pytest.mark.rule("RW-2")
async def test_a_resend_that_is_run_is_answered_anew(open_both: Open) -> None:
    """In the sibling; the old answer stays where it was."""
    async with open_both([say("no"), say("yes")]) as s:
        await s.begin()
        (one,) = await talk(s, "well?")
        rewound = await s.engine.rewind(s.id, one, run=True)
        assert rewound.submission is not None
        assert (await rewound.submission.wait()).turn_id == rewound.head_turn_id
        assert await s.transcript() == ["user: well?", "assistant: yes"]
        assert await s.transcript("all") == ["user: well?", "assistant: no", "assistant: yes"]
        await is_sound(s)


@pytest.mark.rule("RW-2", "MS-1")
async def test_an_edit_that_is_run_keeps_files_model_and_agent(open_both: Open) -> None:
    """Only the text changes; the file is named again, not stored again; one unit moves the head and opens the turn."""
    url = "data:text/plain;base64,aGVsbG8="
    file = {"type": "file", "mediaType": "text/plain", "filename": "h.txt", "url": url}
    async with open_both(echo()) as s:
        await s.begin()
        model = {"provider_id": "test", "model_id": "big", "variant": "slow"}
        sent = await s.engine.submit(
            s.id,
            [file, {"type": "text", "text": "read"}, {"type": "text", "text": "this"}],
            model=model,
            agent="explore",
        )
        await sent.wait()
        old = (await rows_of(s))[sent.message_id]
        assert (await s.engine.rewind(s.id, sent.message_id, mode="edit")).draft == "read\nthis"
        await s.engine.unrewind(s.id)
        rewound = await s.engine.rewind(
            s.id, sent.message_id, mode="edit", text="read that", run=True, client_message_id="c-1"
        )
        assert rewound.draft is None
        assert rewound.submission is not None
        await rewound.submission.wait()
        new = (await rows_of(s))[rewound.submission.message_id]
        assert [part.data for part in new.parts] == [old.parts[0].data, {"type": "text", "text": "read that"}]
        assert new.metadata == {**old.metadata, "client_message_id": "c-1"}
        assert s.model.requests[-1].messages[-1].parts[0]["url"] == url
        assert [move.why for move in (await tree_of(s)).moves] == ["turn", "rewind", "unrewind", "rewind", "turn"]
        await is_sound(s)


async def test_an_edit_that_would_be_refused_moves_nothing(open_both: Open) -> None:
    """The model is gone, the text is too large or empty, the file is not there."""
    async with open_both(echo()) as s:
        await s.begin()
        one, _ = await talk(s, "one", "two")
        before = (await tree_of(s), await rows_of(s))
        gone = {"type": "file", "mediaType": "text/plain", "url": f"/api/blobs/{'0' * 64}"}
        bad: list[dict[str, Any]] = [
            {"model": "nobody/x"},
            {"text": "x" * 1_000_000},
            {"text": ""},
            {"parts": [gone]},
            {"parts": [{**gone, "url": "/api/blobs/../x"}]},
            {"parts": []},
        ]
        for options in bad:
            with pytest.raises(clew.Invalid):
                await s.engine.rewind(s.id, one, mode="edit", run=True, **options)
        assert (await tree_of(s), await rows_of(s)) == before


# RW-3


@pytest.mark.rule("RW-3")
async def test_un_rewind_brings_every_row_back_as_it_was(open_both: Open) -> None:
    """Byte for byte, after a resend and after an edit, with older rewinds and a summary about."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two, three = await talk(s, "one", "two", "three")
        await s.engine.rewind(s.id, three, mode="edit")
        (four,) = await talk(s, "four")
        await summarise(s, four)
        await talk(s, "five")
        for user in (one, two, four):
            for options in ({}, {"mode": "edit"}):
                before, head = await rows_of(s), (await tree_of(s)).head_turn_id
                rewound = await s.engine.rewind(s.id, user, **options)  # type: ignore[arg-type]
                assert await rows_of(s) != before
                await is_sound(s)
                undone = await s.engine.unrewind(s.id)
                assert (undone.head_turn_id, (await tree_of(s)).head_turn_id) == (head, head)
                assert await rows_of(s) == before
                assert not set(rewound.hidden) & set(undone.hidden)
                await is_sound(s)


@pytest.mark.rule("RW-3")
async def test_rewinds_are_undone_one_after_the_other(open_both: Open) -> None:
    """The newest first; then there is nothing left to undo."""
    async with open_both(echo()) as s:
        await s.begin()
        with pytest.raises(NothingToUndo):
            await s.engine.unrewind(s.id)
        one, two, three = await talk(s, "one", "two", "three")
        heads = [(await tree_of(s)).head_turn_id]
        heads += [(await s.engine.rewind(s.id, user, mode="edit")).head_turn_id for user in (three, two, one)]
        for head in reversed(heads[:-1]):
            assert (await s.engine.unrewind(s.id)).head_turn_id == head
        with pytest.raises(NothingToUndo):
            await s.engine.unrewind(s.id)
        assert len(await s.transcript()) == 6


@pytest.mark.rule("RW-3")
async def test_un_rewind_is_refused_once_the_conversation_went_on(open_both: Open) -> None:
    """A turn below, or a message in, the turn that was left as head; any turn of the reflog can still be gone to."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        old = (await tree_of(s)).head_turn_id
        await s.engine.rewind(s.id, two, mode="edit")
        await talk(s, "deux")
        new = (await tree_of(s)).head_turn_id
        with pytest.raises(NewerTurns):
            await s.engine.unrewind(s.id)
        assert (await s.engine.set_head(s.id, old)).head_turn_id == old
        assert (await s.transcript())[-2:] == ["user: two", "assistant: re two"]
        assert (await s.engine.set_head(s.id, new)).head_turn_id == new
        assert (await s.transcript())[-2:] == ["user: deux", "assistant: re deux"]
        await s.engine.rewind(s.id, one, run=True)
        await s.settled()
        with pytest.raises(NewerTurns):
            await s.engine.unrewind(s.id)
        await s.engine.rewind(s.id, one, mode="edit")
        await s.engine.unrewind(s.id)
        await is_sound(s)


@pytest.mark.rule("RW-3")
async def test_a_turn_added_further_below_or_beside_is_told_apart(open_both: Open) -> None:
    """Below an older child of that turn it counts; below another turn it does not; a refused one never does."""
    async with open_both(echo()) as s:
        await s.begin()
        _, two, three = await talk(s, "one", "two", "three")
        end = (await tree_of(s)).head_turn_id
        at_two = (await turn_of(s, two)).id
        await s.engine.rewind(s.id, three, mode="edit")
        refused = Turn(id=s.engine._mint.turn(), session_id=s.id, parent_turn_id=at_two, created_at=1)
        row = MessageRow(s.engine._mint.message(), s.id, "user", 1, 1, {}, ())
        await commit(s, OpenTurn(refused), InsertMessage(row), LinkMessage(refused.id, row.id))
        await commit(s, SetTurn(refused.id, "refused", settled_at=2))
        await project_again(s)
        await s.engine.set_head(s.id, None)
        await talk(s, "beside")
        assert (await s.engine.unrewind(s.id)).head_turn_id == end
        await s.engine.rewind(s.id, three, mode="edit")
        await s.engine.set_head(s.id, end)
        await talk(s, "below")
        with pytest.raises(NewerTurns):
            await s.engine.unrewind(s.id)
        await is_sound(s)


@pytest.mark.rule("RW-3")
async def test_a_try_again_after_a_failure_is_not_undone_by_un_rewind(open_both: Open) -> None:
    """It moved the head back and added a turn there; the failed one is in the reflog."""
    async with open_both([say("one"), fail(400), say("two")]) as s:
        await s.begin()
        await talk(s, "1", "2")
        failed = (await tree_of(s)).head_turn_id
        await (await s.engine.continue_turn(s.id)).wait()
        await s.settled()
        with pytest.raises(NewerTurns):
            await s.engine.unrewind(s.id)
        assert (await s.engine.set_head(s.id, failed)).head_turn_id == failed
        await is_sound(s)


@pytest.mark.rule("RW-3", "BR-9")
async def test_the_reflog_tells_where_the_head_has_been(open_both: Open) -> None:
    """Newest first, with the first words of where it went."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two " * 60)
        first, second = (await turn_of(s, one)).id, (await turn_of(s, two)).id
        summary, _ = await summarise(s, two)
        await s.engine.rewind(s.id, one, mode="edit")
        await s.engine.set_head(s.id, second)
        moves = (await tree_of(s)).moves
        words = ["one", "two " * 19 + "two…", "summary of 1 turn", "", "two " * 19 + "two…"]
        ends = [(None, first), (first, second), (second, summary), (summary, None), (None, second)]
        whys: list[Any] = ["turn", "turn", "compaction", "rewind", "goto"]
        expected = [ReflogEntry(n + 1, *ends[n], moves[n].at, whys[n], words[n]) for n in reversed(range(len(moves)))]
        assert await s.engine.reflog(s.id) == expected


@pytest.mark.rule("RW-3")
async def test_the_head_goes_to_any_settled_turn_of_its_own_session(open_both: Open) -> None:
    """Not to a refused one, an unknown one, or another session's; where it is already, nothing is written."""
    async with open_both(echo()) as s:
        await s.begin()
        await talk(s, "one")
        other = await s.engine.create_session()
        await (await s.engine.submit(other.id, "elsewhere")).wait()
        foreign = next(iter((await s.engine.store.load_tree(other.id)).turns))
        refused = Turn(id=s.engine._mint.turn(), session_id=s.id, parent_turn_id=None, created_at=1)
        await commit(s, OpenTurn(refused))
        await commit(s, SetTurn(refused.id, "refused", settled_at=2))
        tree = await tree_of(s)
        for turn_id, error in (
            (foreign, TurnNotFound),
            (s.engine._mint.turn(), TurnNotFound),
            (refused.id, RewindTargetInvalid),
            ("../etc/passwd", InvalidId),
            ("", InvalidId),
        ):
            with pytest.raises(error):
                await s.engine.set_head(s.id, turn_id)
        assert await s.engine.set_head(s.id, tree.head_turn_id) == Rewound(tree.head_turn_id, ())
        assert await tree_of(s) == tree
        assert (await s.engine.set_head(s.id, None)).head_turn_id is None
        assert (await tree_of(s)).moves[-1] == HeadMove(
            2, s.id, tree.head_turn_id, None, (await tree_of(s)).moves[-1].at, "goto"
        )


# RW-4


@pytest.mark.rule("RW-4", "CP-4")
async def test_rewinding_past_a_summary_brings_the_originals_back(open_both: Open) -> None:
    """A summarised message can be rewound to; un-rewinding brings the summary back."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two, three = await talk(s, "one", "two", "three")
        await summarise(s, three, "they counted")
        await talk(s, "four")
        model = await s.engine.messages(s.id, view="model")
        seen = await s.transcript()
        before = await rows_of(s)
        assert seen[0] == "assistant: [data-compaction]"
        assert await hidden_by(s) == dict.fromkeys(
            [id_ for id_ in before if before[id_].metadata.get("hidden_by")], "compaction"
        )
        await s.engine.rewind(s.id, two)
        assert await s.transcript() == ["user: one", "assistant: re one", "user: two"]
        assert set((await hidden_by(s)).values()) == {"rewind"}
        assert (await s.engine.messages(s.id, view="model"))[0].id == one
        await is_sound(s)
        await s.engine.unrewind(s.id)
        assert (await s.transcript(), await rows_of(s)) == (seen, before)
        assert await s.engine.messages(s.id, view="model") == model
        await is_sound(s)


@pytest.mark.rule("RW-4")
async def test_a_summary_of_a_part_of_a_turn_goes_with_that_turn(open_both: Open) -> None:
    """Made in the middle of a turn it tells of what the rewind takes back; made before it, it stays."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        first, second = await turn_of(s, one), await turn_of(s, two)
        answer = (await tree_of(s)).links[second.id][1]
        # As the runtime does it for an open turn: the compaction between the head and that turn.
        early, _ = await summarise_inside(s, second, two)
        late, _ = await summarise_inside(s, second, answer, split={"message_id": answer, "from_part": 0})
        assert [turn.id for turn in line_turns(await tree_of(s))] == [first.id, early, late, second.id]
        rewound = await s.engine.rewind(s.id, two, mode="edit")
        assert rewound.head_turn_id == early
        await s.engine.unrewind(s.id)
        rewound = await s.engine.rewind(s.id, two)
        assert (await tree_of(s)).turns[str(rewound.head_turn_id)].parent_turn_id == early
        assert await s.transcript() == ["assistant: [data-compaction]", "user: two"]
        await is_sound(s)


async def summarise_inside(s: Scenario, turn: Turn, tail_start_id: str, **data: Any) -> tuple[str, str]:
    """A compaction that made room for a turn while it was open."""
    tree = await tree_of(s)
    parent = tree.turns[turn.id].parent_turn_id
    now = s.engine.host.clock.now_ms()
    # Back to how it was: the turn open below its parent.
    await commit(s, MoveHead(parent, now, "rewind"), SetTurn(turn.id, "running"))
    made = await summarise(s, tail_start_id, **data)
    await commit(s, MoveTurn(turn.id, made[0]))
    await commit(s, SetTurn(turn.id, "completed", settled_at=now), MoveHead(turn.id, now, "turn"))
    await project_again(s)
    return made


def test_a_turn_starts_over_below_what_does_not_tell_of_it() -> None:
    """Compactions right above it that kept only a part of it are passed over, and only those."""

    def compacting(id_: str, parent: str | None) -> Turn:
        return Turn(id=id_, session_id="s", parent_turn_id=parent, created_at=0, kind="compaction", status="completed")

    def compaction(turn_id: str, tail: str | None, split: str | None = None) -> Compaction:
        row = MessageRow("m", "s", "assistant", 0, 0, {}, ())
        return Compaction(row, turn_id, "", tail, Split(split, 1) if split else None)

    turn = Turn(id="t", session_id="s", parent_turn_id="c3", created_at=0)
    turns = [compacting("c1", None), compacting("c2", "c1"), compacting("c3", "c2"), turn]
    tree = Tree("t", None, {turn.id: turn for turn in turns}, {"t": ("u", "a", "b")}, ())
    before, user = compaction("c1", "x"), compaction("c2", "u")
    assert parent_before(tree, [before, user, compaction("c3", "a")], turn) == "c2"
    assert parent_before(tree, [before, user, compaction("c3", "u", "b")], turn) == "c2"
    assert parent_before(tree, [before, user, compaction("c3", "u")], turn) == "c3"
    assert parent_before(tree, [before, user, compaction("c3", None)], turn) == "c3"
    inside = [compaction("c1", "a"), compaction("c2", "b"), compaction("c3", "b", "b")]
    assert parent_before(tree, inside, turn) is None
    assert parent_before(tree, [], turn) == "c3"


# RW-5


@pytest.mark.rule("RW-5")
async def test_nothing_moves_while_a_run_is_live(open_both: Open) -> None:
    """Rewind, un-rewind and going to a turn are refused as busy."""
    gate = Gate()
    async with open_both([say("one"), [wait(gate), say("two")]]) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        submission = await s.send("2")
        await gate.reached.wait()
        moves = (await tree_of(s)).moves
        for attempt in (
            s.engine.rewind(s.id, one),
            s.engine.rewind(s.id, one, mode="edit", run=True),
            s.engine.unrewind(s.id),
            s.engine.set_head(s.id, None),
        ):
            with pytest.raises(SessionBusy):
                await attempt
        assert (await tree_of(s)).moves == moves
        gate.set()
        assert (await submission.wait()).status == "completed"


@pytest.mark.rule("RW-5")
async def test_what_waits_for_a_human_is_withdrawn_and_the_queue_stays(open_both: Open) -> None:
    """The call is denied, its turn aborted; the queued prompt neither runs nor goes."""
    script = [say("one"), call("write", {"path": "a.txt", "content": "x"}), say("three")]
    async with open_both(script) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        asking = await s.send("2")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        queued = await s.send("later")
        assert queued.queued
        with pytest.raises(RewindTargetInvalid):
            await s.engine.rewind(s.id, queued.message_id)
        assert (await s.engine.get_status(s.id)).waiting
        rewound = await s.engine.rewind(s.id, one)
        assert (await asking.wait()).status == "aborted"
        assert await s.transcript() == ["user: 1"]
        assert (await s.engine.get_status(s.id)).waiting == ()
        assert [message.id for message in await s.engine.queue(s.id)] == [queued.message_id]
        assert s.engine.is_idle(s.id)
        denied = [line for line in await s.transcript("all") if line.startswith("write")]
        assert denied == ['write {"path":"a.txt","content":"x"} → output-denied']
        await is_sound(s)
        undone = await s.engine.unrewind(s.id)
        assert (await tree_of(s)).turns[str(undone.head_turn_id)].status == "aborted"
        assert rewound.hidden
        assert list(s.workspace.iterdir()) == []
        await is_sound(s)


@pytest.mark.rule("RW-5")
async def test_going_elsewhere_withdraws_and_un_rewind_sees_what_waits(open_both: Open) -> None:
    """A turn that waits below where a rewind led is newer; nothing is withdrawn by a refusal."""
    script = [say("one"), say("two"), call("write", {"path": "a.txt", "content": "x"})]
    async with open_both(script) as s:
        await s.begin()
        one, two = await talk(s, "1", "2")
        first = (await turn_of(s, one)).id
        await s.engine.rewind(s.id, two, mode="edit")
        await s.send("3")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        with pytest.raises(NewerTurns):
            await s.engine.unrewind(s.id)
        assert (await s.engine.get_status(s.id)).waiting
        left = await s.engine.set_head(s.id, first)
        assert (left.head_turn_id, len(left.hidden)) == (first, 2)
        assert (await s.engine.get_status(s.id)).waiting == ()
        await is_sound(s)


@pytest.mark.rule("RW-3", "RW-5")
async def test_a_resend_that_asks_something_is_newer_than_what_it_left(open_both: Open) -> None:
    """A message was added in the turn the rewind left as head, though that turn is not settled yet."""
    async with open_both([say("one"), call("write", {"path": "a.txt", "content": "x"})]) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        await s.engine.rewind(s.id, one, run=True)
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        with pytest.raises(NewerTurns):
            await s.engine.unrewind(s.id)
        assert (await s.engine.get_status(s.id)).waiting
        assert (await s.engine.rewind(s.id, one, mode="edit")).draft == "1"
        await is_sound(s)


@pytest.mark.rule("RW-5", "SR-4")
async def test_calls_a_dead_run_left_open_are_settled_first(open_both: Open) -> None:
    """The turn is failed and the call an error before the head moves."""
    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        mint, state = s.engine._mint, await s.engine.store.load_state(s.id)
        turn = Turn(id=mint.turn(), session_id=s.id, parent_turn_id=state.head_turn_id, created_at=5)
        part = {"type": "tool-bash", "toolCallId": "c1", "state": "input-available", "input": {"command": "ls"}}
        user = MessageRow(mint.message(), s.id, "user", 5, 5, {}, ())
        row = MessageRow(mint.message(), s.id, "assistant", 5, 5, {}, (PartRow(mint.part(), 0, part, 5, 5),))
        links = [LinkMessage(turn.id, user.id), LinkMessage(turn.id, row.id)]
        await commit(s, OpenTurn(turn), InsertMessage(user), InsertMessage(row), *links)
        await s.engine.rewind(s.id, one)
        assert (await tree_of(s)).turns[turn.id].status == "failed"
        assert (await rows_of(s))[row.id].parts[0].tool_state == "output-error"
        await is_sound(s)


# RW-6


class Copies:
    """A snapshot layer that copies the whole folder. ``broken`` makes restoring fail."""

    def __init__(self, workspace: Path, kept: Path) -> None:
        self.workspace = workspace
        self.kept = kept
        self.broken = False

    async def take(self, session_id: str, message: MessageRow) -> str | None:
        shutil.copytree(self.workspace, self.kept / message.id)
        return message.id

    async def preview(self, session_id: str, snapshot_id: str) -> list[str]:
        names = {path.name: path for path in (self.kept / snapshot_id).iterdir()}
        present = {path.name: path for path in self.workspace.iterdir()}
        return sorted(n for n in {**names, **present} if _read(names.get(n)) != _read(present.get(n)))

    async def restore(self, session_id: str, snapshot_id: str) -> None:
        if self.broken:
            raise OSError("the disk is on fire")
        shutil.rmtree(self.workspace)
        shutil.copytree(self.kept / snapshot_id, self.workspace)


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None


@pytest.mark.rule("RW-6")
async def test_a_rewind_brings_the_files_back_before_the_head_moves(open_both: Open, tmp_path: Path) -> None:
    """To how they were when the message landed; when that fails, nothing moves and the reason is told."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    layer = Copies(workspace, tmp_path / "kept")
    async with open_both(echo(), snapshots=layer) as s:
        await s.begin()
        (workspace / "a.txt").write_text("first")
        one, two = await talk(s, "one", "two")
        (workspace / "a.txt").write_text("second")
        (workspace / "b.txt").write_text("new")
        (three,) = await talk(s, "three")
        rows = await rows_of(s)
        assert [rows[id_].metadata["snapshot_id"] for id_ in (one, two, three)] == [one, two, three]
        assert await layer.preview(s.id, two) == ["a.txt", "b.txt"]
        layer.broken = True
        tree = await tree_of(s)
        with pytest.raises(SnapshotFailed, match="the disk is on fire"):
            await s.engine.rewind(s.id, two, restore_files=True)
        assert (await tree_of(s), await rows_of(s)) == (tree, rows)
        layer.broken = False
        await s.engine.rewind(s.id, three)
        assert (workspace / "b.txt").exists()
        await s.engine.rewind(s.id, two, mode="edit", restore_files=True)
        assert {path.name: path.read_text() for path in workspace.iterdir()} == {"a.txt": "first"}
        await is_sound(s)


@pytest.mark.rule("RW-6")
async def test_a_queued_message_gets_its_snapshot_when_it_is_fired(open_both: Open, tmp_path: Path) -> None:
    """Of the files as they are then."""
    workspace, gate = tmp_path / "workspace", Gate()
    workspace.mkdir()
    async with open_both([[wait(gate), say("one")], say("two")], snapshots=Copies(workspace, tmp_path / "kept")) as s:
        await s.begin()
        await s.send("1")
        queued = await s.send("2")
        await gate.reached.wait()
        assert "snapshot_id" not in (await rows_of(s))[queued.message_id].metadata
        (workspace / "late.txt").write_text("x")
        gate.set()
        await queued.wait()
        assert (await rows_of(s))[queued.message_id].metadata["snapshot_id"] == queued.message_id
        assert (tmp_path / "kept" / queued.message_id / "late.txt").exists()


@pytest.mark.rule("RW-6")
async def test_without_a_snapshot_there_are_no_files_to_bring_back(open_both: Open, tmp_path: Path) -> None:
    """No layer: not supported. A message from before there was one: not a target for that."""

    class Nothing(Copies):
        async def take(self, session_id: str, message: MessageRow) -> str | None:
            return None

    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        with pytest.raises(NotSupported):
            await s.engine.rewind(s.id, one, restore_files=True)
    async with open_both(echo(), snapshots=Nothing(tmp_path, tmp_path)) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        with pytest.raises(RewindTargetInvalid, match="snapshot"):
            await s.engine.rewind(s.id, one, restore_files=True)


# Naming messages


async def test_a_target_that_cannot_be_rewound_to_says_what_to_do(open_both: Open) -> None:
    """Assistant, summary, queued, cancelled, refused, off the line, unknown, malformed."""
    gate = Gate()
    async with open_both([say("one"), say("two"), [wait(gate), say("three")]]) as s:
        await s.begin()
        one, two = await talk(s, "1", "2")
        answer = (await tree_of(s)).links[(await turn_of(s, one)).id][1]
        await s.engine.rewind(s.id, two, mode="edit")
        _, marker = await summarise(s, one)
        await s.send("3")
        cancelled = await s.send("never", message_id="mine")
        await gate.reached.wait()
        await s.engine.cancel_queued(s.id, cancelled.message_id)
        gate.set()
        await s.settled()
        for named, sentence in (
            (answer, one),
            (marker, "summary"),
            (two, "go to turn"),
            (cancelled.message_id, "cancelled"),
            ("mine", "cancelled"),
        ):
            with pytest.raises(RewindTargetInvalid, match=sentence):
                await s.engine.rewind(s.id, named)
        with pytest.raises(MessageNotFound):
            await s.engine.rewind(s.id, s.engine._mint.message())
        for bad in ("", "x" * 129, "ünïcode", "a\nb"):
            with pytest.raises(InvalidId):
                await s.engine.rewind(s.id, bad)
        await is_sound(s)


async def test_an_id_is_looked_up_on_the_line_first_and_the_clients_before_ours(open_both: Open) -> None:
    """An edit may use an id again: the row on the line is meant, and off it the newest."""
    async with open_both(echo()) as s:
        await s.begin()
        first = await s.send("one", message_id="m")
        await first.wait()
        await s.settled()
        edited = await s.engine.rewind(s.id, "m", mode="edit", text="uno", run=True, client_message_id="m")
        assert edited.submission is not None
        await edited.submission.wait()
        await s.settled()
        assert (await s.engine.rewind(s.id, "m", mode="edit")).draft == "uno"
        with pytest.raises(RewindTargetInvalid, match=str((await tree_of(s)).moves[-1].from_turn_id)):
            await s.engine.rewind(s.id, "m")
        await s.engine.set_head(s.id, (await tree_of(s)).moves[0].to_turn_id)
        assert (await s.engine.rewind(s.id, "m", mode="edit")).draft == "one"


async def test_requests_that_make_no_sense_are_refused(open_both: Open) -> None:
    """Before anything is looked at."""
    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        bad: list[dict[str, Any]] = [
            {"mode": "sideways"},
            {"mode": None},
            {"text": "x"},
            {"mode": "edit", "text": 5},
            {"mode": "edit", "text": "\ud800"},
            {"mode": "edit", "parts": [{"type": "text", "text": "x"}]},
            {"mode": "edit", "run": True, "client_message_id": "\x00"},
            {"run": True, "model": "test/x"},
        ]
        for options in bad:
            with pytest.raises(clew.Invalid):
                await s.engine.rewind(s.id, one, **options)
        with pytest.raises(clew.SessionNotFound):
            await s.engine.rewind(s.engine._mint.session(), one)
        with pytest.raises(InvalidId):
            await s.engine.unrewind("nowhere")
        with pytest.raises(InvalidInput):
            await s.engine.rewind(s.id, one, mode="edit", model="test/x")
        assert len((await tree_of(s)).moves) == 1


async def test_everybody_is_told_that_the_session_changed(open_both: Open) -> None:
    """One event and one hook for each operation that did something."""
    saved: list[Any] = []

    async def save(session_id: str) -> None:
        saved.append(session_id)

    async with open_both(echo()) as s:
        await s.begin()
        one, _ = await talk(s, "one", "two")
        await asyncio.gather(*s.engine._desk._tasks)  # titles are made beside, and told of
        await asyncio.sleep(0)
        s.engine.hook("session_save", save)
        events = s.engine.subscribe()
        await s.engine.rewind(s.id, one, mode="edit")
        await s.engine.unrewind(s.id)
        await s.engine.set_head(s.id, None)
        await s.engine.set_head(s.id, None)
        seen = [await anext(events) for _ in range(3)]
        assert [(event.type, event.data) for event in seen] == [("session_updated", {"session_id": s.id})] * 3
        await s.engine.host.hooks.drain()
        assert saved == [s.id] * 3


# Any history


ACTIONS = ["prompt", "prompt", "prompt", "resend", "edit", "undo", "undo", "goto", "compact", "continue", "run"]


@pytest.mark.rule("RW-1", "RW-3", "RW-4")
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=12))
async def test_whatever_is_done_the_projections_are_those_of_the_tree(
    seed: int, actions: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And no row is lost, the judge finds nothing, an un-rewind right after a rewind changes no row."""
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("history")
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(echo())) as engine:
        s = await Scenario(engine, echo(), folder).begin()
        for action in actions:
            before = await rows_of(s)
            try:
                await act(s, action, rng)
            except (clew.Conflict, clew.Invalid):
                assert await rows_of(s) == before
            tree, rows = await tree_of(s), await rows_of(s)
            assert set(before) <= set(rows)
            truth = project(tree, await load_tails(engine.store, s.id, tree))
            expected = {id_: (hidden.at, hidden.by) for id_, hidden in truth.items()}
            assert {
                id_: projection_of(row.metadata) for id_, row in rows.items() if "hidden_at" in row.metadata
            } == expected
            assert await check(engine.store) == []


async def act(s: Scenario, action: str, rng: random.Random) -> None:
    tree = await tree_of(s)
    users = [tree.links[turn.id][0] for turn in line_turns(tree) if turn.kind == "normal"]
    if action == "prompt":
        await talk(s, f"p{rng.random()}")
    elif action in ("resend", "edit", "run") and users:
        before, head = await rows_of(s), tree.head_turn_id
        mode: Any = "edit" if action == "edit" else "resend"
        await s.engine.rewind(s.id, rng.choice(users), mode=mode, run=action == "run")
        await s.settled()
        if action != "run" and len((await tree_of(s)).moves) > len(tree.moves) and rng.random() < 0.5:
            assert (await s.engine.unrewind(s.id)).head_turn_id == head
            assert await rows_of(s) == before
    elif action == "undo":
        await s.engine.unrewind(s.id)
    elif action == "goto":
        await s.engine.set_head(s.id, rng.choice([None, *sorted(tree.turns)]))
    elif action == "compact" and users:
        await summarise(
            s, rng.choice([*users, *(tree.links[t.id][-1] for t in line_turns(tree) if t.kind == "normal")])
        )
    elif action == "continue":
        await s.engine.continue_turn(s.id)
        await s.settled()
