"""Who stopped something is told truthfully: also when the host is gone before it has stopped, and of subagents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.turn.recorder import Recorder
from clew.testing.clock import FakeClock
from clew.testing.scenario import Scenario, transcript
from clew.testing.scripted import Gate, call, say, wait
from tests.acceptance.errands import allow
from tests.acceptance.triggered import ended

from .conftest import Open
from .test_take import BY_PROMPT, BY_RESTART, BY_USER, Digging, results


class Held:
    """Runs that do not get to storing their end, until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        self.reached = asyncio.Event()
        close = Recorder.close

        async def held(recorder: Recorder, *writes: Any, **options: Any) -> None:
            self.reached.set()
            await self.go.wait()
            await close(recorder, *writes, **options)

        monkeypatch.setattr(Recorder, "close", held)


async def ends(s: Scenario, session_id: str | None = None) -> list[tuple[str, str | None, Any]]:
    """How each turn stands, who stopped it, and its error."""
    turns = (await s.engine.store.load_tree(session_id or s.id)).turns.values()
    return [(turn.status, turn.stopped, turn.error.get("code")) for turn in turns]


@pytest.mark.rule("SR-9", "SR-10")
@pytest.mark.parametrize(
    ("how", "words", "paused_by"),
    [("abort", BY_USER, None), ("interrupt", BY_PROMPT, "restart"), ("kill", BY_RESTART, None)],
)
async def test_a_kill_between_a_stop_and_its_end_does_not_change_who_stopped_it(
    open_scenario: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, words: str, paused_by: str | None
) -> None:
    """The copy is the store as a kill would leave it: the abort was answered, and its run has not stored its end."""
    digging, held = Digging(), Held(monkeypatch)
    async with open_scenario([call("dig", {}), say("late")], tools=[digging.tool]) as s:
        await digging.begin(s)
        if how == "abort":
            assert await s.engine.abort(s.id)
        elif how == "interrupt":
            assert (await s.send("stop that", on_busy="interrupt")).queued
        await s.engine.backup(tmp_path / "killed.db")
        held.go.set()
    async with open_scenario([say("fine"), say("then")], url=f"sqlite:///{tmp_path}/killed.db") as s:
        await s.begin()
        turn = ("failed", None, "interrupted") if how == "kill" else ("aborted", words.partition(";")[0], None)
        assert await ends(s) == [turn]
        assert await s.transcript() == ["user: dig", f"dig {{}} → error: {words}"]
        assert (await s.engine.get_status(s.id)).paused_by == paused_by
        await s.prompt("go on")
        assert results(s.model.requests[0]) == [words]
        await ended(s.engine)
        assert await s.check() == []


