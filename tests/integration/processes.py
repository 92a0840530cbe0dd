"""``clew`` as a process: a server, a command, a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import sys
import termios
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.http_client import SocketClient
from tests.rig.fork_server import fork

T = TypeVar("T")
CLEW = str(Path(sys.executable).with_name("clew"))
SLOW = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
SSE = {"accept": "text/event-stream"}
LINE = re.compile(rb"clew http://127\.0\.0\.1:(\d+)/#token=(\S+)\n")


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """A home of its own, and no key of whoever runs the tests."""
    own = {"XDG_CONFIG_HOME": f"{tmp_path}/config", "XDG_DATA_HOME": f"{tmp_path}/data", "HOME": str(tmp_path)}
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env.pop("CLEW_TOKEN", None)
    return {**env, "CLEW_STORE": f"sqlite:///{tmp_path}/store.db", **own, **more}


async def start(tmp_path: Path, *words: str, **env: str) -> ForkedProcess:
    """Start ``clew``, forked from a process that has imported everything."""
    return await fork_clew(PIPE, tmp_path, *words, **env)


async def start_logging_to(stderr: int, tmp_path: Path, *words: str, **env: str) -> Process:
    env = environment(tmp_path, **env)
    nothing = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        CLEW, *words, env=env, cwd=tmp_path, stdin=nothing, stdout=PIPE, stderr=stderr
    )


async def command(tmp_path: Path, *words: str, **env: str) -> tuple[int, str, str]:
    """Run a command to its end: exit code, stdout, stderr."""
    process = await start(tmp_path, *words, **env)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


class ForkedProcess:
    """The subset of :class:`asyncio.subprocess.Process` that the tests need, of a child of the fork server."""

    def __init__(self, pid: int, end: int, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader | None) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._end = end
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(end, self._on_end)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._end)
        self.returncode = int(os.read(self._end, 16) or b"70")  # no exit code: the fork server is gone
        os.close(self._end)
        self._ended.set()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err = await asyncio.gather(
            self.stdout.read(), self.stderr.read() if self.stderr is not None else nothing()
        )
        await self.wait()
        return out, err


async def nothing() -> bytes:
    return b""


async def fork_clew(stderr: int, tmp_path: Path, *words: str, **env: str) -> ForkedProcess:
    """Start ``clew`` without its imports, which take most of the time of a server that answers a few requests."""
    pipes: list[tuple[int, int]] = [os.pipe() for _ in range(2 if stderr == PIPE else 1)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        files = (null, pipes[0][1], pipes[1][1] if stderr == PIPE else null)
        pid, end = fork("clew.fronts.cli.app", *words, env=environment(tmp_path, **env), folder=tmp_path, files=files)
    finally:
        for descriptor in (null, *(theirs for _, theirs in pipes)):
            os.close(descriptor)
    readers = [asyncio.StreamReader() for _ in pipes]
    for (ours, _), reader in zip(pipes, readers, strict=True):
        await asyncio.get_running_loop().connect_read_pipe(
            partial(asyncio.StreamReaderProtocol, reader), os.fdopen(ours, "rb", 0)
        )
    return ForkedProcess(pid, end, readers[0], readers[1] if stderr == PIPE else None)


class Server:
    """A ``clew serve`` that is up."""

    def __init__(self, process: Process | ForkedProcess, client: SocketClient) -> None:
        self.process = process
        self.client = client

    async def end(self, number: signal.Signals) -> tuple[int, float, str]:
        """Send the signal and wait: exit code, seconds, and what came on stdout after the first line."""
        started = time.monotonic()
        self.process.send_signal(number)
        out, _ = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, time.monotonic() - started, out.decode()


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, *words: str, **env: str) -> AsyncIterator[Server]:
    """Whatever happens, the process is gone afterwards. It is forked from one that has imported everything; use
    :func:`serving_alone` where the process itself is tested."""
    async with _up(await fork_clew(PIPE, tmp_path, "serve", "--port", "0", *words, **env)) as server:
        yield server


@contextlib.asynccontextmanager
async def serving_alone(tmp_path: Path, *words: str, **env: str) -> AsyncIterator[Server]:
    """:func:`serving`, in a process that is started as a user starts it."""
    async with serving_logging_to(PIPE, tmp_path, *words, **env) as server:
        yield server


@contextlib.asynccontextmanager
async def serving_logging_to(stderr: int, tmp_path: Path, *words: str, **env: str) -> AsyncIterator[Server]:
    """:func:`serving_alone`, with a log that goes elsewhere."""
    async with _up(await start_logging_to(stderr, tmp_path, "serve", "--port", "0", *words, **env)) as server:
        yield server


@contextlib.asynccontextmanager
async def _up(process: Process | ForkedProcess) -> AsyncIterator[Server]:
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        match = LINE.fullmatch(line)
        assert match is not None, (line, await process.communicate())
        yield Server(process, SocketClient(int(match[1]), match[2].decode()))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@contextlib.contextmanager
def serving_beside(tmp_path: Path, **env: str) -> Iterator[tuple[Server, Callable[[Coroutine[Any, Any, T]], T]]]:
    """:func:`serving`, for a test that calls the command line in its own process: the server, and how to ask it."""
    with asyncio.Runner() as runner:
        whole = serving(tmp_path, **env)
        server = runner.run(whole.__aenter__())
        try:
            yield server, runner.run
        finally:
            runner.run(whole.__aexit__(None, None, None))


async def words_of(frames: AsyncIterator[Any], count: int) -> list[Any]:
    """Chunks until so many words of text came."""
    chunks: list[Any] = []
    seen = 0
    while seen < count:
        chunks.append(await anext(frames))
        seen += chunks[-1]["type"] == "text-delta"
    return chunks


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def on_a_terminal(
    tmp_path: Path, *words: str, answers: list[bytes], is_asked: asyncio.Event | None = None
) -> tuple[int, str]:
    """Run a command on a terminal of its own, typing an answer at each question: exit code, all it showed.

    ``is_asked`` is set once a question stands there.
    """
    here, there = os.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(there, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        CLEW,
        *words,
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=there,
        stdout=there,
        stderr=there,
        preexec_fn=own_terminal,
    )
    os.close(there)
    seen = b""
    asked = 0
    try:
        # Reading fails once nobody has the other end open.
        with contextlib.suppress(OSError):
            while data := await asyncio.to_thread(os.read, here, 4096):
                seen += data
                if is_asked is not None and b"[n]o: " in seen:
                    is_asked.set()
                if asked < len(answers) and seen.count(b"allow?") > asked:
                    os.write(here, answers[asked])
                    asked += 1
        return await process.wait(), seen.decode().replace("\r\n", "\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(here)


async def interrupted(process: Process | ForkedProcess) -> tuple[int, str, str]:
    """Interrupt a run in the middle of its text."""
    assert process.stdout is not None
    out = b""
    while out.count(b"text-delta") < 3:
        out += await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + rest).decode(), err.decode()
