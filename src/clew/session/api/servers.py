"""MCP servers: their list, their state, and servers given to a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import InvalidInput, NotFound
from clew.mcp_server import McpServer, read_server
from clew.session.api.base import EnginePart

if TYPE_CHECKING:
    from clew.tools.mcp_tools import ServerScope, ServerState

__all__ = ["Servers"]


class Servers(EnginePart):
    """The operations on MCP servers, for the operator of the host: a server runs their program or uses their key."""

    async def mcp_servers(
        self, *, session_id: str | None = None, workspace: str | Path | None = None
    ) -> tuple[ServerState, ...]:
        """Return the servers of the config, by name; for a session all it has, including its own and its agent's."""
        servers = self._host.servers
        return servers.states(await self._server_scope(session_id, workspace)) if servers is not None else ()

    async def start_mcp_server(
        self, name: str, *, session_id: str | None = None, workspace: str | Path | None = None
    ) -> ServerState:
        """Start a server, or reload its tools. A failure is part of the returned state."""
        server_scope = await self._server_scope(session_id, workspace)
        servers = self._host.servers
        if servers is None or name not in servers.names(server_scope):
            raise NotFound(f"there is no MCP server {name!r}; add it to your config.toml", server=name)
        await servers.refresh(server_scope, name)
        return next(one for one in servers.states(server_scope) if one.name == name)

    async def give_mcp_servers(
        self, session_id: str, servers: Mapping[str, McpServer | Mapping[str, Any]]
    ) -> tuple[ServerState, ...]:
        """Give a session its own servers, replacing those given before. They last as long as this process, so the
        client must give them again after a restart."""
        session = await self._get_session(session_id)
        if self._host.servers is None:
            raise InvalidInput("this host has no MCP servers")
        self._host.servers.give(session.id, {name: read_server(one, name) for name, one in servers.items()})
        return await self.mcp_servers(session_id=session.id)

    async def _server_scope(self, session_id: str | None, workspace: str | Path | None) -> ServerScope:
        from clew.session.turn.mcp_tools import find_scope
        from clew.tools.mcp_tools import ServerScope

        if session_id is not None:
            return await find_scope(self._host, await self._get_session(session_id))
        return ServerScope(session_id="", owner=self.owner, workspace=await self._resolve_workspace(workspace))
