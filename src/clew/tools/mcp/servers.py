"""The MCP servers of a host, with one connection for each workspace of each owner that uses a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from clew.clock import Clock
from clew.errors import InvalidInput, ToolFailed
from clew.mcp_server import McpServer, check_servers
from clew.tools.base import Tool
from clew.tools.mcp.connection import Connection
from clew.tools.mcp.definitions import Definitions, placeholder_name
from clew.tools.mcp.tool import PlaceholderTool, ServerTool, is_trusted
from clew.tools.mcp_tools import PREFIX, ResourceSubscription, ServedTools, ServerScope, ServerState

__all__ = ["McpServers"]

_MAX_CONNECTIONS: Final = 64
_MAX_SESSIONS: Final = 1_000

Source = Literal["user", "session", "agent"]


class McpServers:
    """The MCP servers of a host. A server is started by its first use."""

    def __init__(self, servers: Mapping[str, McpServer], clock: Clock) -> None:
        check_servers(servers)
        self._clock = clock
        self._servers = dict(servers)
        self._session_servers: dict[str, dict[str, McpServer]] = {}
        # The one used last is at the end.
        self._connections: dict[tuple[str, ...], Connection] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def names(self, scope: ServerScope) -> tuple[str, ...]:
        return tuple(name for name, server, _ in self._servers_of(scope) if server.enabled)

    def _servers_of(self, scope: ServerScope) -> Iterator[tuple[str, McpServer, Source]]:
        """Yield the servers by name; a session's own take precedence over its agent's, and these over the host's. An
        owner gets no program that is not marked for owners: it would run as the server's user."""
        found: dict[str, tuple[McpServer, Source]] = {
            name: (server, "user")
            for name, server in self._servers.items()
            if scope.servers is None or name in scope.servers
        }
        for name, server in (scope.servers or {}).items():
            if server is not None:
                found[name] = server, "agent"
        for name, server in self._session_servers.get(scope.session_id, {}).items():
            found[name] = server, "session"
        for name, (server, source) in sorted(found.items()):
            if scope.owner is None or server.command is None or server.owners:
                yield name, server, source

    async def serve(self, scope: ServerScope, names: tuple[str, ...]) -> tuple[ServedTools, ...]:
        found = [self._connection(scope, name, server) for name, server, _ in self._servers_of(scope) if name in names]
        loop = asyncio.get_running_loop()
        # An idle server whose definitions are known is started by the first call.
        tasks = {
            connection: loop.create_task(connection.ready())
            for connection in found
            if connection.known is None or connection.is_stale
        }
        try:
            # Bounded by each server's start timeout; one that fails is not started again for longer than that.
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        finally:
            for task in tasks.values():
                task.cancel()
        return tuple(_served(connection, tasks.get(connection)) for connection in found)

    async def refresh(self, scope: ServerScope, name: str) -> None:
        server = next(server for server_name, server, _ in self._servers_of(scope) if server_name == name)
        connection = self._connection(scope, name, server)
        with contextlib.suppress(ToolFailed):
            await connection.ready(refresh=True)

    def late_tool(self, scope: ServerScope, name: str) -> Tool | None:
        for server_name, server, _ in self._servers_of(scope):
            if server.enabled and name == placeholder_name(server_name):
                connection = self._connection(scope, server_name, server)
                return PlaceholderTool(connection, connection.known)
            if server.enabled and name.startswith(f"{PREFIX}{server_name}__"):
                return ServerTool(self._connection(scope, server_name, server), name)
        return None

    def states(self, scope: ServerScope) -> tuple[ServerState, ...]:
        return tuple(self._state(name, server, source) for name, server, source in self._servers_of(scope))

    def subscribe(
        self,
        scope: ServerScope,
        name: str,
        uri: str,
        on_change: Callable[[], None],
        on_problem: Callable[[str | None], None],
    ) -> ResourceSubscription:
        for server_name, server, _ in self._servers_of(scope):
            if server_name == name and server.enabled:
                return self._connection(scope, name, server).subscribe(uri, on_change, on_problem)
        raise InvalidInput(f"no MCP server named {name!r}", server=name)

    def give(self, session_id: str, servers: Mapping[str, McpServer]) -> None:
        check_servers(servers)
        if session_id not in self._session_servers and len(self._session_servers) >= _MAX_SESSIONS:
            raise InvalidInput(f"more than {_MAX_SESSIONS} sessions have their own MCP servers")
        if self._session_servers.get(session_id) != dict(servers):
            self.forget(session_id)
            self._session_servers[session_id] = dict(servers)

    def forget(self, session_id: str) -> None:
        if self._session_servers.pop(session_id, None) is not None:
            for key in [key for key in self._connections if key[-1] == session_id]:
                self._drop(key)

    async def close(self) -> None:
        for key in list(self._connections):
            self._drop(key)
        if self._ending:
            await asyncio.wait(self._ending)

    def _connection(self, scope: ServerScope, name: str, server: McpServer) -> Connection:
        own = scope.session_id if name in self._session_servers.get(scope.session_id, {}) else ""
        key = (name, msgspec.json.encode(server).decode(), scope.owner or "", str(scope.workspace or ""), own)
        connection = self._connections.pop(key, None)
        if connection is None:
            idle = [old for old, other in self._connections.items() if not other.is_busy]
            if len(self._connections) >= _MAX_CONNECTIONS and idle:
                self._drop(idle[0])
            connection = Connection(name, server, scope.workspace, self._clock)
        self._connections[key] = connection
        return connection

    def _drop(self, key: tuple[str, ...]) -> None:
        task = asyncio.get_running_loop().create_task(self._connections.pop(key).close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _state(self, name: str, server: McpServer, source: Source) -> ServerState:
        encoded = msgspec.json.encode(server).decode()
        connections = [connection for key, connection in self._connections.items() if key[:2] == (name, encoded)]
        # A failure takes precedence; otherwise the connection used last counts.
        last = next(
            (connection for connection in reversed(connections) if connection.state == "failed"),
            connections[-1] if connections else None,
        )
        known = next((connection.known for connection in reversed(connections) if connection.known is not None), None)
        return ServerState(
            name=name,
            kind="url" if server.url is not None else "command",
            target=server.url or " ".join((server.command or "", *server.args)),
            source=source,
            state="off" if not server.enabled else "idle" if last is None else last.state,
            runs=sum(connection.state == "ready" for connection in connections),
            error=last.error if last is not None else None,
            digest=known.digest if known is not None else None,
            trusted=server.trust or (known is not None and server.pin == known.digest),
            tools=tuple(tool.known_as for tool in known.tools) if known is not None else (),
            told=known.as_text if known is not None else "",
            notices=known.notices if known is not None else (),
        )


def _served(connection: Connection, starting: asyncio.Task[Definitions] | None) -> ServedTools:
    problem: str | None = None
    known = connection.known
    if starting is not None:
        try:
            known = starting.result()
        except Exception as error:
            # Any error affects this server only.
            problem, known = str(error), None
    if known is None:
        return ServedTools(name=connection.name, placeholder=PlaceholderTool(connection, problem=problem))
    return ServedTools(
        name=connection.name,
        placeholder=PlaceholderTool(connection, known),
        tools=tuple(ServerTool(connection, tool.known_as, known) for tool in known.tools),
        digest=known.digest,
        trusted=is_trusted(connection, known.digest),
    )
