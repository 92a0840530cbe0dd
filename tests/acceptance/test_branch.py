"""Branches and forks: a new session that starts as a copy of a line, and owes its parent nothing."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew.errors import BranchPointInvalid, InvalidId, MessageNotFound, SessionBusy
from clew.ids import Mint
from clew.session.history.branch_plan import LEFT_BEHIND
from clew.store.unit import AddPruned, PatchSession
from clew.testing.clock import FakeClock
from clew.testing.scenario import transcript
from clew.testing.scripted import Gate, ScriptedModel, call, fail, say, then, wait
from clew.transcript.line import line_turns
from clew.transcript.message import Message
from clew.transcript.portable import FreshIds, rename_value
from clew.transcript.pruned import Pruned
from clew.transcript.usage import Usage
from examples.own_snapshots import CopyLayer
from tests.acceptance.branches import all_ids, model_view
from tests.acceptance.conversations import (
    commit,
    echo,
    is_sound,
    refuse,
    rows_of,
    summarise,
    summarise_inside,
    talk,
    tree_of,
    turn_of,
)

from .conftest import Open


def kept(message: Message) -> tuple[Any, ...]:
    """A message as a branch must hold it, whatever its ids."""
    own = ("hidden_at", "hidden_by", "snapshot_id", "turn_id")
    return message.role, message.parts, {k: v for k, v in message.metadata.items() if k not in own}


# BR-1


@pytest.mark.rule("BR-1")
async def test_a_branch_holds_the_line_up_to_its_point_under_new_ids(open_both: Open) -> None:
    """For every message of the line; parts and metadata are the same, nothing in it names anything of its parent."""
    async with open_both(ScriptedModel(otherwise=lambda r: say("well"))) as s:
        await s.begin()
        await talk(s, "one", "two")
        line = await s.engine.messages(s.id)
        parent = await all_ids(s, s.id)
        for place, point in enumerate(line, start=1):
            branch = await s.engine.branch(s.id, point.id)
            assert (branch.parent_id, branch.parent_message_id) == (s.id, point.id)
            copied = await s.engine.messages(branch.id)
            assert [kept(message) for message in copied] == [kept(message) for message in line[:place]]
            assert not await all_ids(s, branch.id) & parent
            tree = await s.engine.store.load_tree(branch.id)
            turns = line_turns(tree)
            sources = line_turns(await tree_of(s))[: len(turns)]
            status = ["completed"] * (len(turns) - 1) + ["unanswered" if point.role == "user" else "completed"]
            assert [turn.status for turn in turns] == status
            assert [(t.origin_turn_id, t.created_at, t.settled_at) for t in turns] == [
                (t.id, t.created_at, t.settled_at) for t in sources
            ]
            assert [(move.from_turn_id, move.to_turn_id, move.why) for move in tree.moves] == [
                (None, turns[-1].id, "branch")
            ]
            await is_sound(s)


@pytest.mark.rule("BR-1", "RW-2")
async def test_a_branch_that_ends_in_a_user_message_can_be_continued(open_both: Open) -> None:
    """The answer is new, and the parent does not learn of it."""
    async with open_both([say("one"), fail(400), say("other"), say("again")]) as s:
        await s.begin()
        one, two = await talk(s, "1", "2")
        before = await rows_of(s)
        for point, answer in ((one, "other"), (two, "again")):
            branch = await s.engine.branch(s.id, point)
            await (await s.engine.continue_turn(branch.id)).wait()
            assert transcript(await s.engine.messages(branch.id))[-1] == f"assistant: {answer}"
        assert await rows_of(s) == before
        await is_sound(s)


@pytest.mark.rule("BR-1")
async def test_a_turn_that_is_cut_did_not_end_as_the_whole_of_it(open_both: Open) -> None:
    """One that went round in circles, cut before and at its warning, and copied whole."""
    async with open_both([call("ls", {})] * 4) as s:
        await s.begin()
        await talk(s, "look")
        (turn,) = line_turns(await tree_of(s))
        assert turn.data["stopped"] == "doom_loop"
        ends = []
        for message in (await s.engine.messages(s.id))[1:]:
            branch = await s.engine.branch(s.id, message.id)
            (copy,) = line_turns(await s.engine.store.load_tree(branch.id))
            ends.append((copy.status, copy.data))
        assert ends == [("completed", {}), ("unanswered", {}), ("completed", turn.data)]
        await is_sound(s)


@pytest.mark.rule("BR-1", "BR-2")
async def test_a_hidden_message_is_a_point_like_any_other(open_both: Open) -> None:
    """Its own line is copied, and in the branch it is not hidden; one on two lines is taken from the present one."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        answer = (await tree_of(s)).links[(await turn_of(s, two)).id][1]
        await s.engine.rewind(s.id, two, run=True)
        await s.settled()
        branch = await s.engine.branch(s.id, answer)
        assert transcript(await s.engine.messages(branch.id)) == [
            "user: one",
            "assistant: re one",
            "user: two",
            "assistant: re two",
        ]
        assert all("hidden_at" not in m.metadata for m in await s.engine.messages(branch.id, view="all"))
        shared = await s.engine.branch(s.id, two)
        last = line_turns(await s.engine.store.load_tree(shared.id))[-1]
        assert last.origin_turn_id == (await turn_of(s, two)).id
        await s.engine.rewind(s.id, one, mode="edit")
        assert (await s.engine.branch(s.id, one)).parent_message_id == one
        await is_sound(s)


