"""Transfer: sessions as files, out and in, and finding what was said in any of them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from clew.engine import Engine
from clew.fronts.http import query
from clew.fronts.http.answer import HEADERS, answer
from clew.fronts.http.body import read_bytes
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.shape import SessionShape, session_shape
from clew.interop.formats import FORMATS
from clew.interop.session_file import MAX_FILE_BYTES
from clew.store.base import SearchPage

__all__ = ["Transfer"]

# A transcript under our own address: never a page of ours, never a script.
_FILE_HEADERS: Final = {**HEADERS, "content-security-policy": "default-src 'none'; sandbox"}


class ExportQuery(msgspec.Struct):
    """In which form, and what is taken out of it. ``hidden``: also what left the conversation, in md and html."""

    format: Literal["json", "jsonl", "md", "html"] = "json"
    redact: bool = True
    hidden: bool = False


class SearchParameters(msgspec.Struct):
    """What to look for: words, or a phrase between double quotes."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: str | None = None
    session: str | None = None


class ImportQuery(msgspec.Struct, frozen=True):
    """The folder the session is to work in; the one that the file names is not believed."""

    workspace: str | None = None


class Transfer:
    """The routes that carry sessions out and in, and the one that searches them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/sessions/{id}/export", GET=self._export),
            route("/api/import", POST=self._import),
            route("/api/search", GET=self._search),
        ]

    @operation("A session as a file.", {200: bytes}, query=ExportQuery, media="*/*")
    async def _export(self, request: Request) -> Any:
        session = await self._engine.get_session(request.path_params["id"])
        wanted = query.read(request, ExportQuery)
        data = await self._engine.export(session.id, wanted.format, redact=wanted.redact, hidden=wanted.hidden)
        form = FORMATS[wanted.format]
        named = {"content-disposition": f'attachment; filename="{session.id}{form.suffix}"'}
        return Response(data, 200, {**_FILE_HEADERS, **named}, media_type=form.media_type)

    @operation("Take in a session that was exported.", {201: SessionShape}, body=dict[str, Any], query=ImportQuery)
    async def _import(self, request: Request) -> Any:
        # A session may hold more files than one message: what was exported must come in again.
        wanted = query.read(request, ImportQuery)
        data = await read_bytes(request, MAX_FILE_BYTES)
        session = await self._engine.import_session(data, workspace_root=wanted.workspace)
        return answer(session_shape(session, await self._engine.get_status(session.id)), 201)

    @operation(
        "Messages that hold these words, hidden ones too.",
        {200: SearchPage},
        query=SearchParameters,
        refuses=(400, 404),
    )
    async def _search(self, request: Request) -> Any:
        wanted = query.read(request, SearchParameters)
        found = await self._engine.search(wanted.q, limit=wanted.limit, cursor=wanted.cursor, session_id=wanted.session)
        return answer(found)
