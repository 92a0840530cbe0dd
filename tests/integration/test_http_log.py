"""The log: one line per request, ids on every line that has some, nobody's secrets, and no lines of a client's own."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import clew
from clew.config import Config, secret_values
from clew.fronts.http import log as logging_
from clew.fronts.http.serve import serving_alongside
from clew.testing.scripted import fail, say
from tests.integration.http_client import TOKEN, AsgiClient, chat_body, served

KEY = 'sk-"hush\\key'


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the log writes from here on, formatted as JSON, one line each."""
    yield from _lines(logging_._Formatter("json", [TOKEN, KEY]))


@pytest.fixture
def text_lines() -> Iterator[list[str]]:
    yield from _lines(logging_._Formatter("text", [TOKEN, KEY]))


def _lines(formatter: logging.Formatter) -> Iterator[list[str]]:
    seen: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(self.format(record))

    handler = Keeping()
    handler.setFormatter(formatter)
    root = logging.getLogger("clew")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield seen
    root.removeHandler(handler)
    root.setLevel(level)


def requests(lines: list[str]) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, lines) if line["message"] == "request"]


async def test_a_chat_that_serves_logs_to_a_file_and_leaves_the_log_as_it_was(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it serves, nothing is written over the chat, and the file is its user's own, without secrets."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("CLEW_TOKEN", TOKEN)
    async with clew.open("memory:") as engine:
        async with serving_alongside(engine):
            logging.getLogger("clew.http").warning("over the chat, with %s", TOKEN)
            logging.getLogger("clew.title").warning("so is this")
        logging.getLogger("clew.http").warning("and after it")
    assert caplog.messages == ["and after it"]
    kept = tmp_path / "clew" / "chat.log"
    assert [line.partition(" ")[2] for line in kept.read_text().splitlines()] == [
        "WARNING clew.http: over the chat, with [hidden]",
        "WARNING clew.title: so is this",
    ]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_what_went_wrong_in_a_chat_that_serves_names_the_file_that_has_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever meets the failure, on the page or in a second chat, can read why."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("CLEW_TOKEN", TOKEN)
    kept = tmp_path / "clew" / "chat.log"
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def announce(url: str | None) -> None:
        if url is not None:
            announced.set_result(url)

    async def fail(**kwargs: Any) -> None:
        raise RuntimeError("a wheel came off")

    async with clew.open("memory:") as engine:
        monkeypatch.setattr(engine.store, "announce", announce)
        monkeypatch.setattr(engine, "list_sessions", fail)
        async with serving_alongside(engine), httpx.AsyncClient() as client:
            url = f"{await announced}/api/sessions"
            answer = await client.get(url, headers={"authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.json()["detail"]) == (
        500,
        f"internal error; see {kept} for details",
    )
    assert "RuntimeError: a wheel came off" in kept.read_text()


def test_a_log_file_that_has_grown_long_makes_way(tmp_path: Path) -> None:
    """The one before it is kept; a folder that cannot be written stops nobody."""
    kept = tmp_path / "chat.log"
    kept.write_bytes(b"x" * 1024 * 1024 + b"x")
    with logging_.logging_to(kept, []):
        logging.getLogger("clew.http").warning("anew")
    assert kept.read_text().endswith(" WARNING clew.http: anew\n")
    assert kept.with_name("chat.log.1").stat().st_size == 1024 * 1024 + 1
    with logging_.logging_to(kept / "nowhere", []):
        logging.getLogger("clew.http").warning("lost")


async def test_each_request_is_one_line_with_the_id_its_answer_has(lines: list[str]) -> None:
    """Method, the path of the route, status, time, and the session when there is one; refusals too."""
    async with served(say("hello")) as client:
        session_id = await client.session()
        asked = [
            await client.get(f"/api/sessions/{session_id}/messages?limit=5"),
            await client.get("/api/sessions/nonsense/messages"),
            await client.get("/api/nothing/here"),
            await client.get("/api/sessions", headers={"authorization": None}),
            await client.request("DELETE", "/api/health"),
        ]
        async with client.open("POST", "/api/chat", chat_body(session_id, "hi")) as reply:
            stream_id = reply.headers["x-request-id"]
            assert [frame async for frame in reply.frames()][-1] == "[DONE]"
    logged = requests(lines)[1:]
    assert [line["request"] for line in logged] == [*(answer.headers["x-request-id"] for answer in asked), stream_id]
    assert [(line["method"], line["path"], line["status"], line.get("session")) for line in logged] == [
        ("GET", "/api/sessions/{id}/messages", 200, session_id),
        ("GET", "/api/sessions/{id}/messages", 400, "nonsense"),
        ("GET", "-", 404, None),
        ("GET", "-", 401, None),
        ("DELETE", "/api/health", 405, None),
        ("POST", "/api/chat", 200, session_id),
    ]
    assert all(line["ms"] >= 0 and line["level"] == "info" for line in logged)


async def test_what_a_run_logs_carries_the_request_that_began_it(lines: list[str]) -> None:
    """And its session, long after the request was answered."""
    async with served(say("ok")) as client:
        session_id = await client.session()

        async def hook(value: Any) -> None:
            logging.getLogger("clew.test").info("from inside")

        client.engine.hook("after_model_call", hook)
        asked = await client.prompt(session_id, "go")
        await client.idle(session_id)
        await client.engine.host.hooks.drain()
    [line] = [line for line in map(json.loads, lines) if line["message"] == "from inside"]
    assert (line["session"], line["request"]) == (session_id, asked.headers["x-request-id"])


async def test_runs_are_logged_with_their_session_and_turn(lines: list[str]) -> None:
    """When they begin and how they ended; the words of an error are not for the log."""
    async with served(say("ok"), fail(401, "no such key: abc")) as client:
        task = asyncio.get_running_loop().create_task(logging_.log_runs(client.engine))
        await asyncio.sleep(0)
        session_id = await client.session()
        for text in ("one", "two"):
            await client.prompt(session_id, text)
            await client.idle(session_id)
        turns = [m["metadata"]["turn_id"] for m in await client.messages(session_id, "all") if m["role"] == "user"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    logged = [line for line in map(json.loads, lines) if line["logger"] == "clew.runs"]
    seen = [(line["message"], line["session"], line["turn"], line.get("reason"), line.get("error")) for line in logged]
    assert seen == [
        ("turn_started", session_id, turns[0], None, None),
        ("turn_finished", session_id, turns[0], "finish", None),
        ("turn_started", session_id, turns[1], None, None),
        ("turn_finished", session_id, turns[1], "error", "model_failed"),
    ]
    assert not any("abc" in line for line in lines if '"clew.runs"' in line)


async def probe(client: AsgiClient) -> None:
    """A request that holds a secret wherever one can stand, and one that tries to write lines of its own."""
    for path in (f"/api/{TOKEN}", f"/api/sessions/{TOKEN}", f"/api/sessions?q={TOKEN}&cursor={TOKEN}"):
        await client.get(path)
    await client.post("/api/sessions", {"model": f"x/{TOKEN}", "agent": TOKEN})
    forged = "%0A2026-01-01T00:00:00.000Z%20INFO%20clew.http:%20request%20status=200"
    for path in (f"/api/sessions/x{forged}", f"/{forged}", f"/api/blobs/{forged}"):
        await client.get(path)


async def test_b31_no_secret_is_in_the_log(lines: list[str], text_lines: list[str]) -> None:
    """Not the token, not a key, not in a trace, in neither form; the place it stood in is marked."""
    async with served() as client:
        await probe(client)
        try:
            raise ValueError(f"{KEY} was refused by the provider, and so was Bearer {TOKEN}")
        except ValueError:
            logging.getLogger("clew.test").exception("a call failed with %s", KEY)
    assert (len(lines), len(text_lines)) == (8, 8)
    for line in (*lines, *text_lines):
        assert TOKEN not in line
        assert "hush" not in line
    assert "[hidden]" in lines[-1]
    assert "[hidden]" in text_lines[-1]


async def test_b29_nobody_can_write_a_line_of_their_own(lines: list[str], text_lines: list[str]) -> None:
    """Line breaks and escapes are shown as such; what belongs to a line above is indented."""
    async with served() as client:
        await probe(client)
    try:
        raise ValueError("first\n2026-01-01T00:00:00.000Z INFO forged\x1b[2J")
    except ValueError:
        logging.getLogger("clew.test").exception("said \x1b]52;c;x\x07 and\nwent on")
    assert [line for line in lines if "\n" in line or "\x1b" in line] == []
    assert [line for line in "\n".join(text_lines).splitlines() if line.startswith("2026-01-01")] == []
    assert "\x1b" not in "".join(text_lines)
    assert "said \\x1b]52;c;x\\x07 and\\nwent on" in text_lines[-1]


def test_which_values_of_the_environment_are_secrets() -> None:
    """By their names, and those of the settings; short ones are not looked for, or every line would be holes."""
    named = {"ANTHROPIC_API_KEY": "a" * 20, "GH_TOKEN": "b" * 20, "DB_PASSWORD": "c" * 20, "AWS_SECRET_ID": "e" * 20}
    config = Config(providers={"mine": {"api_key": "f" * 20}})
    hidden = secret_values(config, {**named, "PATH": "d" * 20, "PIN_TOKEN": "1"})
    assert hidden == ("a" * 20, "b" * 20, "c" * 20, "e" * 20, "f" * 20)
    record = logging.LogRecord("x", logging.INFO, "", 1, "%s 1 %s", ("a" * 20, "d" * 20), None)
    assert logging_._Formatter("text", hidden).format(record).endswith(f"INFO x: [hidden] 1 {'d' * 20}")
