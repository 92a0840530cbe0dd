"""Editors that lie, leave in the middle, ask for two things at once or stop reading, and a server that is gone
meanwhile: nobody waits for ever, nothing is allowed that nobody allowed, nothing is half open."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clew.errors import StoreUnavailable
from clew.fronts.acp import Editor, editor_tools, rpc
from clew.fronts.acp.rpc import Connection, Handler
from clew.live.base import Event
from clew.testing.scripted import Gate, call, say, wait
from tests.integration.acp_client import Refusal, connected
from tests.integration.test_acp import PNG, choose, opened


class Front:
    """An engine in which single methods are done otherwise."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.otherwise: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return self.otherwise.get(name) or getattr(self.engine, name)


async def test_who_asks_and_closes_its_end_is_answered_each_of_it() -> None:
    """What takes longer than the end of the input is still told; as with a file or ``echo`` led into it."""
    written: list[int] = []
    first_is_told = asyncio.Event()
    asked = [b'{"jsonrpc":"2.0","id":1,"method":"first"}\n{"jsonrpc":"2.0","id":2,"method":"second"}\n', b""]

    async def read() -> bytes:
        return asked.pop(0)

    async def write(data: bytes) -> None:
        written.extend(json.loads(line)["id"] for line in data.splitlines())
        first_is_told.set()

    async def first(_: Any) -> Any:
        return {}

    async def second(_: Any) -> Any:
        await first_is_told.wait()
        await asyncio.sleep(0)
        return {}

    await Connection(read, write, Handler({"first": first, "second": second}.get, lambda _: None)).run()
    assert written == [1, 2]


async def test_who_reads_nothing_any_more_keeps_nothing_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_GRACE_S", 0.01)
    lines = [b"no JSON\n", b""]

    async def read() -> bytes:
        await asyncio.sleep(0)
        return lines.pop(0)

    async def write(data: bytes) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        await Connection(read, write, Handler(lambda _: None, lambda _: None)).run()


_PRINTS = """
import asyncio, atexit, subprocess, sys
from clew.fronts.acp import own_stdio
async def main():
    read, write = own_stdio()
    print("a tool prints")
    subprocess.run([sys.executable, "-c", "import sys; print('a program prints', sys.stdin.read())"], check=True)
    await write(b"told " + await read())
    if len(sys.argv) > 1:  # more than anybody reads
        asyncio.get_running_loop().call_later(0.1, asyncio.current_task().cancel)
        await write(b"x" * 1_000_000)
atexit.register(print, "and at the very end")
asyncio.run(main())
"""


@pytest.mark.slow
def test_nobody_else_writes_to_its_output_or_reads_its_input() -> None:
    """What is printed, by a program it starts and at its very end too, goes to stderr; input is its alone."""
    done = subprocess.run([sys.executable, "-c", _PRINTS], input=b"asked", capture_output=True, check=True)
    assert done.stdout == b"told asked"
    assert sorted(done.stderr.splitlines()) == [b"a program prints ", b"a tool prints", b"and at the very end"]
    # A write that never comes to an end does not keep the process.
    asking, asked = os.pipe()
    os.write(asked, b"asked")
    stuck = subprocess.Popen([sys.executable, "-c", _PRINTS, "x"], stdin=asking, stdout=-1, stderr=-3)
    try:
        assert stuck.wait(60) == 1
    finally:
        stuck.kill()
        stuck.communicate()
        os.close(asked)
        os.close(asking)


