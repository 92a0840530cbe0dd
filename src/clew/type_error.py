"""Messages for values that do not fit their type, with the allowed values of an enumeration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

__all__ = ["explain_type_error"]

_POSITION: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<steps>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[[^\]]*\]")


def explain_type_error(error: msgspec.ValidationError, type_: Any) -> str:
    """Return the message of ``error`` for a value of ``type_``, with the values that are allowed there."""
    text = str(error)
    if not text.startswith("Invalid enum value"):
        return text
    position = _POSITION.search(text)
    found: Iterable[inspect.Type] = (inspect.type_info(type_),)
    for step in _STEP.finditer(position["steps"] if position else ""):
        found = [below for one in _members(found) for below in _children(one, step["name"])]
    if position and position["key"]:
        found = [one.key_type for one in _members(found) if isinstance(one, inspect.DictType)]
    allowed = [str(word) for one in _members(found) if isinstance(one, inspect.LiteralType) for word in one.values]
    return f"{text}; allowed: {', '.join(allowed)}" if allowed else text


def _members(types: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for one in types:
        if isinstance(one, inspect.UnionType):
            yield from _members(one.types)
        elif isinstance(one, inspect.Metadata):
            yield from _members((one.type,))
        else:
            yield one


def _children(type_: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    if isinstance(type_, inspect.StructType):
        yield from (field.type for field in type_.fields if field.encode_name == name)
    elif isinstance(type_, inspect.DictType):
        yield type_.value_type
    elif isinstance(type_, (inspect.ListType, inspect.VarTupleType)):
        yield type_.item_type
