"""Lines that ask for a tool, and the arguments they become.

Argument names are taken from the schema of the tool that is offered, so that a demo model asks as a real one would;
for a tool that is not offered the names of ``script.toml`` stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.convert import fit_json
from clew.providers.base import ToolSchema
from clew.providers.demo.script import script

__all__ = ["Asked", "arguments", "asked_lines"]

_LINE: Final = re.compile(r"!([A-Za-z_][\w.-]*)(?:[ \t]+(.*))?", re.DOTALL)
_WITHOUT: Final[dict[str, str]] = {"ls": "."}
"""What a tool is asked for when the line names nothing."""


class Asked(msgspec.Struct, frozen=True):
    """A call a line asks for."""

    tool: str
    input: dict[str, Any]


def asked_lines(text: str, tools: Sequence[ToolSchema]) -> list[Asked]:
    """The calls that the lines starting with ``!`` ask for, in order."""
    offered = {tool.name: tool for tool in tools}
    found = (match for line in text.splitlines() if (match := _LINE.fullmatch(line)) is not None)
    return [Asked(match[1], arguments(match[1], match[2] or "", offered.get(match[1]))) for match in found]


def arguments(name: str, rest: str, tool: ToolSchema | None) -> dict[str, Any]:
    """What follows a tool's name as arguments: JSON as it stands, else one word a field and the rest for the last."""
    rest = rest.strip() or _WITHOUT.get(name, "")
    if rest.startswith("{"):
        try:
            return fit_json(rest, dict[str, Any])
        except msgspec.DecodeError:
            pass
    schema: Mapping[str, Any] = tool.input_schema if tool is not None else {}
    fields = script().fields.get(name) or tuple(_required_texts(schema)) or ("input",)
    values = rest.split(None, len(fields) - 1) if rest else []
    given = {_own_name(field, schema): value for field, value in zip(fields, values, strict=False)}
    # A tool may want a title beside the text itself; its beginning will do.
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
