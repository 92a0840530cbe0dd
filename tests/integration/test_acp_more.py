"""What else an editor can do with clew, and what it cannot break: choices, commands, questions, files, garbage."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clew.fronts.acp import Editor, editor_tools
from clew.fronts.acp.rpc import Connection, Handler, Refused
from clew.testing.scripted import ScriptedModel, call, fail, say, then, wait
from tests.acceptance.compacting import summary
from tests.integration.acp_client import Client, Refusal, connected
from tests.integration.mcp_peers import npm_server
from tests.integration.test_acp import PNG, choose, opened


@pytest.mark.rule("AC-1", "AC-3")
async def test_sessions_are_listed_chosen_for_forked_closed_and_removed(tmp_path: Path) -> None:
    """By clew's own ids, and refused as HTTP would refuse it."""
    async with opened([say("a"), say("b")]) as engine, connected(engine) as client:
        with pytest.raises(Refusal, match="call initialize first"):
            await client.ask("session/list")
        await client.initialize()
        session_id = await client.new(tmp_path)
        await client.prompt(session_id, "hello")
        await engine.create_session(title="elsewhere")
        listed = await client.ask("session/list", {"cwd": str(tmp_path)})
        assert [(one["sessionId"], one["cwd"], one["title"]) for one in listed["sessions"]] == [
            (session_id, str(tmp_path), "hello")
        ]
        assert len((await client.ask("session/list"))["sessions"]) == 2

        named = {"sessionId": session_id}
        assert await client.ask("session/set_mode", {**named, "modeId": "accept_edits"}) == {}
        assert (await engine.get_session(session_id)).mode == "accept_edits"
        await client.until(lambda: client.of("current_mode_update"))
        options = await client.ask("session/set_config_option", {**named, "configId": "mode", "value": "read_only"})
        assert [(one["id"], one["currentValue"]) for one in options["configOptions"]][:2] == [
            ("mode", "read_only"),
            ("model", "test/model"),
        ]
        for wrong in ({"configId": "mode", "value": "yolo"}, {"configId": "colour", "value": "red"}):
            with pytest.raises(Refusal) as refused:
                await client.ask("session/set_config_option", {**named, **wrong})
            assert refused.value.code == -32602

        forked = await client.ask("session/fork", {**named, "cwd": str(tmp_path), "mcpServers": []})
        assert forked["sessionId"] != session_id
        assert await client.prompt(forked["sessionId"], "and?") == {"stopReason": "end_turn"}
        assert (await engine.get_session(forked["sessionId"])).parent_id == session_id
        assert await client.ask("session/close", {"sessionId": forked["sessionId"]}) == {}
        with pytest.raises(Refusal, match="not open here"):
            await client.prompt(forked["sessionId"], "closed")
        assert await client.ask("session/delete", named) == {}
        with pytest.raises(Refusal) as gone:
            await client.ask("session/load", {**named, "cwd": str(tmp_path), "mcpServers": []})
        assert gone.value.code == -32002
        for cwd in ("relative", str(tmp_path / "missing")):
            with pytest.raises(Refusal) as refused:
                await client.ask("session/new", {"cwd": cwd, "mcpServers": []})
            assert refused.value.code == -32602


@pytest.mark.rule("AC-3")
async def test_a_prompt_may_hold_images_files_and_links_and_they_come_back(tmp_path: Path) -> None:
    model = ScriptedModel([say("seen")])
    blocks = [
        {"type": "text", "text": "look at "},
        {"type": "resource_link", "name": "b.py", "uri": "file:///b.py"},
        {"type": "resource", "resource": {"uri": "file:///x/n%20.txt", "text": "notes", "mimeType": "text/plain"}},
        {"type": "image", "mimeType": "image/png", "data": PNG},
    ]
    async with opened(model, files=("image/png",)) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        assert await client.prompt(session_id, *blocks) == {"stopReason": "end_turn"}
        user = (await engine.messages(session_id))[0]
        assert [(part["type"], part.get("text"), part.get("filename")) for part in user.parts] == [
            ("text", "look at [b.py](file:///b.py)", None),
            ("file", None, "n .txt"),
            ("file", None, None),
        ]
        await client.ask("session/load", {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []})
        assert [one["content"] for one in client.of("user_message_chunk")] == [
            {"type": "text", "text": "look at [b.py](file:///b.py)"},
            {
                "type": "resource",
                "resource": {"uri": "attachment:n%20.txt", "mimeType": "text/plain", "text": "notes"},
            },
            {"type": "image", "mimeType": "image/png", "data": PNG},
        ]
        for block in (
            {"type": "audio", "mimeType": "audio/wav", "data": ""},
            {"type": "image", "mimeType": "image/png", "data": "?"},
        ):
            with pytest.raises(Refusal) as refused:
                await client.prompt(session_id, block)
            assert refused.value.code == -32602
        assert len(await engine.messages(session_id)) == 2


