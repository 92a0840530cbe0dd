"""Events, schedules and webhooks of a running server, by the names and with the values of an engine's own."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from clew.dispatch.events import EventList
from clew.dispatch.router import Received
from clew.fronts.cli.wire import Wire, segment
from clew.fronts.shape import WebhookShape
from clew.triggers.ledger import Direction
from clew.triggers.routing import Routing
from clew.triggers.schedule import MissedPolicy, Schedule
from clew.triggers.webhook import Webhook

__all__ = ["RemoteEvents", "RemoteSchedules", "RemoteWebhooks"]

T = TypeVar("T")


class _Remote:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def _ask(self, method: str, path: str, type_: type[T], body: Any = None, **query: Any) -> T:
        return msgspec.json.decode(await self._wire.call(method, path, body, query=query), type=type_)


class RemoteEvents(_Remote):
    """The ledger of a server."""

    async def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        session_id: str | None = None,
        source: str | None = None,
        turn_id: str | None = None,
        direction: Direction | None = None,
    ) -> EventList:
        asked = {"limit": limit, "cursor": cursor, "session": session_id, "source": source, "turn": turn_id}
        return await self._ask("GET", "/api/events/ledger", EventList, **asked, direction=direction)


class RemoteSchedules(_Remote):
    """The schedules of a server."""

    async def add(
        self,
        cron: str,
        prompt: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        missed: MissedPolicy = "skip",
        paused: bool = False,
        routing: Routing | None = None,
    ) -> Schedule:
        body = {"cron": cron, "prompt": prompt, "timezone": timezone, "name": name, "missed": missed, "paused": paused}
        return await self._ask("POST", "/api/schedules", Schedule, {**body, **_routed(routing)})

    async def list(self) -> tuple[Schedule, ...]:
        return (await self._ask("GET", "/api/schedules", dict[str, tuple[Schedule, ...]]))["schedules"]

    async def get(self, schedule_id: str) -> Schedule:
        return await self._ask("GET", f"/api/schedules/{segment(schedule_id)}", Schedule)

    async def change(self, schedule_id: str, **changes: Any) -> Schedule:
        return await self._ask("PATCH", f"/api/schedules/{segment(schedule_id)}", Schedule, changes)

    async def remove(self, schedule_id: str) -> None:
        await self._wire.call("DELETE", f"/api/schedules/{segment(schedule_id)}")

    async def run(self, schedule_id: str) -> Received:
        return await self._ask("POST", f"/api/schedules/{segment(schedule_id)}/run", Received)


class RemoteWebhooks(_Remote):
    """The webhooks of a server. A secret is there when it was just made, and empty otherwise."""

    async def add(
        self, name: str, *, prompt: str | None = None, paused: bool = False, routing: Routing | None = None
    ) -> Webhook:
        body = {"name": name, "prompt": prompt, "paused": paused, **_routed(routing)}
        return _webhook(await self._ask("POST", "/api/hooks", WebhookShape, body))

    async def list(self) -> tuple[Webhook, ...]:
        shapes = (await self._ask("GET", "/api/hooks", dict[str, tuple[WebhookShape, ...]]))["webhooks"]
        return tuple(_webhook(shape) for shape in shapes)

    async def get(self, name: str) -> Webhook:
        return _webhook(await self._ask("GET", f"/api/hooks/{segment(name)}", WebhookShape))

    async def change(self, name: str, *, paused: bool | None = None, prompt: str | None = None) -> Webhook:
        given = {key: value for key, value in (("paused", paused), ("prompt", prompt)) if value is not None}
        return _webhook(await self._ask("PATCH", f"/api/hooks/{segment(name)}", WebhookShape, given))

    async def rotate(self, name: str) -> Webhook:
        return _webhook(await self._ask("POST", f"/api/hooks/{segment(name)}/rotate", WebhookShape))

    async def remove(self, name: str) -> None:
        await self._wire.call("DELETE", f"/api/hooks/{segment(name)}")


def _routed(routing: Routing | None) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.to_builtins(routing or Routing())
    ways = {name: given.pop(name) for name in ("session_id", "label", "key") if name in given}
    return {**given, "routing": ways}


def _webhook(shape: WebhookShape) -> Webhook:
    return Webhook(
        name=shape.name,
        secret=shape.secret if shape.secret is not UNSET else "",
        created_at=shape.created_at,
        prompt=shape.prompt,
        paused=shape.paused,
        routing=shape.routing,
    )
