"""What a server answers to a call, as a tool's output: text as text, bytes described and put beside, errors told."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.escape import escape_unseen
from clew.tools.arguments import check_value
from clew.tools.base import File, ToolContext, ToolOutput
from clew.tools.mcp.definitions import Definition
from clew.tools.output import fit_text, to_output

__all__ = ["read_result"]

_KINDS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_MAX_KIND: Final = 64


async def read_result(result: Mapping[str, Any], definition: Definition, context: ToolContext) -> ToolOutput:
    """The output of a call, as the server's JSON has it. Raises ``ToolFailed`` for an error, and for what does not fit
    the schema the server itself gave."""
    stem = definition.known_as
    files: list[File] = []
    shown = "\n".join([_shown(one, files.append) for one in result.get("content") or ()])
    text = await fit_text(shown, context, stem)
    if result.get("isError"):
        raise ToolFailed(text or f"{stem} failed and did not say why")
    structured = result.get("structuredContent")
    if definition.output_schema is not None:
        problem = "are missing" if structured is None else check_value(definition.output_schema, structured)
        if problem is not None:
            raise ToolFailed(f"the server has done something, but its results {problem}: they break its own schema")
    if structured is None or _says(shown, structured):
        return ToolOutput({"text": text}, files=tuple(files))
    whole = await to_output({"text": text, "result": structured} if text else structured, context, stem)
    return msgspec.structs.replace(whole, files=tuple(files))


def _shown(block: Any, keep: Callable[[File], None]) -> str:
    """One piece of content. What is no text is kept as a file, and its name stands in its place; what nobody here can
    read is left out, and a word stands in its place."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _file(data, block.get("mimeType"), kind, keep)
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[{uri}]\n{text}"
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)} as resource}:
            return _file(data, resource.get("mimeType"), uri, keep)
        case {"type": "resource_link", "uri": str(uri)}:
            told = (block.get("name"), uri, block.get("description"))
            return f"[{': '.join(one for one in told if isinstance(one, str) and one)}]"
        case {"type": str(kind)} if kind in _KINDS:
            return f"[left out: content of the kind {kind} that is not as it should be]"
        case {"type": str(kind)}:
            return f"[left out: content of the kind {escape_unseen(kind[:_MAX_KIND])}, which clew does not know]"
    return "[left out: content that does not say of what kind it is]"


def _file(data: str, media_type: object, name: str, keep: Callable[[File], None]) -> str:
    named = media_type if isinstance(media_type, str) else None
    try:
        file = File(base64.b64decode(data, validate=True), media_type=named, name=escape_unseen(name))
    except (binascii.Error, ValueError):
        return f"[{name}: bytes that do not read as such]"
    keep(file)
    return file.mark


def _says(text: str, structured: Any) -> bool:
    """Servers repeat structured content as text, for clients that know no other; what is no object is put into one."""
    if structured == {"result": text}:
        return True
    try:
        return msgspec.json.decode(text) in (
            structured,
            structured.get("result") if len(structured) == 1 else structured,
        )
    except (msgspec.DecodeError, AttributeError, TypeError):
        return False
