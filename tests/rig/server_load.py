"""Many sessions streaming at once from one real server, with viewers on real sockets, some of which disconnect.

``python -m tests.rig.server_load`` starts ``clew serve`` on its own store, streams every session at the pace of the
demo's slow variant, and then checks what each viewer received, what is on disk, and the output of ``clew check``. It
prints measurements and problems; the exit code is 1 if there are problems.

``CLEW_SOAK_SESSIONS`` (1000), ``CLEW_SOAK_WORDS`` (60) and ``CLEW_SOAK_ROUNDS`` (1, messages a session) set the size.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import orjson

from clew.compose import open as open_engine
from clew.config import Config
from clew.providers.base import ModelRequest
from clew.providers.demo import DemoProvider
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model

__all__ = ["Load", "Outcome", "main", "soak"]

Role: TypeAlias = Literal["stays", "leaves", "returns"]
ChunkTexts: TypeAlias = list[tuple[str, str]]

_ROLES: Final[tuple[Role, ...]] = ("stays", "leaves", "stays", "returns")
_LINE: Final = re.compile(rb"clew http://127\.0\.0\.1:(\d+)/#token=(\S+)\n")
_MODEL: Final = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
_DONE: Final = b"data: [DONE]"
_MAX_REQUESTS: Final = 50
"""Maximum number of concurrent requests other than streams."""
_PROBE_S: Final = 0.05
_MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class Load:
    """The load on the server."""

    sessions: int = 1000
    words: int = 60
    rounds: int = 1


@dataclass(slots=True)
class Outcome:
    """The measurements by name, and the problems, of which there must be none."""

    measurements: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Received:
    """A response as received by a viewer: each frame with its time."""

    sent_at: float
    status: int = 0
    frames: list[tuple[float, bytes]] = field(default_factory=list)
    left: bool = False
    error: str | None = None

    def chunks(self) -> list[dict[str, Any]]:
        return [orjson.loads(data[6:]) for _, data in self.frames if data.startswith(b"data: {")]

    @property
    def finished(self) -> bool:
        return bool(self.frames) and self.frames[-1][1] == _DONE


@dataclass(slots=True)
class _Visit:
    """A viewer of one session in one round: what it received, and what it received after reconnecting."""

    session_id: str
    role: Role
    first: _Received
    second: _Received | None = None


class _Server:
    """A running ``clew serve``."""

    def __init__(self, process: Process, port: int, token: str) -> None:
        self.process = process
        self.port = port
        self._token = token

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return its response, which must be successful."""
        async with self._exchange(method, path, body) as (status, headers, reader):
            if headers.get("transfer-encoding") == "chunked":
                data = b"".join([piece async for piece in _pieces(reader)])
            else:
                data = await reader.readexactly(int(headers.get("content-length", "0")))
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]!r}")
        return orjson.loads(data) if data else None

    async def view(self, method: str, path: str, body: object = None, leave_after: int | None = None) -> _Received:
        """Read a stream to its end, or until this many words arrived."""
        seen = _Received(time.perf_counter())
        words = 0
        rest = b""
        try:
            async with self._exchange(method, path, body) as (seen.status, headers, reader):
                if headers.get("transfer-encoding") != "chunked":
                    return seen
                async for piece in _pieces(reader):
                    now = time.perf_counter()
                    *blocks, rest = (rest + piece).split(b"\n\n")
                    seen.frames += [(now, block[max(block.find(b"data: "), 0) :]) for block in blocks]
                    words += piece.count(b'"text-delta"')
                    if leave_after is not None and words >= leave_after:
                        seen.left = True
                        return seen
        except (OSError, EOFError, ValueError) as error:
            seen.error = f"{type(error).__name__}: {error}"
        return seen

    async def until_idle(self, session_id: str) -> None:
        """Wait until a session is idle."""
        async with self._exchange("GET", f"/api/sessions/{session_id}/status", accept="text/event-stream") as reply:
            rest = b""
            async for piece in _pieces(reply[2]):
                *blocks, rest = (rest + piece).split(b"\n\n")
                for block in blocks:
                    if block.startswith(b"data: ") and orjson.loads(block[6:])["state"] in ("idle", "error"):
                        return

    @contextlib.asynccontextmanager
    async def _exchange(
        self, method: str, path: str, body: object = None, accept: str = "*/*"
    ) -> AsyncIterator[tuple[int, dict[str, str], asyncio.StreamReader]]:
        data = b"" if body is None else orjson.dumps(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nauthorization: Bearer {self._token}\r\n"
            f"accept: {accept}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
            "connection: close\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(head.encode() + data)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            yield int(first.split(" ")[1]), headers, reader
        finally:
            # Reset, not closed gracefully, as when a user leaves a page.
            writer.transport.abort()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline() or b"cut off", 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def soak(load: Load, folder: Path) -> Outcome:
    """Run the load on a new server, whose store and home are in ``folder``."""
    outcome = Outcome()
    visits: list[_Visit] = []
    expected = await _expected(load.words)
    env = _environment(folder)
    process = await asyncio.create_subprocess_exec(
        *(_command(), "serve", "--port", "0"), env=env, cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # Read continuously: a full pipe would block the server.
    logged = asyncio.get_running_loop().create_task(process.stderr.read())
    try:
        line = await process.stdout.readline()
        match = _LINE.fullmatch(line)
        if match is None:
            raise RuntimeError(f"the server did not start: {line!r} {await logged!r}")
        server = _Server(process, int(match[1]), match[2].decode())
        await _load(server, load, visits, outcome)
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        log = (await logged).decode(errors="replace")
    if code != 0:
        outcome.problems.append(f"the server ended with {code}")
    bad = [line for line in log.splitlines() if re.search(r"\b(ERROR|CRITICAL|Traceback)\b", line)]
    outcome.problems += [f"the server logged: {line[:300]}" for line in bad[:3]]
    warnings = [line for line in log.splitlines() if " WARNING " in line]
    if warnings:
        outcome.measurements["warnings of the server"] = f"{len(warnings)}, the first: {warnings[0]}"
    _judge(visits, expected, outcome)
    await _judge_disk(folder, visits, expected, load, outcome)
    check = await asyncio.create_subprocess_exec(_command(), "check", env=env, cwd=folder, stdout=PIPE, stderr=PIPE)
    output = b"".join(await check.communicate()).decode()
    if check.returncode != 0:
        outcome.problems.append(f"clew check: {output[:1000]}")
    return outcome


async def _load(server: _Server, load: Load, visits: list[_Visit], outcome: Outcome) -> None:
    memory = [_memory(server.process.pid, "VmRSS")]
    limit = asyncio.Semaphore(_MAX_REQUESTS)
    begin = time.perf_counter()

    async def make() -> str:
        async with limit:
            return str((await server.ask("POST", "/api/sessions", {"model": "demo/long"}))["id"])

    async def until_idle(session_id: str) -> None:
        async with limit:
            await server.until_idle(session_id)

    sessions = await asyncio.gather(*(make() for _ in range(load.sessions)))
    created = time.perf_counter() - begin
    probes: list[float] = []
    probing = asyncio.get_running_loop().create_task(_probe(server, probes))
    begin, own, cpu = time.perf_counter(), time.process_time(), _cpu(server.process.pid)
    for number in range(load.rounds):
        visits += await asyncio.gather(
            *(_visit(server, session_id, n + number, number, load.words) for n, session_id in enumerate(sessions))
        )
        # Some have no viewer any more; they still continue.
        await asyncio.gather(*(until_idle(session_id) for session_id in sessions))
        memory.append(_memory(server.process.pid, "VmRSS"))
    took = time.perf_counter() - begin
    probing.cancel()
    await asyncio.gather(probing, return_exceptions=True)
    cores, own_cores = (_cpu(server.process.pid) - cpu) / took, (time.process_time() - own) / took
    seen = [seen for visit in visits for seen in (visit.first, visit.second) if seen is not None]
    frames = sum(len(one.frames) for one in seen)
    outcome.measurements |= {
        "sessions": f"{load.sessions}, {load.words} words each, {load.rounds} round(s); created in {created:.1f} s",
        "streaming": f"{took:.1f} s, {frames:,} frames to viewers, {frames / took:,.0f} a second",
        "CPU, cores": f"server {cores:.2f}, viewers {own_cores:.2f}",
        "server memory, MB": f"{' → '.join(f'{one:.0f}' for one in memory)}, "
        f"peak {_memory(server.process.pid, 'VmHWM'):.0f}",
        "sent → first frame, ms": _spread(
            one.frames[0][0] - one.sent_at for visit in visits if (one := visit.first).frames
        ),
        "word → next word (20 expected), ms": _spread(gap for visit in visits for gap in _gaps(visit.first)),
        "another request meanwhile, ms": _spread(probes),
    }


async def _visit(server: _Server, session_id: str, n: int, number: int, words: int) -> _Visit:
    role = _ROLES[n % len(_ROLES)]
    message = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": f"{words} words"}]}
    body = {"id": session_id, "messages": [message], "trigger": "submit-message", "model": _MODEL}
    # Spread over the message from its first word on, the same in every run.
    leave_after = None if role == "stays" else 1 + n * 7 % max(words * 3 // 4, 1)
    visit = _Visit(session_id, role, await server.view("POST", "/api/chat", body, leave_after))
    if role == "returns" and visit.first.left:
        visit.second = await server.view("GET", f"/api/chat/{session_id}/stream")
    return visit


async def _probe(server: _Server, took: list[float]) -> None:
    """Measure the latency of a small request."""
    while True:
        begin = time.perf_counter()
        await server.ask("GET", "/api/health")
        took.append(time.perf_counter() - begin)
        await asyncio.sleep(_PROBE_S)


async def _expected(words: int) -> ChunkTexts:
    """Return the chunks of the model's answer, from the provider without a server."""
    question = Message("m1", "user", [{"type": "text", "text": f"{words} words"}], {})
    request = ModelRequest(model=Model("demo", "long"), system="", messages=[question])
    stream = DemoProvider().stream(request)
    chunks = [(chunk.type, _delta(chunk)) async for chunk in stream if not hasattr(chunk, "usage")]  # without the end
    return [("start", ""), ("start-step", ""), *chunks, ("finish-step", ""), ("finish", "")]


def _delta(chunk: Any) -> str:
    return chunk.delta if isinstance(chunk, c.TextDelta | c.ReasoningDelta) else ""


def _chunks(seen: _Received) -> ChunkTexts:
    return [(chunk["type"], chunk.get("delta", "")) for chunk in seen.chunks() if chunk["type"] != "message-metadata"]


def _texts(chunks: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the joined reasoning and the joined text."""
    chunks = list(chunks)
    return (
        "".join(delta for kind, delta in chunks if kind == "reasoning-delta"),
        "".join(delta for kind, delta in chunks if kind == "text-delta"),
    )


def _judge(visits: Sequence[_Visit], expected: ChunkTexts, outcome: Outcome) -> None:
    """Check that viewers that stayed received every chunk once and in order, those that left a prefix, and those that
    reconnected the whole message."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for visit in visits:
        name, seen, second = f"{visit.session_id} ({visit.role})", visit.first, visit.second
        if seen.status != 200 or seen.error is not None:
            wrong.append(f"{name}: status {seen.status}, {seen.error}")
        elif not seen.left:
            counts["stayed"] += 1
            if not seen.finished or _chunks(seen) != expected:
                wrong.append(f"{name}: received {_chunks(seen)}")
        elif _chunks(seen) != expected[: len(_chunks(seen))]:
            wrong.append(f"{name}: received {_chunks(seen)} before it disconnected")
        elif second is None:
            counts["left"] += 1
        elif second.status == 204:
            counts["reconnected after the end"] += 1
        else:
            counts["reconnected"] += 1
            if second.status != 200 or second.error is not None or not second.finished:
                wrong.append(f"{name}: status {second.status}, {second.error}, after it reconnected")
            elif _texts(_chunks(second)) != _texts(expected) or _folded(second) != _texts(expected):
                wrong.append(f"{name}: received {_chunks(second)} after it reconnected")
    outcome.measurements["viewers"] = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    outcome.problems += wrong[:_MAX_PROBLEMS]
    if len(wrong) > _MAX_PROBLEMS:
        outcome.problems.append(f"and {len(wrong) - _MAX_PROBLEMS} more viewers")


def _folded(seen: _Received) -> tuple[str, str]:
    """Return the reasoning and text that a client builds from the stream."""
    chunks = seen.chunks()
    fold = Fold(chunks[0]["messageId"])
    for chunk in chunks:
        fold.apply(c.parse_chunk(chunk))
    return _parts(fold.parts)


def _parts(parts: Iterable[Any]) -> tuple[str, str]:
    parts = list(parts)
    return (
        "".join(part["text"] for part in parts if part["type"] == "reasoning"),
        "".join(part["text"] for part in parts if part["type"] == "text"),
    )


async def _judge_disk(
    folder: Path, visits: Sequence[_Visit], expected: ChunkTexts, load: Load, outcome: Outcome
) -> None:
    """Check that every message on disk is complete and every turn completed."""
    wrong: list[str] = []
    times: list[tuple[int, int]] = []
    async with open_engine(f"sqlite:///{folder}/store.db", config=Config()) as engine:
        for session_id in dict.fromkeys(visit.session_id for visit in visits):
            messages = await engine.messages(session_id)
            answers = [message for message in messages if message.role == "assistant"]
            turns = (await engine.tree(session_id)).turns
            if len(messages) != 2 * load.rounds or len(answers) != load.rounds:
                wrong.append(f"{session_id}: {len(messages)} messages on disk")
            wrong += [
                f"{session_id}: {answer.parts} on disk"
                for answer in answers
                if _parts(answer.parts) != _texts(expected)
            ]
            wrong += [f"{session_id}: a turn is {turn.status}" for turn in turns if turn.status != "completed"]
            times += [(turn.created_at, 1) for turn in turns]
            times += [(turn.settled_at, -1) for turn in turns if turn.settled_at is not None]
    maximum = now = 0
    for _, step in sorted(times):
        now += step
        maximum = max(maximum, now)
    outcome.measurements["maximum concurrent runs"] = maximum
    outcome.problems += wrong[:_MAX_PROBLEMS]
    if len(wrong) > _MAX_PROBLEMS:
        outcome.problems.append(f"and {len(wrong) - _MAX_PROBLEMS} more on disk")


def _gaps(seen: _Received) -> list[float]:
    times = [at for at, data in seen.frames if b'"text-delta"' in data]
    return [later - earlier for earlier, later in pairwise(times)]


def _spread(values: Iterable[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "–"
    p50, p99 = (ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.0f}, p99 {p99:.0f}, max {ordered[-1] * 1000:.0f}"


def _memory(pid: int, name: str) -> float:
    """Return a memory value of the process in megabytes, 0 if unavailable."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0


def _cpu(pid: int) -> float:
    """Return the CPU seconds of the process, 0 if unavailable."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command() -> str:
    return str(Path(sys.executable).with_name("clew"))


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with its own home and without API keys."""
    own = {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_DATA_HOME": f"{folder}/data", "HOME": str(folder)}
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env.pop("CLEW_TOKEN", None)
    return {**env, "CLEW_STORE": f"sqlite:///{folder}/store.db", **own}


def main() -> int:
    load = Load(*(int(os.environ.get(f"CLEW_SOAK_{name}", size)) for name, size in _SIZES))
    _raise_limit(load.sessions)
    with tempfile.TemporaryDirectory(prefix="clew-soak-") as folder:
        outcome = asyncio.run(soak(load, Path(folder)))
    for name, value in outcome.measurements.items():
        print(f"{name:<38}{value}")
    for problem in outcome.problems:
        print(f"WRONG: {problem[:500]}")
    print("no problems" if not outcome.problems else f"{len(outcome.problems)} problems")
    return 1 if outcome.problems else 0


_SIZES: Final = (("SESSIONS", 1000), ("WORDS", 60), ("ROUNDS", 1))


def _raise_limit(sessions: int) -> None:
    """Raise the limit of open files: each viewer needs a descriptor here and one in the server, which inherits it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = sessions * 2 + 200
        if soft != resource.RLIM_INFINITY and soft < needed:
            limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


if __name__ == "__main__":
    sys.exit(main())