@pytest.mark.rule("BR-1")
async def test_a_branch_may_start_at_a_later_message(open_both: Open) -> None:
    """From a user message on, without the summaries of what came before; a later or unknown start is refused."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two, three = await talk(s, "one", "two", "three")
        answer = (await tree_of(s)).links[(await turn_of(s, two)).id][1]
        _, marker = await summarise(s, three)
        (four,) = await talk(s, "four")
        branch = await s.engine.branch(s.id, four, start_message_id=two)
        assert transcript(await s.engine.messages(branch.id)) == [
            "user: two",
            "assistant: re two",
            "user: three",
            "assistant: re three",
            "user: four",
        ]
        assert (await s.engine.branch(s.id, three, start_message_id=three)).parent_message_id == three
        kept_by = await s.engine.branch(s.id, four, start_message_id=marker)
        assert await model_view(s, kept_by.id) == (await model_view(s, s.id))[:-1]
        assert transcript(await s.engine.messages(kept_by.id, view="all"))[:2] == ["user: three", "assistant: re three"]
        _, again = await summarise(s, three)
        await talk(s, "five")
        newest = (await s.engine.messages(s.id))[-1]
        kept_again = await s.engine.branch(s.id, newest.id, start_message_id=again)
        kinds = [turn.kind for turn in line_turns(await s.engine.store.load_tree(kept_again.id))]
        assert kinds == ["normal", "normal", "compaction", "normal"]
        assert await model_view(s, kept_again.id) == await model_view(s, s.id)
        for start in (four, answer):
            with pytest.raises(BranchPointInvalid):
                await s.engine.branch(s.id, three, start_message_id=start)
        with pytest.raises(MessageNotFound):
            await s.engine.branch(s.id, three, start_message_id="nobody")
        assert one
        await is_sound(s)


@pytest.mark.rule("BR-1")
def test_every_id_in_a_value_is_replaced_and_nothing_else() -> None:
    """At any depth; the same one each time; ids of what is not copied too, by one of the same kind."""
    mint = Mint(FakeClock())
    message, turn, gone = mint.message(), mint.turn(), mint.message()
    fresh = FreshIds(mint)
    new = {id_: fresh(id_) for id_ in (message, turn)}
    value = {"a": [message, {"b": turn}], "c": gone, "d": f"see {message}", "e": [1, None, True, "msg_x"], gone: gone}
    after = rename_value(value, fresh)
    assert after["a"] == [new[message], {"b": new[turn]}]
    assert (after["d"], after["e"]) == (value["d"], value["e"])
    assert after["c"] == after[gone]
    assert after["c"].startswith("msg_")
    assert after["c"] not in (gone, *new, *new.values())


# BR-2


@pytest.mark.rule("BR-2")
async def test_a_point_that_cannot_be_branched_from_is_refused(open_both: Open) -> None:
    """Unknown, another session's, queued, cancelled, refused, malformed; and everything while a run is live."""
    gate = Gate()
    async with open_both([say("one"), [wait(gate), fail(400)]]) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        other = await s.engine.create_session()
        mint = s.engine.mint
        refused_turn, refused = await refuse(s)
        await s.send("2")
        queued, cancelled = await s.send("3"), await s.send("4")
        await s.engine.cancel_queued(s.id, cancelled.message_id)
        await gate.reached.wait()
        running = str((await s.engine.tree(s.id)).open_turn_id)
        for attempt in (s.engine.branch(s.id, one), s.engine.fork(running)):
            with pytest.raises(SessionBusy):
                await attempt
        gate.set()
        await s.settled()
        assert (await s.engine.get_status(s.id)).state == "error"
        for point, error in (
            (mint.message(), MessageNotFound),
            (queued.message_id, BranchPointInvalid),
            (cancelled.message_id, BranchPointInvalid),
            (refused, BranchPointInvalid),
            ("", InvalidId),
            ("\n", InvalidId),
        ):
            with pytest.raises(error):
                await s.engine.branch(s.id, point)
        with pytest.raises(MessageNotFound):
            await s.engine.branch(other.id, one)
        with pytest.raises(BranchPointInvalid):
            await s.engine.fork(refused_turn)
        bad: list[dict[str, Any]] = [
            {"metadata": {"title": 5}},
            {"metadata": {"x": object()}},
            {"metadata": []},
            {"model": "x"},
            {"start_message_id": ""},
        ]
        for options in bad:
            with pytest.raises(clew.Invalid):
                await s.engine.branch(s.id, one, **options)
        assert (await s.engine.branch(s.id, one)).parent_id == s.id
        assert len((await s.engine.list_sessions(parent=s.id)).sessions) == 1
        await is_sound(s)


