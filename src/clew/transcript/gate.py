"""The gate for values: what every store can keep, and what happens to the rest.

From a client nothing is bent: a value that some store could not keep is refused and nothing is written. From a
model or a tool nothing is refused: what cannot be kept is replaced, and the caller is told so that the part can
say it. Both use one definition of what can be kept: no U+0000 and no lone surrogate in text or keys, finite
numbers, integers of at most 64 bits, at most 200 levels deep, and a bounded size.
"""

from __future__ import annotations

import math
from typing import Any, Final

from clew.errors import UnsupportedValue

__all__ = ["MAX_DEPTH", "MAX_VALUE_BYTES", "check_text", "check_value", "clean_text", "clean_value"]

MAX_DEPTH: Final = 200
MAX_VALUE_BYTES: Final = 20 * 1024 * 1024
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_REPLACEMENT = "\ufffd"


def check_text(text: str, where: str = "$") -> int:
    """The UTF-8 size of ``text``; raises :class:`UnsupportedValue` when a store could not keep it."""
    if "\x00" in text:
        raise UnsupportedValue(f"{where} holds U+0000, which not every store can keep; remove it", where=where)
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise UnsupportedValue(
            f"{where} holds half of a surrogate pair at character {error.start}; send whole characters", where=where
        ) from error


def check_value(value: Any, where: str = "$", *, max_bytes: int = MAX_VALUE_BYTES) -> None:
    """Refuse a client's JSON value that a store could not keep. Iterative, so depth cannot break it."""
    size = 0
    stack: list[tuple[Any, str, int]] = [(value, where, 1)]
    while stack:
        item, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise UnsupportedValue(f"{where} is nested deeper than {MAX_DEPTH} levels", where=where)
        if isinstance(item, str):
            size += check_text(item, path)
        elif isinstance(item, dict):
            for key, inner in item.items():
                if not isinstance(key, str):
                    raise UnsupportedValue(f"{path} has a key that is not text", where=path)
                size += check_text(key, f"a key of {path}")
                stack.append((inner, f"{path}.{key}", depth + 1))
        elif isinstance(item, (list, tuple)):
            stack.extend((inner, f"{path}[{place}]", depth + 1) for place, inner in enumerate(item))
        else:
            _check_scalar(item, path)
        size += 8
        if size > max_bytes:
            raise UnsupportedValue(f"{where} is larger than {max_bytes} bytes", where=where)


def _check_scalar(item: object, path: str) -> None:
    if item is None or isinstance(item, bool):
        return
    if isinstance(item, int):
        if not _INT_MIN <= item <= _INT_MAX:
            raise UnsupportedValue(f"{path} is an integer beyond 64 bits; send it as text", where=path)
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise UnsupportedValue(f"{path} is not a finite number", where=path)
    else:
        raise UnsupportedValue(f"{path} is a {type(item).__name__}, not JSON", where=path)


def clean_text(text: str) -> tuple[str, bool]:
    """Text as a store can keep it, and whether anything had to be replaced. Whole surrogate pairs are joined."""
    if text.isascii():
        return (text, False) if "\x00" not in text else (text.replace("\x00", _REPLACEMENT), True)
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        # A joined pair is one character where there were two; only a real replacement counts as one.
        replaced = joined.count(_REPLACEMENT) > text.count(_REPLACEMENT)
        text = joined
    else:
        replaced = False
    if "\x00" in text:
        return text.replace("\x00", _REPLACEMENT), True
    return text, replaced


def clean_value(value: Any, depth: int = 1) -> tuple[Any, bool]:
    """A model's or a tool's JSON value as a store can keep it, and whether anything had to be replaced."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value, False
    if isinstance(value, int):
        return (value, False) if _INT_MIN <= value <= _INT_MAX else (_long_number(value), True)
    if isinstance(value, float):
        return (value, False) if math.isfinite(value) else (str(value), True)
    if depth > MAX_DEPTH:
        return "(nested too deeply to keep)", True
    if isinstance(value, dict):
        return _clean_dict(value, depth)
    if isinstance(value, (list, tuple)):
        pairs = [clean_value(item, depth + 1) for item in value]
        return [item for item, _ in pairs], any(replaced for _, replaced in pairs)
    return clean_text(str(value))[0], True


def _clean_dict(value: dict[Any, Any], depth: int) -> tuple[dict[str, Any], bool]:
    cleaned: dict[str, Any] = {}
    replaced = False
    for key, item in value.items():
        name, name_replaced = clean_text(key if isinstance(key, str) else str(key))
        cleaned[name], item_replaced = clean_value(item, depth + 1)
        replaced = replaced or name_replaced or item_replaced or not isinstance(key, str)
    return cleaned, replaced


def _long_number(value: int) -> str:
    # str() refuses integers of more than 4,300 digits; hex has no such limit and loses nothing.
    try:
        return str(value)
    except ValueError:
        return hex(value)
