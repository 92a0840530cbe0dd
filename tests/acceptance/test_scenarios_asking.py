"""Runs that ask, told as transcripts: what needs a word waits for it, and an answer counts for what was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import clew
from clew.errors import AlreadyAnswered, ApprovalNotFound, WaitingForHuman
from clew.testing.scripted import call, say
from clew.transcript.metadata import local_place
from tests.acceptance.errands import ask_once

from .conftest import Open


@pytest.mark.rule("PM-6")
async def test_a_call_that_needs_a_word_waits_for_it_and_goes_on_when_it_is_given(open_scenario: Open) -> None:
    """The stream ends at the request; the answer starts a new one on the same message, with only what is new."""
    async with open_scenario(
        [[say("Let me write."), call("write", {"path": "a.txt", "content": "x"})], say("Done.")]
    ) as s:
        await s.begin()
        first = await s.prompt("write it")
        assert [chunk["type"] for chunk in first][-3:] == ["tool-approval-request", "finish-step", "finish"]
        assert first[-1]["finishReason"] == "tool-calls"
        approval_id = await ask_once(s)
        assert not (s.workspace / "a.txt").exists()
        with pytest.raises(WaitingForHuman):
            await s.prompt("hello?")
        assert await s.engine.answer(s.id, approval_id, "once") == 0
        second = await s.follow()
        await s.settled()
        assert (s.workspace / "a.txt").read_text() == "x"
        message = (await s.engine.messages(s.id))[1]
        assert {chunk["messageId"] for chunk in (first[0], second[0])} == {message.id}
        assert (await s.transcript())[-1] == "assistant: Done."
        assert message.parts[2]["approval"]["approved"] is True
        with pytest.raises(AlreadyAnswered):
            await s.engine.answer(s.id, approval_id, "deny")
        with pytest.raises(ApprovalNotFound):
            await s.engine.answer(s.id, "apr_nothing", "deny")
        assert (await s.engine.get_session(s.id)).permissions == []
        assert await s.check() == []


@pytest.mark.rule("PM-6")
async def test_a_denied_call_is_told_to_the_model_and_never_runs(open_scenario: Open) -> None:
    """With the reason; the turn goes on."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("As you wish.")]) as s:
        await s.begin()
        await s.prompt("write it")
        await s.engine.answer(s.id, await ask_once(s), "deny", "not there")
        await s.settled()
        part = (await s.engine.messages(s.id))[1].parts[1]
        assert (part["state"], part["approval"]["approved"], part["approval"]["reason"]) == (
            "output-denied",
            False,
            "not there",
        )
        assert not (s.workspace / "a.txt").exists()
        assert (await s.transcript())[-1] == "assistant: As you wish."


@pytest.mark.rule("PM-3")
async def test_an_answer_for_the_session_covers_the_same_thing_again(open_scenario: Open) -> None:
    """Once stores nothing, "for this session" a rule, "always" one for the project; others are reconsidered."""
    write = {"path": "a.txt", "content": "x"}
    script = [
        [call("write", write), call("write", {**write, "content": "y"})],
        say("1"),
        call("write", write),
        say("2"),
    ]
    async with open_scenario(script) as s:
        await s.begin()
        await s.prompt("write")
        assert len((await s.engine.get_status(s.id)).waiting) == 2
        assert await s.engine.answer(s.id, await ask_once(s), "session") == 0
        await s.settled()
        assert len((await s.engine.get_session(s.id)).permissions) == 1
        await s.prompt("write again")
        assert (await s.transcript())[-1] == "assistant: 2"
        assert await s.check() == []


@pytest.mark.rule("PM-3", "PM-1")
async def test_always_is_remembered_for_the_project_and_not_offered_without_one(open_scenario: Open) -> None:
    """Another session of the same workspace is not asked again."""
    write = {"path": "a.txt", "content": "x"}
    async with open_scenario([call("write", write), say("1"), call("write", write), say("2")]) as s:
        await s.begin()
        await s.prompt("write")
        await s.engine.answer(s.id, await ask_once(s), "project")
        await s.settled()
        assert (await s.engine.get_session(s.id)).permissions == []
        place = local_place(str(s.workspace))
        other = await s.engine.create_session(workspace_root=str(s.workspace), metadata=place)
        chunks = [chunk async for chunk in s.engine.run(other.id, "write")]
        assert chunks[-1]["finishReason"] == "stop"


@pytest.mark.rule("PM-6")
async def test_two_requests_are_answered_one_by_one(open_scenario: Open) -> None:
    """Allowed calls of the step have run already; the run starts with the last answer."""
    (
        calls := [
            call("ls", {}),
            call("write", {"path": "a", "content": "1"}),
            call("write", {"path": "b", "content": "2"}),
        ]
    )
    async with open_scenario([calls, say("ok")]) as s:
        await s.begin()
        chunks = await s.prompt("go")
        kinds = [chunk["type"] for chunk in chunks]
        assert kinds.index("tool-output-available") < kinds.index("tool-approval-request")
        first, second = (wait.approval_id for wait in (await s.engine.get_status(s.id)).waiting)
        assert await s.engine.answer(s.id, str(second), "deny") == 1
        assert len(s.model.requests) == 1
        assert await s.engine.answer(s.id, str(first), "once") == 0
        await s.settled()
        assert ((s.workspace / "a").exists(), (s.workspace / "b").exists()) == (True, False)
        assert len(await s.engine.store.load_steps((await s.engine.messages(s.id))[1].metadata["turn_id"])) == 2
        assert await s.check() == []


