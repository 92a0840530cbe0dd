"""What a real server holds while it takes in a file of many small messages: at most four times the file."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from bench.process import peak_mb
from clew.interop.programs.import_report import Program
from tests.integration.processes import serving_logging_to

BODY_MB = 8
MB = 1_000_000
BASE_MB = 30
"""What an import takes of whatever size: code that is loaded for it, and the cache of the database."""
SAID = ("the quick brown fox jumps over the lazy dog " * 10)[:400]


def claude_code() -> Iterator[dict[str, Any]]:
    """Prompts and answers of one session."""
    parent, n = None, 0
    while True:
        n += 1
        own = f"00000000-0000-4000-8000-{n:012d}"
        asked = {"type": "user", "message": {"role": "user", "content": f"{n} {SAID}"}}
        said = {"type": "text", "text": f"{n} {SAID}"}
        message = {"id": f"msg_{n:020d}", "role": "assistant", "model": "claude-sonnet-4-5", "content": [said]}
        used = {"usage": {"input_tokens": 10, "output_tokens": 20}, "stop_reason": "end_turn"}
        answered = {"type": "assistant", "message": {**message, **used}}
        about = {"sessionId": "s1", "cwd": "/w", "version": "2.0.1", "isSidechain": False, "timestamp": at(n)}
        yield {"parentUuid": parent, "uuid": own, **about, **(asked if n % 2 else answered)}
        parent = own


def codex() -> Iterator[dict[str, Any]]:
    yield {"timestamp": at(0), "type": "session_meta", "payload": {"id": "s1", "timestamp": at(0), "cwd": "/w"}}
    n = 0
    while True:
        n += 1
        role, kind = ("user", "input_text") if n % 2 else ("assistant", "output_text")
        content = [{"type": kind, "text": f"{n} {SAID}"}]
        payload = {"type": "message", "role": role, "content": content}
        yield {"timestamp": at(n), "type": "response_item", "payload": payload}


def pi() -> Iterator[dict[str, Any]]:
    yield {"type": "session", "version": 3, "id": "s1", "timestamp": at(0), "cwd": "/w"}
    parent, n = None, 0
    while True:
        n += 1
        content = [{"type": "text", "text": f"{n} {SAID}"}]
        model = {"provider": "anthropic", "model": "claude-sonnet-4-5", "stopReason": "stop"}
        answer = {**model, "usage": {"input": 10, "output": 20, "totalTokens": 30}}
        message = {"role": "user" if n % 2 else "assistant", "content": content, **({} if n % 2 else answer)}
        yield {"type": "message", "id": f"{n:08x}", "parentId": parent, "timestamp": at(n), "message": message}
        parent = f"{n:08x}"


def at(n: int) -> str:
    return f"2026-01-{1 + n // 86400:02d}T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z"


def file_of(records: Iterator[dict[str, Any]], size: int) -> bytes:
    lines, held = [], 0
    while held < size:
        lines.append(json.dumps(next(records), separators=(",", ":")).encode() + b"\n")
        held += len(lines[-1])
    return b"".join(lines)


async def import_measured(tmp_path: Path, path: str, data: bytes) -> float:
    """Import it by a server that does nothing else; the most MB it held beyond what it holds idle."""
    async with serving_logging_to(asyncio.subprocess.DEVNULL, tmp_path) as server:
        assert (await server.client.get("/api/sessions")).status == 200
        idle = peak_mb(server.process.pid)
        reply = await server.client.post(path, data)
        assert reply.status in (200, 201), reply.body
        return peak_mb(server.process.pid) - idle


@pytest.mark.slow
@pytest.mark.parametrize("program", [claude_code, codex, pi], ids=lambda one: one.__name__.replace("_", "-"))
async def test_an_import_of_another_program_holds_at_most_four_times_its_file(
    program: Callable[[], Iterator[dict[str, Any]]], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    data = file_of(program(), BODY_MB * 1_000_000)
    name = program.__name__.replace("_", "-")
    held = await import_measured(tmp_path, f"/api/import-from?program={name}", data)
    record_property("times", round(held / BODY_MB, 1))
    assert held <= 4 * BODY_MB + BASE_MB, f"{held:.0f} MB"


@pytest.mark.slow
@pytest.mark.timeout(400)  # five imports and two exports, each by a server of its own
async def test_an_import_of_an_export_holds_at_most_four_times_its_file(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Also one of a session that is here already, which gets new names."""
    async with serving_logging_to(asyncio.subprocess.DEVNULL, tmp_path) as server:
        data = file_of(codex(), BODY_MB * 500_000)
        arrived = (await server.client.post("/api/import-from?program=codex", data)).json()
        where = f"/api/sessions/{arrived['session_id']}/export?format="
        files = [(await server.client.get(where + form)).body for form in ("json", "jsonl")]
    for n, file in enumerate(files):
        for place in (tmp_path / f"empty{n}", tmp_path):
            place.mkdir(exist_ok=True)
            held, size = await import_measured(place, "/api/import", file), len(file) / 1_000_000
            record_property(f"times of {place.name}", round(held / size, 1))
            assert held <= 4 * size + BASE_MB, f"{held:.0f} MB of {size:.0f}"


def dense(kind: str) -> bytes:
    """A file of four megabytes that holds as many values as it can."""
    inside = b"{}," * (4 * MB // 3) + b"{}"
    if kind == "record":
        header = b'{"record":"session","format":"clew-session","version":1}\n'
        return header + b'{"a":[' + inside + b"]}\n"
    return b'{"a":[' + inside + b"]}"


@pytest.mark.slow
async def test_a_file_of_nothing_but_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """Of four megabytes it made two hundred to six hundred. One server gets all, so none of them may take much."""
    paths = ("import", *(f"import-from?program={one}" for one in get_args(Program)))
    async with serving_logging_to(asyncio.subprocess.DEVNULL, tmp_path) as server:
        assert (await server.client.get("/api/sessions")).status == 200
        idle = peak_mb(server.process.pid)
        for path, kind in itertools.product(paths, ("object", "record")):
            data = dense(kind)
            reply = await server.client.post(f"/api/{path}", data)
            assert (reply.status, reply.code) == (422, "invalid_input"), (path, kind)
            held = peak_mb(server.process.pid) - idle
            assert held <= 4 * len(data) / MB + BASE_MB, f"{path} of {kind}: {held:.0f} MB"
