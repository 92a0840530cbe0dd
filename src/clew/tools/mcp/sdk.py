"""What is asked of the official SDK: a client over either wire, the list of tools, one call.

Importing it takes seconds, so nothing imports this module but a connection that begins. The SDK's own check of results
is passed by: it runs patterns of a stranger's schema without an end to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp import Client, types
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from clew._version import __version__
from clew.errors import ToolFailed
from clew.mcp_server import McpServer
from clew.tools.mcp.content import carried, take_content
from clew.tools.mcp.http import open_http
from clew.tools.mcp.stdio import open_stdio
from clew.tools.mcp.wire import Wire
from clew.tools.process.environment import environment
from clew.tools.process.program import Program

__all__ = ["Lost", "ask", "connect", "list_tools", "listen"]

_ANSWER: Final[TypeAdapter[Any]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_GONE: Final = ("Session terminated", "Connection closed")
_PAGES: Final = 20


class Lost(Exception):
    """The connection is gone."""


@contextlib.asynccontextmanager
async def connect(
    server: McpServer, folder: Path, filled: Mapping[str, str], wire: Wire, heard: Callable[[Any], None]
) -> AsyncIterator[Client]:
    """A client that has said its name. ``filled`` are the server's variables, or its headers."""

    async def on_message(message: Any) -> None:
        if not isinstance(message, Exception):
            heard(message)

    if server.url is not None:
        transport = open_http(server.url, dict(filled), server.timeout_s, wire)
    else:
        env = {**environment(os.environ), **filled}
        argv = [server.command or "", *server.args]
        transport = open_stdio(Program(argv=argv, cwd=folder, env=env, timeout_ms=0), wire)
    # Neither sampling nor elicitation nor roots are offered: a server that asks for them all the same is told no.
    me = types.Implementation(name="clew", version=__version__)
    async with Client(carried(transport), message_handler=on_message, client_info=me, cache=None) as client:
        yield client


async def list_tools(client: Client) -> list[dict[str, Any]]:
    """Its tools as it says them. Raises ``ToolFailed`` for a list that does not end."""
    listed: list[dict[str, Any]] = []
    cursor: str | None = None
    if client.server_capabilities.tools is None:
        return listed
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return listed
    raise ToolFailed(f"its list of tools has more than {_PAGES} pages")


async def ask(client: Client, tool: str, args: Mapping[str, Any], report: Callable[[Any], None]) -> dict[str, Any]:
    """What it answers. Raises ``ToolFailed`` with what it says went wrong, or :class:`Lost`."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        report({"text": f"{message} ({far})" if message else far})

    request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(args)))
    try:
        answer = await client.session.send_request(request, _ANSWER, progress_callback=on_progress)
    except MCPError as error:
        if error.code == types.CONNECTION_CLOSED or any(words in str(error) for words in _GONE):
            raise Lost from error
        raise ToolFailed(f"the server refused the call: {error}") from error
    except (ValidationError, ValueError) as error:
        raise ToolFailed(f"what the server answered is no answer to a call: {_first_line(error)}") from error
    except httpx2.HTTPError as error:
        raise Lost from error
    if isinstance(answer, types.InputRequiredResult):
        raise ToolFailed("the server asks for more than the call's arguments, which nobody here gives it")
    return take_content(answer.model_dump(by_alias=True, mode="json", exclude_none=True))


async def listen(client: Client, uris: Sequence[str], heard: Callable[[str | None], None]) -> None:
    """Have the server tell of changes of these resources; None stands for its list of tools. Ends when it tells no
    more. In older protocols it tells by notifications, which whoever made the client hears."""
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        tools = client.server_capabilities.tools
        listed = bool(tools is not None and tools.list_changed)
        if not uris and not listed:
            return
        async with client.listen(tools_list_changed=listed, resource_subscriptions=uris) as events:
            async for event in events:
                if isinstance(event, ToolsListChanged | ResourceUpdated):
                    heard(event.uri if isinstance(event, ResourceUpdated) else None)
        return
    for uri in uris:
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await client.session.send_request(request, types.EmptyResult)
    # What is not wanted any more is not heard; servers need not be told.
    await asyncio.Event().wait()


def _first_line(error: Exception) -> str:
    return " ".join(str(error).splitlines()[:3])[:400]
