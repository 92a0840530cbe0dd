"""The gate for values: what every store can keep, and what happens to the rest.

From a client nothing is bent: a value that some store could not keep is refused and nothing is written. From a
model or a tool nothing is refused: what cannot be kept is replaced, and the caller is told so that the part can
say it. Both use one definition of what can be kept: no U+0000 and no lone surrogate in text or keys, finite
numbers, integers of at most 64 bits, objects and arrays at most 200 deep in one another, and a bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from clew.errors import UnsupportedValue

__all__ = ["MAX_DEPTH", "MAX_VALUE_BYTES", "check_text", "check_value", "clean_text", "clean_value", "is_clean"]

MAX_DEPTH: Final = 200
MAX_VALUE_BYTES: Final = 20 * 1024 * 1024
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_REPLACEMENT = "\ufffd"
_SHOWN = 60


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
    open_: list[Iterator[tuple[str, Any, int]]] = [iter([(where, value, 0)])]
    while open_:
        entry = next(open_[-1], None)
        if entry is None:
            open_.pop()
            continue
        path, item, key_size = entry
        size += key_size + 8
        if isinstance(item, str):
            size += check_text(item, path)
        elif isinstance(item, (dict, list)) or type(item) is tuple:
            if len(open_) > MAX_DEPTH:
                raise UnsupportedValue(f"{where} is nested deeper than {MAX_DEPTH} levels", where=where)
            open_.append(_members(item, path))
        else:
            _check_scalar(item, path)
        if size > max_bytes:
            raise UnsupportedValue(f"{where} is larger than {max_bytes} bytes", where=where)


def _members(item: Any, path: str) -> Iterator[tuple[str, Any, int]]:
    """What an object or array holds, as (path, value, size of the key). One at a time: it may hold millions."""
    if not isinstance(item, dict):
        for place, inner in enumerate(item):
            yield f"{path}[{place}]", inner, 0
        return
    for key, inner in item.items():
        if not isinstance(key, str):
            raise UnsupportedValue(f"{path} has a key that is not text", where=path)
        size = check_text(key, f"a key of {path}")
        yield f"{path}.{key[:_SHOWN]}", inner, size


def _check_scalar(item: object, path: str) -> None:
    if item is None or isinstance(item, bool):
        return
    if isinstance(item, int):
        if not _INT_MIN <= item <= _INT_MAX:
            raise UnsupportedValue(f"{path} is an integer beyond 64 bits; send it as text", where=path)
    elif type(item) is float:
        if not math.isfinite(item):
            raise UnsupportedValue(f"{path} is not a finite number", where=path)
    else:
        raise UnsupportedValue(f"{path} is a {type(item).__name__}, not JSON", where=path)


def clean_text(text: str) -> tuple[str, bool]:
    """Text as a store can keep it, and whether anything had to be replaced. Whole surrogate pairs are joined.

    Text that can be kept comes back as the same object.
    """
    replaced = "\x00" in text
    if replaced:
        text = text.replace("\x00", _REPLACEMENT)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            # Joining a pair is no replacement: nothing is lost by it.
            replaced = replaced or joined.count(_REPLACEMENT) > text.count(_REPLACEMENT)
            text = joined
    return text, replaced


def is_clean(text: str) -> bool:
    """Whether :func:`clean_text` would leave it as it is; of plain text that is seen without a copy of it."""
    return "\x00" not in text and (text.isascii() or clean_text(text)[0] is text)


def clean_value(value: Any, depth: int = 1) -> tuple[Any, bool]:
    """A model's or a tool's JSON value as a store can keep it, and whether anything had to be replaced.

    A value that can be kept as it is comes back as the same object.
    """
    if isinstance(value, str):
        return clean_text(value if type(value) is str else str.__str__(value))
    if value is None or isinstance(value, bool):
        return value, False
    if isinstance(value, int):
        number = value if type(value) is int else int(value)
        return (number, False) if _INT_MIN <= number <= _INT_MAX else (_as_text(number), True)
    if isinstance(value, float):
        real = value if type(value) is float else float(value)
        return (real, False) if math.isfinite(real) else (str(real), True)
    if not isinstance(value, (dict, list, tuple)):
        return clean_text(_as_text(value))[0], True
    if depth > MAX_DEPTH:
        return "(nested too deeply to keep)", True
    return _clean_dict(value, depth) if isinstance(value, dict) else _clean_list(value, depth)


def _clean_list(value: list[Any] | tuple[Any, ...], depth: int) -> tuple[list[Any], bool]:
    pairs = [clean_value(item, depth + 1) for item in value]
    if type(value) is list and all(new is old for (new, _), old in zip(pairs, value, strict=True)):
        return value, False
    return [item for item, _ in pairs], any(replaced for _, replaced in pairs)


def _clean_dict(value: dict[Any, Any], depth: int) -> tuple[dict[str, Any], bool]:
    cleaned: dict[str, Any] = {}
    replaced = False
    same = type(value) is dict
    for key, item in value.items():
        name, name_replaced = _clean_key(key, value, cleaned)
        cleaned[name], item_replaced = clean_value(item, depth + 1)
        replaced = replaced or name_replaced or item_replaced
        same = same and name is key and cleaned[name] is item
    return (value, False) if same else (cleaned, replaced)


def _clean_key(key: Any, value: dict[Any, Any], cleaned: dict[str, Any]) -> tuple[str, bool]:
    """The key as a store can keep it. One that came to equal another is made longer: neither value is lost."""
    name, replaced = clean_value(key)
    if not isinstance(name, str):
        name, replaced = _as_text(name), True
    if name != key:
        while name in cleaned or name in value:
            name, replaced = name + _REPLACEMENT, True
    return name, replaced


def _as_text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        # str() refuses integers of more than 4,300 digits; hex has no such limit and loses nothing.
        return hex(value) if isinstance(value, int) else object.__repr__(value)
