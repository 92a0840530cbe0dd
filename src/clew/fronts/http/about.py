"""About this host: that it is up, the models and agents it has, and the bytes that messages name."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from clew import __version__
from clew.agents.manifest import DEFAULT_MAX_STEPS
from clew.engine import Engine
from clew.errors import BlobNotFound, InvalidId
from clew.fronts.http import query
from clew.fronts.http.answer import answer, nothing
from clew.fronts.http.body import Nothing, read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import AgentList, AgentShape, Health, ModelList, ServerShape

__all__ = ["About"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
# Bytes of a user or a tool under our own address: never a page, never a script.
_BLOB_HEADERS: Final = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}


class AgentQuery(msgspec.Struct):
    """Whose project's agents are listed too."""

    workspace: str | None = None


class About:
    """Routes about the host, not about one session."""

    def __init__(self, engine: Engine, workspace_root: Path | None) -> None:
        self._engine = engine
        self._workspace_root = workspace_root

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/health", GET=self._health),
            route("/api/server", GET=self._server),
            route("/api/models", GET=self._models),
            route("/api/agents", GET=self._agents),
            route("/api/blobs/{sha256}", GET=self._blob),
            route("/api/losses/{loss_id}/accept", POST=self._accept_loss),
        ]

    @operation("That the server is up.", {200: Health}, open=True)
    async def _health(self, _: Request) -> Any:
        # Asked without a token: the kind of store, not where it lies.
        return answer(Health(__version__, self._store_kind()))

    @operation("What is running here, and where.", {200: ServerShape})
    async def _server(self, _: Request) -> Any:
        can = self._engine.store.capabilities
        root = str(self._workspace_root) if self._workspace_root is not None else None
        lost = await self._engine.losses()
        return answer(ServerShape(__version__, self._store_kind(), root, can.chunk_durable, can.search, lost))

    @operation("Accept that acknowledged commits are lost.", {204: None}, body=Nothing)
    async def _accept_loss(self, request: Request) -> Any:
        await read(request, Nothing)
        await self._engine.accept_loss(request.path_params["loss_id"])
        return nothing()

    def _store_kind(self) -> str:
        return self._engine.store.url.partition(":")[0]

    @operation("The models that can be named, the usable ones first.", {200: ModelList})
    async def _models(self, _: Request) -> Any:
        models = await asyncio.to_thread(self._engine.host.providers.models)
        return answer(ModelList(models))

    @operation("The agents a session can have.", {200: AgentList}, query=AgentQuery)
    async def _agents(self, request: Request) -> Any:
        workspace = query.read(request, AgentQuery).workspace
        catalog = await asyncio.to_thread(self._engine.host.agents, Path(workspace) if workspace else None)
        agents = [
            AgentShape(
                agent.name,
                agent.description,
                agent.mode,
                agent.model,
                agent.tools,
                agent.max_steps or DEFAULT_MAX_STEPS,
                agent.source,
            )
            for agent in catalog.list()
        ]
        return answer(AgentList(agents, catalog.notices))

    @operation("The bytes of a file in a message.", {200: bytes}, media="*/*")
    async def _blob(self, request: Request) -> Any:
        sha256 = request.path_params["sha256"]
        if not _SHA256.fullmatch(sha256):
            raise InvalidId("a blob is named by its sha256 in hex")
        blob = await self._engine.store.find_blob(sha256)
        if blob is None:
            raise BlobNotFound("there is no such blob", sha256=sha256)
        return Response(blob.data, 200, _BLOB_HEADERS, media_type=blob.media_type)
