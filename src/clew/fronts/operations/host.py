"""Operations about the host, not about one session: the page, what runs here, models, agents, files, samples."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.engine.facade import AgentList
from clew.fronts.operations.operation import Arguments, Nothing, Operation
from clew.fronts.operations.results import Health, ModelList, ReplicaList, ServerShape, SessionList
from clew.transcript.spend import Grouping, UsageReport

__all__ = ["DOCUMENT", "OPERATIONS"]


class AgentQuery(Arguments):
    """Whose project's agents are listed too."""

    workspace: str | None = None


class UsageArguments(Arguments):
    """What calls are grouped by, and when they were asked. A day as ``to`` counts as a whole."""

    by: Grouping = "day"
    since: str | None = msgspec.field(default=None, name="from")
    until: str | None = msgspec.field(default=None, name="to")


OPERATIONS: Final = (
    Operation(
        "page", "GET /", "The page.", {200: str, 304: None}, media="text/html; charset=utf-8", open=True, served=True
    ),
    Operation(
        "asset",
        "GET /assets/{file}",
        "A file of the page.",
        {200: bytes, 304: None},
        media="*/*",
        open=True,
        served=True,
    ),
    Operation("health", "GET /api/health", "That the server is up.", {200: Health}, open=True, served=True),
    Operation(
        "ready",
        "GET /api/health/ready",
        "That prompts are taken here now; 503 while this server is ending, away from its store, or without a lease.",
        {200: Health},
        open=True,
        served=True,
    ),
    Operation("replicas", "GET /api/replicas", "Who serves the store, and what each runs.", {200: ReplicaList}),
    Operation("server", "GET /api/server", "What is running here, and where.", {200: ServerShape}, served=True),
    Operation("models", "GET /api/models", "The models that can be named, the usable ones first.", {200: ModelList}),
    Operation("agents", "GET /api/agents", "The agents a session can have.", {200: AgentList}, AgentQuery),
    Operation(
        "usage",
        "GET /api/usage",
        "What all model calls have used and cost, in groups.",
        {200: UsageReport},
        UsageArguments,
    ),
    Operation("blob", "GET /api/blobs/{sha256}", "The bytes of a file in a message.", {200: bytes}, media="*/*"),
    Operation(
        "accept_loss",
        "POST /api/losses/{loss_id}/accept",
        "Accept that acknowledged commits are lost.",
        {204: None},
        Nothing,
    ),
    Operation(
        "examples",
        "POST /api/examples",
        "Make the sample sessions.",
        {200: SessionList},
        Nothing,
        optional=True,
        refusals=(409,),
        served=True,
    ),
)
DOCUMENT: Final = Operation("document", "GET /openapi.json", "This document.", {200: dict[str, Any]}, served=True)
