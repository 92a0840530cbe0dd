"""Conversion of the MCP servers that an editor configures for a session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clew.errors import InvalidInput
from clew.fronts.acp import params as a
from clew.mcp_server import McpServer, check_servers

__all__ = ["name_servers"]

_INVALID: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_LONGEST: Final = 32


def name_servers(given: Sequence[a.McpServer]) -> dict[str, McpServer]:
    """Return the servers by names valid in tool names; a second server of the same name gets a number."""
    servers: dict[str, McpServer] = {}
    for one in given:
        plain = _INVALID.sub("-", one.name.lower()).strip("-")[:_LONGEST].strip("-") or "server"
        name, number = plain, 1
        while name in servers:
            number += 1
            name = f"{plain[: _LONGEST - 4]}-{number}"
        if one.type == "sse":
            raise InvalidInput(f"MCP server {one.name!r}: SSE transport is not supported; use http")
        headers, env = ({pair.name: pair.value for pair in pairs} for pairs in (one.headers, one.env))
        if one.url is not None:
            servers[name] = McpServer(url=one.url, headers=headers)
        else:
            servers[name] = McpServer(command=one.command, args=one.args, env=env)
    check_servers(servers)
    return servers
