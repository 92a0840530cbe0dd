"""Lines that request a tool call, and their arguments.

Argument names are those of the offered tool's schema, as a real model would use them; for a tool that is not offered,
they are those of ``script.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.convert import convert_json
from clew.providers.base import ToolSchema
from clew.providers.demo.script import script

__all__ = ["Asked", "arguments", "asked_lines"]

_LINE: Final = re.compile(r"!([A-Za-z_][\w.-]*)(?:[ \t]+(.*))?", re.DOTALL)
_DEFAULT_ARGUMENTS: Final[dict[str, str]] = {"ls": "."}
"""The argument of a tool if the line has none."""


class Asked(msgspec.Struct, frozen=True):
    """A call that a line requests."""

    tool: str
    input: dict[str, Any]


def asked_lines(text: str, tools: Sequence[ToolSchema]) -> list[Asked]:
    """Return the calls that lines starting with ``!`` request, in order."""
    offered = {tool.name: tool for tool in tools}
    found = (match for line in text.splitlines() if (match := _LINE.fullmatch(line)) is not None)
    return [Asked(match[1], arguments(match[1], match[2] or "", offered.get(match[1]))) for match in found]


def arguments(name: str, rest: str, tool: ToolSchema | None) -> dict[str, Any]:
    """Return the arguments after a tool's name: JSON, or one word for each field and the rest for the last."""
    rest = rest.strip() or _DEFAULT_ARGUMENTS.get(name, "")
    if rest.startswith("{"):
        try:
            return convert_json(rest, dict[str, Any])
        except msgspec.DecodeError:
            pass
    schema: Mapping[str, Any] = tool.input_schema if tool is not None else {}
    fields = script().fields.get(name) or tuple(_required_texts(schema)) or ("input",)
    values = rest.split(None, len(fields) - 1) if rest else []
    given = {_own_name(field, schema): value for field, value in zip(fields, values, strict=False)}
    # A tool may require a title besides the text: the start of the text serves as one.
    return given | {field: rest[:60] for field in _required_texts(schema) if field not in given and rest}


def _required_texts(schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema.get("properties")
    required = schema.get("required")
    for field in required if isinstance(required, list) else ():
        described = properties.get(field) if isinstance(properties, Mapping) else None
        if isinstance(described, Mapping) and described.get("type") == "string":
            yield field


def _own_name(field: str, schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return field
    return next((name for name in script().synonyms.get(field, (field,)) if name in properties), field)
