"""The servers of a host: who has which, and one connection for each workspace of each owner that uses it."""

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
from clew.tools.mcp.definitions import Definitions, door_name
from clew.tools.mcp.tool import Door, ServerTool, is_trusted
from clew.tools.mcp_tools import PREFIX, Listening, Place, Served, ServerState

__all__ = ["McpServers"]

_MAX_CONNECTIONS: Final = 64
_MAX_SESSIONS: Final = 1_000

Source = Literal["user", "session", "agent"]


class McpServers:
    """Nothing runs until it is asked for."""

    def __init__(self, servers: Mapping[str, McpServer], clock: Clock) -> None:
        check_servers(servers)
        self._clock = clock
        self._servers = dict(servers)
        self._given: dict[str, dict[str, McpServer]] = {}
        # The one that was used last comes last.
        self._connections: dict[tuple[str, ...], Connection] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def names(self, place: Place) -> tuple[str, ...]:
        return tuple(name for name, server, _ in self._of(place) if server.enabled)

    def _of(self, place: Place) -> Iterator[tuple[str, McpServer, Source]]:
        """Yield a session's own before its agent's, and these before the host's. An owner gets no program among them
        that is not marked for owners: it would run as the server's user."""
        found: dict[str, tuple[McpServer, Source]] = {
            name: (server, "user")
            for name, server in self._servers.items()
            if place.servers is None or name in place.servers
        }
        for name, server in (place.servers or {}).items():
            if server is not None:
                found[name] = server, "agent"
        for name, server in self._given.get(place.session_id, {}).items():
            found[name] = server, "session"
        for name, (server, source) in sorted(found.items()):
            if place.owner is None or server.command is None or server.owners:
                yield name, server, source

    async def serve(self, place: Place, names: tuple[str, ...]) -> tuple[Served, ...]:
        found = [self._connection(place, name, server) for name, server, _ in self._of(place) if name in names]
        loop = asyncio.get_running_loop()
        # What is known needs no start: a server that rests is begun by the first call.
        tasks = {one: loop.create_task(one.ready()) for one in found if one.known is None or one.is_stale}
        try:
            # Bounded by what each server has to start; one that fails is not begun again for longer than that.
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        finally:
            for task in tasks.values():
                task.cancel()
        return tuple(_served(one, tasks.get(one)) for one in found)

    async def renew(self, place: Place, name: str) -> None:
        server = next(server for one, server, _ in self._of(place) if one == name)
        connection = self._connection(place, name, server)
        with contextlib.suppress(ToolFailed):
            await connection.ready(anew=True)

    def late_tool(self, place: Place, name: str) -> Tool | None:
        for server_name, server, _ in self._of(place):
            if server.enabled and name == door_name(server_name):
                connection = self._connection(place, server_name, server)
                return Door(connection, connection.known)
            if server.enabled and name.startswith(f"{PREFIX}{server_name}__"):
                return ServerTool(self._connection(place, server_name, server), name)
        return None

    def states(self, place: Place) -> tuple[ServerState, ...]:
        return tuple(self._state(name, server, source) for name, server, source in self._of(place))

    def listen(
        self,
        place: Place,
        name: str,
        uri: str,
        heard: Callable[[], None],
        told: Callable[[str | None], None],
    ) -> Listening:
        for one, server, _ in self._of(place):
            if one == name and server.enabled:
                return self._connection(place, name, server).listen(uri, heard, told)
        raise InvalidInput(f"there is no MCP server {name!r} here", server=name)

    def give(self, session_id: str, servers: Mapping[str, McpServer]) -> None:
        check_servers(servers)
        if session_id not in self._given and len(self._given) >= _MAX_SESSIONS:
            raise InvalidInput(f"more than {_MAX_SESSIONS} sessions have MCP servers of their own")
        if self._given.get(session_id) != dict(servers):
            self.forget(session_id)
            self._given[session_id] = dict(servers)

    def forget(self, session_id: str) -> None:
        if self._given.pop(session_id, None) is not None:
            for key in [key for key in self._connections if key[-1] == session_id]:
                self._drop(key)

    async def close(self) -> None:
        for key in list(self._connections):
            self._drop(key)
        if self._ending:
            await asyncio.wait(self._ending)

    def _connection(self, place: Place, name: str, server: McpServer) -> Connection:
        own = place.session_id if name in self._given.get(place.session_id, {}) else ""
        key = (name, msgspec.json.encode(server).decode(), place.owner or "", str(place.workspace or ""), own)
        connection = self._connections.pop(key, None)
        if connection is None:
            resting = [old for old, one in self._connections.items() if not one.is_busy]
            if len(self._connections) >= _MAX_CONNECTIONS and resting:
                self._drop(resting[0])
            connection = Connection(name, server, place.workspace, self._clock)
        self._connections[key] = connection
        return connection

    def _drop(self, key: tuple[str, ...]) -> None:
        task = asyncio.get_running_loop().create_task(self._connections.pop(key).close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _state(self, name: str, server: McpServer, source: Source) -> ServerState:
        encoded = msgspec.json.encode(server).decode()
        there = [one for key, one in self._connections.items() if key[:2] == (name, encoded)]
        # The one that was used last tells; what is wrong with it is told before that another one works.
        last = next((one for one in reversed(there) if one.state == "failed"), there[-1] if there else None)
        known = next((one.known for one in reversed(there) if one.known is not None), None)
        return ServerState(
            name=name,
            kind="url" if server.url is not None else "command",
            target=server.url or " ".join((server.command or "", *server.args)),
            source=source,
            state="off" if not server.enabled else "idle" if last is None else last.state,
            runs=sum(one.state == "ready" for one in there),
            error=last.error if last is not None else None,
            digest=known.digest if known is not None else None,
            trusted=server.trust or (known is not None and server.pin == known.digest),
            tools=tuple(one.known_as for one in known.tools) if known is not None else (),
            told=known.told if known is not None else "",
            notices=known.notices if known is not None else (),
        )


def _served(connection: Connection, begun: asyncio.Task[Definitions] | None) -> Served:
    trouble: str | None = None
    known = connection.known
    if begun is not None:
        try:
            known = begun.result()
        except Exception as error:
            # Whatever it is, it costs this server.
            trouble, known = str(error), None
    if known is None:
        return Served(name=connection.name, door=Door(connection, trouble=trouble))
    return Served(
        name=connection.name,
        door=Door(connection, known),
        tools=tuple(ServerTool(connection, one.known_as, known) for one in known.tools),
        digest=known.digest,
        trusted=is_trusted(connection, known.digest),
    )
