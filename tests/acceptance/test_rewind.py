"""Going back and forward again: rewind, un-rewind, and any turn of the reflog. Nothing is deleted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import clew
from clew.errors import InvalidId, NewerTurns, NothingToUndo, RewindTargetInvalid, TurnNotFound
from clew.session.history.rewind import Rewound
from clew.session.history.tree import ReflogEntry
from clew.testing.scripted import fail, say
from clew.transcript.line import line_messages
from clew.transcript.turn import HeadMove
from tests.acceptance.conversations import (
    echo,
    is_sound,
    refuse,
    rows_of,
    summarise,
    talk,
    tree_of,
    turn_of,
)

from .conftest import Open

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
        assert s.model.requests[-1].messages[-1].parts[0] == {"type": "text", "text": "[h.txt]\nhello"}
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
        await refuse(s, at_two)
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
        await (await s.engine.continue_turn(s.id, mode="again")).wait()
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
        refused, _ = await refuse(s)
        tree = await tree_of(s)
        for turn_id, error in (
            (foreign, TurnNotFound),
            (s.engine.mint.turn(), TurnNotFound),
            (refused, RewindTargetInvalid),
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