@pytest.mark.rule("BR-2")
async def test_what_waits_for_a_human_is_copied_as_denied(open_both: Open) -> None:
    """An approval and a question; the parent still waits, and its answer goes on."""

    script = [
        [call("write", {"path": "a.txt", "content": "x"}), call("question", {"question": "which?"})],
        say("done"),
        say("fine"),
    ]
    async with open_both(script) as s:
        await s.begin()
        submission = await s.send("go")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        waiting = (await s.engine.get_status(s.id)).waiting
        assert [wanted.tool for wanted in waiting] == ["write", "question"]
        before = await rows_of(s)
        point = (await s.engine.messages(s.id))[-1]
        branch = await s.engine.branch(s.id, point.id)
        assert await rows_of(s) == before
        calls = [part for part in (await s.engine.messages(branch.id))[-1].parts if "toolCallId" in part]
        assert [part["state"] for part in calls] == ["output-denied"] * len(calls)
        assert [(part["approval"]["approved"], part["approval"]["reason"]) for part in calls] == [
            (False, LEFT_BEHIND)
        ] * len(calls)
        assert all(part["approval"]["id"].startswith("apr_") for part in calls)
        (turn,) = (await s.engine.store.load_tree(branch.id)).turns.values()
        assert (turn.status, turn.data.get("waiting"), turn.data["stopped"]) == ("aborted", None, LEFT_BEHIND)
        assert (await s.engine.get_status(branch.id)).waiting == ()
        await is_sound(s)
        for wanted in waiting:
            if wanted.approval_id is not None:
                await s.engine.answer(s.id, wanted.approval_id, "deny")
            else:
                await s.engine.answer_question(s.id, wanted.tool_call_id, "that one")
        assert (await submission.wait()).status == "completed"
        await (await s.engine.submit(branch.id, "and now?")).wait()
        await is_sound(s)


# BR-3


@pytest.mark.rule("BR-3")
async def test_sums_are_those_of_what_was_copied(open_both: Open) -> None:
    """At the newest message of a session never rewound they are the parent's; before it, what was spent by then."""
    spent = [Usage(10, 5, 1, 2, 3), Usage(100, 50)]
    async with open_both([then(say(str(n)), usage=usage) for n, usage in enumerate(spent)]) as s:
        await s.begin()
        _, two = await talk(s, "one", "two")
        newest = (await s.engine.messages(s.id))[-1]
        parent = await s.engine.get_session(s.id)
        branch = await s.engine.branch(s.id, newest.id)
        assert (branch.usage, branch.total_tokens, branch.cost_usd) == (
            parent.usage,
            parent.total_tokens,
            parent.cost_usd,
        )
        earlier = await s.engine.branch(s.id, two)
        assert (earlier.usage, earlier.total_tokens) == (spent[0], spent[0].total)
        await is_sound(s)


