"""Operations about the host, not about one session: the page, what runs here, models, agents, files, samples."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.engine.facade import AgentList
from clew.engine.prompts import SavedPrompt
from clew.engine.settings import SettingsShape
from clew.fronts.operations.operation import Arguments, Nothing, Operation
from clew.fronts.operations.results import (
    FileNames,
    Health,
    McpServerList,
    ModelList,
    PromptList,
    ReplicaList,
    ServerShape,
    SessionList,
)
from clew.mcp_server import McpServer
from clew.tools.served import ServerState
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


class FindFilesQuery(Arguments):
    """What is typed, and in whose workspace: a session's, or a folder's."""

    q: Annotated[str, Meta(max_length=1000)] = ""
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    folders: bool = False


class SettingsPatch(Arguments):
    """What is changed; null takes a setting back."""

    default_model: str | UnsetType | None = UNSET
    default_agent: str | UnsetType | None = UNSET
    max_steps: int | UnsetType | None = UNSET


class NewPrompt(Arguments):
    """Words to keep, and their name."""

    name: str
    text: str


class ServersQuery(Arguments):
    """Whose servers: a session's, or those that sessions in a folder have."""

    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None


class ServerPlace(Arguments):
    """Where it is started: for a session, or in a folder."""

    session_id: str | None = None
    workspace: str | None = None


class GivenServers(Arguments):
    """Servers by name."""

    servers: dict[str, McpServer]


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
        "Whether prompts are accepted now; 503 with the reason during shutdown, without a usable store or a lease.",
        {200: Health},
        open=True,
        served=True,
    ),
    Operation(
        "metrics",
        "GET /metrics",
        "What this server has done and used since it was started, as Prometheus reads it.",
        {200: str},
        media="text/plain; version=0.0.4; charset=utf-8",
        refusals=(404,),
        served=True,
    ),
    Operation(
        "replicas",
        "GET /api/replicas",
        "Who serves the store, and what each runs.",
        {200: ReplicaList},
        refusals=(404,),
    ),
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
        "find_files",
        "GET /api/files",
        "Files of a workspace by what is typed of their names, the likeliest first.",
        {200: FileNames},
        FindFilesQuery,
        refusals=(400, 404),
    ),
    Operation("settings", "GET /api/settings", "What holds where nobody says otherwise.", {200: SettingsShape}),
    Operation(
        "change_settings",
        "PATCH /api/settings",
        "Change what is given.",
        {200: SettingsShape},
        SettingsPatch,
        refusals=(404,),
    ),
    Operation(
        "mcp_servers",
        "GET /api/mcp-servers",
        "The MCP servers whose tools agents have, and how they are.",
        {200: McpServerList},
        ServersQuery,
        refusals=(400, 404),
    ),
    Operation(
        "start_mcp_server",
        "POST /api/mcp-servers/{name}/start",
        "Start an MCP server, or ask it again what its tools are.",
        {200: ServerState},
        ServerPlace,
        optional=True,
        refusals=(404,),
    ),
    Operation(
        "give_mcp_servers",
        "PUT …/mcp-servers",
        "Give a session MCP servers of its own, in the place of those it was given before.",
        {200: McpServerList},
        GivenServers,
    ),
    Operation("prompts", "GET /api/prompts", "The saved prompts.", {200: PromptList}),
    Operation("save_prompt", "POST /api/prompts", "Keep words under a name.", {200: SavedPrompt}, NewPrompt),
    Operation("remove_prompt", "DELETE /api/prompts/{name}", "Forget a saved prompt.", {204: None}, refusals=(422,)),
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
