"""The tools of an MCP server, and its placeholder tool, as a run uses them.

Text in an answer stays text, bytes become files, and an error is raised as ``ToolFailed``.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import PermissionDenied, ToolFailed
from clew.escape import escape_invisible
from clew.tools.arguments import check_value
from clew.tools.base import Change, File, ToolContext, ToolOutput, target_of_arguments
from clew.tools.mcp.connection import Connection
from clew.tools.mcp.definitions import Definition, Definitions, placeholder_name
from clew.tools.mcp_tools import ALLOWED
from clew.tools.output import fit_text, to_output
from clew.transcript.rule import Target

__all__ = ["PlaceholderTool", "ServerTool", "is_trusted"]

_NO_ARGUMENTS: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
_CONTENT_KINDS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_MAX_KIND_CHARS: Final = 64


def is_trusted(connection: Connection, digest: str) -> bool:
    """Return whether the server's config accepts these definitions without approval."""
    return connection.server.trust or connection.server.pin == digest


class ServerTool:
    """One tool. ``known`` are the definitions it was offered with; without them (a call approved in an earlier process)
    the definitions are checked when it runs."""

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
        self._connection.accepted = known
        definition = _find(known, self.name)
        if definition is None:
            raise ToolFailed(f"the MCP server {self._connection.name} no longer has this tool")
        answer = await self._connection.call(definition.name, args, context.report, known)
        return await _read_result(answer, definition, context)

    async def _check(self, digest: str, context: ToolContext) -> None:
        """Refuse definitions that were not reviewed: the tool may have changed under the same name."""
        server = self._connection.name
        if is_trusted(self._connection, digest) or (server, digest) in context.state.get(ALLOWED, ()):
            return
        try:
            await context.permit(Target(placeholder_name(server), "plain", digest))
        except PermissionDenied as error:
            message = f"the MCP server {server} has changed its tools, and they have not been reviewed"
            raise ToolFailed(f"{message}; call {placeholder_name(server)} to have them reviewed") from error


async def _read_result(result: Mapping[str, Any], definition: Definition, context: ToolContext) -> ToolOutput:
    """Return the tool output for a server's JSON answer. Raises ``ToolFailed`` for an error, and for results that do
    not fit the server's own schema."""
    stem = definition.known_as
    files: list[File] = []
    shown = "\n".join([_as_text(block, files.append) for block in result.get("content") or ()])
    text = await fit_text(shown, context, stem)
    if result.get("isError"):
        raise ToolFailed(text or f"{stem} failed and did not say why")
    structured = result.get("structuredContent")
    if definition.output_schema is not None:
        problem = "are missing" if structured is None else check_value(definition.output_schema, structured)
        if problem is not None:
            raise ToolFailed(f"the call was made, but its results {problem}: they do not fit the server's own schema")
    if structured is None or _repeats(shown, structured):
        return ToolOutput({"text": text}, files=tuple(files))
    whole = await to_output({"text": text, "result": structured} if text else structured, context, stem)
    return msgspec.structs.replace(whole, files=tuple(files))


def _as_text(block: Any, add_file: Callable[[File], None]) -> str:
    """Return a block of content as text. Bytes are stored as a file and replaced by its name; unknown content is
    replaced by a note."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _file(data, block.get("mimeType"), kind, add_file)
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[{uri}]\n{text}"
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)} as resource}:
            return _file(data, resource.get("mimeType"), uri, add_file)
        case {"type": "resource_link", "uri": str(uri)}:
            named = (block.get("name"), uri, block.get("description"))
            return f"[{': '.join(one for one in named if isinstance(one, str) and one)}]"
        case {"type": str(kind)} if kind in _CONTENT_KINDS:
            return f"[left out: malformed content of type {kind}]"
        case {"type": str(kind)}:
            return f"[left out: content of unknown type {escape_invisible(kind[:_MAX_KIND_CHARS])}]"
    return "[left out: content without a type]"


def _file(data: str, media_type: object, name: str, add_file: Callable[[File], None]) -> str:
    named = media_type if isinstance(media_type, str) else None
    try:
        file = File(base64.b64decode(data, validate=True), media_type=named, name=escape_invisible(name))
    except (binascii.Error, ValueError):
        return f"[{name}: invalid base64]"
    add_file(file)
    return file.mark


def _repeats(text: str, structured: Any) -> bool:
    """Return whether the text only repeats the structured content, as servers do for older clients. A result that is
    not an object is wrapped in one."""
    if structured == {"result": text}:
        return True
    try:
        return msgspec.json.decode(text) in (
            structured,
            structured.get("result") if len(structured) == 1 else structured,
        )
    except (msgspec.DecodeError, AttributeError, TypeError):
        return False


class PlaceholderTool:
    """The tool offered for a server whose definitions are not accepted yet, or that cannot be reached (``problem``)."""

    needs_workspace = False
    asks_human = False
    input_schema: Mapping[str, Any] = _NO_ARGUMENTS

    def __init__(self, connection: Connection, known: Definitions | None = None, problem: str | None = None) -> None:
        self._connection, self._known, self._problem = connection, known, problem
        self.name = placeholder_name(connection.name)
        self.timeout_ms = round((connection.server.start_s + 5) * 1000)
        about = f"The MCP server {connection.name} cannot be reached now. Call this to get the reason."
        if known is not None:
            about = (
                f"The MCP server {connection.name} has {len(known.tools)} tools that no person has reviewed yet. Call "
                "this, without arguments, to have a person review them; once they are approved, you can use them."
            )
        self.description = about

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        if self._known is None:
            raise ToolFailed(self._problem or "the server's tools are unknown")
        return [Target(self.name, "plain", self._known.digest)]

    def preview(self, args: Mapping[str, Any], workspace: Path | None) -> Change | None:
        """Return the definitions as a diff against those accepted before."""
        if self._known is None:
            return None
        accepted = self._connection.accepted
        before = accepted.as_text.splitlines() if accepted is not None else []
        lines = list(difflib.unified_diff(before, self._known.as_text.splitlines(), lineterm="", n=1))[2:]
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        new = "its tools have changed since they were allowed" if accepted is not None else "its tools"
        names = ", ".join(one.known_as for one in self._known.tools) or "none"
        return Change("\n".join(lines), added, removed, f"MCP server {self._connection.name}: {new}: {names}")

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        known = await self._connection.ready()
        judged = [target.value for target in context.judged or () if target.permission == self.name]
        if known.digest not in judged:
            raise ToolFailed(f"the MCP server {self._connection.name} has changed its tools meanwhile; call this again")
        context.state.setdefault(ALLOWED, set()).add((self._connection.name, known.digest))
        self._connection.accepted = known
        names = ", ".join(one.known_as for one in known.tools)
        return ToolOutput({"text": f"approved; available tools: {names or 'none'}"})


def _find(known: Definitions | None, name: str) -> Definition | None:
    return next((one for one in known.tools if one.known_as == name), None) if known is not None else None
