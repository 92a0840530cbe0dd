"""Strict parsing of URLs, where each host has one spelling, and the policy for addresses to connect to.

Programs disagree about unusual URLs, and attacks use the difference: one finds the host before an ``@`` or a backslash,
another after it; one takes ``0x7f.1`` for a name, another for an address. A URL that could be parsed in two ways is
refused.

By default only addresses of the public internet are allowed. The table next to this module follows IANA's registries of
special-purpose addresses. An address that contains another one (IPv4-mapped, 6to4, NAT64, Teredo, ISATAP) is always
refused: no public site needs it.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from clew.errors import ToolFailed

__all__ = ["Address", "AddressPolicy", "Url", "join_url", "parse_url", "public_only"]


Address: TypeAlias = IPv4Address | IPv6Address
AddressPolicy: TypeAlias = Callable[[Address], str | None]
"""Returns the reason why an address is refused, or None."""

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
MAX_URL_CHARS: Final = 4096
_PORTS: Final = {"http": 80, "https": 443}
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
# The last label of a name is never a number, and an address has only one spelling.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
# Characters that need no escape in the request line; a percent sign is taken as part of an escape.
_SAFE: Final = "/?:@!$&'()*+,;=-._~%[]"


# An invalid table raises, and nothing is fetched.
@cache
def _special_networks() -> list[tuple[IPv4Network | IPv6Network, str]]:
    table = tomllib.loads(files(__package__).joinpath("addresses.toml").read_text("utf-8"))
    return [(ip_network(network), reason) for network, reason in table.items()]


def public_only(address: Address) -> str | None:
    """Return why this address is not a public one, or None. The default policy."""
    reason = next((reason for network, reason in _special_networks() if address in network), None)
    if reason is not None or isinstance(address, IPv4Address):
        return reason
    if address.scope_id is not None:
        return "names a network interface"
    if address not in _GLOBAL_UNICAST:
        return "is not a public address"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "carries an IPv4 address (ISATAP)"
    return None


class Url(msgspec.Struct, frozen=True):
    """A parsed URL. ``host`` is in lower case and ASCII; ``address`` is set when it is a literal one."""

    scheme: str
    host: str
    port: int
    request: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.request}"


def parse_url(text: str) -> Url:
    """Return the parsed URL. Raise ``ToolFailed`` with the problem if it is not valid."""
    if len(text) > MAX_URL_CHARS:
        raise ToolFailed(f"the URL is longer than {MAX_URL_CHARS:,} characters")
    if any(char == "\\" or unicodedata.category(char)[0] in "CZ" for char in text):
        raise ToolFailed("the URL holds a space, a control character or a backslash")
    try:
        split = urlsplit(text)
    except ValueError as error:
        raise ToolFailed(f"the URL cannot be read: {error}") from error
    if split.scheme not in _PORTS:
        raise ToolFailed("only http and https URLs can be fetched")
    if "@" in split.netloc:
        raise ToolFailed("the URL contains a user name; leave out the part before the @")
    netloc = re.fullmatch(r"(\[[^\[\]]*\]|[^\[\]:]+)(?::([0-9]{1,5}))?", split.netloc, re.ASCII)
    if netloc is None:
        raise ToolFailed("the URL has no host, or one that cannot be read")
    host, address = _host(netloc[1])
    port = _PORTS[split.scheme] if netloc[2] is None else int(netloc[2])
    if not 1 <= port <= 65535:
        raise ToolFailed("the URL's port must be between 1 and 65535")
    path = quote(split.path or "/", safe=_SAFE)
    if not path.startswith("/"):
        path = "/" + path
    query = f"?{quote(split.query, safe=_SAFE)}" if split.query else ""
    return Url(split.scheme, host, port, path + query, address)


def join_url(base: Url, location: str) -> Url:
    """Return the URL of a redirect, parsed as strictly as the first URL."""
    try:
        return parse_url(urljoin(str(base), location))
    except ValueError as error:
        raise ToolFailed(f"the redirect cannot be read: {error}") from error


def _host(raw: str) -> tuple[str, Address | None]:
    if raw.startswith("["):
        try:
            six = IPv6Address(raw[1:-1])
        except ValueError as error:
            raise ToolFailed(f"{raw} is not an IPv6 address") from error
        if six.scope_id is not None:
            raise ToolFailed("an address with a network interface cannot be fetched from")
        return six.compressed, six
    # Converted to ASCII first, which turns look-alike digits and dots into plain ones.
    try:
        host = raw.lower() if raw.isascii() else raw.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise ToolFailed(f"{raw[:100]!r} is not the name of a host") from error
    host = host.removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            four = IPv4Address(host)
        except ValueError as error:
            raise ToolFailed(f"{host} is an odd spelling of an address; write it as four decimal numbers") from error
        return str(four), four
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ToolFailed(f"{host[:100]!r} is not the name of a host")
    return host, None
