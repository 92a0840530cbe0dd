"""``clew mcp-servers``: the MCP servers that agents can use, and their state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from clew.fronts.cli.command import Json, Store, flag, open_store, option, show
from clew.tools.mcp_tools import ServerState

__all__ = ["mcp_servers"]


async def mcp_servers(
    name: str | None = None,
    /,
    *,
    start: Annotated[bool, flag("Start stopped servers, to list their tools.")] = False,
    session: Annotated[str | None, option("Servers of this session, including its own and its agent's.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the MCP servers that agents can use; with a name, show that server's tool definitions.

    Example: clew mcp-servers files --start
    """
    scope = {"session_id": session, "workspace": None if session else str(Path.cwd())}
    # Servers are configured in a file, so they can be listed before there is a store.
    async with open_store(store, may_lack=session is None) as engine:
        found = await engine.mcp_servers(**scope)
        if name is not None:
            found = tuple(server for server in found if server.name == name)
        if start or (name is not None and not found):
            names = [name] if name is not None else [server.name for server in found if server.state != "off"]
            begun = {stopped: await engine.start_mcp_server(stopped, **scope) for stopped in names}
            found = tuple(begun.get(server.name, server) for server in found)
    show(json, {"servers": found}, _lines(found, whole=name is not None))


def _lines(servers: tuple[ServerState, ...], *, whole: bool) -> Iterator[str]:
    if not servers:
        yield "no MCP servers; add one as [mcp_servers.NAME] in your config.toml"
    width = max((len(server.name) for server in servers), default=0)
    for server in servers:
        tools = f"  {len(server.tools)} tools" if server.digest else ""
        yield f"{server.name:<{width}}  {server.state:<8}{tools}  {server.target}"
        for detail in (server.error, server.digest, *server.notices):
            if detail:
                yield f"{'':<{width}}  {detail}"
        if whole and server.told:
            yield from ("", *server.told.splitlines())
