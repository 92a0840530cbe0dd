"""The uses of the official SDK: a client over either transport, the list of tools, one call.

Importing it takes seconds, so only a connection that starts imports this module. The SDK's own check of results is not
used: it evaluates untrusted patterns without a time limit.

The SDK also refuses a whole answer for a single block of content that its protocol version does not have. clew leaves
out only that block (``tool.py``), so content travels in the answer's ``_meta``, which the SDK does not validate.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
from mcp import Client, types
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from clew._version import __version__
from clew.errors import ToolFailed
from clew.mcp_server import McpServer
from clew.tools.mcp.connection import Wire
from clew.tools.mcp.transports import open_http, open_stdio
from clew.tools.process.environment import environment
from clew.tools.process.program import Program

__all__ = ["ConnectionLost", "call_tool", "connect", "list_tools", "listen"]

_Transport: TypeAlias = AbstractAsyncContextManager[tuple[Any, Any]]
_ANSWER: Final[TypeAdapter[Any]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_LOST_MESSAGES: Final = ("Session terminated", "Connection closed")
_MAX_PAGES: Final = 20
_CONTENT_KEY: Final = "clew/content"


class ConnectionLost(Exception):
    """The connection was lost."""


@asynccontextmanager
async def connect(
    server: McpServer, folder: Path, filled: Mapping[str, str], wire: Wire, on_change: Callable[[Any], None]
) -> AsyncIterator[Client]:
    """Yield an initialised client. ``filled`` are the server's environment variables, or its headers."""

    async def on_message(message: Any) -> None:
        if not isinstance(message, Exception):
            on_change(message)

    if server.url is not None:
        transport = open_http(server.url, dict(filled), server.timeout_s, wire)
    else:
        env = {**environment(os.environ), **filled}
        argv = [server.command or "", *server.args]
        transport = open_stdio(Program(argv=argv, cwd=folder, env=env, timeout_ms=0), wire)
    # Neither sampling nor elicitation nor roots are offered: a server that requests them is refused.
    me = types.Implementation(name="clew", version=__version__)
    transport = _with_content_in_meta(transport)
    async with Client(transport, message_handler=on_message, client_info=me, cache=None) as client:
        yield client


@asynccontextmanager
async def _with_content_in_meta(transport: _Transport) -> AsyncIterator[tuple[Any, Any]]:
    """Wrap a transport so that the SDK accepts answers with any content."""
    async with transport as (reading, writing):
        yield _ContentStream(reading), writing


class _ContentStream:
    """A stream for the SDK to read, with the methods its protocol asks for."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return _move_content(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _ContentStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _move_content(await self._inner.__anext__())

    async def __aenter__(self) -> _ContentStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        suppressed: bool | None = await self._inner.__aexit__(*error)
        return suppressed


def _move_content(item: SessionMessage | Exception) -> SessionMessage | Exception:
    if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
        result = item.message.result
        content, meta = result.get("content"), result.get("_meta") or {}
        if isinstance(meta, dict):
            # The server must not set this key.
            meta.pop(_CONTENT_KEY, None)
            if isinstance(content, list):
                result |= {"content": [], "_meta": {**meta, _CONTENT_KEY: content}}
    return item


async def list_tools(client: Client) -> list[dict[str, Any]]:
    """Return the server's tools as it lists them. Raises ``ToolFailed`` for an endless list."""
    listed: list[dict[str, Any]] = []
    cursor: str | None = None
    if client.server_capabilities.tools is None:
        return listed
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return listed
    raise ToolFailed(f"its list of tools has more than {_MAX_PAGES} pages")


async def call_tool(
    client: Client, tool: str, args: Mapping[str, Any], report: Callable[[Any], None]
) -> dict[str, Any]:
    """Call a tool and return the answer. Raises ``ToolFailed`` with the server's error, or :class:`ConnectionLost`."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        position = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        report({"text": f"{message} ({position})" if message else position})

    request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(args)))
    try:
        answer = await client.session.send_request(request, _ANSWER, progress_callback=on_progress)
    except MCPError as error:
        if error.code == types.CONNECTION_CLOSED or any(words in str(error) for words in _LOST_MESSAGES):
            raise ConnectionLost from error
        raise ToolFailed(f"the server refused the call: {error}") from error
    except (ValidationError, ValueError) as error:
        raise ToolFailed(f"the server's answer is not a valid tool result: {_first_line(error)}") from error
    except httpx2.HTTPError as error:
        raise ConnectionLost from error
    if isinstance(answer, types.InputRequiredResult):
        raise ToolFailed("the server asks for more input than the call's arguments, which clew does not support")
    return _restore_content(answer.model_dump(by_alias=True, mode="json", exclude_none=True))


def _restore_content(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that passed the SDK, with its content restored."""
    meta = dict(answer.get("_meta") or {})
    if _CONTENT_KEY not in meta:
        return answer
    return {**answer, "content": meta.pop(_CONTENT_KEY), "_meta": meta}


def _first_line(error: Exception) -> str:
    return " ".join(str(error).splitlines()[:3])[:400]


async def listen(client: Client, uris: Sequence[str], on_change: Callable[[str | None], None]) -> None:
    """Subscribe to changes of these resources; None stands for the list of tools. Ends when the server's stream ends.
    In older protocols changes arrive as notifications, at the client's message handler."""
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        tools = client.server_capabilities.tools
        listed = bool(tools is not None and tools.list_changed)
        if not uris and not listed:
            return
        async with client.listen(tools_list_changed=listed, resource_subscriptions=uris) as events:
            async for event in events:
                if isinstance(event, ToolsListChanged | ResourceUpdated):
                    on_change(event.uri if isinstance(event, ResourceUpdated) else None)
        return
    for uri in uris:
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await client.session.send_request(request, types.EmptyResult)
    # Notifications that are not wanted any more are ignored, so there is no need to unsubscribe.
    await asyncio.Event().wait()
