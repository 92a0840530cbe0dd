"""Conversion of plain data to values of a type.

msgspec builds a type's decoder on first use, and a thread that meets it half built crashes the process. So decoders are
built here, by one thread at a time, before the type is used.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, overload

import msgspec

__all__ = ["convert", "convert_json"]

T = TypeVar("T")

MAX_TYPES: Final = 1_000
"""Maximum number of remembered types: a host may create types per call, which must not stay in memory permanently."""

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
