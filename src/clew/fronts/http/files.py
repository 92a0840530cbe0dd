"""Files: the bytes that messages name, and sessions as files. Never a page of ours, never a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from clew.engine import Engine
from clew.fronts.http.answer import HEADERS
from clew.fronts.http.endpoints import Handler
from clew.fronts.http.request_query import read_query
from clew.fronts.operations.sessions import ExportQuery
from clew.interop.formats import FORMATS

__all__ = ["Files"]

_INERT: Final = {"content-security-policy": "default-src 'none'; sandbox"}
_BLOB_HEADERS: Final = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-disposition": "attachment",
    **_INERT,
    "x-content-type-options": "nosniff",
}


class Files:
    """The answers that are bytes of a user or a tool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def handlers(self) -> Mapping[str, Handler]:
        return {"blob": self._blob, "export": self._export}

    async def _blob(self, request: Request) -> Any:
        blob = await self._engine.blob(request.path_params["sha256"])
        return Response(blob.data, 200, _BLOB_HEADERS, media_type=blob.media_type)

    async def _export(self, request: Request) -> Any:
        session = await self._engine.get_session(request.path_params["id"])
        wanted = read_query(request, ExportQuery)
        data = await self._engine.export(session.id, wanted.format, redact=wanted.redact, hidden=wanted.hidden)
        form = FORMATS[wanted.format]
        named = {"content-disposition": f'attachment; filename="{session.id}{form.suffix}"'}
        return Response(data, 200, {**HEADERS, **_INERT, **named}, media_type=form.media_type)