@pytest.mark.rule("AC-3")
async def test_a_question_is_a_form_or_the_next_prompt_answers_it(tmp_path: Path) -> None:
    ask = call("question", {"question": "which?", "options": ["red", "blue"]})
    async with opened([ask, say("red it is"), ask, say("blue it is")]) as engine:
        async with connected(engine) as client:
            await client.initialize(elicitation={"form": {}})
            client.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"answer": "red"}}
            session_id = await client.new(tmp_path)
            assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
            assert (client.said(), client.asked[0]["params"]["message"]) == ("red it is", "which?")
        async with connected(engine) as client:
            await client.initialize()
            await client.ask("session/resume", {"sessionId": session_id, "cwd": str(tmp_path)})
            assert await client.prompt(session_id, "again") == {"stopReason": "end_turn"}
            assert [one.tool for one in (await engine.get_status(session_id)).waiting] == ["question"]
            assert await client.prompt(session_id, "blue") == {"stopReason": "end_turn"}
            assert client.said() == "which?\n1. red\n2. blueblue it is"


@pytest.mark.rule("AC-3")
async def test_a_summary_a_limit_and_a_failure_are_told_as_what_they_are(tmp_path: Path) -> None:
    """/compact is a compaction, an answer that was cut off says so, and a failed turn is an error with words."""
    script = [
        say("one " * 400),
        say("two " * 400),
        say("three"),
        say(summary("count")),
        fail(429, retry_after_ms=1),
        then(say("cut"), finish="length"),
        fail(401),
    ]
    async with opened(script) as engine, connected(engine) as client:
        await client.initialize(session={"compaction": {}, "notices": {}})
        session_id = await client.new(tmp_path)
        for text in "123":
            await client.prompt(session_id, text * 400)
        assert await client.prompt(session_id, "/compact the words") == {"stopReason": "end_turn"}
        told = client.of("compaction_update")
        assert [one["status"] for one in told] == ["in_progress", "completed"]
        assert len({one["compactionId"] for one in told}) == 1
        assert await client.prompt(session_id, "on") == {"stopReason": "max_tokens"}
        assert [(one["severity"], one["title"].split(";")[0]) for one in client.of("notice")] == [
            ("warning", "The provider is limiting requests. Retrying."),
            ("warning", "The answer was cut off at the output limit. /continue to resume."),
        ]
        with pytest.raises(Refusal) as failed:
            await client.prompt(session_id, "and on")
        assert failed.value.data is not None
        assert "refused the key" in failed.value.message
        assert await client.prompt(session_id, "/title A name") == {"stopReason": "end_turn"}
        await client.until(lambda: client.of("session_info_update")[-1]["title"] == "A name")


