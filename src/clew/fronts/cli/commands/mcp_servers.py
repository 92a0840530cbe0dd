"""``clew mcp-servers``: the MCP servers whose tools agents have, and how they are."""

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
    start: Annotated[bool, flag("Start those that do not run, to see what they have.")] = False,
    session: Annotated[str | None, option("Those of a session, its own and its agent's too.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the MCP servers whose tools agents have; of one that is named, all that it says of its tools.

    Example: clew mcp-servers files --start
    """
    place = {"session_id": session, "workspace": None if session else str(Path.cwd())}
    # They are named in the config, and looked at before there is a first session.
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
        yield "no MCP servers; name one under [mcp_servers.NAME] in your config.toml"
    width = max((len(one.name) for one in servers), default=0)
    for one in servers:
        tools = f"  {len(one.tools)} tools" if one.digest else ""
        yield f"{one.name:<{width}}  {one.state:<8}{tools}  {one.target}"
        for words in (one.error, one.digest, *one.notices):
            if words:
                yield f"{'':<{width}}  {words}"
        if whole and one.told:
            yield from ("", *one.told.splitlines())
