"""MCP servers: which there are, how they are, and what a session is given of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.engine.base import EnginePart
from clew.errors import InvalidInput, NotFound
from clew.mcp_server import McpServer, read_server

if TYPE_CHECKING:
    from clew.tools.served import Place, ServerState

__all__ = ["Servers"]


class Servers(EnginePart):
    """For whoever the host is: a server is a program of theirs, or holds a key of theirs."""

    async def mcp_servers(
        self, *, session_id: str | None = None, workspace: str | Path | None = None
    ) -> tuple[ServerState, ...]:
        """The servers of the config, by name; of a session those that it has, its own and its agent's too."""
        servers = self._host.servers
        return servers.states(await self._place_of(session_id, workspace)) if servers is not None else ()

    async def start_mcp_server(
        self, name: str, *, session_id: str | None = None, workspace: str | Path | None = None
    ) -> ServerState:
        """Start a server, or ask it again what its tools are. That it does not work is what it then says of itself."""
        place = await self._place_of(session_id, workspace)
        servers = self._host.servers
        if servers is None or name not in servers.names(place):
            raise NotFound(f"there is no MCP server {name!r} here; name it in your config.toml", server=name)
        await servers.renew(place, name)
        return next(one for one in servers.states(place) if one.name == name)

    async def give_mcp_servers(
        self, session_id: str, servers: Mapping[str, McpServer | Mapping[str, Any]]
    ) -> tuple[ServerState, ...]:
        """Give a session servers of its own, in the place of those it was given before. They are kept as long as this
        process: whoever gives them does so again."""
        session = await self._find_own(session_id)
        if self._host.servers is None:
            raise InvalidInput("this host has no MCP servers")
        self._host.servers.give(session.id, {name: read_server(one, name) for name, one in servers.items()})
        return await self.mcp_servers(session_id=session.id)

    async def _place_of(self, session_id: str | None, workspace: str | Path | None) -> Place:
        from clew.runtime.served_tools import find_place
        from clew.tools.served import Place

        if session_id is not None:
            return await find_place(self._host, await self._find_own(session_id))
        return Place(session_id="", owner=self.owner, workspace=await self._place(workspace))
