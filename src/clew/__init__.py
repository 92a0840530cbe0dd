"""clew: a durable session engine for AI agents.

It records everything an agent streams, before anybody sees it, and lets people leave, come back and go on
without losing a word.
"""

from typing import TYPE_CHECKING, Any

from clew import errors
from clew._version import __version__
from clew.compose import open
from clew.config import Config, SavePolicy
from clew.errors import *  # noqa: F403 - every error is public
from clew.live.base import Event, LiveStream, RunningCall, Status, Waiting
from clew.mcp_server import McpServer
from clew.session.api import Engine, SessionList
from clew.session.api.operations import AgentList, AgentShape, DiskUse, ReplicaShape
from clew.store.base import Damage, Rebuilt
from clew.store.search import SearchHit, SearchPage
from clew.tools.base import File, Tool, ToolContext, ToolOutput
from clew.tools.decorator import tool
from clew.transcript.message import Message, MessageRow, PartRow
from clew.transcript.portable import Blob
from clew.transcript.rule import KeptRule, Rule, Target
from clew.transcript.session import Model, Session, Spend
from clew.transcript.spend import UsageGroup, UsageReport, UsageSums
from clew.transcript.stream_cursor import StreamChunk
from clew.transcript.usage import Usage
from clew.triggers.values.ledger import LedgerEvent
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

if TYPE_CHECKING:
    from clew.agents.manifest import Agent
    from clew.compaction.context import ContextParts, ContextReport
    from clew.compaction.files import TouchedFile
    from clew.interop.programs.import_report import Arrival, Remark
    from clew.permissions.evaluate import Considered
    from clew.permissions.explain import Explanation, Subject
    from clew.providers.base import (
        ModelInfo,
        ModelListing,
        ModelRequest,
        Provider,
        ProviderFailure,
        Providers,
        StepEnd,
        ToolSchema,
        UsageUpdate,
    )
    from clew.providers.host_providers import ProviderSet
    from clew.session.api.prompts import SavedPrompt
    from clew.session.api.settings import SettingsShape
    from clew.session.api.turn_stream import TurnStream
    from clew.session.context.compact import Compacted
    from clew.session.history.file_values import (
        ChangedFile,
        ChangesReport,
        FileDiff,
        FileEffect,
        FilesCompared,
        FilesRestored,
        RestorePreview,
    )
    from clew.session.history.report import CompactionReport, RequestReport, StepReport, TurnReport
    from clew.session.history.rewind import Rewound
    from clew.session.history.tree import ReflogEntry, TreeBranch, TreeTurn, TreeView
    from clew.session.history.views import FileList
    from clew.session.hook_map import HookMap
    from clew.session.hooks import HookContext, HookRefused
    from clew.session.prompt.submission import Submission, TurnOutcome
    from clew.session.turn.calls import ToolCallValue
    from clew.system_prompt.sections import Section
    from clew.tools.mcp_tools import ServerState
    from clew.triggers.events import EventList
    from clew.triggers.router import Received
    from clew.triggers.schedules import SchedulePreview
    from clew.triggers.values.schedule import Watch
    from clew.triggers.webhooks import Challenge

# Values that only a running engine returns are imported on first use: `import clew` stays fast.
_LATER = {
    "clew.agents.manifest": ("Agent",),
    "clew.compaction.context": ("ContextParts", "ContextReport"),
    "clew.compaction.files": ("TouchedFile",),
    "clew.triggers.events": ("EventList",),
    "clew.triggers.router": ("Received",),
    "clew.triggers.schedules": ("SchedulePreview",),
    "clew.triggers.webhooks": ("Challenge",),
    "clew.session.api.prompts": ("SavedPrompt",),
    "clew.session.api.settings": ("SettingsShape",),
    "clew.session.api.turn_stream": ("TurnStream",),
    "clew.session.history.views": ("FileList",),
    "clew.session.history.report": ("CompactionReport", "RequestReport", "StepReport", "TurnReport"),
    "clew.session.history.file_values": (
        *("ChangedFile", "ChangesReport", "FileDiff", "FileEffect", "FilesCompared", "FilesRestored", "RestorePreview"),
    ),
    "clew.session.history.rewind": ("Rewound",),
    "clew.session.history.tree": ("ReflogEntry", "TreeBranch", "TreeTurn", "TreeView"),
    "clew.interop.programs.import_report": ("Arrival", "Remark"),
    "clew.permissions.evaluate": ("Considered",),
    "clew.permissions.explain": ("Explanation", "Subject"),
    "clew.providers.base": (
        "ModelInfo",
        "ModelListing",
        "ModelRequest",
        "Provider",
        "ProviderFailure",
        "Providers",
        "StepEnd",
        "ToolSchema",
        "UsageUpdate",
    ),
    "clew.providers.host_providers": ("ProviderSet",),
    "clew.session.turn.calls": ("ToolCallValue",),
    "clew.session.context.compact": ("Compacted",),
    "clew.session.hook_map": ("HookMap",),
    "clew.session.hooks": ("HookContext", "HookRefused"),
    "clew.session.prompt.submission": ("Submission", "TurnOutcome"),
    "clew.system_prompt.sections": ("Section",),
    "clew.tools.mcp_tools": ("ServerState",),
    "clew.triggers.values.schedule": ("Watch",),
}

__all__ = [
    "Agent",
    "AgentList",
    "AgentShape",
    "Arrival",
    "Blob",
    "Challenge",
    "ChangedFile",
    "ChangesReport",
    "Compacted",
    "CompactionReport",
    "Config",
    "Considered",
    "ContextParts",
    "ContextReport",
    "Damage",
    "DiskUse",
    "Engine",
    "Event",
    "EventList",
    "Explanation",
    "File",
    "FileDiff",
    "FileEffect",
    "FileList",
    "FilesCompared",
    "FilesRestored",
    "HookContext",
    "HookMap",
    "HookRefused",
    "KeptRule",
    "LedgerEvent",
    "LiveStream",
    "McpServer",
    "Message",
    "MessageRow",
    "Model",
    "ModelInfo",
    "ModelListing",
    "ModelRequest",
    "PartRow",
    "Provider",
    "ProviderFailure",
    "ProviderSet",
    "Providers",
    "Rebuilt",
    "Received",
    "ReflogEntry",
    "Remark",
    "ReplicaShape",
    "RequestReport",
    "RestorePreview",
    "Rewound",
    "Routing",
    "Rule",
    "RunningCall",
    "SavePolicy",
    "SavedPrompt",
    "Schedule",
    "SchedulePreview",
    "SearchHit",
    "SearchPage",
    "Section",
    "ServerState",
    "Session",
    "SessionList",
    "SettingsShape",
    "Spend",
    "Status",
    "StepEnd",
    "StepReport",
    "StreamChunk",
    "Subject",
    "Submission",
    "Target",
    "Tool",
    "ToolCallValue",
    "ToolContext",
    "ToolOutput",
    "ToolSchema",
    "TouchedFile",
    "TreeBranch",
    "TreeTurn",
    "TreeView",
    "TurnOutcome",
    "TurnReport",
    "TurnStream",
    "Usage",
    "UsageGroup",
    "UsageReport",
    "UsageSums",
    "UsageUpdate",
    "Waiting",
    "Watch",
    "Webhook",
    "__version__",
    "open",
    "tool",
]
__all__ += errors.__all__


_RENAMED = {"UsageSaid": "UsageUpdate"}
"""Public names of the last release; they go with the next one."""


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from warnings import warn

    if name in _RENAMED:
        warn(f"clew.{name} is called clew.{_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'clew' has no attribute {name!r}")
