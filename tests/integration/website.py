"""A site on loopback for web_fetch, with names of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from clew.tools.base import Signal
from clew.tools.builtin.web_fetch import make_web_fetch
from clew.tools.web.fetch import Fetcher, Limits
from clew.tools.web.url import Address, public_only
from tests.unit.test_tools_support import Permits, context_of

LOOPBACK = ip_address("127.0.0.1")
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def loopback_too(address: Address) -> str | None:
    return None if address == LOOPBACK else public_only(address)


def in_short(value: object) -> str:
    return repr(value)[-60:]


class Zone:
    """Names for the tests; each answer in turn, the last one for ever. Keeps what it was asked."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[Address]:
        self.asked.append(host)
        answers = self.names[host]
        return [ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0]).split()]


class Site:
    """A server that answers each path with the bytes given, and closes. Keeps the requests."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.port = 0
        self.gate = asyncio.Event()

    def url(self, path: str = "/", host: str = "site.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            self.requests.append(head)
            answer = self.pages[head.split(" ")[1]]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    yield site
    site.gate.set()
    server.close()
    await server.wait_closed()


def page(
    body: bytes | str, content_type: str = "text/plain; charset=utf-8", status: str = "200 OK", *more: str
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    headers = [f"Content-Type: {content_type}", f"Content-Length: {len(data)}", *more]
    return f"HTTP/1.1 {status}\r\n{''.join(f'{line}' + chr(13) + chr(10) for line in headers)}\r\n".encode() + data


ZONE: dict[str, Sequence[str]] = {"site_test": ["127.0.0.1"], "other_test": ["127.0.0.1"], "inner_test": ["10.0.0.1"]}


async def fetch(
    site: Site,
    path: str = "/",
    *,
    zone: Zone | None = None,
    permits: Permits | None = None,
    signal: Signal | None = None,
    tmp_path: Path = Path("/nonexistent"),
    format_: str = "text",
    url: str | None = None,
    **limits: Any,
) -> str:
    fetcher = Fetcher(policy=loopback_too, resolve=zone or Zone(**ZONE), limits=Limits(**limits))
    context = context_of(tmp_path, permit=permits or Permits(), signal=signal)
    args = {"url": url or site.url(path), "format": format_}
    told: str = (await make_web_fetch(fetcher).execute(args, context)).value
    return told