@pytest.mark.rule("AC-2")
async def test_a_load_that_is_cancelled_leaves_the_session_open_only_if_it_was(tmp_path: Path) -> None:
    """Half open it would take prompts and never answer them."""
    async with opened([say("a"), say("b"), say("c")]) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        await (await engine.submit(session.id, "one")).wait()
        front, reached = Front(engine), asyncio.Event()

        async def never_all(session_id: str, **more: Any) -> Any:
            if not more:
                reached.set()
                await asyncio.Event().wait()
            return await engine.messages(session_id, **more)

        opening = {"sessionId": session.id, "cwd": str(tmp_path), "mcpServers": []}
        async with connected(front) as client:  # type: ignore[arg-type]
            await client.initialize()

            async def load_and_cancel(number: int) -> None:
                front.otherwise["messages"] = never_all
                loading = client.begin("session/load", opening)
                await reached.wait()
                reached.clear()
                client.tell("$/cancel_request", {"requestId": number})
                with pytest.raises(Refusal, match="cancelled"):
                    await loading
                front.otherwise.clear()

            await load_and_cancel(2)
            with pytest.raises(Refusal, match="not open here"):
                await client.prompt(session.id, "two")
            await client.ask("session/resume", opening)
            await load_and_cancel(5)
            assert await client.prompt(session.id, "two") == {"stopReason": "end_turn"}
            assert client.said().endswith("b")


@pytest.mark.rule("AC-3")
async def test_questions_asked_at_once_are_put_one_after_the_other(tmp_path: Path) -> None:
    """Each answer but the last ends its prompt with the next question; a picture is no answer, and not dropped."""
    asks = [call("question", {"question": f"{n}?"}, id=n) for n in ("one", "two")]
    async with opened([asks, say("thanks")]) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        heard: list[str] = []
        for words in ("go", "first", "second"):
            if heard:
                with pytest.raises(Refusal, match="with text only"):
                    await client.prompt(session_id, words, {"type": "image", "mimeType": "image/png", "data": PNG})
            assert await client.prompt(session_id, words) == {"stopReason": "end_turn"}
            heard.append(client.said())
        assert heard == ["one?", "one?two?", "one?two?thanks"]


LIES = [
    {"outcome": {"outcome": "maybe", "optionId": "once"}},
    {"outcome": {"outcome": "selected", "optionId": ["once"]}},
    {"outcome": {"outcome": "selected", "optionId": "always"}},
    {"outcome": {"optionId": "once"}},
    {"outcome": "once"},
    {"optionId": "once"},
    "once",
    None,
]


@pytest.mark.rule("AC-3")
async def test_an_answer_that_was_not_offered_allows_nothing(tmp_path: Path) -> None:
    write = call("write", {"path": "b", "content": "x"})
    async with opened([step for _ in LIES for step in (write, say("no"))]) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        for lie in LIES:
            client.answers["session/request_permission"] = partial(lambda said, _: said, lie)
            assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
            assert not (tmp_path / "b").exists(), lie


@pytest.mark.rule("AC-3")
async def test_who_is_asked_sees_the_whole_of_what_is_to_be_done(tmp_path: Path) -> None:
    """A title is cut; what is behind blanks or on another line is in the request all the same."""
    hidden = f"echo ok{' ' * 600}; rm -rf work"
    script = [
        call("bash", {"command": hidden}),
        call("bash", {"command": "true\nrm x"}),
        call("bash", {"command": "ls"}),
    ]
    async with opened([*script, say("no")]) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        client.answers["session/request_permission"] = choose("deny")
        await client.prompt(session_id, "go")
        shown = [(one["params"]["toolCall"]["title"], one["params"]["toolCall"].get("content")) for one in client.asked]
        text = [[{"type": "content", "content": {"type": "text", "text": words}}] for words in (hidden, "true\nrm x")]
        assert shown == [("bash echo ok", text[0]), ("bash true rm x", text[1]), ("bash ls", None)]


