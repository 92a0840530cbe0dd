"""About this host: that it is up, the models and agents it has, and the bytes that messages name."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from clew import __version__
from clew.engine import Engine
from clew.errors import InvalidId, NotFound
from clew.fronts.http import query
from clew.fronts.http.answer import answer
from clew.fronts.http.route import route

__all__ = ["About"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
# Bytes of a user or a tool under our own address: never a page, never a script.
_BLOB_HEADERS: Final = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}


class BlobNotFound(NotFound):
    code = "blob_not_found"


class About:
    """Routes about the host, not about one session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/health", GET=self._health),
            route("/api/models", GET=self._models),
            route("/api/agents", GET=self._agents),
            route("/api/blobs/{sha256}", GET=self._blob),
        ]

    async def _health(self, _: Request) -> Any:
        # Asked without a token: the kind of store, not where it lies.
        return answer({"version": __version__, "store": self._engine.store.url.partition(":")[0]})

    async def _models(self, _: Request) -> Any:
        models = await asyncio.to_thread(self._engine.host.providers.models)
        return answer({"models": models})

    async def _agents(self, request: Request) -> Any:
        workspace = query.text(request, "workspace")
        catalog = await asyncio.to_thread(self._engine.host.agents, Path(workspace) if workspace else None)
        agents = [
            {
                "name": agent.name,
                "description": agent.description,
                "mode": agent.mode,
                "model": agent.model,
                "tools": agent.tools,
                "max_steps": agent.max_steps,
                "source": agent.source,
            }
            for agent in catalog.list()
        ]
        return answer({"agents": agents, "notices": catalog.notices})

    async def _blob(self, request: Request) -> Any:
        sha256 = request.path_params["sha256"]
        if not _SHA256.fullmatch(sha256):
            raise InvalidId("a blob is named by its sha256 in hex")
        blob = await self._engine.store.find_blob(sha256)
        if blob is None:
            raise BlobNotFound("there is no such blob", sha256=sha256)
        return Response(blob.data, 200, _BLOB_HEADERS, media_type=blob.media_type)
