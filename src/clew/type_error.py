"""Why a value does not fit its type, for whoever wrote it: where only certain words are taken, which these are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

__all__ = ["misfit"]

_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<steps>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[[^\]]*\]")


def misfit(error: msgspec.ValidationError, type_: Any) -> str:
    """What ``error`` says of a value that was to be a ``type_``, with the words that are allowed there."""
    text = str(error)
    if not text.startswith("Invalid enum value"):
        return text
    place = _PLACE.search(text)
    found: Iterable[inspect.Type] = (inspect.type_info(type_),)
    for step in _STEP.finditer(place["steps"] if place else ""):
        found = [below for one in _each(found) for below in _below(one, step["name"])]
    if place and place["key"]:
        found = [one.key_type for one in _each(found) if isinstance(one, inspect.DictType)]
    allowed = [str(word) for one in _each(found) if isinstance(one, inspect.LiteralType) for word in one.values]
    return f"{text}; allowed: {', '.join(allowed)}" if allowed else text


def _each(types: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for one in types:
        if isinstance(one, inspect.UnionType):
            yield from _each(one.types)
        elif isinstance(one, inspect.Metadata):
            yield from _each((one.type,))
        else:
            yield one


def _below(type_: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    if isinstance(type_, inspect.StructType):
        yield from (field.type for field in type_.fields if field.encode_name == name)
    elif isinstance(type_, inspect.DictType):
        yield type_.value_type
    elif isinstance(type_, (inspect.ListType, inspect.VarTupleType)):
        yield type_.item_type
