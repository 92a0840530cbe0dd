"""clew: a durable session engine for AI agents.

It records everything an agent streams, before anybody sees it, and lets people leave, come back and go on
without losing a word.
"""

from typing import TYPE_CHECKING, Any

from clew import errors
from clew._version import __version__
from clew.config import Config, SavePolicy
from clew.engine import Engine, SessionList
from clew.engine.facade import AgentList, AgentShape, ReplicaShape
from clew.errors import *  # noqa: F403 - every error is public
from clew.live.base import Event, LiveStream, RunningCall, Status, Waiting
from clew.mcp_server import McpServer
from clew.opening import open
from clew.store.base import Damage, Rebuilt
from clew.store.search import SearchHit, SearchPage
from clew.tools.base import File, Tool, ToolContext, ToolOutput
from clew.tools.decorator import tool
from clew.transcript.message import Message, MessageRow, PartRow
from clew.transcript.portable import Blob
from clew.transcript.rule import Rule, Target
from clew.transcript.session import Model, Session, Spend
from clew.transcript.spend import UsageGroup, UsageReport, UsageSums
from clew.transcript.usage import Usage
from clew.triggers.ledger import LedgerEvent
from clew.triggers.routing import Routing
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

if TYPE_CHECKING:
    from clew.agents.manifest import Agent
    from clew.compaction.context import ContextParts, ContextReport
    from clew.compaction.files import TouchedFile
    from clew.dispatch.events import EventList
    from clew.dispatch.router import Received
    from clew.dispatch.schedules import SchedulePreview
    from clew.dispatch.webhooks import Challenge
    from clew.engine.prompts import SavedPrompt
    from clew.engine.settings import SettingsShape
    from clew.engine.turn_stream import TurnStream
    from clew.history.compactions import CompactionReport
    from clew.history.files import FileList
    from clew.history.report import RequestReport, StepReport, TurnReport
    from clew.history.rewind import Rewound
    from clew.history.tree import ReflogEntry, TreeBranch, TreeTurn, TreeView
    from clew.interop.programs.arrival import Arrival, Remark
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
        UsageSaid,
    )
    from clew.providers.given import ProviderSet
    from clew.runtime.calls import ToolCallValue
    from clew.runtime.compact import Compacted
    from clew.runtime.hook_map import HookMap
    from clew.runtime.hooks import HookContext, HookRefused
    from clew.runtime.rule_book import KeptRule
    from clew.runtime.submission import Submission, TurnOutcome
    from clew.system_prompt.assemble import Section
    from clew.tools.served import ServerState
    from clew.triggers.schedule import Watch

# Values that only a running engine hands out are loaded when somebody names them: `import clew` stays light.
_LATER = {
    "clew.agents.manifest": ("Agent",),
    "clew.compaction.context": ("ContextParts", "ContextReport"),
    "clew.compaction.files": ("TouchedFile",),
    "clew.dispatch.events": ("EventList",),
    "clew.dispatch.router": ("Received",),
    "clew.dispatch.schedules": ("SchedulePreview",),
    "clew.dispatch.webhooks": ("Challenge",),
    "clew.engine.prompts": ("SavedPrompt",),
    "clew.engine.settings": ("SettingsShape",),
    "clew.engine.turn_stream": ("TurnStream",),
    "clew.history.compactions": ("CompactionReport",),
    "clew.history.files": ("FileList",),
    "clew.history.report": ("RequestReport", "StepReport", "TurnReport"),
    "clew.history.rewind": ("Rewound",),
    "clew.history.tree": ("ReflogEntry", "TreeBranch", "TreeTurn", "TreeView"),
    "clew.interop.programs.arrival": ("Arrival", "Remark"),
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
        "UsageSaid",
    ),
    "clew.providers.given": ("ProviderSet",),
    "clew.runtime.calls": ("ToolCallValue",),
    "clew.runtime.compact": ("Compacted",),
    "clew.runtime.hook_map": ("HookMap",),
    "clew.runtime.hooks": ("HookContext", "HookRefused"),
    "clew.runtime.rule_book": ("KeptRule",),
    "clew.runtime.submission": ("Submission", "TurnOutcome"),
    "clew.system_prompt.assemble": ("Section",),
    "clew.tools.served": ("ServerState",),
    "clew.triggers.schedule": ("Watch",),
}

__all__ = [
    "Agent",
    "AgentList",
    "AgentShape",
    "Arrival",
    "Blob",
    "Challenge",
    "Compacted",
    "CompactionReport",
    "Config",
    "Considered",
    "ContextParts",
    "ContextReport",
    "Damage",
    "Engine",
    "Event",
    "EventList",
    "Explanation",
    "File",
    "FileList",
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
    "UsageSaid",
    "UsageSums",
    "Waiting",
    "Watch",
    "Webhook",
    "__version__",
    "open",
    "tool",
]
__all__ += errors.__all__


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'clew' has no attribute {name!r}")