GARBAGE: list[tuple[bytes, int]] = [
    (b"hello", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"x"', -32700),
    (b"[" * 5000, -32700),
    (b'{"jsonrpc":"2.0","id":7,"method":"session/list","params":{"cwd":"\xff\xfe"}}', -32700),
    (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600),
    (b'"initialize"', -32600),
    (b'{"id":1,"method":"initialize"}', -32600),
    (b'{"jsonrpc":"2.0","id":{"a":1},"method":"initialize"}', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"initialize"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","method":"x","params":"' + b"y" * 200_000 + b'"}', -32600),
]
WRONG: list[tuple[str, Any, int]] = [
    ("session/yolo", {}, -32601),
    ("session/cancel", {"sessionId": "x"}, -32600),
    ("session/new", None, -32602),
    ("session/new", [], -32602),
    ("session/new", {"cwd": 7, "mcpServers": []}, -32602),
    ("session/new", {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/etc"]}, -32602),
    ("session/prompt", {"sessionId": "../../x", "prompt": []}, -32002),
    ("session/load", {"sessionId": "../../x", "cwd": "/", "mcpServers": []}, -32602),
    ("session/set_mode", {"sessionId": 1}, -32602),
    ("session/list", {"cursor": "not one"}, -32602),
    ("authenticate", {"methodId": "x"}, -32602),
    ("initialize", {"protocolVersion": "one"}, -32602),
]


@pytest.mark.rule("AC-3")
async def test_garbage_is_answered_with_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    """Bad JSON, unknown methods, wrong types, long lines, answers nobody asked for; a prompt runs on through it."""
    hold = asyncio.Event()
    async with (
        opened([[say("half "), wait(hold), say("whole")]]) as engine,
        connected(engine, longest_line=100_000) as client,
    ):
        await client.initialize()
        session_id = await client.new(tmp_path)
        running = client.prompt(session_id, "go")
        await client.until(lambda: client.said() == "half ")
        for line, code in GARBAGE:
            client.to_agent.put_nowait(line + b"\n")
            assert (await asyncio.wait_for(client.nameless.get(), 60))["error"]["code"] == code, line[:80]
        for method, params, code in WRONG:
            with pytest.raises(Refusal) as refused:
                await client.ask(method, params) if params is not None else await client.begin(method)
            assert (method, refused.value.code) == (method, code)
        client.write({"id": 4711, "result": {}})
        client.write({"id": "x", "error": {"code": "no"}})
        client.tell("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": "unasked"}]})
        client.tell("nobody/knows", {"a": 1})
        client.to_agent.put_nowait(b'\n  \n{"jsonrpc":"2.0","id":null,"meth')
        client.to_agent.put_nowait(b'od":"in two pieces"}\n')
        assert (await asyncio.wait_for(client.nameless.get(), 60))["error"]["code"] == -32600
        hold.set()
        assert await running == {"stopReason": "end_turn"}
        assert client.said() == "half whole"
        assert [message.texts for message in await engine.messages(session_id)] == [["go"], ["half ", "whole"]]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":"', b'"}', 7),
        (b'{"id" : "se\\u00e4", "jsonrpc":"2.0", "method":"x","params":["', b'"]}', "seä"),
        (b'{"jsonrpc":"2.0","method":"x","params":{"a":"', b'"},"id":8}', 8),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":5,"a":"', b'"}}', None),
        (b'{"jsonrpc":"2.0","method":"x","params":"', b',\\"id\\":9"}', None),
        (b'{"params":{"id":1,"a":"', b'"}}', None),
        (b"no JSON at all, and no end", b"", None),
    ],
)
async def test_a_line_that_is_too_long_is_refused_under_its_own_id(before: bytes, after: bytes, told: Any) -> None:
    """Where that can be read without the rest; what stands inside of a value is no id of the message."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    written: list[Any] = []

    async def write(data: bytes) -> None:
        written.extend(map(json.loads, data.splitlines()))
        lines.put_nowait(b"")

    for piece in (before, b"x" * 3000, b"x" * 3000, after + b"\n"):
        lines.put_nowait(piece)
    await Connection(lines.get, write, Handler(lambda _: None, lambda _: None), longest_line=5000).run()
    why = {"code": -32600, "message": "a line has more than 5,000 bytes"}
    assert written == [{"jsonrpc": "2.0", "id": told, "error": why}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":{"content":"', b'"}}', id="its id first"),
        pytest.param(b'{"jsonrpc":"2.0","result":{"content":"', b'"},"id":1}', id="its id last"),
        pytest.param(b'{"error":{"code":1,"message":"', b'"},"id":1,"jsonrpc":"2.0"}', id="an error"),
    ],
)
async def test_who_asked_for_what_comes_in_too_long_a_line_is_not_left_waiting(before: bytes, after: bytes) -> None:
    """The answer is none, and nobody is told an error for having given it."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    written: list[Any] = []

    async def write(data: bytes) -> None:
        written.extend(map(json.loads, data.splitlines()))

    connection = Connection(lines.get, write, Handler(lambda _: None, lambda _: None), longest_line=5000)
    running = asyncio.create_task(connection.run())
    asking = asyncio.create_task(connection.request("fs/read_text_file", {}))
    await asyncio.sleep(0)
    lines.put_nowait(before + b"x" * 6000 + after + b"\n")
    with pytest.raises(Refused, match="more than 5,000 bytes"):
        await asyncio.wait_for(asking, 60)
    lines.put_nowait(b"")
    await running
    assert [one.get("method") for one in written] == ["fs/read_text_file"]


