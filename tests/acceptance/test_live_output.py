"""What a tool gives while it runs: seen by whoever looks on, stored before that, and never taken for its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.api import Engine
from clew.session.turn.tool_output import LiveOutput
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say, then
from clew.transcript import chunk as c

ANYTHING = [{"permission": "*", "pattern": "*", "action": "allow"}]


class Press:
    """A tool that reports what a test tells it to, and ends when it says so."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[Any] = asyncio.Queue()

    def tool(self) -> Any:
        @clew.tool
        async def press(context: clew.ToolContext) -> str:
            """Print."""
            while (report := await self.reports.get()) is not None:
                context.report(report)
            return "printed"

        return press


async def begun(engine: Engine, folder: Path) -> tuple[str, AsyncIterator[dict[str, Any]]]:
    session = await engine.create_session(workspace_root=folder)
    await engine.set_permissions(session.id, ANYTHING)
    await engine.submit(session.id, "go")
    return session.id, engine.attach(session.id)


async def outputs(stream: AsyncIterator[dict[str, Any]], count: int) -> list[Any]:
    """The next outputs a viewer sees, and whether each is preliminary."""
    seen: list[Any] = []
    async for chunk in stream:
        if chunk["type"] == "tool-output-available":
            seen.append((chunk["output"], chunk.get("preliminary", False)))
            if len(seen) == count:
                break
    return seen


def one_call(name: str = "press", **args: Any) -> FakeProviders:
    return FakeProviders(ScriptedModel([then(call(name, args)), say("done"), say("again")]))


@pytest.mark.parametrize(
    "url", ["memory:", *(pytest.param(url, marks=pytest.mark.slow) for url in ("sqlite:///{}/c.db", "jsonl:{}/s"))]
)
async def test_what_a_tool_gives_so_far_is_seen_and_stored_and_then_its_result(tmp_path: Path, url: str) -> None:
    """Each takes the place of the one before; a viewer who comes later sees the newest."""
    press = Press()
    async with clew.open(url.format(tmp_path), providers=one_call(), tools=[press.tool()]) as engine:
        session_id, stream = await begun(engine, tmp_path)
        press.reports.put_nowait({"text": "one"})
        assert await outputs(stream, 1) == [({"text": "one"}, True)]
        [_, message] = await engine.messages(session_id)
        [part] = [part for part in message.parts if part["type"] == "tool-press"]
        assert (part["state"], part["output"], part["preliminary"]) == ("output-available", {"text": "one"}, True)
        press.reports.put_nowait({"text": "one two"})
        assert (await outputs(engine.attach(session_id), 2))[-1] == ({"text": "one two"}, True)
        press.reports.put_nowait(None)
        async for status in engine.watch_status(session_id):
            if status.state == "idle":
                break
        [_, message] = await engine.messages(session_id)
        [part] = [part for part in message.parts if part["type"] == "tool-press"]
        assert (part["state"], part["output"], "preliminary" in part) == ("output-available", "printed", False)


async def test_an_aborted_call_ends_with_what_it_gave(tmp_path: Path) -> None:
    """A preliminary output is no result: the call has none, and the model is told so with what there was."""
    press = Press()
    async with clew.open(f"sqlite:///{tmp_path}/c.db", providers=one_call(), tools=[press.tool()]) as engine:
        session_id, stream = await begun(engine, tmp_path)
        press.reports.put_nowait({"text": "half"})
        await outputs(stream, 1)
        await engine.abort(session_id)
        await (await engine.submit(session_id, "go on")).wait()
        message = (await engine.messages(session_id))[1]
        [part] = [part for part in message.parts if part["type"] == "tool-press"]
        assert (part["state"], "preliminary" in part, "output" in part) == ("output-error", False, False)
        assert part["errorText"].startswith("aborted by the user; its effects are unknown")
        assert "half" in part["errorText"]


async def test_what_is_no_json_is_not_shown_and_what_comes_after_it_is() -> None:
    """A value that holds itself, half a character, an object; each is passed over, and nothing is raised."""
    itself = list[Any]()
    itself.append(itself)
    clock, shown = FakeClock(), list[c.Chunk]()
    live = LiveOutput(clock, "c1", shown.append)
    for value in (itself, "\ud800", object(), {"text": "one"}):
        live.report(value)
        await asyncio.sleep(0)
        clock.advance(1_000)
    assert shown == [c.ToolOutputAvailable("c1", {"text": "one"}, True)]


@pytest.mark.slow
async def test_a_command_shows_what_it_prints_while_it_runs(tmp_path: Path) -> None:
    """The end of it, until the whole is there."""
    line = "echo begun; until [ -e go ]; do sleep 0.05; done; echo ended"
    async with clew.open(f"sqlite:///{tmp_path}/c.db", providers=one_call("bash", command=line)) as engine:
        _, stream = await begun(engine, tmp_path)
        assert await outputs(stream, 1) == [({"text": "begun\n"}, True)]
        (tmp_path / "go").touch()
        [(output, preliminary)] = (await outputs(stream, 1))[-1:]
        while preliminary:
            [(output, preliminary)] = await outputs(stream, 1)
        assert output == {"text": "begun\nended\n[exit code 0]", "exit_code": 0}