@pytest.mark.rule("AC-3")
async def test_what_was_asked_before_the_server_was_lost_is_answered_to_the_next_one(tmp_path: Path) -> None:
    """The request stays on the editor's screen; the answer goes to whoever has the store now."""

    class Server(Front):
        def __init__(self, engine: Any) -> None:
            super().__init__(engine)
            self.lost = asyncio.Event()

        def __getattr__(self, name: str) -> Any:
            if self.lost.is_set():
                raise StoreUnavailable("this server is gone")
            return super().__getattr__(name)

        async def subscribe(self) -> AsyncIterator[Event]:
            yield Event("hello", {})  # type: ignore[arg-type]
            events = self.engine.subscribe()
            losing = asyncio.ensure_future(self.lost.wait())
            while True:
                coming = asyncio.ensure_future(anext(events))
                await asyncio.wait({coming, losing}, return_when=asyncio.FIRST_COMPLETED)
                if losing.done():
                    coming.cancel()
                    raise StoreUnavailable("this server is gone")
                yield coming.result()

    async with opened([call("write", {"path": "b", "content": "x"}), say("written")]) as engine:
        first = Server(engine)

        async def find_again() -> Any:
            return Server(engine)

        async with connected(first, find_again=find_again) as client:  # type: ignore[arg-type]
            await client.initialize()
            session_id = await client.new(tmp_path)
            prompt = client.prompt(session_id, "go")
            asked = (await client.until(lambda: client.asked))[0]
            first.lost.set()
            with pytest.raises(Refusal, match="connection to the server lost"):
                await prompt
            client.heard.clear()
            await client.until(lambda: client.of("usage_update"))  # it was looked how the session stands
            client.write({"id": asked["id"], "result": choose("once")(None)})
            await client.until(lambda: client.said() == "written")
            assert len(client.asked) == 1


@pytest.mark.rule("AC-3")
async def test_a_turn_that_ends_before_its_prompt_is_known_to_be_taken_ends_the_prompt(tmp_path: Path) -> None:
    """A server's events may be quicker than its answer, also while it is looked how a session stands."""
    gate, looking = Gate(), asyncio.Event()
    async with opened([[say("half "), wait(gate), say("whole")]]) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        front = Front(engine)

        async def get_status(session_id: str) -> Any:
            looking.set()
            await yield_to_others()
            return await engine.get_status(session_id)

        async def submit(*words: Any, **more: Any) -> Any:
            taken = await engine.submit(*words, **more)
            await asyncio.wait_for(gate.reached.wait(), 60)
            await yield_to_others()
            gate.set()
            await taken.wait()
            await yield_to_others()
            return taken

        async def yield_to_others() -> None:
            """Whoever can go on does."""
            for _ in range(1000):
                await asyncio.sleep(0)

        front.otherwise |= {"submit": submit, "get_status": get_status}
        async with connected(front) as client:  # type: ignore[arg-type]
            await client.initialize()
            await client.ask("session/resume", {"sessionId": session.id, "cwd": str(tmp_path)})
            await asyncio.wait_for(looking.wait(), 60)
            assert await client.prompt(session.id, "go") == {"stopReason": "end_turn"}
            assert (client.said(), client.said("user_message_chunk")) == ("half whole", "")


@pytest.mark.rule("AC-3")
async def test_a_summary_that_is_cancelled_is_told_as_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    script = [say("a " * 5000), say("b"), say("c"), [wait(gate)]]
    async with opened(script) as engine, connected(engine) as client:
        await client.initialize(session={"compaction": {}})
        session_id = await client.new(tmp_path)
        for words in ("1" * 3000, "2" * 3000, "3" * 3000):
            await client.prompt(session_id, words)
        compacting = client.prompt(session_id, "/compact")
        await asyncio.wait_for(gate.reached.wait(), 60)
        client.tell("session/cancel", {"sessionId": session_id})
        assert await compacting == {"stopReason": "cancelled"}
        assert [one["status"] for one in client.of("compaction_update")] == ["in_progress", "cancelled"]


@pytest.mark.rule("AC-1")
async def test_prompts_of_a_session_that_is_removed_end_with_that(tmp_path: Path) -> None:
    """While it asks, and one that waits behind it; the request is taken back."""
    async with opened([call("write", {"path": "b", "content": "x"})]) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        prompts = [client.prompt(session_id, words) for words in ("go", "and then")]
        asked = await client.until(lambda: client.asked)
        assert await client.ask("session/delete", {"sessionId": session_id}) == {}
        for prompt in prompts:
            with pytest.raises(Refusal, match="this session was deleted"):
                await prompt
        assert client.withdrawn == [asked[0]["id"]]


