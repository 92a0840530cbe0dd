"""Tools that come from servers: what a run asks of whoever keeps them. What a server is, is not known here.

A server says what its tools are, and may say something else tomorrow; a model is told of none before somebody has
taken these very definitions. Until then, and where a server cannot be reached, there is its *door* in their place: a
tool whose call asks for that, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from clew.mcp_server import McpServer
from clew.tools.base import Tool

__all__ = ["ALLOWED", "PREFIX", "Listening", "Place", "Served", "ServerState", "ToolServers"]

PREFIX: Final = "mcp__"
"""Names of tools that come from servers begin so."""
ALLOWED: Final = "servers allowed once"
"""Where a session's tools keep which definitions were taken for as long as this process works on it."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where tools are asked for. ``servers`` are the agent's: the host's by name, or its own; None for all of them."""

    session_id: str
    owner: str | None
    workspace: Path | None
    servers: Mapping[str, McpServer | None] | None = None


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What one server has. ``digest`` names its definitions, None while nobody knows them. ``trusted``: nobody is asked
    about them."""

    name: str
    door: Tool
    tools: tuple[Tool, ...] = ()
    digest: str | None = None
    trusted: bool = False


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """A server as people are told of it. ``digest`` names the definitions it gave last, ``told`` says them out;
    ``notices`` say which tools of it are left out, and why. ``runs`` counts the connections there are to it now."""

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


class Listening(Protocol):
    """Somebody hears of a resource until this is closed."""

    def close(self) -> None: ...


class ToolServers(Protocol):
    """The servers of a host."""

    def names(self, place: Place) -> tuple[str, ...]:
        """The servers that this place has."""
        ...

    async def serve(self, place: Place, names: tuple[str, ...]) -> tuple[Served, ...]:
        """What these have; one that nobody knows yet is started, and waited for as long as it may take to start."""
        ...

    async def renew(self, place: Place, name: str) -> None:
        """Ask a server again what its tools are, and start it for that. What is wrong shows in its state."""
        ...

    def late_tool(self, place: Place, name: str) -> Tool | None:
        """A tool by the name a model knows it by, of a server that may not run yet."""
        ...

    def states(self, place: Place) -> tuple[ServerState, ...]:
        """The servers that this place has, and how they are."""
        ...

    def listen(
        self,
        place: Place,
        name: str,
        uri: str,
        heard: Callable[[], None],
        told: Callable[[str | None], None],
    ) -> Listening:
        """Be told whenever a resource of a server changes, which is kept running for that; and what is wrong with that,
        or that nothing is any more. Raises ``InvalidInput`` where there is no such server."""
        ...

    def give(self, session_id: str, servers: Mapping[str, McpServer]) -> None:
        """The servers of one session, in the place of those it was given before."""
        ...

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        ...

    async def close(self) -> None: ...
