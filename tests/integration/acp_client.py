"""A client of the Agent Client Protocol in memory: what it sends, what it is told, and whether that is the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jsonschema_rs

from clew.fronts.acp import Editor, serve
from clew.session.api import Operations

SCHEMA = Path(__file__).parents[1] / "node/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"
PATIENCE_S = float(os.environ.get("CLEW_TEST_PATIENCE_S", "60"))
_ANSWERS = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/prompt": "PromptResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
_SENT = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/kill": "KillTerminalRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "$/cancel_request": "CancelRequestNotification",
}


@functools.cache
def _judge(name: str) -> Any:
    """The protocol's own schema of a value; nothing where its package is not installed."""
    if not SCHEMA.exists():
        return None
    defs = json.loads(SCHEMA.read_text())["$defs"]
    return jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": defs})


def check(name: str | None, value: Any) -> None:
    judge = _judge(name) if name is not None else None
    if judge is not None:
        judge.validate(value)


@functools.cache
def _whole() -> Any:
    return jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))


def check_line(message: dict[str, Any]) -> None:
    """A line that the agent wrote, whatever it is: by the protocol's schema, and the one of its method."""
    _whole().validate(message)
    if "method" in message:
        check(_SENT[message["method"]], message["params"])


class Refusal(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")


class Client:
    """One editor. ``heard`` are the updates, ``asks`` what the agent asked, by method, and how it is answered."""

    def __init__(self) -> None:
        self.to_agent: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.withdrawn: list[int] = []
        self.nameless: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._open: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._next = 0
        self._more = asyncio.Condition()
        self._rest = b""
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, data: bytes) -> None:
        """What the agent wrote."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.messages.append(message)
            assert message["jsonrpc"] == "2.0"
            if "method" in message:
                check(_SENT[message["method"]], message["params"])
                if message["method"] == "session/update":
                    self.heard.append(message["params"]["update"])
                elif message["method"] == "$/cancel_request":
                    self.withdrawn.append(message["params"]["requestId"])
                else:
                    self.asked.append(message)
                    task = asyncio.create_task(self._answer(message))
                    self._tasks.add(task)
            elif message["id"] is None:
                check("Error", message["error"])
                self.nameless.put_nowait(message)
            else:
                method, future = self._open.pop(message["id"])
                if "error" in message:
                    check("Error", message["error"])
                    future.set_exception(Refusal(message["error"]))
                else:
                    check(_ANSWERS.get(method), message["result"])
                    future.set_result(message["result"])
        async with self._more:
            self._more.notify_all()

    async def _answer(self, message: dict[str, Any]) -> None:
        answer = self.answers.get(message["method"])
        if answer is None:
            return
        try:
            given = answer(message["params"])
            result = await given if asyncio.iscoroutine(given) else given
            self.write({"id": message["id"], "result": result})
        except Refusal as error:
            self.write({"id": message["id"], "error": {"code": error.code, "message": error.message}})

    def write(self, message: Any) -> None:
        self.to_agent.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def begin(self, method: str, params: Any = None) -> asyncio.Future[Any]:
        self._next += 1
        future = asyncio.get_running_loop().create_future()
        self._open[self._next] = (method, future)
        self.write({"id": self._next, "method": method, "params": params or {}})
        return future

    async def ask(self, method: str, params: Any = None) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await self.begin(method, params)

    def tell(self, method: str, params: Any) -> None:
        self.write({"method": method, "params": params})

    async def until(self, is_there: Callable[[], Any]) -> Any:
        """Wait until something is so, looked at whenever the agent wrote."""
        async with asyncio.timeout(PATIENCE_S), self._more:
            await self._more.wait_for(is_there)
            return is_there()

    # What a person does

    async def initialize(self, **capabilities: Any) -> Any:
        return await self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    async def new(self, folder: Path) -> str:
        return str((await self.ask("session/new", {"cwd": str(folder), "mcpServers": []}))["sessionId"])

    def prompt(self, session_id: str, *blocks: Any) -> asyncio.Future[Any]:
        told = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        asked = self.begin("session/prompt", {"sessionId": session_id, "prompt": told})
        return asyncio.ensure_future(asyncio.wait_for(asked, PATIENCE_S))

    def said(self, kind: str = "agent_message_chunk") -> str:
        """What was said so far, put together."""
        return "".join(one["content"].get("text", "") for one in self.heard if one["sessionUpdate"] == kind)

    def kinds(self) -> list[str]:
        """What was told, each run of the same once."""
        kinds = [one["sessionUpdate"] for one in self.heard]
        return [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.heard if one["sessionUpdate"] == kind]


@contextlib.asynccontextmanager
async def connected(engine: Operations, editor: Editor | None = None, **more: Any) -> AsyncIterator[Client]:
    """An editor that has ``clew acp`` at its other end; afterwards it is closed."""
    client = Client()

    async def new_session(engine: Any, folder: Path) -> Any:
        return await engine.create_session(workspace_root=folder)

    serving = asyncio.create_task(
        serve(engine, client.to_agent.get, client.take, new_session=new_session, editor=editor, **more)
    )
    try:
        yield client
    finally:
        client.to_agent.put_nowait(b"")
        await serving