async def test_a_file_that_is_empty_in_the_editor_is_read_as_empty(tmp_path: Path) -> None:
    """Everything in it was taken out, and not saved yet; of what is nowhere nothing is made up."""
    (tmp_path / "a.txt").write_text("saved")
    editor = Editor()
    script = [call("read", {"path": "a.txt"}), call("read", {"path": "none.txt"}), say("ok")]
    async with opened(script, tools=editor_tools(editor)) as engine, connected(engine, editor) as client:
        await client.initialize(fs={"readTextFile": True})
        client.answers["fs/read_text_file"] = lambda _: {"content": ""}
        assert await client.prompt(await client.new(tmp_path), "go") == {"stopReason": "end_turn"}
        told = [one["content"][0]["content"]["text"] for one in client.of("tool_call_update") if "content" in one]
        assert told == ["[nothing to show: the file has 0 lines]", "none.txt does not exist"]


@pytest.mark.rule("AC-3")
async def test_a_command_that_the_editor_may_have_run_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not answer in time, or with nothing: that is told. What it refuses to run is run here, and files that it
    does not hand out are read from the disk."""
    monkeypatch.setattr(sys.modules["clew.fronts.acp.editor_tools"], "_TIMEOUT_S", 0.05)
    (tmp_path / "a.txt").write_text("on disk")
    run, editor = call("bash", {"command": "echo ran >> log"}), Editor()
    script = [run, say("a"), run, say("b"), run, call("read", {"path": "a.txt"}), say("c")]
    tools = editor_tools(editor, terminals=True)
    async with opened(script, tools=tools) as engine, connected(engine, editor) as client:
        await client.initialize(terminal=True, fs={"readTextFile": True})
        client.answers["session/request_permission"] = choose("once")
        session_id = await client.new(tmp_path)

        def refuse(_: Any) -> Any:
            # The request after this one, for a file, is not answered.
            monkeypatch.setattr(sys.modules["clew.fronts.acp.editor_tools"], "_TIMEOUT_S", 0.05)
            raise Refusal({"code": -32603, "message": "no terminals today"})

        for answer, runs in ((None, 0), (lambda _: {}, 0), (refuse, 1)):
            if answer is not None:
                client.answers["terminal/create"] = answer
                monkeypatch.setattr(sys.modules["clew.fronts.acp.editor_tools"], "_TIMEOUT_S", 60)
            assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
            assert (tmp_path / "log").exists() == bool(runs)
        told = [one["content"][0]["content"]["text"] for one in client.of("tool_call_update") if "content" in one]
        assert [words.partition(";")[0] for words in told] == [
            *["the editor did not confirm that it runs the command"] * 2,
            "[exit code 0]",
            "on disk",
        ]


@pytest.mark.rule("AC-1")
async def test_what_cannot_be_given_to_a_new_session_leaves_none_behind(tmp_path: Path) -> None:
    """Who has a token of their own starts no programs in the server; and is told what to do instead."""
    async with opened([say("a")]) as engine:
        own = engine.scoped("ann", roots=[tmp_path])
        async with connected(own) as client:
            await client.initialize()
            server = {"name": "x", "command": "/bin/cat", "args": [], "env": []}
            with pytest.raises(Refusal, match="your token does not allow MCP servers") as refused:
                await client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": [server]})
            assert refused.value.code == -32602
            assert await client.ask("session/list") == {"sessions": []}
            session_id = await client.new(tmp_path)
            no_address = {"type": "resource", "resource": {"uri": "http://[", "text": "words"}}
            assert await client.prompt(session_id, no_address) == {"stopReason": "end_turn"}
