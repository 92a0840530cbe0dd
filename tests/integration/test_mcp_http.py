"""MCP servers at an address: to the one that was meant, with the key that is its own, and never too much of it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import clew
from clew.testing.scripted import call, say
from tests.integration.http_client import served
from tests.integration.mcp_peers import ask, told

pytestmark = [pytest.mark.rule("MC-1"), pytest.mark.slow]
ALLOW = clew.Rule("mcp__*", "*", "allow")
Handler = Callable[[dict[str, Any]], tuple[int, dict[str, str], bytes]]
TOOLS = [{"name": "big", "description": "It answers.", "inputSchema": {"type": "object"}}]


def answer(request: dict[str, Any], **special: Any) -> tuple[int, dict[str, str], bytes]:
    """What a decent server says."""
    kind = {"content-type": "application/json"}
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        },
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": "so it is"}]},
    }
    method = request["method"]
    if "id" not in request:
        return 202, {}, b""
    if method not in results | special:
        error = {"code": -32601, "message": "Method not found"}
        return 200, kind, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
    result = special.get(method, results.get(method))
    return 200, kind, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()


@contextlib.asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[tuple[int, list[dict[str, str]]]]:
    """A server that answers each message as the handler says; its port, and the headers of every request."""
    seen: list[dict[str, str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head[1:] if line}
                seen.append({"": head[0], **headers})
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                status, more, data = handler(json.loads(body)) if body else (405, {}, b"")
                lines = [
                    f"HTTP/1.1 {status} x",
                    f"content-length: {len(data)}",
                    *(f"{k}: {v}" for k, v in more.items()),
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()


@contextlib.asynccontextmanager
async def telling(streams: list[bytes | int]) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that tells of changes: for each stream that is asked for what it sends before it breaks off, or a status
    without one; the last is held. Its port, and what it was asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower():
                size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                request = json.loads(await reader.readexactly(size)) if size else {"method": head.split()[0]}
                asked.append(request["method"])
                if asked.count("initialize") == 2 and streams[0] == 404:
                    streams.pop(0)
                if request["method"] == "get":
                    held = len(streams) == 1
                    # One that has forgotten a session does not remember it when it is asked again.
                    said = streams[0] if held or streams[0] == 404 else streams.pop(0)
                    if isinstance(said, bytes):
                        kind = b"content-type: text/event-stream\r\ntransfer-encoding: chunked"
                        writer.write(b"HTTP/1.1 200 x\r\n%b\r\n\r\n%x\r\n%b\r\n" % (kind, len(said), said))
                        if held:
                            continue
                        break
                    status, more, data = said, dict[str, str](), b""
                else:
                    result = {"capabilities": {"resources": {"subscribe": True}}, "protocolVersion": "2025-06-18"}
                    whole = {**result, "serverInfo": {"name": "x", "version": "1"}}
                    status, more, data = answer(request, initialize=whole, **{"resources/subscribe": {}})
                lines = [f"{key}: {value}" for key, value in {**more, "mcp-session-id": "x"}.items()]
                writer.write(
                    "\r\n".join([f"HTTP/1.1 {status} x", f"content-length: {len(data)}", *lines, "", ""]).encode()
                )
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


@pytest.mark.rule("EV-5")
async def test_a_stream_of_changes_that_breaks_off_or_is_gone_is_had_again() -> None:
    """However often it was cut while nothing happened; a server that forgot its session is begun anew."""
    cut = b"id: 1\nretry: 1\ndata: \n\n"
    changed = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:y"}}
    streams: list[bytes | int] = [*[cut] * 4, 404, f"data: {json.dumps(changed)}\n\n".encode()]
    async with telling(streams) as (port, asked):
        servers = {"far": {"url": f"http://127.0.0.1:{port}/mcp", "trust": True}}
        async with asyncio.timeout(60), served(say("I see"), mcp_servers=servers) as client:
            body = {"session_id": await client.session(), "server": "far", "uri": "x:y"}
            assert (await client.post("/api/schedules/watch", body)).status == 201
            async with client.open("GET", "/api/events") as reply:
                frames = reply.frames()
                while not await client.messages(body["session_id"]):
                    await anext(frames)
            await client.idle(body["session_id"])
    assert asked.count("initialize") == 2


async def test_a_stream_without_an_end_to_it_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """More events than a server could have to say; each alone is small."""
    # A slow machine would take in what comes as fast as more of it is allowed.
    monkeypatch.setattr("clew.tools.mcp.connection._MESSAGES_PER_S", 0)
    noise = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    async with telling([f"data: {json.dumps(noise)}\n\n".encode() * 5_000]) as (port, _):
        servers = {"far": {"url": f"http://127.0.0.1:{port}/mcp"}}
        async with asyncio.timeout(60), served(mcp_servers=servers) as client:
            assert (await client.post("/api/mcp-servers/far/start")).json()["state"] in ("ready", "failed")
            error = None
            while not error:
                [state] = (await client.get("/api/mcp-servers")).json()["servers"]
                error = state["error"]
    assert error == "it sends more than a server may"


async def outcome(url: str, **server: Any) -> str:
    """What comes of one call."""
    script = [call("mcp__far__big", {}), say("done")]
    servers = {"far": {"url": url, "trust": True, "start_s": 20, **server}}
    async with served(*script, mcp_servers=servers) as client:
        session_id = await client.session()
        await client.engine.set_permissions(session_id, [{"permission": "mcp__*", "pattern": "*", "action": "allow"}])
        [part] = await ask(client, session_id, "go")
        [state] = await client.engine.mcp_servers()
        return told(part) if "there is no tool" not in told(part) else str(state.error)


async def test_the_key_of_the_config_goes_with_every_request_and_nothing_else_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Filled in from a variable; neither a proxy of the environment nor its credentials are used."""
    monkeypatch.setenv("TRACKER_TOKEN", "t0ken")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with listening(answer) as (port, seen):
        said = await outcome(f"http://localhost:{port}/mcp", headers={"Authorization": "Bearer ${TRACKER_TOKEN}"})
    assert said == "so it is"
    assert {one["authorization"] for one in seen} == {"Bearer t0ken"}
    assert {one["host"] for one in seen} == {f"localhost:{port}"}


