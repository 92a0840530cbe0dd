"""The contract for tools of MCP servers, without the protocol.

A server lists its tools, and may list others tomorrow; a model sees none of them before a person has accepted exactly
these definitions. Until then, and while a server cannot be reached, the model has the server's *placeholder tool*: its
call asks for approval, or reports the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from clew.mcp_server import McpServer
from clew.tools.base import Tool

__all__ = ["ALLOWED", "PREFIX", "ResourceSubscription", "ServedTools", "ServerScope", "ServerState", "ToolServers"]

PREFIX: Final = "mcp__"
"""Prefix of the names of tools from servers."""
ALLOWED: Final = "servers allowed once"
"""Key in the tools' state of a session: definitions accepted until this process releases the session."""


class ServerScope(msgspec.Struct, frozen=True, kw_only=True):
    """The scope that decides which servers a session has. ``servers`` are its agent's: the host's by name (None as
    value), or its own; None stands for all of the host's."""

    session_id: str
    owner: str | None
    workspace: Path | None
    servers: Mapping[str, McpServer | None] | None = None


class ServedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one server. ``digest`` identifies their definitions, None while they are unknown. ``trusted``: they
    need no approval."""

    name: str
    placeholder: Tool
    tools: tuple[Tool, ...] = ()
    digest: str | None = None
    trusted: bool = False


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """A server as shown to people. ``digest`` identifies the definitions it listed last, ``told`` is their text;
    ``notices`` say which of its tools are left out, and why. ``runs`` counts its open connections."""

    name: str
    kind: Literal["command", "url"]
    target: str
    source: Literal["user", "session", "agent"]
    state: Literal["off", "idle", "starting", "ready", "failed"]
    runs: int = 0
    error: str | None = None
    digest: str | None = None
    trusted: bool = False
    tools: tuple[str, ...] = ()
    told: str = ""
    notices: tuple[str, ...] = ()


class ResourceSubscription(Protocol):
    """A subscription to a resource, until it is closed."""

    def close(self) -> None: ...


class ToolServers(Protocol):
    """The servers of a host."""

    def names(self, scope: ServerScope) -> tuple[str, ...]:
        """Return the names of the servers in this scope."""
        ...

    async def serve(self, scope: ServerScope, names: tuple[str, ...]) -> tuple[ServedTools, ...]:
        """Return the tools of these servers. A server whose definitions are unknown is started and waited for, up to
        its start timeout."""
        ...

    async def refresh(self, scope: ServerScope, name: str) -> None:
        """Start a server and list its tools again. A failure shows in its state."""
        ...

    def late_tool(self, scope: ServerScope, name: str) -> Tool | None:
        """Return a tool by the model's name for it; its server need not run yet."""
        ...

    def states(self, scope: ServerScope) -> tuple[ServerState, ...]:
        """Return the state of each server in this scope."""
        ...

    def subscribe(
        self,
        scope: ServerScope,
        name: str,
        uri: str,
        on_change: Callable[[], None],
        on_problem: Callable[[str | None], None],
    ) -> ResourceSubscription:
        """Report each change of a server's resource to ``on_change`` and keep the server running for it. ``on_problem``
        gets an error, or None once it is over. Raises ``InvalidInput`` if there is no such server."""
        ...

    def give(self, session_id: str, servers: Mapping[str, McpServer]) -> None:
        """Set a session's own servers, replacing the previous ones."""
        ...

    def forget(self, session_id: str) -> None:
        """Drop a session's own servers."""
        ...

    async def close(self) -> None: ...
