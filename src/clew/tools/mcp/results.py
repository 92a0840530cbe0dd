"""Answers of MCP servers as tool outputs: text as text, bytes as files, errors as ``ToolFailed``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.escape import escape_invisible
from clew.tools.arguments import check_value
from clew.tools.base import File, ToolContext, ToolOutput
from clew.tools.mcp.definitions import Definition
from clew.tools.output import fit_text, to_output

__all__ = ["read_result"]

_KINDS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_MAX_KIND: Final = 64


async def read_result(result: Mapping[str, Any], definition: Definition, context: ToolContext) -> ToolOutput:
    """Return the tool output for a server's JSON answer. Raises ``ToolFailed`` for an error, and for results that do
    not fit the server's own schema."""
    stem = definition.known_as
    files: list[File] = []
    shown = "\n".join([_as_text(one, files.append) for one in result.get("content") or ()])
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
        case {"type": str(kind)} if kind in _KINDS:
            return f"[left out: malformed content of type {kind}]"
        case {"type": str(kind)}:
            return f"[left out: content of unknown type {escape_invisible(kind[:_MAX_KIND])}]"
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
