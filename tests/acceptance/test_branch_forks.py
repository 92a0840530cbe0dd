"""Sidecars, forks, trees, and what becomes of a branch without its parent."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import InvalidId, TurnNotFound
from clew.failpoints import FailpointRaised, arm, disarm
from clew.session.history.check import check
from clew.session.history.tree import TreeBranch
from clew.store.unit import PatchSession
from clew.testing.scenario import Scenario, transcript
from clew.testing.scripted import FakeProviders, call, say
from clew.transcript.line import line_messages, line_turns
from clew.triggers.values.routing import Routing
from tests.acceptance.branches import all_ids, model_view
from tests.acceptance.conversations import (
    ACTIONS,
    act,
    commit,
    echo,
    is_sound,
    rows_of,
    summarise,
    talk,
    tree_of,
    turn_of,
)
from tests.acceptance.triggered import answered, ended
from tests.rounds import ON_POSTGRESQL, rounds

from .conftest import Open

# BR-5, BR-7, BR-10


@pytest.mark.rule("BR-5")
async def test_a_sidecar_is_an_ephemeral_branch(open_both: Open) -> None:
    """It is not listed unless asked for, and works like any session."""
    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        sidecar = await s.engine.branch(s.id, one, metadata={"ephemeral": True})
        assert [session.id for session in (await s.engine.list_sessions()).sessions] == [s.id]
        assert sidecar.id in [session.id for session in (await s.engine.list_sessions(ephemeral=True)).sessions]
        await (await s.engine.submit(sidecar.id, "aside")).wait()
        assert len(await s.transcript()) == 2
        await is_sound(s)


@pytest.mark.rule("BR-7")
async def test_any_settled_turn_can_be_forked(open_both: Open) -> None:
    """Also one with children, off the line, waiting, or a summary; before a summary it is not seen."""
    async with open_both([say("1"), say("2"), say("3"), call("write", {"path": "a", "content": "x"})]) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        first, second = (await turn_of(s, one)).id, (await turn_of(s, two)).id
        summary, _ = await summarise(s, two, "counted")
        await talk(s, "three")
        fork = await s.engine.fork(first)
        # Source 004:122.
        assert (fork.label or "").startswith("fork-")
        assert uuid.UUID((fork.label or "").removeprefix("fork-")).version == 4
        assert transcript(await s.engine.messages(fork.id)) == ["user: one", "assistant: 1"]
        before = await s.engine.fork(second, label="mine")
        assert before.label == "mine"
        assert transcript(await s.engine.messages(before.id))[-1] == "assistant: 2"
        assert len(await s.engine.messages(before.id)) == 4
        at = await s.engine.fork(summary)
        assert transcript(await s.engine.messages(at.id)) == [
            "assistant: [data-compaction]",
            "user: two",
            "assistant: 2",
        ]
        await s.engine.rewind(s.id, one)
        unanswered = str((await tree_of(s)).head_turn_id)
        assert transcript(await s.engine.messages((await s.engine.fork(unanswered)).id)) == ["user: one"]
        await s.send("ask")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        asking = str((await tree_of(s)).open_turn_id)
        waiting = await s.engine.fork(asking)
        assert transcript(await s.engine.messages(waiting.id))[-1].endswith("output-denied")
        of_fork = await s.engine.fork(line_turns(await s.engine.store.load_tree(fork.id))[0].id)
        assert (of_fork.parent_id, of_fork.label != fork.label) == (fork.id, True)
        with pytest.raises(TurnNotFound):
            await s.engine.fork(s.engine.mint.turn())
        with pytest.raises(InvalidId):
            await s.engine.fork("first")
        with pytest.raises(clew.Invalid):
            await s.engine.fork(first, label=5)  # type: ignore[arg-type]
        await is_sound(s)


@pytest.mark.rule("BR-7")
async def test_deleting_a_parent_or_a_branch_leaves_the_other_whole(open_both: Open) -> None:
    """Files included."""
    url = "data:text/plain;base64,aGVsbG8="
    async with open_both(echo()) as s:
        await s.begin()
        parts = [{"type": "text", "text": "read"}, {"type": "file", "mediaType": "text/plain", "url": url}]
        await (await s.engine.submit(s.id, parts)).wait()
        await s.settled()
        newest = (await s.engine.messages(s.id))[-1]
        one, two = await s.engine.branch(s.id, newest.id), await s.engine.branch(s.id, newest.id)
        await s.engine.delete_session(one.id)
        assert len(await s.transcript()) == 3
        await s.engine.delete_session(s.id)
        messages = await s.engine.messages(two.id)
        blob = await s.engine.store.find_blob(messages[0].parts[1]["url"].removeprefix("/api/blobs/"))
        assert blob is not None
        assert blob.data == b"hello"
        await (await s.engine.submit(two.id, "go on")).wait()
        assert len(await s.engine.messages(two.id)) == 4
        await is_sound(s)


@pytest.mark.rule("BR-7")
async def test_a_fork_and_its_first_prompt_are_stored_as_one(open_scenario: Open) -> None:
    """A host that dies before it runs leaves it in the queue of the fork, where it goes on; or it leaves neither."""
    async with open_scenario([say("1"), say("aside")]) as s:
        await s.begin()
        turn = (await turn_of(s, (await talk(s, "one"))[0])).id
        arm("history.before_branch=raise")
        try:
            with pytest.raises(FailpointRaised):
                await s.engine.fork(turn, text="never")
        finally:
            disarm()
        # As a dead process leaves it.
        runner: Any = s.engine._runtime.runner
        runner.fire = _nothing
        await s.engine.fork(turn, text="and if?")
    async with open_scenario([say("aside")]) as s:
        [fork] = [one for one in (await s.engine.list_sessions()).sessions if one.parent_id is not None]
        if ON_POSTGRESQL:
            # On a shared store whoever is there next goes on with a queue (RP-4).
            await ended(s.engine)
        else:
            assert [message.parts[0]["text"] for message in await s.engine.queue(fork.id)] == ["and if?"]
            await (await s.engine.continue_turn(fork.id)).wait()
        said = ["user: one", "assistant: 1", "user: and if?", "assistant: aside"]
        assert transcript(await s.engine.messages(fork.id)) == said
        assert await s.check() == []


async def _nothing(*_: object) -> None:
    return


@pytest.mark.rule("EV-4")
async def test_what_comes_to_a_session_does_not_come_to_its_branches(open_both: Open) -> None:
    """Branches and forks are not found by its key and do not say that a trigger made them; they may be given a key."""
    async with open_both(echo()) as s:
        took = await s.engine.events.receive("mail", "1", Routing(key="room-7"), text="hello")
        await answered(s.engine, 1)
        parent = await s.engine.get_session(took.session_id)
        assert (parent.metadata["source"], parent.metadata["routing_key"]) == ("api", "room-7")
        message = (await s.engine.messages(parent.id))[-1]
        branch = await s.engine.branch(parent.id, message.id)
        fork = await s.engine.fork(message.metadata["turn_id"])
        given = await s.engine.branch(parent.id, message.id, metadata={"routing_key": "other"})
        for made, key in ((branch, None), (fork, None), (given, "other")):
            assert (made.metadata.get("routing_key"), "source" in made.metadata) == (key, False)
        again = await s.engine.events.receive("mail", "2", Routing(key="room-7"), text="hello")
        await answered(s.engine, 2)
        assert again.session_id == parent.id
        await s.engine.delete_session(parent.id)
        anew = await s.engine.events.receive("mail", "3", Routing(key="room-7"), text="hello")
        assert anew.session_id not in (parent.id, branch.id, fork.id, given.id)


@pytest.mark.rule("BR-10")
async def test_branches_are_found_by_their_parent_and_read_side_by_side(open_both: Open) -> None:
    """The tree names them with the turn they left from; subagents are no branches."""
    script = [say("one"), call("task", {"prompt": "look"}), say("found"), say("two")]
    async with open_both(script) as s:
        await s.begin()
        await commit(s, PatchSession(permissions=({"permission": "task", "pattern": "*", "action": "allow"},)))
        one, two = await talk(s, "1", "2")
        left = await s.engine.branch(s.id, one, metadata={"label": "left"})
        right = await s.engine.branch(s.id, two, metadata={"title": "right"})
        # The newest turn that holds the message is off the line now; the one on it is where the branch left.
        await s.engine.rewind(s.id, two)
        await s.engine.unrewind(s.id)
        view = await s.engine.tree(s.id)
        assert view.branches == (
            TreeBranch(
                session_id=left.id,
                title="scenario (branch)",
                label="left",
                from_message_id=one,
                turn_id=(await turn_of(s, one)).id,
                created_at=left.created_at,
            ),
            TreeBranch(
                session_id=right.id,
                title="right",
                label=None,
                from_message_id=two,
                turn_id=(await turn_of(s, two)).id,
                created_at=right.created_at,
            ),
        )
        assert len(await s.engine.store.list_children(s.id)) == 3
        assert transcript(await s.engine.messages(left.id)) == ["user: 1"]
        assert transcript(await s.engine.messages(right.id)) == ["user: 1", "assistant: one", "user: 2"]
        with pytest.raises(clew.SessionNotFound):
            await s.engine.tree(s.engine.mint.session())


@pytest.mark.rule("BR-6", "BR-9")
async def test_the_tree_shows_every_turn_below_its_parent(open_both: Open) -> None:
    """With what it says, whether it is on the line, and where the head is."""
    async with open_both(echo()) as s:
        await s.begin()
        one, two = await talk(s, "one", "two")
        first, second = await turn_of(s, one), await turn_of(s, two)
        summary, marker = await summarise(s, two, "they counted")
        await s.engine.rewind(s.id, two)
        view = await s.engine.tree(s.id)
        head = str(view.head_turn_id)
        carried = (await turn_of(s, marker)).id
        assert [(t.id, t.parent_turn_id, t.depth, t.text, t.on_line, t.is_head) for t in view.turns] == [
            (first.id, None, 0, "one", True, False),
            (second.id, first.id, 1, "two", False, False),
            (summary, second.id, 2, "they counted", False, False),
            (carried, first.id, 1, "they counted", True, False),
            (head, carried, 2, "two", True, True),
        ]
        assert [t.messages for t in view.turns] == [(await tree_of(s)).links[t.id] for t in view.turns]


async def test_a_new_branch_is_told_of_like_any_new_session(open_both: Open) -> None:
    """By an event and a hook."""
    made: list[Any] = []

    async def create(session: Any) -> None:
        made.append(session)

    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        s.engine.hook("session_create", create)
        events = s.engine.subscribe()
        branch = await s.engine.branch(s.id, one)
        async for event in events:
            if event.type == "session_created":
                assert event.data == {"session_id": branch.id}
                break
        await s.engine.host.hooks.drain()
        assert made == [branch]


@pytest.mark.slow
@pytest.mark.rule("BR-1", "BR-3", "BR-4")
@settings(max_examples=rounds(25))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=10))
async def test_a_branch_of_any_history_is_sound_and_has_the_model_view_of_its_point(
    seed: int, actions: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At the end of the line, and at any message that ever was; the parent is not touched."""
    rng = random.Random(seed)
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(echo())) as engine:
        s = await Scenario(engine, echo(), tmp_path_factory.mktemp("history")).begin()
        for action in actions:
            try:
                await act(s, action, rng)
            except (clew.Conflict, clew.Invalid):
                continue
        tree, before = await tree_of(s), await rows_of(s)
        held = [message_id for ids in tree.links.values() for message_id in ids]
        line = [message_id for _, message_id in line_messages(tree)]
        if line:
            branch = await engine.branch(s.id, line[-1])
            assert await model_view(s, branch.id) == await model_view(s, s.id)
            assert not await all_ids(s, branch.id) & await all_ids(s, s.id)
        for message_id in rng.sample(held, min(3, len(held))):
            await engine.branch(s.id, message_id)
        for turn_id in rng.sample(sorted(tree.turns), min(3, len(tree.turns))):
            await engine.fork(turn_id)
        assert (await tree_of(s), await rows_of(s)) == (tree, before)
        assert await check(engine.store) == []
