"""Answers: values as JSON responses, in the shapes the API promises."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

__all__ = ["HEADERS", "answer", "nothing"]

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_encode = msgspec.json.Encoder().encode


def answer(value: Any, status: int = 200) -> Response:
    """The value as JSON."""
    return Response(_encode(value), status, HEADERS, media_type="application/json")


def nothing() -> Response:
    """Done, and nothing to say about it."""
    return Response(None, 204, HEADERS)
