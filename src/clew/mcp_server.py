"""The definition of an MCP server: a program to start, or a URL. Who may define one is decided elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from clew.convert import convert, explain_type_error
from clew.errors import InvalidInput

__all__ = ["McpServer", "check_servers", "read_server"]

_NAME: Final = re.compile(r"[a-z0-9](?:_?[a-z0-9-])*", re.ASCII)
_MAX_NAME_CHARS: Final = 32
_PIN: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MAX_SERVERS: Final = 64
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=3_600)]


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One MCP server: a program or an address.

    A person must approve its tool definitions before the model sees them, unless the server is trusted or the
    definitions match ``pin``. ``${NAME}`` in a value of ``env`` or ``headers`` is replaced by that variable of clew's
    environment.
    """

    command: str | None = None
    """The program that is started."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = {}
    """Its environment, next to ``PATH``, ``HOME`` and the like; it sees no other variables."""
    cwd: str | None = None
    """Its working folder. Default: the session's workspace."""
    url: str | None = None
    """The address of a server that speaks streamable HTTP, instead of a command."""
    headers: dict[str, str] = {}
    """Headers of each request to the address."""
    timeout_s: _Seconds = 120.0
    """The limit of one call."""
    start_s: _Seconds = 30.0
    """The limit of the start."""
    trust: bool = False
    """Use its tools without approval of their definitions."""
    pin: str | None = None
    """The digest of the definitions that are approved."""
    enabled: bool = True
    """False: not used, without removing it."""
    owners: bool = False
    """Sessions of owners may use it, although it runs as the server's user and outside the sandbox."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the literal values that may be credentials."""
        tokens = (token for value in self.headers.values() for token in value.split())
        return tuple(token for token in (*self.env.values(), *tokens) if not token.startswith("${"))


def read_server(value: Any, name: str) -> McpServer:
    """Return a server from data. Raises ``InvalidInput``."""
    try:
        server = value if isinstance(value, McpServer) else convert(value, McpServer, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the MCP server {name} is invalid: {explain_type_error(error, McpServer)}") from error
    check_servers({name: server})
    return server


def check_servers(servers: Mapping[str, McpServer]) -> None:
    """Raise ``InvalidInput`` for an invalid server, or for too many of them."""
    if len(servers) > _MAX_SERVERS:
        raise InvalidInput(f"{len(servers)} MCP servers given; at most {_MAX_SERVERS} are allowed")
    for name, server in servers.items():
        if problem := _problem(name, server):
            raise InvalidInput(f"the MCP server {name!r}: {problem}")


def _problem(name: str, server: McpServer) -> str | None:
    if len(name) > _MAX_NAME_CHARS or not _NAME.fullmatch(name):
        return "its name must be 1 to 32 of a-z, 0-9, - and single _, starting with a letter or digit"
    if (server.command is None) == (server.url is None):
        return "it needs either a command or a url"
    if server.command is not None and (not server.command.strip() or server.headers):
        return "headers are for a url, not for a command" if server.headers else "its command is empty"
    if server.pin is not None and not _PIN.fullmatch(server.pin):
        return "pin must be sha256: and 64 hex digits, as shown by `clew mcp-servers`"
    if server.url is None:
        return None
    if server.owners:
        return "owners is only for a command: sessions of owners can use every server with a url"
    if server.args or server.env or server.cwd:
        return "args, env and cwd are for a command, not for a url"
    try:
        url = urlsplit(server.url)
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return "move the user and password of its url into headers" if "@" in url.netloc else None
    except ValueError:
        pass
    return "its url must be http://… or https://…"
