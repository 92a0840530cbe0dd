"""Schedules: list, add, look at, change, remove, and run one now."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew.dispatch.router import Received
from clew.engine import Engine
from clew.fronts.http.answer import answer, nothing
from clew.fronts.http.body import read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import ModelName, RoutingBody, ScheduleList, routed
from clew.triggers.schedule import Schedule

__all__ = ["Schedules"]


class NewSchedule(msgspec.Struct):
    """What is said when, and where. Without a routing each run has a session of its own."""

    cron: str
    prompt: str
    timezone: str = "UTC"
    name: str | None = None
    missed: Literal["skip", "once"] = "skip"
    paused: bool = False
    routing: RoutingBody | None = None
    model: ModelName | None = None
    agent: str | None = None
    workspace_root: str | None = None


class SchedulePatch(msgspec.Struct):
    """What of a schedule can be changed; ``paused`` pauses and resumes it."""

    cron: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    missed: Literal["skip", "once"] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class Schedules:
    """The routes under ``/api/schedules``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/schedules", GET=self._list, POST=self._add),
            route("/api/schedules/{id}", GET=self._get, PATCH=self._patch, DELETE=self._delete),
            route("/api/schedules/{id}/run", POST=self._run),
        ]

    @operation("All schedules.", {200: ScheduleList})
    async def _list(self, _: Request) -> Any:
        return answer(ScheduleList(await self._engine.schedules.list()))

    @operation("Keep a schedule.", {201: Schedule}, body=NewSchedule, refuses=(404,))
    async def _add(self, request: Request) -> Any:
        body = await read(request, NewSchedule)
        schedule = await self._engine.schedules.add(
            body.cron,
            body.prompt,
            timezone=body.timezone,
            name=body.name,
            missed=body.missed,
            paused=body.paused,
            routing=routed(body.routing, body.model, body.agent, body.workspace_root, None),
        )
        return answer(schedule, 201)

    @operation("A schedule, with when it fires next.", {200: Schedule})
    async def _get(self, request: Request) -> Any:
        return answer(await self._engine.schedules.get(request.path_params["id"]))

    @operation("Change what is given, pause, or resume.", {200: Schedule}, body=SchedulePatch)
    async def _patch(self, request: Request) -> Any:
        schedule = await self._engine.schedules.get(request.path_params["id"])
        body = await read(request, SchedulePatch)
        given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
        return answer(await self._engine.schedules.change(schedule.id, **given) if given else schedule)

    @operation("Take a schedule out. What it has run stays.", {204: None})
    async def _delete(self, request: Request) -> Any:
        await self._engine.schedules.remove(request.path_params["id"])
        return nothing()

    @operation("Run a schedule now; its next time stays.", {202: Received}, refuses=(409, 422))
    async def _run(self, request: Request) -> Any:
        return answer(await self._engine.schedules.run(request.path_params["id"]), 202)
