"""Operations on triggers: events, schedules and webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.fronts.operations.operation import Arguments, Operation
from clew.fronts.operations.results import EventFrame, ModelName, ScheduleList, WebhookList, WebhookShape
from clew.transcript.session import read_model
from clew.triggers.events import EventList
from clew.triggers.router import Duplicate, Received
from clew.triggers.schedules import SchedulePreview
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.signature import Scheme
from clew.triggers.webhooks import Challenge

__all__ = ["OPERATIONS"]

MAX_EVENT_BODY: Final = 2 * 1024 * 1024


class RoutingBody(msgspec.Struct):
    """A session by its id, its label, or a routing key. For the latter two a session is created if needed."""

    session_id: str | None = None
    label: str | None = None
    key: str | None = None


class _Routed(Arguments):
    """A routing and the properties of a session created for it; the facade takes both as one ``Routing``."""

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
    """An event from elsewhere. The other fields are for a session that has to be created for it."""

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
    """Filters for the event ledger."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | None = None
    session_id: str | None = msgspec.field(default=None, name="session")
    source: str | None = None
    turn_id: str | None = msgspec.field(default=None, name="turn")
    direction: Literal["in", "out"] | None = None


class _NewTrigger(_Routed, kw_only=True):
    """The common fields of schedules and webhooks."""

    routing: RoutingBody | None = None
    model: ModelName | None = None
    agent: str | None = None
    workspace_root: str | None = None
    title: str | None = None


class NewSchedule(_NewTrigger):
    """A schedule: a prompt, its times, and its routing. Without a routing, each run gets its own session."""

    cron: str
    prompt: str
    timezone: str = "UTC"
    name: str | None = None
    missed: Literal["skip", "once"] = "skip"
    paused: bool = False


class NewWatch(Arguments):
    """A resource of an MCP server to watch, the session to notify, and the prompt."""

    session_id: str
    server: str
    uri: str
    prompt: str | None = None
    name: str | None = None


class PreviewQuery(Arguments):
    """A schedule that is not saved."""

    cron: Annotated[str, Meta(max_length=1000)]
    timezone: Annotated[str, Meta(max_length=1000)] = "UTC"


class SchedulePatch(Arguments):
    """The properties of a schedule to change; ``paused`` pauses and resumes it."""

    cron: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    missed: Literal["skip", "once"] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class NewWebhook(_NewTrigger):
    """A webhook and its routing. Without a routing, each delivery gets its own session."""

    name: str
    scheme: Scheme = "standard"
    secret: str | None = None
    prompt: str | None = None
    paused: bool = False


class NewSecret(Arguments):
    """A new secret, if the sender creates them."""

    secret: str | None = None


class WebhookPatch(Arguments):
    """The properties of a webhook to change; ``paused`` pauses and resumes it."""

    paused: bool | UnsetType = UNSET
    prompt: str | UnsetType | None = UNSET

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        # The facade takes None as not given, and an empty prompt as none.
        return given if self.prompt is not None else {**given, "prompt": ""}


OPERATIONS: Final = (
    Operation(
        "subscribe", "GET /api/events", "Stream the events of this host, from now on.", {200: None}, streams=EventFrame
    ),
    Operation(
        "events.receive",
        "POST /api/events",
        "Receive an event and start or queue its turn. A repeated event gets the same answer.",
        {202: Received},
        NewEvent,
        limit=MAX_EVENT_BODY,
        refusals=(404, 409),
    ),
    Operation(
        "events.list",
        "GET /api/events/ledger",
        "List received events and their replies, newest first.",
        {200: EventList},
        LedgerQuery,
        refusals=(400, 404),
    ),
    Operation("schedules.list", "GET /api/schedules", "List all schedules.", {200: ScheduleList}),
    Operation(
        "schedules.add", "POST /api/schedules", "Create a schedule.", {201: Schedule}, NewSchedule, refusals=(404,)
    ),
    Operation(
        "schedules.watch",
        "POST /api/schedules/watch",
        "Notify a session whenever a resource of an MCP server changes.",
        {201: Schedule},
        NewWatch,
        refusals=(404,),
    ),
    # Before the routes with an id, so that preview is not taken for one.
    Operation(
        "schedules.preview",
        "GET /api/schedules/preview",
        "Preview when a schedule would fire, without creating it.",
        {200: SchedulePreview},
        PreviewQuery,
    ),
    Operation("schedules.remove", "DELETE /api/schedules/{id}", "Delete a schedule. Its past runs stay.", {204: None}),
    Operation("schedules.get", "GET /api/schedules/{id}", "Get a schedule, with its next run.", {200: Schedule}),
    Operation(
        "schedules.change",
        "PATCH /api/schedules/{id}",
        "Change, pause or resume a schedule.",
        {200: Schedule},
        SchedulePatch,
    ),
    Operation(
        "schedules.run",
        "POST /api/schedules/{id}/run",
        "Run a schedule now; its next run is unchanged.",
        {202: Received},
        refusals=(409, 422),
    ),
    Operation("webhooks.list", "GET /api/hooks", "List all webhooks, without their secrets.", {200: WebhookList}),
    Operation(
        "webhooks.add",
        "POST /api/hooks",
        "Create a webhook. Its secret is only in this response.",
        {201: WebhookShape},
        NewWebhook,
        refusals=(404, 409),
    ),
    Operation(
        "webhooks.remove", "DELETE /api/hooks/{name}", "Delete a webhook. Its past deliveries stay.", {204: None}
    ),
    Operation("webhooks.get", "GET /api/hooks/{name}", "Get a webhook.", {200: WebhookShape}),
    Operation(
        "webhooks.change",
        "PATCH /api/hooks/{name}",
        "Change, pause or resume a webhook.",
        {200: WebhookShape},
        WebhookPatch,
    ),
    Operation(
        "webhooks.deliver",
        "POST /api/hooks/{name}",
        "Deliver to a webhook: signed with its secret, without a token. A repeated delivery gets the same "
        "response, and a duplicate under another id starts nothing.",
        {202: Received, 200: Challenge, 208: Duplicate},
        dict[str, Any],
        refusals=(401, 409, 429),
        open=True,
        served=True,
    ),
    Operation(
        "webhooks.rotate",
        "POST /api/hooks/{name}/rotate",
        "Create a new secret, which is only in this response. The old one becomes invalid.",
        {200: WebhookShape},
        NewSecret,
        optional=True,
    ),
)
