"""The core of clew on a Python without POSIX: a program that uses each part of it once, and prints what came of it.

``python -m tests.rig.core_child win32 FOLDER`` runs everything there; with ``win32 open URL`` it only opens a store
and prints the code of the error, if there is one.
"""

from __future__ import annotations

import sys

from tests.rig.no_posix import hide

if __name__ == "__main__":
    hide("darwin" if sys.argv[1] == "darwin" else "win32", everywhere=True)

import asyncio
import contextlib
import http.client
import io
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import clew
from clew.fronts.cli.app import run_command
from clew.fronts.owner_tokens import OwnerTokens
from clew.platform import locks
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say

__all__ = ["main"]

_MODULES: Final = ("fcntl", "grp", "pwd", "resource", "termios", "tty")


@clew.tool
def refund(number: int) -> str:
    """Pay an order back."""
    return f"order {number} is paid back"


async def _error(awaited: Coroutine[Any, Any, Any]) -> str:
    try:
        await awaited
    except clew.ClewError as error:
        return f"{error.code}: {error}"
    return "no error"


async def _opens(url: str, **options: Any) -> None:
    async with clew.open(url, **options):
        pass


async def _library(url: str) -> dict[str, Any]:
    """A call with approval, a rewind, a branch and a search."""
    script = [call("refund", {"number": 7}), say("Done."), say("Once more."), say("Elsewhere.")]
    async with clew.open(url, tools=[refund], providers=FakeProviders(ScriptedModel(script))) as engine:
        session = await engine.create_session(model="test/model")
        [_ async for _ in engine.run(session.id, "order seven")]
        [wait] = (await engine.get_status(session.id)).waiting
        assert wait.approval_id is not None
        await engine.answer(session.id, wait.approval_id, "once")
        [_ async for _ in engine.attach(session.id)]
        prompt, answer = await engine.messages(session.id)
        outputs = [part["output"] for part in answer.parts if "output" in part]
        branch = await engine.branch(session.id, answer.id)
        await engine.rewind(session.id, prompt.id, mode="edit")
        [_ async for _ in engine.run(session.id, "again")]
        found = await engine.search("seven", wait=True)
        return {
            "asked for": wait.tool,
            "outputs": outputs,
            "after the rewind": [_text(message) for message in await engine.messages(session.id)],
            "in the branch": [_text(message) for message in await engine.messages(branch.id)],
            "found": sorted({hit.session_id == session.id for hit in found.hits}),
        }


def _text(message: clew.Message) -> str:
    return "".join(part.get("text", "") for part in message.parts)


async def _off(folder: Path) -> dict[str, str]:
    """Return the line with which each thing that is off says so."""
    async with clew.open("memory:") as engine:
        tools = {tool.name for tool in engine.host.tools.values()}
        session = await engine.create_session(model="demo/echo", workspace_root=folder)
        file = [{"type": "file", "url": "workspace:notes.txt", "mediaType": "text/plain"}]
        by_workspace = await _error(engine.submit(session.id, file))
    tokens = OwnerTokens({"XDG_CONFIG_HOME": str(folder)})
    return {
        "tools": " ".join(sorted(tools & {"read", "write", "edit", "ls", "glob", "grep", "bash", "todo", "question"})),
        "jsonl:": await _error(_opens(f"jsonl:{folder}/sessions")),
        "bash": await _error(_opens("memory:", builtin_tools=("bash",))),
        "read": await _error(_opens("memory:", builtin_tools=("read", "todo"))),
        "workspace file": by_workspace,
        "owner": await _error(asyncio.to_thread(tokens.add, "ann", 0)),
    }


async def _second_opening(url: str) -> dict[str, str]:
    """The lock of a store that is open (ST-9): for this process, and for another one of the same kind."""
    async with clew.open(url):
        here = await _error(_opens(url))
        words = [sys.executable, "-m", "tests.rig.core_child", sys.argv[1], "open", url]
        there = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    name = url.removeprefix("sqlite:///")
    return {
        "here": here.partition(":")[0],
        "there": there.stdout.partition(":")[0] or there.stderr,
        "names": str(f"process {os.getpid()}" in here and f"process {os.getpid()}" in there.stdout),
        "afterwards": await _error(_opens(url)),
        "lock": _lock(f"{name}.owner"),
    }


def _lock(name: str) -> str:
    """Lock a file twice; say which of the two succeeded, and what is read meanwhile."""
    with open(name, "rb+", buffering=0) as first, open(name, "rb+", buffering=0) as second:
        locks.lock(first.fileno())
        try:
            locks.lock(second.fileno())
        except BlockingIOError:
            locks.unlock(first.fileno())
            locks.lock(second.fileno())
            locks.unlock(second.fileno())
            locks.unlock(second.fileno())
            return "one at a time"
        return "both"


def _command(*words: str, typed: str = "") -> tuple[int, str, str]:
    """Run a command line: its exit code, its output and what it says on stderr."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        sys.stdin = io.StringIO(typed)
        code = run_command(words)
    return code, out.getvalue(), err.getvalue()


class _Output(io.StringIO):
    """Standard output that calls a function with each text."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        super().__init__()
        self._on_text = on_text

    def write(self, text: str) -> int:
        self._on_text(text)
        return len(text)


def _server(url: str) -> dict[str, Any]:
    """Serve a store, stream an answer over loopback, and end by a signal."""
    seen: dict[str, Any] = {}

    def use(port: int, token: str) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

            def post(path: str, body: Any) -> http.client.HTTPResponse:
                connection.request("POST", path, json.dumps(body), headers)
                return connection.getresponse()

            session = json.load(post("/api/sessions", {"model": "demo/echo"}))["id"]
            message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "over the wire"}]}
            answer = post("/api/chat", {"id": session, "messages": [message], "trigger": "submit-message"})
            frames = answer.read().decode().split("\n\n")
            chunks = [json.loads(one) for one in re.findall(r"^data: (\{.*)$", "\n".join(frames), re.M)]
            seen["type"] = answer.headers["content-type"]
            seen["text"] = "".join(chunk.get("delta", "") for chunk in chunks)
            seen["end"] = frames[-2].splitlines()[-1]
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_text(text: str) -> None:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", text):
            threading.Thread(target=use, args=(int(found[1]), found[2])).start()

    with contextlib.redirect_stdout(_Output(on_text)), contextlib.redirect_stderr(io.StringIO()):
        seen["exit code"] = run_command(["serve", "--port", "0", "--store", url])
    return seen


def main() -> None:
    if sys.argv[2] == "open":
        print(asyncio.run(_error(_opens(sys.argv[3]))))
        return
    folder = Path(sys.argv[2])
    url = f"sqlite:///{folder}/clew.db"
    os.environ["CLEW_STORE"] = url
    results = {
        "modules": [name for name in _MODULES if sys.modules.get(name) is not None],
        "functions": [name for name in ("fork", "getuid", "killpg", "setsid") if hasattr(os, name)],
        "memory:": asyncio.run(_library("memory:")),
        "sqlite:": asyncio.run(_library(f"sqlite:///{folder}/library.db")),
        "off": asyncio.run(_off(folder)),
        "second opening": asyncio.run(_second_opening(f"sqlite:///{folder}/library.db")),
        "server": _server(url),
        "run": _command("run", "hello there", "--model", "demo/echo"),
        "chat": _command("chat", "--new", "--model", "demo/echo", typed="from a pipe\n"),
        "ls": len(_command("ls")[1].splitlines()),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
