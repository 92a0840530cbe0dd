"""The page at ``/``: for now, what this is and how to talk to it."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from clew.fronts.http.operation import operation
from clew.fronts.http.route import route

__all__ = ["routes"]

_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>clew</title>
<h1>clew</h1>
<p>A durable session engine for AI agents is running here. It speaks HTTP and the AI SDK's stream protocol.</p>
<p>The token is the part of the address after <code>#token=</code>; <code>clew url</code> prints it again.</p>
<pre>
TOKEN=…
BASE=…                        # this page's address, without what follows the port

curl $BASE/api/health
curl $BASE/api/sessions -H "Authorization: Bearer $TOKEN"
curl $BASE/api/sessions -H "Authorization: Bearer $TOKEN" -d '{"model": "demo/echo"}'
curl $BASE/api/sessions/ses_…/prompt -H "Authorization: Bearer $TOKEN" -d '{"text": "hello"}'
curl -N $BASE/api/chat/ses_…/stream -H "Authorization: Bearer $TOKEN"
curl $BASE/api/sessions/ses_…/messages -H "Authorization: Bearer $TOKEN"
</pre>
"""


def routes() -> list[BaseRoute]:
    return [route("/", GET=_page)]


@operation("The page.", {200: str}, media="text/html; charset=utf-8", open=True)
async def _page(_: Request) -> Any:
    return Response(_PAGE, 200, _HEADERS, media_type="text/html")