@pytest.mark.rule("AC-1")
async def test_a_session_is_opened_in_its_own_folder_and_deleted_when_it_rests(tmp_path: Path) -> None:
    """An editor that shows another folder is told where the session works; one at work, that it is to be stopped."""
    hold = asyncio.Event()
    (tmp_path / "here").mkdir()
    (tmp_path / "same").symlink_to(tmp_path / "here")
    async with opened([[say("half "), wait(hold)]]) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path / "here")
        given = {"sessionId": session_id, "mcpServers": []}
        for method in ("session/load", "session/resume", "session/fork"):
            with pytest.raises(Refusal, match=f"this session works in {tmp_path / 'here'}") as refused:
                await client.ask(method, {**given, "cwd": str(tmp_path)})
            assert refused.value.code == -32602
        await client.ask("session/resume", {**given, "cwd": str(tmp_path / "same")})
        running = client.prompt(session_id, "go")
        await client.until(lambda: client.said() == "half ")
        with pytest.raises(Refusal, match="this session is running: stop it") as refused:
            await client.ask("session/delete", {"sessionId": session_id})
        assert refused.value.data == {"code": "run_in_flight", "session_id": session_id}
        client.tell("session/cancel", {"sessionId": session_id})
        assert await running == {"stopReason": "cancelled"}
        assert await client.ask("session/delete", {"sessionId": session_id}) == {}


