"""The page at ``/`` and its files under ``/assets/``: served without a token, under any accepted Host."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from clew.errors import NotFound
from clew.fronts.http.answer import PiecewiseResponse
from clew.fronts.web.page import Page, PageFile

__all__ = ["Pages"]


class AssetNotFound(NotFound):
    code = "asset_not_found"


class Pages:
    """The handlers of the page; nothing in a request becomes a path."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def page(self, request: Request) -> Any:
        return _serve(request, self._page.index)

    async def asset(self, request: Request) -> Any:
        file = self._page.assets.get(request.path_params["file"])
        if file is None:
            raise AssetNotFound("the page has no such file")
        return _serve(request, file)


def _serve(request: Request, file: PageFile) -> Response:
    etags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.headers["etag"] in etags or etags == ["*"]:
        return Response(None, 304, file.headers)
    return PiecewiseResponse(file.data, 200, {**file.headers, "content-type": file.media_type})
