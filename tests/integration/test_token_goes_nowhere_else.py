"""The token goes to the server that has the store, on this machine, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from clew.errors import ClewError, NotFound, StoreUnavailable
from clew.fronts.cli.command import open_store
from clew.fronts.http.serve import find_url
from clew.fronts.remote import wire
from clew.fronts.remote.wire import BadAnswer, Gone, Wire
from clew.store.location import lock_of, parse_url
from clew.store.owner import read_owner
from tests.integration.processes import command, serving

pytestmark = [pytest.mark.rule("ST-9"), pytest.mark.service]

TOKEN = "the-users-own-secret-token"


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Somebody on this machine who writes down what he is sent, and answers as a server would."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65536))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


def told(path: Path, url: str, mode: int = 0o600) -> int:
    """An owner file that says so, open."""
    owner = path.with_name(path.name + ".owner")
    owner.unlink(missing_ok=True)
    owner.write_text(json.dumps({"pid": os.getpid(), "started_at": 1, "url": url}))
    owner.chmod(mode)
    return os.open(owner, os.O_RDWR)


def left_over(path: Path, url: str) -> int:
    """Nobody has it locked."""
    return told(path, url)


def open_to_others(path: Path, url: str) -> int:
    """Locked, but anybody on the machine can have done that."""
    fd = told(path, url, 0o644)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def a_link(path: Path, url: str) -> int:
    """Locked and private, and brought here by a link."""
    fd = told(path.with_name("real"), url)
    fcntl.flock(fd, fcntl.LOCK_EX)
    owner = path.with_name(path.name + ".owner")
    owner.unlink(missing_ok=True)
    owner.symlink_to(path.with_name("real.owner"))
    return fd


def elsewhere(path: Path, url: str) -> int:
    """Locked and private, and not an address of this machine's own."""
    fd = told(path, url.replace("http://", "http://user@"))
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


@pytest.mark.parametrize("crafted", [left_over, open_to_others, a_link, elsewhere])
@pytest.mark.parametrize("write", [False, True])
async def test_a_crafted_owner_file_gets_no_token(
    crafted: Callable[[Path, str], int], write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a file that is no store, as it comes with somebody else's project: nobody is even connected to."""
    monkeypatch.setenv("CLEW_TOKEN", TOKEN)
    path = tmp_path / "notes.db"
    path.write_text("these are no sessions")
    async with listening() as (url, heard):
        fd = crafted(path, url)
        with pytest.raises(ClewError):
            async with open_store(f"sqlite:///{path}", write=write) as engine:
                await engine.list_sessions()
        owner = read_owner(lock_of(parse_url(f"sqlite:///{path}")) or path)
        with pytest.raises(NotFound):
            find_url(owner.url if owner else None)
        os.close(fd)
    assert heard == []


@pytest.mark.parametrize("url", ["http://10.0.0.1:80", "http://example.com:80", "http://me@127.0.0.1:80"])
def test_the_wire_leads_nowhere_but_to_this_machine(url: str) -> None:
    """Whoever says so."""
    with pytest.raises(StoreUnavailable, match="not an address of this machine"):
        Wire(url, TOKEN)


async def test_a_redirect_and_a_proxy_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells to look elsewhere is no answer, and the environment names nobody in between."""
    async with listening() as (trap, heard):
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, trap)

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 307 Go there\r\nLocation: {trap}/\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()

        async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(BadAnswer, match="it answered 307, a redirect to"):
                await Wire(url, TOKEN).send("GET", "/api/sessions")
    assert heard == []


def shown(page: Path) -> tuple[int, str] | None:
    """The mode of a file, and where it leads; None when it is gone."""
    if not page.exists():
        return None
    found = re.search(r'content="0; url=([^"]+)"', page.read_text())
    return stat.S_IMODE(page.stat().st_mode), found[1] if found else ""


async def test_the_browser_is_started_without_the_token_and_a_stopped_server_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments name a file that only the user reads, which is gone afterwards; commands say what is wrong."""
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/args\n')
    script.chmod(0o700)
    os.mkfifo(tmp_path / "args")
    async with serving(tmp_path, "--open", BROWSER=f"{script} %s") as server:
        [given] = (await asyncio.to_thread((tmp_path / "args").read_text)).splitlines()
        assert server.client.token not in given
        page = Path(given.removeprefix("file://"))
        assert shown(page) == (0o600, f"http://127.0.0.1:{server.client.port}/#token={server.client.token}")
        # A command beside it, while it is stopped: its socket still takes connections.
        monkeypatch.setenv("CLEW_TOKEN", server.client.token)
        monkeypatch.setattr(wire, "_CONNECT_S", 0.2)
        monkeypatch.setattr(wire, "_SILENCE_S", 0.05)
        store = f"sqlite:///{tmp_path}/store.db"
        async with open_store(store, write=True) as engine:
            server.process.send_signal(signal.SIGSTOP)
            with pytest.raises(Gone, match="may be suspended"):
                await engine.list_sessions()
        stopped = rf"has not responded for 0\.2 seconds; it may be .*: resume or kill process {server.process.pid}"
        with pytest.raises(Gone, match=stopped):
            async with open_store(store, write=True):
                raise AssertionError("it was reached")
        async with open_store(store) as engine:
            assert (await engine.list_sessions()).sessions == ()
        server.process.send_signal(signal.SIGCONT)
        async with open_store(store, write=True) as engine:
            assert (await engine.list_sessions()).sessions == ()
        assert (await server.end(signal.SIGTERM))[0] == 0
    assert shown(page) is None
    assert (await command(tmp_path, "url"))[0] == 3
