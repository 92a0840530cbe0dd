"""An MCP server as somebody names it: a program to start, or an address. Who may name one is not known here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from clew.errors import InvalidInput
from clew.fit import fit
from clew.misfit import misfit

__all__ = ["McpServer", "check_servers", "read_server"]

_NAME: Final = re.compile(r"[a-z0-9](?:_?[a-z0-9-])*", re.ASCII)
_LONGEST_NAME: Final = 32
_PIN: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MOST: Final = 64
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=3_600)]


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One server: a ``command`` with its ``args``, or a ``url`` that speaks streamable HTTP.

    ``env`` is all that the program sees beside a short list (``PATH``, ``HOME`` and the like), ``headers`` go with each
    request; ``${NAME}`` in a value of either is that variable of clew's own environment. A program runs in ``cwd``,
    else in the session's workspace. ``timeout_s`` is how long one call may take, ``start_s`` the start.

    What it says its tools are is asked about before a model is told, unless the server is trusted (``trust``) or these
    are its definitions (``pin``); ``enabled`` leaves it out without forgetting it. A program runs as the server's user
    and in no sandbox, so sessions of owners have it only with ``owners``.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    timeout_s: _Seconds = 120.0
    start_s: _Seconds = 30.0
    trust: bool = False
    pin: str | None = None
    enabled: bool = True
    owners: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is written out here and may prove who somebody is."""
        words = (word for value in self.headers.values() for word in value.split())
        return tuple(word for word in (*self.env.values(), *words) if not word.startswith("${"))


def read_server(value: Any, name: str) -> McpServer:
    """A server as data. Raises ``InvalidInput``."""
    try:
        server = value if isinstance(value, McpServer) else fit(value, McpServer, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the MCP server {name} does not read: {misfit(error, McpServer)}") from error
    check_servers({name: server})
    return server


def check_servers(servers: Mapping[str, McpServer]) -> None:
    """Raises ``InvalidInput`` for a server that could not be one, and for too many of them."""
    if len(servers) > _MOST:
        raise InvalidInput(f"{len(servers)} MCP servers are more than the {_MOST} that are taken")
    for name, server in servers.items():
        if problem := _problem(name, server):
            raise InvalidInput(f"the MCP server {name!r}: {problem}")


def _problem(name: str, server: McpServer) -> str | None:
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return "its name is 1 to 32 of a-z, 0-9, - and single _, and begins with a letter or digit"
    if (server.command is None) == (server.url is None):
        return "it needs either a command to start, or a url to ask"
    if server.command is not None and (not server.command.strip() or server.headers):
        return "headers are for a url, not for a command" if server.headers else "its command is empty"
    if server.pin is not None and not _PIN.fullmatch(server.pin):
        return "pin is sha256: and 64 hex digits, as `clew mcp-servers` shows them"
    if server.url is None:
        return None
    if server.owners:
        return "owners is only for a command: sessions of owners have every server with a url"
    if server.args or server.env or server.cwd:
        return "args, env and cwd are for a command, not for a url"
    try:
        url = urlsplit(server.url)
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return "put the user and password of its url into headers" if "@" in url.netloc else None
    except ValueError:
        pass
    return "its url is http://… or https://…"