@pytest.mark.parametrize(
    ("name", "handler", "why"),
    [
        (
            "redirect",
            lambda request: (307, {"location": "http://127.0.0.1:9/"}, b""),
            "Redirect to http://127.0.0.1:9/",
        ),
        ("down", lambda request: (500, {}, b"x"), "Server returned an error response"),
        ("page", lambda request: (200, {"content-type": "text/html"}, b"<p>"), "Unexpected content type: text/html"),
    ],
)
async def test_an_address_that_is_no_server_is_told(name: str, handler: Handler, why: str) -> None:
    """A redirect elsewhere is not followed, and no key goes there."""
    async with listening(handler) as (port, _):
        assert why in await outcome(f"http://127.0.0.1:{port}/mcp", headers={"authorization": "Bearer x"})


async def test_one_long_answer_in_a_stream_is_one_however_often_it_says_data() -> None:
    """Its words are not taken for events, of which there may not be too many."""

    def streamed(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        status, headers, data = answer(
            request, **{"tools/call": {"content": [{"type": "text", "text": "data: " * 5_000}]}}
        )
        return (
            status,
            {"content-type": "text/event-stream"} if data else headers,
            b"data: " + data + b"\n\n" if data else data,
        )

    async with listening(streamed) as (port, _):
        assert (await outcome(f"http://127.0.0.1:{port}/mcp")).startswith("data: data: ")


async def test_a_kind_of_content_that_is_not_known_costs_that_piece() -> None:
    """Also of an answer that says that it failed, and whatever the server says to clew itself."""
    content = [{"type": "text", "text": "so it is"}, {"type": "hologram", "data": "x"}]
    read = "so it is\n[left out: content of unknown type hologram]"
    said = {"content": content, "_meta": {"clew/content": [{"type": "text", "text": "not this"}]}}
    async with listening(lambda request: answer(request, **{"tools/call": said})) as (port, _):
        assert await outcome(f"http://127.0.0.1:{port}/mcp") == read
    failed = {**said, "isError": True}
    async with listening(lambda request: answer(request, **{"tools/call": failed})) as (port, _):
        assert await outcome(f"http://127.0.0.1:{port}/mcp") == f"error: {read}"


async def test_an_answer_that_is_too_large_or_compressed_is_not_taken() -> None:
    """Neither in one piece nor blown up from a small one."""

    def large(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        return answer(request, **{"tools/call": {"content": [{"type": "text", "text": "x" * 9_000_000}]}})

    def packed(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        status, headers, data = answer(request)
        return (
            status,
            {**headers, "content-encoding": "gzip"} if data else headers,
            gzip.compress(data) if data else b"",
        )

    async with listening(large) as (port, _):
        assert "the MCP server far does not work" in await outcome(f"http://127.0.0.1:{port}/mcp")
    async with listening(packed) as (port, _):
        assert "compresses its answer" in await outcome(f"http://127.0.0.1:{port}/mcp")


async def test_a_name_that_leads_to_this_machine_is_refused_and_a_key_does_not_go_out_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is connected to, whatever a resolver says."""
    addresses = {
        "inward.test": "127.0.0.1",
        "meta.test": "169.254.169.254",
        "outward.test": "93.184.216.34",
        "six.test": "::ffff:127.0.0.1",
    }
    known = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        return known(addresses.get(host, host), *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with listening(answer) as (port, seen):
        assert "leads to 127.0.0.1, an address of this machine" in await outcome(f"http://inward.test:{port}/mcp")
        assert "leads to 127.0.0.1" in await outcome(f"http://six.test:{port}/mcp")
        assert "leads to 169.254.169.254" in await outcome("http://meta.test/latest")
        said = await outcome("http://outward.test/mcp", headers={"authorization": "Bearer x"})
        assert "would go to outward.test unencrypted; use https" in said
        assert seen == []


async def test_a_server_that_stops_answering_is_connected_to_again_with_the_next_call() -> None:
    """Its session is left without waiting for a good-bye; the next one works."""
    kinds: list[str] = []
    called, forever = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower():
                size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                request = json.loads(await reader.readexactly(size)) if size else {"method": head.split()[0]}
                kinds.append(request["method"])
                begins = request["method"] in ("server/discover", "initialize")
                if not begins and "tools/call" in kinds and kinds.count("initialize") == 1:
                    called.set()
                    await forever.wait()
                status, more, data = (405, {}, b"") if request["method"] == "get" else answer(request)
                lines = [f"{key}: {value}" for key, value in {**more, "mcp-session-id": "x"}.items()]
                writer.write(
                    "\r\n".join([f"HTTP/1.1 {status} x", f"content-length: {len(data)}", *lines, "", ""]).encode()
                )
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    servers = {"far": {"url": url, "trust": True, "timeout_s": 4.0}}
    script = [call("mcp__far__big", {}), call("mcp__far__big", {}), say("done")]
    try:
        async with asyncio.timeout(30), served(*script, mcp_servers=servers, rules=[ALLOW]) as client:
            session_id = await client.session()
            await client.prompt(session_id, "go")
            await called.wait()
            await client.post(f"/api/sessions/{session_id}/abort")
            await client.idle(session_id)
            made = [told(one) for one in await ask(client, session_id, "go on")]
    finally:
        forever.set()
        server.close()
    assert (made, kinds.count("initialize")) == (["so it is"], 2)
