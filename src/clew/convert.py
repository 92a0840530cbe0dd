"""A value of a type, out of plain data.

msgspec learns a type when it is first asked for, and other threads can meet it half learnt: the process dies of that,
without a word. So a type is learnt here, by one thread at a time, before it is used.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, overload

import msgspec

__all__ = ["fit", "fit_json"]

T = TypeVar("T")

MOST: Final = 1_000
"""Types that are remembered at once: a host may make its own for each call, and they are not to be held for good."""

_lock = threading.Lock()
_learnt: set[Any] = set()


@overload
def fit(value: Any, type_: type[T], *, strict: bool = ..., from_attributes: bool = ...) -> T: ...
@overload
def fit(value: Any, type_: Any, *, strict: bool = ..., from_attributes: bool = ...) -> Any: ...
def fit(value: Any, type_: Any, *, strict: bool = True, from_attributes: bool = False) -> Any:
    """``value`` as a ``type_``; ``msgspec.ValidationError`` where it does not fit."""
    _learn(type_)
    return msgspec.convert(value, type_, strict=strict, from_attributes=from_attributes)


@overload
def fit_json(data: bytes | str, type_: type[T]) -> T: ...
@overload
def fit_json(data: bytes | str, type_: Any) -> Any: ...
def fit_json(data: bytes | str, type_: Any) -> Any:
    """The same of JSON; ``msgspec.DecodeError`` where it is none."""
    _learn(type_)
    return msgspec.json.decode(data, type=type_)


def _learn(type_: Any) -> None:
    try:
        if type_ in _learnt:
            return
    except TypeError:
        # One that cannot be remembered, as a host's own may be, is looked at each time.
        remembered = False
    else:
        remembered = True
    with _lock:
        # A type and all it is made of: whoever asks for one of these meanwhile waits here.
        msgspec.json.Decoder(type_)
        if remembered:
            if len(_learnt) >= MOST:
                _learnt.clear()
            _learnt.add(type_)
