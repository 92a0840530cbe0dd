"""Webhooks: kept and changed by whoever has the token, delivered to by whoever has the secret."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew.dispatch.router import Received
from clew.dispatch.webhooks import MAX_DELIVERY
from clew.engine import Engine
from clew.errors import SignatureInvalid
from clew.fronts.http.answer import answer, nothing
from clew.fronts.http.auth import Failures
from clew.fronts.http.body import read, read_bytes
from clew.fronts.http.operation import operation
from clew.fronts.http.problem import RateLimited
from clew.fronts.http.route import route
from clew.fronts.http.shapes import ModelName, RoutingBody, WebhookList, routed
from clew.fronts.shape import WebhookShape, webhook_shape

__all__ = ["Webhooks"]


class NewWebhook(msgspec.Struct):
    """A door and where it leads. Without a routing each delivery has a session of its own."""

    name: str
    prompt: str | None = None
    paused: bool = False
    routing: RoutingBody | None = None
    model: ModelName | None = None
    agent: str | None = None
    workspace_root: str | None = None


class WebhookPatch(msgspec.Struct):
    """What of a webhook can be changed; ``paused`` pauses and resumes it."""

    paused: bool | UnsetType = UNSET
    prompt: str | UnsetType | None = UNSET


class Webhooks:
    """The routes under ``/api/hooks``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failures = Failures(time.monotonic)

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/hooks", GET=self._list, POST=self._add),
            route("/api/hooks/{name}", GET=self._get, PATCH=self._patch, DELETE=self._delete, POST=self._deliver),
            route("/api/hooks/{name}/rotate", POST=self._rotate),
        ]

    @operation("All webhooks, without their secrets.", {200: WebhookList})
    async def _list(self, _: Request) -> Any:
        return answer(WebhookList([webhook_shape(one) for one in await self._engine.webhooks.list()]))

    @operation(
        "Keep a webhook. Its secret is in this answer and in no other.",
        {201: WebhookShape},
        body=NewWebhook,
        refuses=(404, 409),
    )
    async def _add(self, request: Request) -> Any:
        body = await read(request, NewWebhook)
        webhook = await self._engine.webhooks.add(
            body.name,
            prompt=body.prompt,
            paused=body.paused,
            routing=routed(body.routing, body.model, body.agent, body.workspace_root, None),
        )
        return answer(webhook_shape(webhook, secret=True), 201)

    @operation("A webhook.", {200: WebhookShape})
    async def _get(self, request: Request) -> Any:
        return answer(webhook_shape(await self._engine.webhooks.get(request.path_params["name"])))

    @operation("Change what is given, pause, or resume.", {200: WebhookShape}, body=WebhookPatch)
    async def _patch(self, request: Request) -> Any:
        webhook = await self._engine.webhooks.get(request.path_params["name"])
        body = await read(request, WebhookPatch)
        paused = None if body.paused is UNSET else body.paused
        prompt = None if body.prompt is UNSET else body.prompt or ""
        if paused is not None or prompt is not None:
            webhook = await self._engine.webhooks.change(webhook.name, paused=paused, prompt=prompt)
        return answer(webhook_shape(webhook))

    @operation("Take a webhook out. What came in stays.", {204: None})
    async def _delete(self, request: Request) -> Any:
        await self._engine.webhooks.remove(request.path_params["name"])
        return nothing()

    @operation("A new secret, in this answer and in no other. The old one counts no more.", {200: WebhookShape})
    async def _rotate(self, request: Request) -> Any:
        webhook = await self._engine.webhooks.rotate(request.path_params["name"])
        return answer(webhook_shape(webhook, secret=True))

    @operation(
        "A delivery, signed with the secret of the webhook; no token. The same again is answered alike.",
        {202: Received},
        body=dict[str, Any],
        refuses=(401, 409, 429),
        open=True,
    )
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
