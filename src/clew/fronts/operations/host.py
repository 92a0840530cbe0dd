"""Operations on the host: the page, the server's state, models, agents, files and sample sessions."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

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
from clew.session.api.operations import AgentList, DiskUse
from clew.session.api.prompts import SavedPrompt
from clew.session.api.settings import SettingsShape
from clew.tools.mcp_tools import ServerState
from clew.transcript.spend import Grouping, UsageReport

__all__ = ["DOCUMENT", "OPERATIONS"]


class AgentQuery(Arguments):
    """The workspace whose project agents are included."""

    workspace: str | None = None


class UsageArguments(Arguments):
    """The grouping of calls, and their period. A day as ``to`` is included as a whole."""

    by: Grouping = "day"
    since: str | None = msgspec.field(default=None, name="from")
    until: str | None = msgspec.field(default=None, name="to")


class FindFilesQuery(Arguments):
    """The typed text, and the workspace: of a session, or a folder."""

    q: Annotated[str, Meta(max_length=1000)] = ""
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    folders: bool = False


class SettingsPatch(Arguments):
    """The settings to change; null resets a setting."""

    default_model: str | UnsetType | None = UNSET
    default_agent: str | UnsetType | None = UNSET
    max_steps: int | UnsetType | None = UNSET


class NewPrompt(Arguments):
    """A prompt to save, and its name."""

    name: str
    text: str


class ServersQuery(Arguments):
    """The session whose servers are listed, or a folder in which sessions work."""

    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None


class ServerPlace(Arguments):
    """The session or the folder to start the server for."""

    session_id: str | None = None
    workspace: str | None = None


class GivenServers(Arguments):
    """Servers by name."""

    servers: dict[str, McpServer]


OPERATIONS: Final = (
    Operation(
        "page",
        "GET /",
        "Get the web page.",
        {200: str, 304: None},
        media="text/html; charset=utf-8",
        open=True,
        served=True,
    ),
    Operation(
        "asset",
        "GET /assets/{file}",
        "Get a file of the page.",
        {200: bytes, 304: None},
        media="*/*",
        open=True,
        served=True,
    ),
    Operation("disk_use", "GET /api/disk", "Get the bytes on disk by kind.", {200: DiskUse}, refusals=(404,)),
    Operation("health", "GET /api/health", "Check that the server is up.", {200: Health}, open=True, served=True),
    Operation(
        "ready",
        "GET /api/health/ready",
        "Check that prompts are accepted; 503 with the reason during shutdown, or without a usable store or a lease.",
        {200: Health},
        open=True,
        served=True,
    ),
    Operation(
        "metrics",
        "GET /metrics",
        "Get metrics of this server since its start, in the Prometheus format.",
        {200: str},
        media="text/plain; version=0.0.4; charset=utf-8",
        refusals=(404,),
        served=True,
    ),
    Operation(
        "replicas",
        "GET /api/replicas",
        "List the replicas that serve the store, and their runs.",
        {200: ReplicaList},
        refusals=(404,),
    ),
    Operation("server", "GET /api/server", "Get information about this server.", {200: ServerShape}, served=True),
    Operation("models", "GET /api/models", "List known models, usable ones first.", {200: ModelList}),
    Operation("agents", "GET /api/agents", "List the agents a session can use.", {200: AgentList}, AgentQuery),
    Operation(
        "usage",
        "GET /api/usage",
        "Get token usage and cost of all model calls, in groups.",
        {200: UsageReport},
        UsageArguments,
    ),
    Operation("blob", "GET /api/blobs/{sha256}", "Get the bytes of a file in a message.", {200: bytes}, media="*/*"),
    Operation(
        "find_files",
        "GET /api/files",
        "Find files of a workspace by part of their names, best match first.",
        {200: FileNames},
        FindFilesQuery,
        refusals=(400, 404),
    ),
    Operation("settings", "GET /api/settings", "Get the default settings.", {200: SettingsShape}),
    Operation(
        "change_settings",
        "PATCH /api/settings",
        "Change settings.",
        {200: SettingsShape},
        SettingsPatch,
        refusals=(404,),
    ),
    Operation(
        "mcp_servers",
        "GET /api/mcp-servers",
        "List the MCP servers whose tools agents can use, and their state.",
        {200: McpServerList},
        ServersQuery,
        refusals=(400, 404),
    ),
    Operation(
        "start_mcp_server",
        "POST /api/mcp-servers/{name}/start",
        "Start an MCP server, or refresh its tool list.",
        {200: ServerState},
        ServerPlace,
        optional=True,
        refusals=(404,),
    ),
    Operation(
        "give_mcp_servers",
        "PUT …/mcp-servers",
        "Set a session's own MCP servers, replacing previous ones.",
        {200: McpServerList},
        GivenServers,
    ),
    Operation("prompts", "GET /api/prompts", "List the saved prompts.", {200: PromptList}),
    Operation("save_prompt", "POST /api/prompts", "Save a prompt under a name.", {200: SavedPrompt}, NewPrompt),
    Operation("remove_prompt", "DELETE /api/prompts/{name}", "Delete a saved prompt.", {204: None}, refusals=(422,)),
    Operation(
        "accept_loss",
        "POST /api/losses/{loss_id}/accept",
        "Accept a reported loss of acknowledged commits.",
        {204: None},
        Nothing,
    ),
    Operation(
        "examples",
        "POST /api/examples",
        "Create the sample sessions.",
        {200: SessionList},
        Nothing,
        optional=True,
        refusals=(409,),
        served=True,
    ),
)
DOCUMENT: Final = Operation("document", "GET /openapi.json", "Get this document.", {200: dict[str, Any]}, served=True)
