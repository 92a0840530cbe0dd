"""The sample sessions, made for whoever asks first; who asks meanwhile waits for the same ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from clew.engine import Engine
from clew.errors import Conflict
from clew.fronts.http.answer import answer
from clew.fronts.http.body import Nothing, read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import SessionList
from clew.fronts.samples import fill
from clew.fronts.shape import session_shape
from clew.transcript.session import Session

__all__ = ["Examples"]


class Examples:
    """``POST /api/examples``: what ``clew demo`` does, in the server."""

    def __init__(self, engine: Engine, workspace_root: Path | None) -> None:
        self._engine = engine
        self._workspace_root = workspace_root
        self._filling: asyncio.Task[list[Session]] | None = None

    def routes(self) -> list[BaseRoute]:
        return [route("/api/examples", POST=self._fill)]

    @operation("Make the sample sessions.", {200: SessionList}, body=Nothing, body_optional=True, refuses=(409,))
    async def _fill(self, request: Request) -> Any:
        await read(request, Nothing, optional=True)
        if self._workspace_root is None:
            raise Conflict("the folder this server was started in is gone, and the samples need one to work in")
        if self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(fill(self._engine, self._workspace_root))
            self._filling.add_done_callback(self._filled)
        # Whoever leaves does not take the samples away from the others.
        made = await asyncio.shield(self._filling)
        shapes = [session_shape(session, await self._engine.get_status(session.id)) for session in made]
        return answer(SessionList(shapes))

    def _filled(self, task: asyncio.Task[list[Session]]) -> None:
        self._filling = None
        if not task.cancelled():
            # Looked at here, for when nobody waits any more.
            task.exception()