@pytest.mark.rule("SR-9", "SR-10")
async def test_a_stop_of_a_run_that_has_just_asked_counts_over_a_kill(
    open_scenario: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ending to wait when it was stopped: after the restart nobody is asked any more."""
    held = Held(monkeypatch)

    async def is_over(s: Scenario) -> None:
        assert await ends(s) == [("aborted", "aborted by the user", None)]
        assert (await s.engine.get_status(s.id)).waiting == ()
        assert await s.check() == []

    async with open_scenario([call("write", {"path": "a.txt", "content": "x"})]) as s:
        await s.begin()
        submission = await s.send("write")
        await held.reached.wait()
        assert await s.engine.abort(s.id)
        await s.engine.backup(tmp_path / "killed.db")
        held.go.set()
        assert (await submission.wait()).status == "aborted"
        await is_over(s)
    async with open_scenario([], url=f"sqlite:///{tmp_path}/killed.db") as s:
        await s.begin()
        await is_over(s)


@pytest.mark.rule("SR-9", "RN-8")
@pytest.mark.parametrize("how", ["abort", "kill"])
async def test_a_call_that_has_ended_keeps_its_result_while_a_slower_one_before_it_is_cut_off(
    open_scenario: Open, tmp_path: Path, how: str
) -> None:
    """Results that waited for their place were lost, and a card that had been charged was told as unknown."""
    digging = Digging()

    @clew.tool
    async def charge() -> str:
        """Charge the card."""
        return "charged"

    both = [call("dig", {}), call("charge", {})]
    async with open_scenario([both], tools=[digging.tool, charge]) as s:
        await s.begin()
        await allow(s, "dig", "charge")
        submission = await s.send("dig")
        async with asyncio.timeout(60):
            async for chunk in s.engine.attach(s.id):
                if chunk["type"] == "tool-output-available":
                    break
        await s.engine.backup(tmp_path / "killed.db")
        await s.engine.abort(s.id)
        await submission.wait()
    url = f"sqlite:///{tmp_path}/{'killed' if how == 'kill' else 'store'}.db"
    async with open_scenario([say("fine")], url=url) as s:
        await s.begin()
        await (await s.engine.continue_turn(s.id)).wait()
        words = BY_USER if how == "abort" else BY_RESTART
        assert results(s.model.requests[0]) == [words, None]
        told = ["user: dig", f"dig {{}} → error: {words}", 'charge {} → "charged"', "assistant: fine"]
        assert await s.transcript() == told
        assert await s.check() == []


@pytest.mark.rule("SR-9", "SR-3")
async def test_an_aborted_subagent_says_that_its_parent_did_it(open_scenario: Open) -> None:
    """And the parent's call says who aborted that, also after a restart."""
    gate = Gate()
    async with open_scenario([call("task", {"prompt": "think"}), [say("hm "), wait(gate)]]) as s:
        await s.begin()
        await allow(s, "task")
        submission = await s.send("delegate")
        await gate.reached.wait()
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        assert await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        await ended(s.engine)
        assert await ends(s, child.id) == [("aborted", "aborted by parent", None)]
        assert await ends(s) == [("aborted", "aborted by the user", None)]
    async with open_scenario([say("fine")]) as s:
        await s.begin()
        assert await ends(s, child.id) == [("aborted", "aborted by parent", None)]
        # A slow machine has been told which session it is before the abort; then the words say that, too.
        told = [line.partition("\n\nbefore that it gave:")[0] for line in await s.transcript()]
        assert told == ["user: delegate", f'task {{"prompt":"think"}} → error: aborted by parent: {BY_USER}']
        await s.prompt("and now?")
        assert [str(said).partition("\n\nbefore that it gave:")[0] for said in results(s.model.requests[0])] == [
            f"aborted by parent: {BY_USER}"
        ]
        assert await s.check() == []


@pytest.mark.rule("SR-9")
async def test_a_subagent_that_the_user_aborted_is_not_said_to_be_its_parents_doing(open_scenario: Open) -> None:
    """The parent goes on, and its model is told who stopped the work."""
    gate = Gate()
    async with open_scenario([call("task", {"prompt": "think"}), [say("hm "), wait(gate)], say("I see.")]) as s:
        await s.begin()
        await allow(s, "task")
        submission = await s.send("delegate")
        await gate.reached.wait()
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        assert await s.engine.abort(child.id)
        assert (await submission.wait()).status == "completed"
        assert await ends(s, child.id) == [("aborted", "aborted by the user", None)]
        told = "the subagent did not finish: aborted by the user"
        assert await s.transcript() == [
            "user: delegate",
            f'task {{"prompt":"think"}} → error: {told}',
            "assistant: I see.",
        ]


@pytest.mark.rule("SR-9")
@pytest.mark.parametrize("stopped", ["parent", "child"])
async def test_a_call_whose_subagent_was_stopped_still_names_its_session(open_scenario: Open, stopped: str) -> None:
    """As soon as it had told of it: with the call that is stored, not only while it was shown."""
    script = [call("task", {"prompt": "think"}), [say("hm "), wait(Gate())], say("I see.")]
    async with open_scenario(script) as s:
        await s.begin()
        await allow(s, "task")
        submission = await s.send("delegate")
        async with asyncio.timeout(30):
            async for chunk in s.engine.attach(s.id):
                if "steps" in chunk.get("output", {}):
                    break
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        assert await s.engine.abort(s.id if stopped == "parent" else child.id)
        await submission.wait()
        await ended(s.engine)
        if stopped == "parent":
            await s.prompt("and now?")
        [part] = [part for one in await s.engine.messages(s.id) for part in one.parts if part["type"] == "tool-task"]
        about = part.pop("resultProviderMetadata")
        told = part.pop("errorText").partition("\n")[0]
        who = (
            f"aborted by parent: {BY_USER}"
            if stopped == "parent"
            else "the subagent did not finish: aborted by the user"
        )
        assert told == who
        assert about == {"clew": {"session_id": child.id, "steps": 1}}
        assert part == {
            "type": "tool-task",
            "toolCallId": part["toolCallId"],
            "state": "output-error",
            "input": {"prompt": "think"},
        }
        assert await s.check() == []


@pytest.mark.rule("SR-9")
@pytest.mark.parametrize("spawns", [False, True])
async def test_what_a_failed_tool_had_reported_itself_is_no_link_to_a_subagent(
    open_scenario: Open, spawns: bool
) -> None:
    """Only a subagent that the call has started is one, whatever the tool said before or after it."""

    @clew.tool
    async def shop(context: clew.ToolContext) -> str:
        """Buy."""
        if spawns:
            await context.spawn_child("think", None)
        context.report({"session_id": "my-shop-session", "tokens": 3})
        raise clew.ToolFailed("sold out")

    script = [call("shop", {}), *([say("hm")] if spawns else []), say("I see.")]
    async with open_scenario(script, tools=[shop]) as s:
        await s.begin()
        await allow(s, "shop")
        await s.prompt("buy")
        [part] = [part for one in await s.engine.messages(s.id) for part in one.parts if part["type"] == "tool-shop"]
        children = [one.id for one in (await s.engine.list_sessions(kind="subagent")).sessions]
        about = part.get("resultProviderMetadata", {}).get("clew", {})
        assert (part["errorText"], len(children)) == ("sold out", int(spawns))
        assert [about["session_id"]] == children if spawns else about == {}


@pytest.mark.rule("SR-9")
async def test_a_subagent_whose_host_was_killed_says_so(open_scenario: Open, tmp_path: Path) -> None:
    """So does the call that it worked for; nobody had aborted anything."""
    gate = Gate()
    script = [call("task", {"prompt": "think"}), [say("hm "), wait(gate)]]
    # A clock that stands still: what the call gives is shown only once it has taken some time.
    async with open_scenario(script, clock=FakeClock()) as s:
        await s.begin()
        await allow(s, "task")
        await s.send("delegate")
        await gate.reached.wait()
        await s.engine.backup(tmp_path / "killed.db")
    async with open_scenario([], url=f"sqlite:///{tmp_path}/killed.db") as s:
        await s.begin()
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        assert (await ends(s), await ends(s, child.id)) == ([("failed", None, "interrupted")],) * 2
        assert await s.transcript() == ["user: delegate", f'task {{"prompt":"think"}} → error: {BY_RESTART}']
        assert transcript(await s.engine.messages(child.id))[0] == "user: think"
        assert await s.check() == []


@pytest.mark.rule("SR-3", "SR-4")
async def test_a_host_killed_before_a_tool_that_is_not_cancelled_has_finished_leaves_its_effects_unknown(
    open_scenario: Open, tmp_path: Path
) -> None:
    """Source 000:313. What is on disk meanwhile says that the turn was aborted, and nothing about a result."""
    started, may_end = asyncio.Event(), asyncio.Event()

    @clew.tool(cancel=False)
    async def pay() -> str:
        """Pay."""
        started.set()
        await may_end.wait()
        return "paid"

    async with open_scenario([call("pay", {})], tools=[pay]) as s:
        await s.begin()
        await allow(s, "pay")
        submission = await s.send("buy")
        await started.wait()
        await s.engine.abort(s.id)
        async for status in s.engine.watch_status(s.id):
            if status.message is not None:
                break
        await s.engine.backup(tmp_path / "killed.db")
        may_end.set()
        await submission.wait()
    async with open_scenario([say("fine")], url=f"sqlite:///{tmp_path}/killed.db") as s:
        await s.begin()
        session_id = (await s.engine.list_sessions()).sessions[-1].id
        await (await s.engine.submit(session_id, "and?")).wait()
        [part] = [part for one in await s.engine.messages(session_id) for part in one.parts if "toolCallId" in part]
        assert (part["state"], part["errorText"]) == ("output-error", BY_USER)
        assert await s.check() == []


@pytest.mark.rule("SR-3")
@pytest.mark.parametrize("how", ["abort", "interrupt", "timeout", "kill"])
async def test_whoever_ends_the_parent_both_sides_say_truly_what_ended_the_subagent(
    open_scenario: Open, tmp_path: Path, how: str
) -> None:
    """The child's own calls as well: with its parent, unless its process died."""
    digging = Digging()

    @clew.tool(timeout_ms=1_000)
    async def hire(context: clew.ToolContext) -> str:
        """Have it done by a subagent, but not for long."""
        return (await context.spawn_child("dig", None)).text

    rules = [clew.Rule(permission="*", pattern="*", action="allow")]
    name = "hire" if how == "timeout" else "task"
    arguments = {} if how == "timeout" else {"prompt": "dig"}
    script = [call(name, arguments), call("dig", {}), say("I see.")]
    async with open_scenario(script, tools=[digging.tool, hire], rules=rules) as s:
        await s.begin()
        submission = await s.send("delegate")
        await digging.started.wait()
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        await s.engine.backup(tmp_path / "killed.db")
        if how == "interrupt":
            await s.send("no, this", on_busy="interrupt")
        elif how != "timeout":
            await s.engine.abort(s.id)  # of a kill the copy is what is left
        await submission.wait()
        await ended(s.engine)
    url = f"sqlite:///{tmp_path}/{'killed' if how == 'kill' else 'store'}.db"
    async with open_scenario([say("fine")] * 2, url=url) as s:
        await s.begin()
        await s.prompt("and now?")
        parts = [part for one in await s.engine.messages(s.id) for part in one.parts if part["type"] == f"tool-{name}"]
        [text] = [part["errorText"].partition("\n")[0] for part in parts]
        await (await s.engine.submit(child.id, "and you?")).wait()
        childs = [part for one in await s.engine.messages(child.id) for part in one.parts if part["type"] == "tool-dig"]
        told = {
            "abort": (f"aborted by parent: {BY_USER}", "aborted by parent; its effects are unknown"),
            "interrupt": (f"aborted by parent: {BY_PROMPT}", "aborted by parent; its effects are unknown"),
            "timeout": (
                "hire did not end within 1 s and was stopped; its effects are unknown",
                "aborted by parent; its effects are unknown",
            ),
            "kill": (BY_RESTART, BY_RESTART),
        }
        assert (text, *(part["errorText"] for part in childs)) == told[how]
        assert await s.check() == []
