"""Content of answers, passed around the SDK's validation as the server sent it.

The SDK refuses a whole answer for a single block of content that its protocol version does not have. clew leaves out
only that block (``results.py``), so content travels in the answer's ``_meta``, which the SDK does not validate.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from mcp import types
from mcp.shared.message import SessionMessage

__all__ = ["restore_content", "with_content_in_meta"]

_META_KEY: Final = "clew/content"


@contextlib.asynccontextmanager
async def with_content_in_meta(
    transport: AbstractAsyncContextManager[tuple[Any, Any]],
) -> AsyncIterator[tuple[Any, Any]]:
    """Wrap a transport so that the SDK accepts answers with any content."""
    async with transport as (reading, writing):
        yield _ContentStream(reading), writing


def restore_content(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that passed the SDK, with its content restored."""
    meta = dict(answer.get("_meta") or {})
    if _META_KEY not in meta:
        return answer
    return {**answer, "content": meta.pop(_META_KEY), "_meta": meta}


def _move_content(item: SessionMessage | Exception) -> SessionMessage | Exception:
    if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
        result = item.message.result
        content, meta = result.get("content"), result.get("_meta") or {}
        if isinstance(meta, dict):
            # The server must not set this key.
            meta.pop(_META_KEY, None)
            if isinstance(content, list):
                result |= {"content": [], "_meta": {**meta, _META_KEY: content}}
    return item


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
