"""A tool call as a part: its name, what it was given, what came of it, and whether it still owes a result."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clew.transcript.part import output_text

__all__ = ["READING", "WRITING", "file_path", "input_text", "is_open", "is_tool", "result_text", "tool_name"]

READING: Final = frozenset({"read", "read_file"})
WRITING: Final = frozenset({"write", "edit", "write_file"})
_PATH_KEYS: Final = ("path", "file_path", "filePath")
_SETTLED: Final = frozenset({"output-available", "output-error", "output-denied"})


def is_tool(part: Mapping[str, Any]) -> bool:
    return "toolCallId" in part


def is_open(part: Mapping[str, Any]) -> bool:
    """A call without its result: it runs, or waits for a human."""
    return is_tool(part) and part.get("state") not in _SETTLED


def tool_name(part: Mapping[str, Any]) -> str:
    kind = str(part.get("type", ""))
    return str(part.get("toolName", "")) if kind == "dynamic-tool" else kind.removeprefix("tool-")


def input_text(part: Mapping[str, Any]) -> str:
    """What the call was given, as it is sent."""
    given = part.get("input", part.get("rawInput"))
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def result_text(part: Mapping[str, Any]) -> str:
    """The output, the error, or why it was denied; empty for a call that has no result, and for any other part."""
    if not is_tool(part):
        return ""
    match part.get("state"):
        case "output-available":
            return output_text(part) or ""
        case "output-error":
            return str(part.get("errorText") or "")
        case "output-denied":
            approval = part.get("approval")
            reason = approval.get("reason") if isinstance(approval, Mapping) else None
            return reason if isinstance(reason, str) else ""
        case _:
            return ""


def file_path(part: Mapping[str, Any]) -> str | None:
    """The file a completed call of a file tool read or wrote."""
    if part.get("state") != "output-available" or tool_name(part) not in READING | WRITING:
        return None
    given = part.get("input")
    if not isinstance(given, Mapping):
        return None
    for key in _PATH_KEYS:
        path = given.get(key)
        if isinstance(path, str) and path:
            return posixpath.normpath(path)
    return None
