"""Conversion of plain data to values of a type, and messages for values that do not fit it.

msgspec builds a type's decoder on first use, and a thread that meets it half built crashes the process. So decoders are
built here, by one thread at a time, before the type is used.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import inspect

__all__ = ["convert", "convert_json", "explain_type_error"]

T = TypeVar("T")

MAX_TYPES: Final = 1_000
"""Maximum number of remembered types: a host may create types per call, which must not stay in memory permanently."""

_POSITION: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<steps>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[[^\]]*\]")

_lock = threading.Lock()
_built: set[Any] = set()


@overload
def convert(value: Any, type_: type[T], *, strict: bool = ..., from_attributes: bool = ...) -> T: ...
@overload
def convert(value: Any, type_: Any, *, strict: bool = ..., from_attributes: bool = ...) -> Any: ...
def convert(value: Any, type_: Any, *, strict: bool = True, from_attributes: bool = False) -> Any:
    """Convert ``value`` to ``type_``. Raises ``msgspec.ValidationError``."""
    _build_decoder(type_)
    return msgspec.convert(value, type_, strict=strict, from_attributes=from_attributes)


@overload
def convert_json(data: bytes | str, type_: type[T]) -> T: ...
@overload
def convert_json(data: bytes | str, type_: Any) -> Any: ...
def convert_json(data: bytes | str, type_: Any) -> Any:
    """Decode JSON to ``type_``. Raises ``msgspec.DecodeError``."""
    _build_decoder(type_)
    return msgspec.json.decode(data, type=type_)


def _build_decoder(type_: Any) -> None:
    try:
        if type_ in _built:
            return
    except TypeError:
        # A host's type may be unhashable; it is built each time.
        hashable = False
    else:
        hashable = True
    with _lock:
        # Builds the type and all its parts; other threads that need one of them wait here.
        msgspec.json.Decoder(type_)
        if hashable:
            if len(_built) >= MAX_TYPES:
                _built.clear()
            _built.add(type_)


def explain_type_error(error: msgspec.ValidationError, type_: Any) -> str:
    """Return the message of ``error`` for a value of ``type_``, with the values that are allowed there."""
    text = str(error)
    if not text.startswith("Invalid enum value"):
        return text
    position = _POSITION.search(text)
    found: Iterable[inspect.Type] = (inspect.type_info(type_),)
    for step in _STEP.finditer(position["steps"] if position else ""):
        found = [child for member in _members(found) for child in _children(member, step["name"])]
    if position and position["key"]:
        found = [member.key_type for member in _members(found) if isinstance(member, inspect.DictType)]
    literals = [member for member in _members(found) if isinstance(member, inspect.LiteralType)]
    allowed = [str(value) for literal in literals for value in literal.values]
    return f"{text}; allowed: {', '.join(allowed)}" if allowed else text


def _members(types: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    """Yield the types, with the members of each union instead of the union."""
    for type_ in types:
        if isinstance(type_, inspect.UnionType):
            yield from _members(type_.types)
        elif isinstance(type_, inspect.Metadata):
            yield from _members((type_.type,))
        else:
            yield type_


def _children(type_: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """Yield the types of the field ``name``, or of the values or items."""
    if isinstance(type_, inspect.StructType):
        yield from (field.type for field in type_.fields if field.encode_name == name)
    elif isinstance(type_, inspect.DictType):
        yield type_.value_type
    elif isinstance(type_, (inspect.ListType, inspect.VarTupleType)):
        yield type_.item_type
