"""Slow and greedy peers on a real socket: what they may hold, when they are cut off, and who is served all the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config, ServerConfig
from clew.fronts.http import acceptor
from clew.fronts.http import request as bodies
from clew.fronts.http.app import make_app
from clew.fronts.http.auth import loopback_hosts
from clew.fronts.http.serve import Server
from clew.fronts.web import Page, PageFile
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.triggers.values.signature import sign
from tests.integration.http_client import TOKEN, SocketClient, chat_body, texts
from tests.integration.processes import LINE, SLOW, environment, words_of

AUTH = f"authorization: Bearer {TOKEN}\r\n"


class Peer:
    """A connection that says what it is told, and hears what it is told in return."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, data: str | bytes) -> None:
        self._writer.write(data if isinstance(data, bytes) else data.encode())

    async def answer(self) -> tuple[int, str | None]:
        """Status and code of one answer; (0, None) when the connection ends without one."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0, None
        return int(head.split(" ")[1]), json.loads(body).get("code")

    async def ended(self) -> bool:
        """Whether the other side ends it without another word, whenever that is."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read() == b""
        return True

    async def trickle(self, data: bytes) -> None:
        """Say the same again and again until the other side ends it."""
        while not self._writer.is_closing():
            self.say(data)
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.02):
                    if await self._reader.read() == b"":
                        return

    def leave(self) -> None:
        self._writer.transport.abort()