async def test_a_bug_says_nothing_of_its_words_to_the_other_side() -> None:
    """What an exception holds is for the log."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    written: list[Any] = []

    async def broken(_: Any) -> Any:
        raise RuntimeError("the key is sk-secret")

    async def write(data: bytes) -> None:
        written.extend(map(json.loads, data.splitlines()))
        lines.put_nowait(b"")

    connection = Connection(lines.get, write, Handler(lambda _: broken, lambda _: None))
    lines.put_nowait(b'{"jsonrpc":"2.0","id":1,"method":"x"}\n')
    await connection.run()
    assert [one["error"]["code"] for one in written] == [-32603]
    assert "secret" not in str(written)


@pytest.mark.rule("AC-3")
@pytest.mark.node
@pytest.mark.slow
async def test_mcp_servers_of_the_editor_give_tools_that_are_asked_about(tmp_path: Path) -> None:
    """What a server says it has is shown and asked about first, then its call; both by the editor."""
    (tmp_path / "door.txt").write_text("the door is green")
    read = call("mcp__my-files__read_text_file", {"path": str(tmp_path / "door.txt")})
    server = npm_server("@modelcontextprotocol/server-filesystem", "dist/index.js", str(tmp_path))
    given = {"name": "My Files", **server, "env": []}
    async with opened([call("mcp__my-files", {}), read, say("green")]) as engine, connected(engine) as client:
        await client.initialize()
        client.answers["session/request_permission"] = choose("once")
        made = await client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": [given]})
        assert await client.prompt(made["sessionId"], "which colour?") == {"stopReason": "end_turn"}
        looked, asked = (one["params"]["toolCall"] for one in client.asked)
        assert "Read the complete contents of a file" in looked["content"][0]["content"]["text"]
        assert asked["rawInput"] == {"path": str(tmp_path / "door.txt")}
        assert client.of("tool_call_update")[-1]["content"][-1]["content"]["text"] == "the door is green"
        sse = {"type": "sse", "name": "x", "url": "http://127.0.0.1:1/", "headers": []}
        with pytest.raises(Refusal, match="SSE"):
            await client.ask("session/new", {"cwd": str(tmp_path), "mcpServers": [sse]})


@pytest.mark.rule("AC-3")
async def test_files_are_read_and_written_as_the_editor_holds_them(tmp_path: Path) -> None:
    """What is typed and not saved is read and edited, asked for as ever; what the editor lacks is on disk."""
    (tmp_path / "a.txt").write_text("saved\n")
    (tmp_path / "b.txt").write_text("only on disk\n")
    held = {f"{tmp_path}/a.txt": "typed one\ntyped two\n"}

    def read_text(asked: dict[str, Any]) -> Any:
        if asked["path"] not in held:
            raise Refusal({"code": -32002, "message": "not open"})
        return {"content": held[asked["path"]]}

    def write_text(asked: dict[str, Any]) -> Any:
        held[asked["path"]] = asked["content"]
        Path(asked["path"]).write_text(asked["content"])
        return {}

    script = [
        call("read", {"path": "a.txt"}),
        call("read", {"path": "a.txt", "offset": 2}),
        call("read", {"path": "b.txt"}),
        call("edit", {"path": "a.txt", "old": "typed two", "new": "typed three"}),
        call("write", {"path": "c.txt", "content": "new\n"}),
        call("edit", {"path": "b.txt", "old": "only", "new": "still"}),
        say("done"),
    ]
    editor = Editor()
    async with opened(script, tools=editor_tools(editor)) as engine:
        async with connected(engine, editor) as client:
            await client.initialize(fs={"readTextFile": True, "writeTextFile": True})
            client.answers |= {"fs/read_text_file": read_text, "fs/write_text_file": write_text}
            client.answers["session/request_permission"] = choose("once")
            session_id = await client.new(tmp_path)
            assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
            outputs = [one["rawOutput"] for one in client.of("tool_call_update") if "rawOutput" in one]
            assert outputs == [
                "typed one\ntyped two\n",
                "typed two\n[lines 2 to 2, the last one]",
                "only on disk\n",
                "replaced 1 passage in a.txt, line 2",
                "made c.txt with 4 bytes",
                "replaced 1 passage in b.txt, line 1",
            ]
            assert [one["method"] for one in client.asked].count("session/request_permission") == 3
        assert held == {f"{tmp_path}/a.txt": "typed one\ntyped three\n", f"{tmp_path}/c.txt": "new\n"}
        assert (tmp_path / "b.txt").read_text() == "still on disk\n"


class Terminals:
    """The terminals of an editor: each runs what it is told to; the test says when, and how it ends."""

    def __init__(self, client: Client) -> None:
        self.made: list[dict[str, Any]] = []
        self.ended = asyncio.Event()
        for what in ("create", "wait_for_exit", "output", "kill", "release"):
            client.answers[f"terminal/{what}"] = getattr(self, what)

    def create(self, asked: dict[str, Any]) -> Any:
        self.made.append(asked)
        return {"terminalId": f"t{len(self.made)}"}

    async def wait_for_exit(self, asked: dict[str, Any]) -> Any:
        if asked["terminalId"] != "t1":
            await self.ended.wait()
        return {"exitCode": 0}

    def output(self, asked: dict[str, Any]) -> Any:
        return {"output": "it said\n", "truncated": False, "exitStatus": {"exitCode": 0}}

    def kill(self, asked: dict[str, Any]) -> Any:
        return {}

    release = kill


@pytest.mark.rule("AC-3")
async def test_a_command_runs_in_the_editors_terminal_where_somebody_asked_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked about as ever, without the editor's keys; cancelled, it is ended there and let go of."""
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    editor = Editor()
    script = [call("bash", {"command": "echo it said"}), say("done"), call("bash", {"command": "sleep 100"})]
    async with (
        opened(script, tools=editor_tools(editor, terminals=True)) as engine,
        connected(engine, editor) as client,
    ):
        await client.initialize(terminal=True)
        client.answers["session/request_permission"] = choose("once")
        terminals = Terminals(client)
        session_id = await client.new(tmp_path)
        assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
        assert [one["method"] for one in client.asked][:2] == ["session/request_permission", "terminal/create"]
        made = terminals.made[0]
        assert (made["args"][0], made["args"][-2:], made["cwd"]) == ("-i", ["--", "echo it said"], str(tmp_path))
        assert "secret" not in str(made)
        shown = [one for one in client.of("tool_call_update") if "content" in one][-1]
        assert shown["content"] == [{"type": "terminal", "terminalId": "t1"}]
        output = (await engine.messages(session_id))[-1].parts[1]["output"]
        assert output == {"text": "it said\n[exit code 0]", "exit_code": 0}
        running = client.prompt(session_id, "again")
        await client.until(lambda: [one for one in client.asked if one["method"] == "terminal/wait_for_exit"][1:])
        client.tell("session/cancel", {"sessionId": session_id})
        assert await running == {"stopReason": "cancelled"}
        await client.until(lambda: [one for one in client.asked if one["method"] == "terminal/release"][1:])
        ends = [(one["method"], one["params"]["terminalId"]) for one in client.asked if "terminalId" in one["params"]]
        assert [one for one in ends if one[0] in ("terminal/kill", "terminal/release")] == [
            *(("terminal/release", "t1"), ("terminal/kill", "t2"), ("terminal/release", "t2")),
        ]
