"""Fetching of a URL: each hop is parsed, permitted, resolved, checked, and fetched from the checked address.

A name is resolved once per hop, and the connection goes to one of the checked addresses, so a different second answer
(rebinding) has no effect. One refused address refuses the host. Neither proxies nor the host's own cookies or
credentials are used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Final, TypeAlias

import msgspec

from clew.errors import ToolFailed
from clew.tools.thread import run_in_thread
from clew.tools.web.address import Address, AddressPolicy, public_only
from clew.tools.web.url import Url, join_url, parse_url
from clew.tools.web.wire import Answer, Unreachable, exchange
from clew.transcript.rule import Target

__all__ = ["Fetcher", "Limits", "Page", "Resolve", "resolve_name"]

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[Address]]]
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_ADDRESSES: Final = 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a fetch."""

    redirects: int = 5
    connect_s: float = 10.0
    total_s: float = 30.0
    max_bytes: int = 5 * 1024 * 1024


class Page(msgspec.Struct, frozen=True):
    """The last answer, with its URL."""

    url: Url
    answer: Answer


async def resolve_name(host: str) -> Sequence[Address]:
    """Resolve a name with the system's resolver; in a thread, because it blocks and cannot be interrupted."""

    def look_up() -> Sequence[Address]:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))

    return await run_in_thread(look_up)


class Fetcher:
    """A client for pages. ``policy`` decides which addresses are refused; tests that need loopback replace it."""

    def __init__(
        self,
        *,
        policy: AddressPolicy = public_only,
        resolve: Resolve = resolve_name,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._policy = policy
        self._resolve = resolve
        self._tls = tls

    async def get(self, text: str, permit: Callable[[Target], Awaitable[None]]) -> Page:
        """Follow ``text`` to its answer. Raises ``ToolFailed``, and what ``permit`` raises."""
        try:
            async with asyncio.timeout(self.limits.total_s):
                url = parse_url(text)
                for _ in range(self.limits.redirects + 1):
                    # Before the name is resolved: a query would reveal a host that is not allowed.
                    await permit(Target("web_fetch", "host", url.host))
                    answer = await self._fetch(url)
                    location = answer.headers.get("location")
                    if answer.status not in _REDIRECTS or not location:
                        return Page(url, answer)
                    # Headers were decoded byte by byte; decode a location in UTF-8.
                    url = join_url(url, location.encode("latin-1").decode("utf-8", "replace"))
                raise ToolFailed(f"the page redirects more than {self.limits.redirects} times")
        except TimeoutError as error:
            raise ToolFailed(f"the page did not arrive within {self.limits.total_s:g} s") from error

    async def _fetch(self, url: Url) -> Answer:
        """Return the answer of the first reachable address, after all of them were checked."""
        addresses: Sequence[Address] = [] if url.address is None else [url.address]
        if url.address is None:
            try:
                async with asyncio.timeout(self.limits.connect_s):
                    addresses = await self._resolve(url.host)
            except TimeoutError as error:
                raise ToolFailed(f"the name {url.host} was not resolved in time") from error
            except (OSError, UnicodeError, ValueError) as error:
                raise ToolFailed(f"the name {url.host} cannot be resolved: {error}") from error
        # One refused address refuses the host: its name server must not choose which address is used.
        for address in addresses:
            if reason := self._policy(address):
                raise ToolFailed(f"{url.host} is not fetched: its address {address} {reason}")
        if url.scheme == "https" and self._tls is None:
            # Loading the certificates is slow; it is done once.
            self._tls = await run_in_thread(ssl.create_default_context)
        tls = self._tls if url.scheme == "https" else None
        last_error = Unreachable(f"{url.host} has no address")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await exchange(
                    url, address, tls=tls, max_bytes=self.limits.max_bytes, connect_s=self.limits.connect_s
                )
            except Unreachable as error:
                last_error = error
        raise last_error