class Host:
    """A server that is up, and the connections a test has to it."""

    def __init__(self, port: int, engine: Engine) -> None:
        self.port = port
        self.engine = engine
        self.client = SocketClient(port)
        self.peers: list[Peer] = []

    async def peer(self, said: str = "") -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        peer.say(said.replace("HOST", f"host: 127.0.0.1:{self.port}"))
        return peer

    async def slow_delivery(self, first: int = 10) -> Peer:
        """Half of a delivery to a webhook; the rest never comes."""
        return await self.peer(f"POST /api/hooks/door HTTP/1.1\r\nHOST\r\ncontent-length: 100000\r\n\r\n{'x' * first}")

    async def slow_prompt(self, first: int) -> Peer:
        """Half of a body by somebody who has the token."""
        return await self.peer(
            f"POST /api/sessions HTTP/1.1\r\nHOST\r\n{AUTH}content-length: 1000000\r\n\r\n{'x' * first}"
        )

    async def stream(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return self.client.open("GET", "/api/events")

    async def delivered(self, secret: str, number: int) -> int:
        """An honest delivery, whole at once: its status."""
        stamp, name = int(time.time()), f"d{number}"
        signed: dict[str, str | None] = {
            "authorization": None,
            "webhook-id": name,
            "webhook-timestamp": str(stamp),
            "webhook-signature": sign(secret, name, stamp, b"{}"),
        }
        return (await self.client.post("/api/hooks/door", b"{}", headers=signed)).status


@contextlib.asynccontextmanager
async def hosting(page: Page | None = None, **limits: Any) -> AsyncIterator[Host]:
    providers = FakeProviders(ScriptedModel([say("done")] * 100))
    config = Config(server=ServerConfig(**limits))
    async with clew.open("memory:", config=config, providers=providers) as engine:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            app = make_app(engine, token=TOKEN, hosts=loopback_hosts(port), page=page)
            server = Server(app, listener, engine.config.server)
            server.config.load()
            await server.startup()
            host = Host(port, engine)
            try:
                yield host
            finally:
                for peer in host.peers:
                    peer.leave()
                for listening in server.servers:
                    listening.close()
                for connection in list(server.server_state.connections):
                    connection.transport.abort()
                while server.server_state.tasks:
                    await asyncio.wait(server.server_state.tasks)


async def add_webhook(host: Host) -> str:
    return str((await host.client.post("/api/hooks", {"name": "door"})).json()["secret"])


# Bodies


async def test_slow_bodies_on_the_open_webhook_route_make_room_for_honest_deliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eighty of them, where ten have room: the oldest are told and cut off, and every real delivery is taken."""
    monkeypatch.setattr(bodies, "SETTLED_S", 0.0)
    async with hosting(stranger_bodies=10) as host:
        secret = await add_webhook(host)
        slow = [await host.slow_delivery() for _ in range(80)]
        assert [await host.delivered(secret, number) for number in range(5)] == [202] * 5
        # All but those that have a place now; the deliveries took one each.
        told = [await peer.answer() for peer in slow[:71]]
        assert told == [(408, "body_too_slow")] * 71


async def test_slow_bodies_without_a_token_hold_no_more_than_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have sent counts, all of them together; what a peer with the token sends is not theirs."""
    monkeypatch.setattr(bodies, "SETTLED_S", 0.0)
    async with hosting(stranger_body_bytes=100_000) as host:
        secret = await add_webhook(host)
        slow = [await host.slow_delivery(60_000) for _ in range(20)]
        told = [await peer.answer() for peer in slow[:19]]
        assert told == [(408, "body_too_slow")] * 19
        assert await host.delivered(secret, 1) == 202
        assert (await host.client.post("/api/sessions", {"title": "x" * 400})).status == 201


async def test_a_crowd_that_came_just_now_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody makes room in its first moment: who is one too many hears so at once."""
    monkeypatch.setattr(bodies, "SETTLED_S", 3600.0)
    async with hosting(stranger_bodies=2) as host:
        slow = [await host.slow_delivery() for _ in range(2)]
        assert await (await host.slow_delivery()).answer() == (503, "server_busy")
        slow[0].leave()
        slow[1].leave()


async def test_unfinished_bodies_of_those_who_have_the_token_have_a_budget_too() -> None:
    """The one for which there is no room is refused; the others go on."""
    async with hosting(body_bytes=100_000) as host:
        first = await host.slow_prompt(60_000)
        second = await host.slow_prompt(60_000)
        assert await second.answer() == (503, "server_busy")
        first.leave()


@pytest.mark.parametrize("known", [False, True])
async def test_a_body_that_is_not_there_in_time_is_refused(known: bool) -> None:
    """408, and the connection ends: the rest is not waited for."""
    async with hosting(body_s=0.1) as host:
        peer = await (host.slow_prompt(10) if known else host.slow_delivery())
        assert await peer.answer() == (408, "body_too_slow")
        assert await peer.ended()


async def test_a_body_that_trickles_is_refused_long_before_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps nothing open: it is the rate from the beginning on that counts."""
    monkeypatch.setattr(bodies, "STRANGER_GRACE_S", 0.1)
    async with hosting(body_rate=1_000_000) as host:
        peer = await host.slow_prompt(10)
        await peer.trickle(b"x")


async def test_a_body_that_comes_in_many_pieces_is_taken() -> None:
    """Bodies are counted for as long as they come, not afterwards: one after the other passes the budget."""
    async with hosting(body_bytes=30_000, stranger_body_bytes=30_000) as host:
        body = json.dumps({"metadata": {"note": "x" * 19_000}})
        for _ in range(4):
            peer = await host.peer(f"POST /api/sessions HTTP/1.1\r\nHOST\r\n{AUTH}content-length: {len(body)}\r\n\r\n")
            for at in range(0, len(body), 2_000):
                peer.say(body[at : at + 2_000])
                await asyncio.sleep(0)
            assert (await peer.answer())[0] == 201


# Heads and connections that wait


async def test_a_head_that_trickles_is_cut_off() -> None:
    """One line of it after the other, for ever."""
    async with hosting(head_s=0.2) as host:
        peer = await host.peer("GET /api/health HTTP/1.1\r\nHOST\r\n")
        await peer.trickle(b"x-more: 1\r\n")


async def test_a_connection_that_waits_with_empty_lines_is_cut_off() -> None:
    """Between two requests nothing that is no request counts as one."""
    async with hosting(idle_s=0.2) as host:
        peer = await host.peer("GET /api/health HTTP/1.1\r\nHOST\r\n\r\n")
        assert (await peer.answer())[0] == 200
        await peer.trickle(b"\r\n")


async def test_a_body_that_goes_on_after_its_refusal_is_cut_off() -> None:
    """Without a token nobody reads it; sending it for ever keeps nothing open."""
    async with hosting(idle_s=0.2) as host:
        peer = await host.peer("POST /api/sessions HTTP/1.1\r\nHOST\r\ncontent-length: 9000000\r\n\r\nx")
        assert await peer.answer() == (401, "unauthorized")
        await peer.trickle(b"x")


async def test_a_stranger_that_leaves_a_file_of_the_page_unread_is_cut_off() -> None:
    """And the server holds a piece of the file for it, not the file."""
    big = PageFile(b"x" * 32_000_000, "text/plain", {"etag": "x"})
    async with hosting(Page(big, {}), head_s=0.2) as host:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", host.port))
            await loop.sock_sendall(deaf, f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{host.port}\r\n\r\n".encode())
            with contextlib.suppress(ConnectionError):
                # It reads nothing; a reset shows in what it sends.
                while True:
                    await loop.sock_sendall(deaf, b"\r\n")
                    await asyncio.sleep(0.01)


# Connections


async def test_above_the_limit_a_new_connection_hears_so_at_once_and_those_inside_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """503 before a word was said, one line in the log for all of them."""
    async with hosting(max_connections=8) as host, contextlib.AsyncExitStack() as watching:
        streams = [await watching.enter_async_context(await host.stream()) for _ in range(8)]
        watched = [stream.frames() for stream in streams]
        hello = [await anext(frames) for frames in watched]
        assert [event["type"] for event in hello] == ["hello"] * 8
        with caplog.at_level(logging.WARNING):
            told = [await (await host.peer()).answer() for _ in range(50)]
        assert told == [(503, "server_busy")] * 50
        lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(lines) <= 1
        session = await host.engine.create_session()
        outcome = await (await host.engine.submit(session.id, "hello")).wait()
        assert outcome.status == "completed"
        for frames in watched:
            async for event in frames:
                if event["type"] == "turn_finished":
                    break


async def test_strangers_make_room_for_whoever_has_the_token() -> None:
    """Sixty connections that say nothing, where sixteen have room: a call is answered between any two of them."""
    async with hosting(max_connections=16) as host, await host.stream() as stream:
        frames = stream.frames()
        await anext(frames)
        for _ in range(12):
            for _ in range(5):
                await host.peer()
            assert (await host.client.get("/api/sessions")).status == 200
        # Who has shown the token is not cut off for any of them.
        await host.client.session()
        assert (await anext(frames))["type"] == "session_created"


@pytest.mark.parametrize("said", ["", "GET /api/health HTTP/1.1\r\nHOST\r\nx-half: "], ids=["silent", "half a head"])
async def test_connections_without_a_request_make_room_at_once(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a time they have been open, no authenticated request is refused for them."""
    monkeypatch.setattr(acceptor, "SETTLED_S", 3600.0)
    async with hosting(max_strangers=16) as host:
        for _ in range(6):
            for _ in range(40):
                await host.peer(said)
            assert (await host.client.get("/api/sessions")).status == 200


async def test_a_request_that_is_being_answered_outlives_silent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery whose body is on its way is not cut for connections that came after it."""
    monkeypatch.setattr(acceptor, "SETTLED_S", 3600.0)
    async with hosting(max_strangers=4) as host:
        delivery = await host.slow_delivery(0)
        for _ in range(40):
            await host.peer()
        assert (await host.client.get("/api/sessions")).status == 200
        delivery.say(b"x" * 100_000)
        assert await delivery.answer() == (401, "signature_invalid")


async def test_strangers_have_fewer_places_than_all() -> None:
    """So many and no more, however many connections there may be: the first ones went."""
    async with hosting(max_strangers=10) as host:
        peers = [await host.peer() for _ in range(60)]
        assert (await host.client.get("/api/sessions")).status == 200
        assert [await peer.ended() for peer in peers[:51]] == [True] * 51


async def test_without_a_descriptor_left_connections_are_turned_away_and_nothing_spins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The process may open nothing more: each of forty hears 503, one line is logged, and afterwards all is well."""
    async with hosting() as host:
        knocking = [socket.socket() for _ in range(40)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken: list[int] = []
        loop = asyncio.get_running_loop()
        with caplog.at_level(logging.WARNING), contextlib.ExitStack() as kept:
            for one in knocking:
                kept.enter_context(one)
                one.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(one.fileno() for one in knocking) + 1, hard))
            try:
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.dup(0))
                spent = time.process_time()
                for one in knocking:
                    await loop.sock_connect(one, ("127.0.0.1", host.port))
                said = [await loop.sock_recv(one, 12) for one in knocking]
                spent = time.process_time() - spent
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for descriptor in taken:
                    os.close(descriptor)
        assert said == [b"HTTP/1.1 503"] * 40
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1
        assert spent < 1
        assert (await host.client.get("/api/sessions")).status == 200


@pytest.mark.service
async def test_at_the_descriptor_limit_a_server_cuts_silent_connections_and_keeps_recording(tmp_path: Path) -> None:
    """A store of files, which opens one with each write; 128 descriptors, and 150 connections that say nothing."""
    clew_bin = Path(sys.executable).with_name("clew")
    env = environment(tmp_path, CLEW_STORE=f"jsonl:{tmp_path}/store")
    command = f"ulimit -n 128; exec {clew_bin} serve --port 0"
    process = await asyncio.create_subprocess_exec("sh", "-c", command, env=env, cwd=tmp_path, stdout=PIPE, stderr=PIPE)
    try:
        assert process.stdout is not None
        match = LINE.fullmatch(await process.stdout.readline())
        assert match is not None
        client = SocketClient(int(match[1]), match[2].decode())
        session = await client.session(model="demo/long")
        async with client.open("POST", "/api/chat", chat_body(session, "300", model=SLOW)) as reply:
            frames = reply.frames()
            await words_of(frames, 3)
            knocking = [await asyncio.open_connection("127.0.0.1", client.port) for _ in range(150)]
            cut = [await Peer(*connection).ended() for connection in knocking[:20]]
            await words_of(frames, 20)
            for _, writer in knocking:
                writer.transport.abort()
        assert cut == [True] * 20
        while (answer := await client.post(f"/api/sessions/{session}/abort")).code == "server_busy":
            pass  # the server hears one after the other that they left
        assert answer.status == 202
        await client.idle(session)
        said = texts((await client.messages(session))[-1])
        assert len(said.split()) >= 23
    finally:
        process.kill()
        _, err = await process.communicate()
    assert len(err) < 10_000
