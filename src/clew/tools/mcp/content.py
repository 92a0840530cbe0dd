"""The content of answers, carried past the SDK as the server sent it.

The SDK refuses a whole answer for a single piece of content that the protocol it speaks does not have. Here only that
piece is left out, which is for whoever reads the content to decide. So it travels beside the answer, where the SDK
looks at nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from mcp import types
from mcp.shared.message import SessionMessage

__all__ = ["carried", "take_content"]

_KEY: Final = "clew/content"


@contextlib.asynccontextmanager
async def carried(transport: AbstractAsyncContextManager[tuple[Any, Any]]) -> AsyncIterator[tuple[Any, Any]]:
    """The same transport, whose answers the SDK takes whatever their content is."""
    async with transport as (reading, writing):
        yield _Reading(reading), writing


def take_content(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that the SDK took, with its content again."""
    meta = dict(answer.get("_meta") or {})
    if _KEY not in meta:
        return answer
    return {**answer, "content": meta.pop(_KEY), "_meta": meta}


def _carry(item: SessionMessage | Exception) -> SessionMessage | Exception:
    if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
        result = item.message.result
        content, meta = result.get("content"), result.get("_meta") or {}
        if isinstance(meta, dict):
            # Nobody else says what stands there.
            meta.pop(_KEY, None)
            if isinstance(content, list):
                result |= {"content": [], "_meta": {**meta, _KEY: content}}
    return item


class _Reading:
    """A stream that the SDK reads, as its protocol for one has it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return _carry(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _carry(await self._inner.__anext__())

    async def __aenter__(self) -> _Reading:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        suppressed: bool | None = await self._inner.__aexit__(*error)
        return suppressed
