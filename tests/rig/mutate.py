"""Mutates values, bytes and text, deterministically for the same random generator."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.integration.http_values import HOSTILE, resolve

__all__ = ["fitting_value", "mutated_bytes", "mutated_text", "mutated_value"]

_PIECES: Final = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000"),
    *(b"-0", b"9" * 400, b"NaN", b"null", b"true", b"\xef\xbb\xbf", b"\r\n\r\n", b"1e999", b"/*", b"$"),
    *(b"[" * 300, b'{"a":' * 300),
)
_WORDS: Final = ("", "a", "text", "née", "😀", "user", "once", "completed", "x" * 300, "demo/echo", "0", "\u2028", "*")


def fitting_value(schema: dict[str, Any], random: Random, depth: int = 0) -> Any:
    """Return a value that the schema allows; patterns are ignored."""
    schema = resolve(schema)
    if "anyOf" in schema:
        return fitting_value(random.choice(schema["anyOf"]), random, depth)
    if "enum" in schema:
        return random.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "string":
        return random.choice(_WORDS)
    if kind == "integer":
        return random.randint(schema.get("minimum", -3), min(schema.get("maximum", 1000), 1000))
    if kind == "number":
        return random.uniform(-2, 2)
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "null":
        return None
    if kind == "array":
        return [fitting_value(schema.get("items", {}), random, depth + 1) for _ in range(random.randint(0, 3))]
    if kind == "object" and "properties" in schema:
        required = schema.get("required", [])
        return {
            name: fitting_value(inner, random, depth + 1)
            for name, inner in schema["properties"].items()
            if name in required or random.random() < 0.4
        }
    if kind == "object" or (kind is None and depth < 3 and random.random() < 0.3):
        return {random.choice(_WORDS): fitting_value({}, random, depth + 1) for _ in range(random.randint(0, 2))}
    return random.choice((None, True, 7, 0.5, *_WORDS))


def mutated_value(value: Any, random: Random, times: int = 1) -> Any:
    """Return a copy with elements replaced, removed, duplicated or moved."""
    value = copy.deepcopy(value)
    for _ in range(times):
        paths = list(_paths(value))
        path = random.choice(paths)
        odd = copy.deepcopy(random.choice(HOSTILE))
        if not path:
            if random.random() < 0.1:
                return odd
            continue
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        how = random.randrange(4)
        if how == 0:
            del holder[path[-1]]
        elif how == 1:
            other = random.choice(paths)
            holder[path[-1]] = copy.deepcopy(_at(value, other)) if len(other) > len(path) else odd
        elif how == 2 and isinstance(holder, list):
            holder.insert(random.randint(0, len(holder)), copy.deepcopy(holder[path[-1]]))
        else:
            holder[path[-1]] = odd
    return value


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """Return bytes after a few cuts, duplications, insertions and bit flips."""
    made = bytearray(data)
    for _ in range(random.randint(1, 4)):
        start = random.randint(0, len(made))
        end = min(len(made), start + random.choice((1, 2, 8, 64, 1000)))
        how = random.randrange(6)
        if how == 0:
            del made[start:end]
        elif how == 1:
            made[start:start] = made[start:end]
        elif how == 2:
            made[start:start] = random.choice(_PIECES)
        elif how == 3 and made:
            made[min(start, len(made) - 1)] ^= 1 << random.randrange(8)
        elif how == 4:
            del made[start:]
        else:
            made[start:end] = random.choice(_PIECES)
    return bytes(made)


def mutated_text(text: str, others: list[str], pieces: tuple[str, ...], random: Random) -> str:
    """Return a line with inserted pieces, removed characters, or another line appended."""
    for _ in range(random.randint(1, 4)):
        start = random.randint(0, len(text))
        how = random.randrange(5)
        if how == 0:
            text = text[:start] + random.choice(pieces) + text[start:]
        elif how == 1:
            text = text[:start] + text[start + random.randint(1, 3) :]
        elif how == 2:
            text = text[:start] + random.choice(others)[random.randint(0, 20) :]
        elif how == 3:
            text = text + random.choice(pieces) + random.choice(others)
        else:
            text = text[:start] + text[start : start + 5] * random.choice((2, 3, 50)) + text[start:]
    return text


def _paths(value: Any, parent: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield parent
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _paths(one, (*parent, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value
