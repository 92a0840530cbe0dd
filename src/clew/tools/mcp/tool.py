"""Tools of a server, and its door, as a run has them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clew.errors import PermissionDenied, ToolFailed
from clew.tools.base import Change, ToolContext, ToolOutput, target_of_arguments
from clew.tools.mcp.connection import Connection
from clew.tools.mcp.definitions import Definition, Definitions, door_name
from clew.tools.mcp.results import read_result
from clew.tools.mcp_tools import ALLOWED
from clew.transcript.rule import Target

__all__ = ["Door", "ServerTool", "is_trusted"]

_NO_ARGUMENTS: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


def is_trusted(connection: Connection, digest: str) -> bool:
    """Whether whoever named the server said beforehand that nobody is to be asked about these definitions."""
    return connection.server.trust or connection.server.pin == digest


class ServerTool:
    """One tool. ``known`` are the definitions it was offered with; without them, for a call that was allowed in an
    earlier process, they are judged when it runs."""

    needs_workspace = False
    asks_human = False

    def __init__(self, connection: Connection, name: str, known: Definitions | None = None) -> None:
        self._connection = connection
        self.name = name
        self._digest = known.digest if known is not None else None
        found = _find(known, name)
        self.description = found.description if found is not None else ""
        self.input_schema: Mapping[str, Any] = found.input_schema if found is not None else {"type": "object"}
        self.timeout_ms = round(connection.server.timeout_s * 1000)

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        return [target_of_arguments(self.name, args)]

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        known = await self._connection.ready()
        if known.digest != self._digest:
            await self._check(known.digest, context)
        self._connection.taken = known
        definition = _find(known, self.name)
        if definition is None:
            raise ToolFailed(f"the MCP server {self._connection.name} has no such tool any more")
        answer = await self._connection.call(definition.name, args, context.report, known)
        return await read_result(answer, definition, context)

    async def _check(self, digest: str, context: ToolContext) -> None:
        """Refuse what nobody has looked at: it is another tool now, whatever it is called."""
        server = self._connection.name
        if is_trusted(self._connection, digest) or (server, digest) in context.state.get(ALLOWED, ()):
            return
        try:
            await context.permit(Target(door_name(server), "plain", digest))
        except PermissionDenied as error:
            told = f"the MCP server {server} has changed what its tools are, and nobody has looked at that yet"
            raise ToolFailed(f"{told}; call {door_name(server)} to have it looked at") from error


class Door:
    """Stands for a server whose definitions nobody has taken yet, or that cannot be reached (``trouble``)."""

    needs_workspace = False
    asks_human = False
    input_schema: Mapping[str, Any] = _NO_ARGUMENTS

    def __init__(self, connection: Connection, known: Definitions | None = None, trouble: str | None = None) -> None:
        self._connection, self._known, self._trouble = connection, known, trouble
        self.name = door_name(connection.name)
        self.timeout_ms = round((connection.server.start_s + 5) * 1000)
        about = f"The MCP server {connection.name} cannot be reached now. Call this to hear why."
        if known is not None:
            about = (
                f"The MCP server {connection.name} has {len(known.tools)} tools that nobody has looked at yet. Call "
                "this, without arguments, to have a person look at them; once they are allowed, you have them."
            )
        self.description = about

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        if self._known is None:
            raise ToolFailed(self._trouble or "it is not known what the server has")
        return [Target(self.name, "plain", self._known.digest)]

    def preview(self, args: Mapping[str, Any], workspace: Path | None) -> Change | None:
        """The definitions, as a change against those that were taken before."""
        if self._known is None:
            return None
        taken = self._connection.taken
        before = taken.told.splitlines() if taken is not None else []
        lines = list(difflib.unified_diff(before, self._known.told.splitlines(), lineterm="", n=1))[2:]
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        new = "what its tools are has changed since it was allowed" if taken is not None else "its tools, as it says"
        names = ", ".join(one.known_as for one in self._known.tools) or "none"
        return Change("\n".join(lines), added, removed, f"MCP server {self._connection.name}: {new}: {names}")

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        known = await self._connection.ready()
        asked = [target.value for target in context.judged or () if target.permission == self.name]
        if known.digest not in asked:
            raise ToolFailed(f"the MCP server {self._connection.name} has changed since you asked; call this again")
        context.state.setdefault(ALLOWED, set()).add((self._connection.name, known.digest))
        self._connection.taken = known
        names = ", ".join(one.known_as for one in known.tools)
        return ToolOutput({"text": f"allowed; these tools are there now: {names or 'none'}"})


def _find(known: Definitions | None, name: str) -> Definition | None:
    return next((one for one in known.tools if one.known_as == name), None) if known is not None else None
