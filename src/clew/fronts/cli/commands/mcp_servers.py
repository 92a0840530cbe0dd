"""``clew mcp-servers``: the MCP servers that agents can use, and their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from clew.fronts.cli.command import Json, Store, flag, open_store, option, show
from clew.tools.mcp_tools import ServerState

__all__ = ["COMMANDS"]


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
    place = {"session_id": session, "workspace": None if session else str(Path.cwd())}
    # Servers are configured in a file, so they can be listed before there is a store.
    async with open_store(store, may_lack=session is None) as engine:
        found = await engine.mcp_servers(**place)
        if name is not None:
            found = tuple(one for one in found if one.name == name)
        if start or (name is not None and not found):
            names = [name] if name is not None else [one.name for one in found if one.state != "off"]
            begun = {one: await engine.start_mcp_server(one, **place) for one in names}
            found = tuple(begun.get(one.name, one) for one in found)
    show(json, {"servers": found}, _lines(found, whole=name is not None))


COMMANDS: Final[tuple[Callable[..., Any], ...]] = (mcp_servers,)


def _lines(servers: tuple[ServerState, ...], *, whole: bool) -> Iterator[str]:
    if not servers:
        yield "no MCP servers; add one as [mcp_servers.NAME] in your config.toml"
    width = max((len(one.name) for one in servers), default=0)
    for one in servers:
        tools = f"  {len(one.tools)} tools" if one.digest else ""
        yield f"{one.name:<{width}}  {one.state:<8}{tools}  {one.target}"
        for words in (one.error, one.digest, *one.notices):
            if words:
                yield f"{'':<{width}}  {words}"
        if whole and one.told:
            yield from ("", *one.told.splitlines())
