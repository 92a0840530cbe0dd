"""Value checks: what every store can hold, and what happens to other values.

Values from a client are never altered: one that some store could not hold is rejected, and nothing is written. Values
from a model or a tool are never rejected: what cannot be stored is replaced, and the caller learns of it so that the
part can say so. Both use the same definition of a storable value: no U+0000 and no lone surrogate in text or keys,
finite numbers, integers of at most 64 bits, objects and arrays nested at most 200 deep, and a bounded size.
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
_MAX_KEY_IN_PATH = 60


def check_text(text: str, where: str = "$") -> int:
    """Return the UTF-8 size of ``text``; raise :class:`UnsupportedValue` if a store could not hold it."""
    if "\x00" in text:
        raise UnsupportedValue(f"{where} contains U+0000, which not every store supports; remove it", where=where)
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise UnsupportedValue(
            f"{where} contains half of a surrogate pair at character {error.start}; send whole characters", where=where
        ) from error


def check_value(value: Any, where: str = "$", *, max_bytes: int = MAX_VALUE_BYTES) -> None:
    """Raise for a client's JSON value that a store could not hold. Iterative, so that any depth is safe."""
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
    """Yield the members of an object or array as (path, value, size of the key). Lazy: there may be millions."""
    if not isinstance(item, dict):
        for index, inner in enumerate(item):
            yield f"{path}[{index}]", inner, 0
        return
    for key, inner in item.items():
        if not isinstance(key, str):
            raise UnsupportedValue(f"{path} has a key that is not text", where=path)
        size = check_text(key, f"a key of {path}")
        yield f"{path}.{key[:_MAX_KEY_IN_PATH]}", inner, size


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
    """Return text as a store can hold it, and whether anything was replaced. Surrogate pairs are joined.

    Text that needs no change is returned as the same object.
    """
    replaced = "\x00" in text
    if replaced:
        text = text.replace("\x00", _REPLACEMENT)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            # Joining a pair does not count as a replacement: nothing is lost.
            replaced = replaced or joined.count(_REPLACEMENT) > text.count(_REPLACEMENT)
            text = joined
    return text, replaced


def is_clean(text: str) -> bool:
    """Return whether :func:`clean_text` would leave the text unchanged; ASCII text is not copied to find out."""
    return "\x00" not in text and (text.isascii() or clean_text(text)[0] is text)


def clean_value(value: Any, depth: int = 1) -> tuple[Any, bool]:
    """Return a JSON value from a model or a tool as a store can hold it, and whether anything was replaced.

    A value that needs no change is returned as the same object.
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
    """Return the key as a store can hold it. A key that now equals another is made longer, so no value is lost."""
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
