"""Checks: a few digits beside what was written, by which a reader sees that it is not what was written any more. Pure.

A line carries its check as its last key, over the bytes before it; a value inside a document has one over its JSON.
They are there for faults, not for foes: whoever can write a file can write its check.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal
from zlib import crc32

import orjson

__all__ = ["CHECKED_END", "check_of", "verdict", "with_check", "without_check"]

_KEY: Final = b',"check":"'
_LENGTH: Final = len(_KEY) + 8 + 2
CHECKED_END: Final = re.compile(rb',"check":"[0-9a-f]{8}"\}')
"""How a line with a check ends. Text cannot hold it: its quotes are escaped."""


def with_check(given: bytes) -> bytes:
    """A JSON object or array with its check as its last key or item."""
    body, end = given[:-1], given[-1:]
    return b'%s%s%08x"%s' % (body, _KEY if end == b"}" else b',"', crc32(body), end)


def verdict(line: bytes) -> Literal["whole", "changed", "unchecked"]:
    """Whether a line is as it was written; one without a check says nothing of it."""
    end = line[-_LENGTH:]
    if CHECKED_END.fullmatch(end) is None:
        return "unchecked"
    return "whole" if crc32(line[:-_LENGTH]) == int(end[len(_KEY) : -2], 16) else "changed"


def check_of(value: Any) -> str:
    """The check that an object or array is written with."""
    return f"{crc32(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)[:-1]):08x}"


def without_check(value: Any) -> Any:
    """An object or array without the check it was written with; :class:`ValueError` when it is not what was written."""
    match value:
        case {"check": str(check)}:
            value = {key: one for key, one in value.items() if key != "check"}
        case [*items, str(check)] if items:
            value = items
        case _:
            raise ValueError("it has lost its check")
    if check != check_of(value):
        raise ValueError("it was changed after it was written")
    return value
