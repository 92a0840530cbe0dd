"""Operations on triggers: what happens here and what came in, schedules and webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.dispatch.events import EventList
from clew.dispatch.router import Duplicate, Received
from clew.dispatch.schedules import SchedulePreview
from clew.dispatch.webhooks import Challenge
from clew.fronts.operations.operation import Arguments, Operation
from clew.fronts.operations.results import EventFrame, ModelName, ScheduleList, WebhookList, WebhookShape
from clew.transcript.session import read_model
from clew.triggers.routing import Routing
from clew.triggers.schedule import Schedule
from clew.triggers.signature import Scheme

__all__ = ["OPERATIONS"]

MAX_EVENT_BODY: Final = 2 * 1024 * 1024


class RoutingBody(msgspec.Struct):
    """One of these: a session by its id, its label, or a routing key. The latter two are made when missing."""

    session_id: str | None = None
    label: str | None = None
    key: str | None = None


class _Routed(Arguments):
    """Where something goes, and beside it what a session that is made for it gets: to the facade one ``Routing``."""

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        chosen = msgspec.structs.asdict(given.pop("routing", RoutingBody()))
        made = {name: given.pop(name, None) for name in ("model", "agent", "workspace_root", "title")}
        model = made.pop("model")
        routing = Routing(**chosen, **made, model=read_model(model) if isinstance(model, dict) else model)
        return {**given, "routing": routing}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        routing = msgspec.structs.asdict(arguments.get("routing") or Routing())
        chosen = RoutingBody(*(routing[name] for name in RoutingBody.__struct_fields__))
        return super().of({**routing, **arguments, "routing": chosen})


class NewEvent(_Routed):
    """Something that happened elsewhere. The rest is for a session that has to be made for it."""

    source: str
    source_id: str
    routing: RoutingBody
    type: str | None = None
    text: str | None = None
    payload: Any = None
    model: ModelName | None = None
    agent: str | None = None
    workspace_root: str | None = None
    title: str | None = None


class LedgerQuery(Arguments):
    """Which events of the ledger are listed."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | None = None
    session_id: str | None = msgspec.field(default=None, name="session")
    source: str | None = None
    turn_id: str | None = msgspec.field(default=None, name="turn")
    direction: Literal["in", "out"] | None = None


class _NewTrigger(_Routed, kw_only=True):
    """What schedules and webhooks have alike, after their own."""

    routing: RoutingBody | None = None
    model: ModelName | None = None
    agent: str | None = None
    workspace_root: str | None = None
    title: str | None = None


class NewSchedule(_NewTrigger):
    """What is said when, and where. Without a routing each run has a session of its own."""

    cron: str
    prompt: str
    timezone: str = "UTC"
    name: str | None = None
    missed: Literal["skip", "once"] = "skip"
    paused: bool = False


class NewWatch(Arguments):
    """What a session is told of: a resource of an MCP server, and with which words."""

    session_id: str
    server: str
    uri: str
    prompt: str | None = None
    name: str | None = None


class PreviewQuery(Arguments):
    """A schedule that is not kept yet."""

    cron: Annotated[str, Meta(max_length=1000)]
    timezone: Annotated[str, Meta(max_length=1000)] = "UTC"


class SchedulePatch(Arguments):
    """What of a schedule can be changed; ``paused`` pauses and resumes it."""

    cron: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    missed: Literal["skip", "once"] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class NewWebhook(_NewTrigger):
    """A door and where it leads. Without a routing each delivery has a session of its own."""

    name: str
    scheme: Scheme = "standard"
    secret: str | None = None
    prompt: str | None = None
    paused: bool = False


class NewSecret(Arguments):
    """The sender's own new secret, where it makes them."""

    secret: str | None = None


class WebhookPatch(Arguments):
    """What of a webhook can be changed; ``paused`` pauses and resumes it."""

    paused: bool | UnsetType = UNSET
    prompt: str | UnsetType | None = UNSET

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        # No prompt is an empty one to the facade, which takes None for not given.
        return given if self.prompt is not None else {**given, "prompt": ""}


OPERATIONS: Final = (
    Operation(
        "subscribe", "GET /api/events", "What happens on this host, from now on.", {200: None}, streams=EventFrame
    ),
    Operation(
        "events.receive",
        "POST /api/events",
        "Take an event in and start, or queue, its turn. The same again is answered alike.",
        {202: Received},
        NewEvent,
        limit=MAX_EVENT_BODY,
        refusals=(404, 409),
    ),
    Operation(
        "events.list",
        "GET /api/events/ledger",
        "What came in and what went out for it, newest first.",
        {200: EventList},
        LedgerQuery,
        refusals=(400, 404),
    ),
    Operation("schedules.list", "GET /api/schedules", "All schedules.", {200: ScheduleList}),
    Operation(
        "schedules.add", "POST /api/schedules", "Keep a schedule.", {201: Schedule}, NewSchedule, refusals=(404,)
    ),
    Operation(
        "schedules.watch",
        "POST /api/schedules/watch",
        "Tell a session whenever a resource of an MCP server changes.",
        {201: Schedule},
        NewWatch,
        refusals=(404,),
    ),
    # Before those of one schedule: it is not called preview.
    Operation(
        "schedules.preview",
        "GET /api/schedules/preview",
        "When a schedule would fire next, without keeping one.",
        {200: SchedulePreview},
        PreviewQuery,
    ),
    Operation(
        "schedules.remove", "DELETE /api/schedules/{id}", "Take a schedule out. What it has run stays.", {204: None}
    ),
    Operation("schedules.get", "GET /api/schedules/{id}", "A schedule, with when it fires next.", {200: Schedule}),
    Operation(
        "schedules.change",
        "PATCH /api/schedules/{id}",
        "Change what is given, pause, or resume.",
        {200: Schedule},
        SchedulePatch,
    ),
    Operation(
        "schedules.run",
        "POST /api/schedules/{id}/run",
        "Run a schedule now; its next time stays.",
        {202: Received},
        refusals=(409, 422),
    ),
    Operation("webhooks.list", "GET /api/hooks", "All webhooks, without their secrets.", {200: WebhookList}),
    Operation(
        "webhooks.add",
        "POST /api/hooks",
        "Keep a webhook. Its secret is in this answer and in no other.",
        {201: WebhookShape},
        NewWebhook,
        refusals=(404, 409),
    ),
    Operation("webhooks.remove", "DELETE /api/hooks/{name}", "Take a webhook out. What came in stays.", {204: None}),
    Operation("webhooks.get", "GET /api/hooks/{name}", "A webhook.", {200: WebhookShape}),
    Operation(
        "webhooks.change",
        "PATCH /api/hooks/{name}",
        "Change what is given, pause, or resume.",
        {200: WebhookShape},
        WebhookPatch,
    ),
    Operation(
        "webhooks.deliver",
        "POST /api/hooks/{name}",
        "A delivery, signed with the secret of the webhook; no token. A repeated delivery gets the same "
        "answer, and a duplicate under another id starts nothing.",
        {202: Received, 200: Challenge, 208: Duplicate},
        dict[str, Any],
        refusals=(401, 409, 429),
        open=True,
        served=True,
    ),
    Operation(
        "webhooks.rotate",
        "POST /api/hooks/{name}/rotate",
        "A new secret, in this answer and in no other. The old one counts no more.",
        {200: WebhookShape},
        NewSecret,
        optional=True,
    ),
)
