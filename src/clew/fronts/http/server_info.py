"""The server about itself: that it is up, what it is, the document of its API, and the sample sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request

from clew import __version__
from clew.engine import Engine
from clew.errors import Conflict
from clew.fronts.http.answer import answer
from clew.fronts.http.endpoints import Handler
from clew.fronts.http.openapi import make_document
from clew.fronts.http.request_body import read_body
from clew.fronts.operations.operation import Nothing
from clew.fronts.operations.results import Health, ServerShape, SessionList, show_session
from clew.fronts.samples import fill
from clew.transcript.session import Session

__all__ = ["ServerInfo"]


class ServerInfo:
    """What only a server can say."""

    def __init__(self, engine: Engine, workspace_root: Path | None) -> None:
        self._engine = engine
        self._workspace_root = workspace_root
        self._filling: asyncio.Task[list[Session]] | None = None

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "health": self._health,
            "server": self._server,
            "document": self._document,
            "examples": self._examples,
        }

    async def _health(self, _: Request) -> Any:
        # Asked without a token: the kind of store, not where it lies.
        return answer(Health(__version__, self._store_kind()))

    async def _server(self, _: Request) -> Any:
        can = self._engine.store.capabilities
        root = str(self._workspace_root) if self._workspace_root is not None else None
        lost = await self._engine.losses()
        return answer(ServerShape(__version__, self._store_kind(), root, can.chunk_durable, can.search, lost))

    def _store_kind(self) -> str:
        return self._engine.store.url.partition(":")[0]

    async def _document(self, _: Request) -> Any:
        return answer(make_document(self._engine.store.capabilities.session_ids))

    async def _examples(self, request: Request) -> Any:
        """What ``clew demo`` does, made for whoever asks first; who asks meanwhile waits for the same ones."""
        await read_body(request, Nothing, optional=True)
        if self._workspace_root is None:
            raise Conflict("the folder this server was started in is gone, and the samples need one to work in")
        if self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(fill(self._engine, self._workspace_root))
            self._filling.add_done_callback(self._filled)
        # Whoever leaves does not take the samples away from the others.
        made = await asyncio.shield(self._filling)
        return answer(SessionList([show_session(one, await self._engine.get_status(one.id)) for one in made]))

    def _filled(self, task: asyncio.Task[list[Session]]) -> None:
        self._filling = None
        if not task.cancelled():
            # Looked at here, for when nobody waits any more.
            task.exception()
