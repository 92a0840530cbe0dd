"""MCP servers that an editor gives a session, as clew takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clew.errors import InvalidInput
from clew.fronts.acp import params as a
from clew.mcp_server import McpServer, check_servers

__all__ = ["name_servers"]

_NO_NAME: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_LONGEST: Final = 32


def name_servers(given: Sequence[a.McpServer]) -> dict[str, McpServer]:
    """The servers by names that tools can be called by; two that would be called alike are told apart."""
    servers: dict[str, McpServer] = {}
    for one in given:
        plain = _NO_NAME.sub("-", one.name.lower()).strip("-")[:_LONGEST].strip("-") or "server"
        name, number = plain, 1
        while name in servers:
            number += 1
            name = f"{plain[: _LONGEST - 4]}-{number}"
        if one.type == "sse":
            raise InvalidInput(f"the MCP server {one.name!r} speaks SSE, which is not spoken here; http is")
        headers, env = ({pair.name: pair.value for pair in pairs} for pairs in (one.headers, one.env))
        if one.url is not None:
            servers[name] = McpServer(url=one.url, headers=headers)
        else:
            servers[name] = McpServer(command=one.command, args=one.args, env=env)
    check_servers(servers)
    return servers
