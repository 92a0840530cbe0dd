"""Deliveries to webhooks: no token, but a signature, from whoever has the secret."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from clew.dispatch.webhooks import MAX_DELIVERY
from clew.engine import Engine
from clew.errors import SignatureInvalid
from clew.fronts.http.answer import answer
from clew.fronts.http.auth import Failures
from clew.fronts.http.endpoints import Handler
from clew.fronts.http.problem import RateLimited
from clew.fronts.http.request_body import read_bytes

__all__ = ["Deliveries"]


class Deliveries:
    """Takes deliveries in, and counts those that are not signed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failures = Failures(time.monotonic)

    def handlers(self) -> Mapping[str, Handler]:
        return {"webhooks.deliver": self._deliver}

    async def _deliver(self, request: Request) -> Any:
        body = await read_bytes(request, MAX_DELIVERY)
        try:
            received = await self._engine.webhooks.deliver(
                request.path_params["name"], body, list(request.headers.items())
            )
        except SignatureInvalid:
            if self._failures.too_many():
                raise RateLimited("too many deliveries that are not signed; wait a little") from None
            raise
        return answer(received, 202)
