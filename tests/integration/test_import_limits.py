"""Files of other programs with as many messages as their size allows, or more: what a real server holds meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.process import peak_mb
from clew.interop.density import max_records
from tests.integration.processes import serving_logging_to
from tests.integration.test_import_memory import BASE_MB, MB, import_measured

BODY_MB = 8
Record = Callable[[int, str], dict[str, Any]]


def claude_code(n: int, text: str) -> dict[str, Any]:
    asked = {"role": "user", "content": text}
    said = {"role": "assistant", "id": f"m{n}", "content": [{"type": "text", "text": text}]}
    message = asked if n % 2 else said
    parent = f"{n - 1:x}" if n > 1 else None
    return {"parentUuid": parent, "uuid": f"{n:x}", "sessionId": "s1", "type": message["role"], "message": message}


def codex(n: int, text: str) -> dict[str, Any]:
    role, kind = ("user", "input_text") if n % 2 else ("assistant", "output_text")
    content = [{"type": kind, "text": text}]
    return {"type": "response_item", "payload": {"type": "message", "role": role, "content": content}}


def pi(n: int, text: str) -> dict[str, Any]:
    message = {"role": "user" if n % 2 else "assistant", "content": text}
    return {"type": "message", "id": f"{n:x}", "parentId": f"{n - 1:x}" if n > 1 else None, "message": message}


def opencode(n: int, text: str) -> dict[str, Any]:
    info = {"id": f"m{n:08x}", "role": "user" if n % 2 else "assistant"}
    return {"info": info, "parts": [{"type": "text", "text": text}]}


FIRST = {
    "claude-code": {"type": "summary", "summary": "x", "leafUuid": "1"},
    "codex": {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "s1", "cwd": "/w"}},
    "pi": {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/w"},
}
PROGRAMS: dict[str, Record] = {"claude-code": claude_code, "codex": codex, "pi": pi, "opencode": opencode}


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def file_of(program: str, count: int, text: str) -> bytes:
    """A session of so many messages that all say the same."""
    records = [encoded(PROGRAMS[program](n, text)) for n in range(1, count + 1)]
    if program == "opencode":
        return b'{"info":{"id":"ses_1"},"messages":[' + b",".join(records) + b"]}"
    return b"\n".join([encoded(FIRST[program]), *records])


def densest(program: str, size: int, letter: str) -> bytes:
    """A file of that size with as many messages as are taken."""
    count = max_records(size) - 10
    room = size // count - len(encoded(PROGRAMS[program](count, ""))) - 1
    return file_of(program, count, letter * (room // len(letter.encode())) or "x").ljust(size)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("program", "letter"), [*((one, "\U0001f600") for one in PROGRAMS), ("codex", "x")])
async def test_a_file_of_as_many_messages_as_are_taken_holds_at_most_four_times_its_size(
    program: str, letter: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Also where each letter takes four bytes in memory."""
    data = densest(program, BODY_MB * MB, letter)
    held = await import_measured(tmp_path, f"/api/import-from?program={program}", data)
    record_property(f"times of {program}", round(held / BODY_MB, 1))
    assert held <= 4 * BODY_MB + BASE_MB, f"{held:.0f} MB"


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_file_of_more_messages_is_refused_before_they_are_read(program: str, tmp_path: Path) -> None:
    """Twenty megabytes of messages of one letter took fourteen times as many, and three minutes."""
    data = file_of(program, 10 * MB // len(encoded(PROGRAMS[program](1, "x"))), "x")
    async with serving_logging_to(asyncio.subprocess.DEVNULL, tmp_path) as server:
        assert (await server.client.get("/api/sessions")).status == 200
        idle = peak_mb(server.process.pid)
        reply = await server.client.post(f"/api/import-from?program={program}", data)
        assert (reply.status, reply.code) == (422, "invalid_input")
        assert "more than" in reply.json()["detail"]
        held = peak_mb(server.process.pid) - idle
    assert held <= 4 * len(data) / MB + BASE_MB, f"{held:.0f} MB"
