"""The commands, one module per subject. A command is a function; its parameters are its arguments and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["COMMANDS"]

COMMANDS: Final[Mapping[str, str]] = {
    "run": "run:run",
    "continue": "run:continue_",
    "ls": "sessions:ls",
    "show": "sessions:show_",
    "queue": "sessions:queue",
    "abort": "sessions:abort",
    "archive": "sessions:archive",
    "pin": "sessions:pin",
    "rm": "sessions:rm",
    "tree": "history:tree",
    "reflog": "history:reflog",
    "rewind": "history:rewind",
    "unrewind": "history:unrewind",
    "goto": "history:goto",
    "branch": "history:branch",
    "fork": "history:fork",
    "changes": "files:changes",
    "du": "files:du",
    "diff": "history:diff",
    "context": "context:context",
    "compact": "context:compact",
    "prune": "context:prune",
    "usage": "usage:usage",
    "search": "transfer:search",
    "export": "transfer:export",
    "import": "transfer:import_",
    "rules": "rules:rules",
    "mode": "rules:mode",
    "check": "maintenance:check",
    "backup": "maintenance:backup",
    "ledger": "maintenance:ledger",
    "rebuild": "maintenance:rebuild",
    "convert": "maintenance:convert",
    "replicas": "maintenance:replicas",
    "demo": "maintenance:demo",
    "schedule": "triggers:schedules",
    "hook": "triggers:hooks",
    "events": "triggers:events",
    "models": "settings:models",
    "agents": "settings:agents",
    "config": "settings:config",
    "mcp-servers": "mcp_servers:mcp_servers",
    "token": "tokens:tokens",
    "new": "starters:new",
}
"""Each command with its module and its function or group. Only the module of the command that runs is imported."""