@pytest.mark.rule("PM-6", "SR-4", "SR-5")
async def test_a_request_survives_a_restart(open_scenario: Open) -> None:
    """Waiting is durable and is not an orphan; the answer after the restart starts the run."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"})]) as s:
        await s.begin()
        await s.prompt("write")
        approval_id = await ask_once(s)
    async with open_scenario([say("Done.")]) as s:
        await s.begin()
        assert await ask_once(s) == approval_id
        assert await s.engine.answer(s.id, approval_id, "once") == 0
        await s.settled()
        assert (s.workspace / "a.txt").read_text() == "x"
        assert (await s.transcript())[-1] == "assistant: Done."
        assert await s.check() == []


@pytest.mark.rule("PM-6", "SR-7")
async def test_a_prompt_meanwhile_is_queued_and_an_abort_denies_what_is_open(open_scenario: Open) -> None:
    """After the abort the queue goes on, where that was asked for."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("Next.")]) as s:
        await s.begin()
        await s.prompt("write")
        queued = await s.send("and then?")
        assert queued.queued
        assert await s.engine.abort(s.id, queue="go_on")
        assert (await queued.wait()).status == "completed"
        lines = await s.transcript()
        assert lines[1].endswith("→ output-denied")
        assert lines[2:] == ["user: and then?", "assistant: Next."]
        assert not (s.workspace / "a.txt").exists()
        assert await s.check() == []


async def test_a_question_waits_for_its_answer(open_scenario: Open) -> None:
    """Its output is what the human says."""
    async with open_scenario([call("question", {"question": "Which?"}), say("Blue it is.")]) as s:
        await s.begin()
        await s.prompt("ask me")
        waiting = (await s.engine.get_status(s.id)).waiting
        assert (waiting[0].approval_id, waiting[0].tool) == (None, "question")
        assert await s.engine.answer_question(s.id, waiting[0].tool_call_id, "blue") == 0
        await s.settled()
        assert (await s.transcript())[1:] == ['question {"question":"Which?"} → "blue"', "assistant: Blue it is."]


@pytest.mark.rule("PM-5", "PM-6")
async def test_an_approved_search_reads_below_what_was_approved_and_no_denied_file(
    open_scenario: Open, tmp_path: Any
) -> None:
    """A human's word on a folder covers the files in it, but never one that a rule denies."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("needle")
    (outside / "b.txt").write_text("needle")
    async with open_scenario([call("grep", {"pattern": "needle", "path": str(outside)}), say("found")]) as s:
        await s.begin()
        from clew.store.unit import PatchSession, Unit

        deny = {"permission": "read", "pattern": str(outside / "b.txt"), "action": "deny"}
        await s.engine.store.commit(Unit(s.id, (PatchSession(permissions=(deny,)),)))
        await s.prompt("search")
        await s.engine.answer(s.id, await ask_once(s), "once")
        await s.settled()
        found = (await s.transcript())[1]
        assert "a.txt" in found
        assert "b.txt:1" not in found


@pytest.mark.rule("PM-6")
async def test_an_answer_is_void_when_what_was_asked_has_changed(open_scenario: Open) -> None:
    """It is bound to the tool, its arguments and the folder; nothing runs on an answer to something else."""
    import msgspec

    from clew.store.unit import PutParts, Unit

    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("never")]) as s:
        await s.begin()
        await s.prompt("write")
        approval_id = await ask_once(s)
        message = (await s.engine.store.load_messages(s.id))[1]
        part = message.parts[1]
        forged = msgspec.structs.replace(part, data={**part.data, "input": {"path": "b.txt", "content": "evil"}})
        await s.engine.store.commit(Unit(s.id, (PutParts(message.id, (forged,)),)))
        with pytest.raises(clew.Conflict, match="changed"):
            await s.engine.answer(s.id, approval_id, "once")
        assert list(s.workspace.iterdir()) == []


@pytest.mark.rule("PM-1", "PM-3")
async def test_without_a_workspace_there_is_no_project_to_remember_for(open_scenario: Open) -> None:
    """ "Always" is refused, and the request still waits."""

    @clew.tool
    async def ping() -> str:
        """Ping."""
        return "pong"

    async with open_scenario([call("ping", {}), say("done")], tools=[ping]) as s:
        await s.begin(workspace_root=None)
        await s.prompt("ping")
        approval_id = await ask_once(s)
        with pytest.raises(clew.InvalidInput, match="workspace"):
            await s.engine.answer(s.id, approval_id, "project")
        assert await s.engine.answer(s.id, approval_id, "once") == 0
        assert await s.settled() == "idle"


async def test_an_answer_given_as_soon_as_the_request_is_seen_counts(open_scenario: Open) -> None:
    """The run that asked is not over yet when a viewer sees its question."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("Done.")]) as s:
        await s.begin()
        answering: asyncio.Task[int] | None = None
        async for chunk in s.engine.run(s.id, "write"):
            if chunk["type"] == "tool-approval-request":
                answering = asyncio.create_task(s.engine.answer(s.id, chunk["approvalId"], "once"))
                await asyncio.sleep(0)
        assert answering is not None
        assert await answering == 0
        await s.settled()
        assert (await s.transcript())[-1] == "assistant: Done."
        assert await s.check() == []


@pytest.mark.rule("PM-6")
async def test_who_leaves_while_the_answer_is_being_stored_has_answered(open_scenario: Open) -> None:
    """Cut off at the moment it is told that the answer counts, the turn goes on all the same."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("Done.")]) as s:
        await s.begin()
        await s.prompt("write")
        approval_id = await ask_once(s)
        events = s.engine.subscribe()
        answering = asyncio.create_task(s.engine.answer(s.id, approval_id, "once"))
        async for event in events:
            if event.type == "approval_answered":
                answering.cancel()
            elif event.type == "turn_finished":
                break
        await s.settled()
        assert (s.workspace / "a.txt").read_text() == "x"
        assert (await s.transcript())[-1] == "assistant: Done."
        assert await s.check() == []
