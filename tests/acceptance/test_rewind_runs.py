"""Going back past summaries, past what waits for a human and past what a dead run left."""

from __future__ import annotations

import pytest

from clew.errors import NewerTurns, RewindTargetInvalid, SessionBusy
from clew.store.unit import LinkMessage, OpenTurn
from clew.testing.scenario import Scenario
from clew.testing.scribe import settled
from clew.testing.scripted import Gate, call, say, wait
from clew.transcript.head import restart_turn
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.turn import Tree, Turn
from clew.transcript.view import Compaction, Split
from tests.acceptance.conversations import (
    commit,
    echo,
    is_sound,
    rows_of,
    summarise,
    summarise_inside,
    talk,
    tree_of,
    turn_of,
)

from .conftest import Open


async def hidden_by(s: Scenario) -> dict[str, object]:
    return {row.id: row.metadata["hidden_by"] for row in (await rows_of(s)).values() if "hidden_by" in row.metadata}


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


def test_a_turn_starts_over_below_what_does_not_tell_of_it() -> None:
    """Compactions right above it that kept only a part of it are passed over, and only those."""

    def compacting(id_: str, parent: str | None) -> Turn:
        return Turn(id=id_, session_id="s", parent_turn_id=parent, created_at=0, kind="compaction", status="completed")

    def compaction(turn_id: str, tail: str | None, split: str | None = None) -> Compaction:
        row = MessageRow(f"m{turn_id}", "s", "assistant", 0, 0, {}, ())
        return Compaction(row, turn_id, "", tail, Split(split, 1) if split else None)

    turn = Turn(id="t", session_id="s", parent_turn_id="c3", created_at=0)
    turns = [compacting("c1", None), compacting("c2", "c1"), compacting("c3", "c2"), turn]
    links = {"c1": ("mc1",), "c2": ("mc2",), "c3": ("mc3",), "t": ("u", "a", "b")}
    tree = Tree("t", None, {turn.id: turn for turn in turns}, links, ())

    def parent_of(*compactions: Compaction) -> str | None:
        parent, added = restart_turn(tree, compactions, turn, "new")
        assert added == ()
        return parent

    before, user = compaction("c1", "x"), compaction("c2", "u")
    assert parent_of(before, user, compaction("c3", "a")) == "c2"
    assert parent_of(before, user, compaction("c3", "u", "b")) == "c2"
    assert parent_of(before, user, compaction("c3", "u")) == "c3"
    assert parent_of(before, user, compaction("c3", None)) == "c3"
    assert parent_of(compaction("c1", "a"), compaction("c2", "b"), compaction("c3", "b", "b")) is None
    assert parent_of() == "c3"


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
        mint, state = s.engine.mint, await s.engine.store.load_state(s.id)
        turn = Turn(id=mint.turn(), session_id=s.id, parent_turn_id=state.head_turn_id, created_at=5)
        part = {"type": "tool-bash", "toolCallId": "c1", "state": "input-available", "input": {"command": "ls"}}
        user = MessageRow(mint.message(), s.id, "user", 5, 5, {}, ())
        row = MessageRow(mint.message(), s.id, "assistant", 5, 5, {}, (PartRow(mint.part(), 0, part, 5, 5),))
        links = [LinkMessage(turn.id, user.id), LinkMessage(turn.id, row.id)]
        await commit(s, OpenTurn(turn), *settled(user), *settled(row), *links)
        await s.engine.rewind(s.id, one)
        assert (await tree_of(s)).turns[turn.id].status == "failed"
        assert (await rows_of(s))[row.id].parts[0].tool_state == "output-error"
        await is_sound(s)