@pytest.mark.rule("BR-3")
async def test_settings_come_along_and_permissions_queue_and_snapshots_do_not(open_both: Open, tmp_path: Any) -> None:
    """The argument is merged into the metadata; None takes a key away; what a session is to its parent stays there."""
    async with open_both(echo(), snapshots=CopyLayer(tmp_path / "kept")) as s:
        await s.begin(metadata={"a": 1, "b": 2, "label": "mine", "kind": "subagent", "depth": 1}, model="test/big")
        (one,) = await talk(s, "one")
        await commit(s, PatchSession(permissions=({"permission": "bash", "pattern": "*", "action": "allow"},)))
        branch = await s.engine.branch(s.id, one, metadata={"b": None, "c": {"d": [3]}})
        parent = await s.engine.get_session(s.id)
        assert branch.metadata == {"title": "scenario (branch)", "a": 1, "c": {"d": [3]}}
        assert (branch.agent, branch.model, branch.workspace_root) == (
            parent.agent,
            parent.model,
            parent.workspace_root,
        )
        assert (branch.permissions, branch.kind, branch.label) == ([], "chat", None)
        assert branch.created_at == branch.updated_at
        assert await s.engine.queue(branch.id) == []
        assert "snapshot_id" in (await rows_of(s))[one].metadata
        assert "snapshot_id" not in (await s.engine.messages(branch.id))[0].metadata
        assert str((await s.engine.branch(s.id, one, model="test/small")).model) == "test/small"
        await is_sound(s)


# BR-4


@pytest.mark.rule("BR-4", "BR-1", "CP-13")
async def test_a_branch_of_a_compacted_session_has_its_parents_model_view(open_both: Open) -> None:
    """At every message that was kept; the summarised come along, still hidden; the ids in it are its own."""
    async with open_both(echo()) as s:
        await s.begin()
        _, _, three = await talk(s, "one", "two", "three")
        await summarise(s, three, "they counted")
        four, five = await talk(s, "four", "five")
        await summarise(s, five, "they counted on", previous_id=three)
        await talk(s, "six")
        parent = await all_ids(s, s.id)
        newest = (await s.engine.messages(s.id))[-1]
        branch = await s.engine.branch(s.id, newest.id)
        assert await model_view(s, branch.id) == await model_view(s, s.id)
        seen, old = await s.engine.messages(branch.id), await s.engine.messages(s.id)
        assert [message.role for message in seen] == [message.role for message in old]
        everything = await s.engine.messages(branch.id, view="all")
        assert len(everything) == len(await rows_of(s))
        assert [m.metadata.get("hidden_by") for m in everything] == [
            m.metadata.get("hidden_by") for m in await s.engine.messages(s.id, view="all")
        ]
        assert not await all_ids(s, branch.id) & parent
        # At what the second summary kept, and before that at what the first one did.
        for point, said, kept in (
            (five, "they counted on\n", ["five"]),
            (four, "they counted\n", ["three", "re three", "four"]),
        ):
            view = await model_view(s, (await s.engine.branch(s.id, point)).id)
            assert said in view[0][0]["text"]
            assert [parts[-1]["text"] for parts in view[1:]] == kept
        await is_sound(s)


@pytest.mark.rule("BR-4", "BR-7")
async def test_a_summary_of_what_was_cut_off_is_left_out(open_both: Open) -> None:
    """Made in the middle of a turn, it was not there when that turn's user message was the newest."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        second = await turn_of(s, two)
        answer = (await tree_of(s)).links[second.id][1]
        await summarise_inside(s, second, answer, split={"message_id": answer, "from_part": 0})
        branch = await s.engine.branch(s.id, two)
        assert transcript(await s.engine.messages(branch.id)) == ["user: one", "assistant: re one", "user: two"]
        whole = await s.engine.branch(s.id, answer)
        assert await model_view(s, whole.id) == await model_view(s, s.id)
        assert one
        await is_sound(s)


@pytest.mark.rule("BR-4", "PR-4")
async def test_what_was_pruned_stays_pruned_in_a_branch(open_both: Open) -> None:
    """The model is shown the same stub; the stored output is whole in both."""
    async with open_both([call("ls", {}), say("one"), say("two")]) as s:
        await s.begin()
        (s.workspace / "a.txt").write_text("x")
        await talk(s, "look", "and?")
        message = (await s.engine.messages(s.id))[1]
        place = next(n for n, part in enumerate(message.parts) if "toolCallId" in part)
        await commit(s, AddPruned((Pruned(0, message.id, place, 99, 0, 1),)))
        branch = await s.engine.branch(s.id, (await s.engine.messages(s.id))[-1].id)
        assert "99 tokens" in str(await model_view(s, s.id))
        assert await model_view(s, branch.id) == await model_view(s, s.id)
        assert (await s.engine.messages(branch.id))[1].parts == message.parts
        await is_sound(s)
