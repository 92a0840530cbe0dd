"""Tool definitions of an MCP server, as shown to people and sent to models: bounded, visible, identified by a digest.

A definition is untrusted text that a model will act on. So a person sees all of it before it is accepted, it has no
invisible characters, and its schemas can be checked. Hints such as "read-only" are ignored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.escape import escape_invisible
from clew.tools.arguments import check_schema
from clew.tools.mcp_tools import PREFIX

__all__ = ["Definition", "Definitions", "placeholder_name", "read_definitions"]

MAX_TOOLS: Final = 128
MAX_BYTES: Final = 256 * 1024
"""Limit for all definitions of a server: the most a person can be asked to review."""
MAX_ROWS: Final = 10_000
_MAX_NAME: Final = 64
_MAX_DEPTH: Final = 40
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)


class Definition(msgspec.Struct, frozen=True):
    """One tool: ``name`` is the server's name for it, ``known_as`` the model's."""

    name: str
    known_as: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None


class Definitions(msgspec.Struct, frozen=True):
    """All definitions of a server. ``notices`` say which of its tools are left out, and why."""

    digest: str
    tools: tuple[Definition, ...]
    notices: tuple[str, ...] = ()

    @property
    def as_text(self) -> str:
        """Return all definitions as text, for review."""
        lines: list[str] = []
        for tool in self.tools:
            # Indented: a description must not look like the heading of another tool.
            lines += [f"## {tool.known_as}", *(f"  {line}" for line in tool.description.splitlines())]
            lines.append(f"takes {msgspec.json.encode(tool.input_schema).decode()}")
            if tool.output_schema is not None:
                lines.append(f"gives {msgspec.json.encode(tool.output_schema).decode()}")
            lines.append("")
        return "\n".join(lines)


def placeholder_name(server: str) -> str:
    """Return the name of a server's placeholder tool, which is also the permission its definitions need."""
    return f"{PREFIX}{server}"


def read_definitions(server: str, listed: Sequence[Mapping[str, Any]]) -> Definitions:
    """Return the usable definitions of a list. Raises ``ToolFailed`` for more than a person could review."""
    if len(listed) > MAX_TOOLS:
        raise ToolFailed(f"it has {len(listed)} tools, more than the {MAX_TOOLS} allowed for one server")
    tools: dict[str, Definition] = {}
    notices: list[str] = []
    size = rows = 0
    for listed_tool in listed:
        name = str(listed_tool.get("name") or "")
        shown = escape_invisible(name[:_MAX_NAME])
        try:
            tool = Definition(
                name,
                _known_as(server, name),
                escape_invisible(
                    str(listed_tool.get("description") or listed_tool.get("title") or "It does not say what it does."),
                    "\n",
                ),
                _visible({**(listed_tool.get("inputSchema") or {}), "type": "object"}),
                None if listed_tool.get("outputSchema") is None else _visible(listed_tool["outputSchema"]),
            )
        except (RecursionError, ValueError, TypeError):
            notices.append(f"{shown}: left out; its schema is nested too deeply")
            continue
        rows += tool.description.count("\n")
        size += len(msgspec.json.encode(tool))
        if size > MAX_BYTES or rows > MAX_ROWS:
            limit = f"{MAX_BYTES:,} bytes" if size > MAX_BYTES else f"{MAX_ROWS:,} lines"
            raise ToolFailed(f"its definitions are more than {limit}: too much to review")
        # Some servers give the root another type than object; arguments always are an object.
        root_type = (listed_tool.get("inputSchema") or {}).get("type", "object")
        problem = None if root_type == "object" else "its arguments are not an object"
        problem = problem or check_schema(tool.input_schema)
        problem = problem or (check_schema(tool.output_schema) if tool.output_schema is not None else None)
        if problem is None and (not name or tool.known_as in tools):
            problem = "it has no name of its own"
        if problem is not None:
            notices.append(f"{shown}: left out; {problem}")
        else:
            tools[tool.known_as] = tool
    accepted = tuple(sorted(tools.values(), key=lambda tool: tool.known_as))
    encoded = msgspec.json.encode([server, *accepted], order="deterministic")
    return Definitions(f"sha256:{hashlib.sha256(encoded).hexdigest()}", accepted, tuple(notices))


def _known_as(server: str, name: str) -> str:
    """Return a name that every provider accepts, and no two tools share."""
    whole = f"{PREFIX}{server}__{_UNFIT.sub('_', name)}"
    if len(whole) <= _MAX_NAME and not _UNFIT.search(name):
        return whole
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{whole[: _MAX_NAME - 9]}_{mark}"


def _visible(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return escape_invisible(value, "\n")
    if isinstance(value, Mapping):
        return {escape_invisible(str(key)): _visible(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_visible(one, depth + 1) for one in value]
    return value
