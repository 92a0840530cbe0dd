"""Checks: a few digits beside what was written, by which a reader sees that it is not what was written any more. Pure.

A line carries its check as its last key, over the bytes before it; a value inside a document has one over its content:
a program that writes that again, with its keys in another order or ``1.0`` as ``1``, has changed nothing.
They are there for faults, not for foes: whoever can write a file can write its check.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal
from zlib import crc32

import orjson

__all__ = [
    "BOM",
    "CHECKED_END",
    "check_of",
    "checked",
    "is_check",
    "is_checked",
    "verdict",
    "with_check",
    "without_check",
]

BOM: Final = b"\xef\xbb\xbf"
"""What some programs begin a text file with. It says nothing."""

_KEY: Final = b',"check":"'
_LENGTH: Final = len(_KEY) + 8 + 2
CHECKED_END: Final = re.compile(rb',"check":"[0-9a-f]{8}"\}')
"""How a line with a check ends. Text cannot hold it: its quotes are escaped."""


_CHECK: Final = re.compile("[0-9a-f]{8}")
_WHOLE_FLOAT: Final = re.compile(rb"(?<=[0-9])\.0(?=[],}]|$)")
"""The end of a number that some programs write without it. Text may hold it, too: it is left out there likewise."""


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
    """Return the check of an object or array, over its content."""
    data = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)
    return f"{crc32(_WHOLE_FLOAT.sub(b'', data)):08x}"


def checked(value: Any) -> bytes:
    """Return the JSON of an object or array, with the check of its content as its last key or item."""
    body = orjson.dumps(value)
    between = b',"check":"' if body[-1:] == b"}" else b',"'
    return b'%s%s%s"%s' % (body[:-1], between, check_of(value).encode(), body[-1:])


def is_check(value: object) -> bool:
    """Return whether a value under the key ``check`` can be one of clew's. Another program may use the key, too."""
    return isinstance(value, str) and _CHECK.fullmatch(value) is not None


def is_checked(value: Any, check: object) -> bool:
    """Return whether this is the check of a value. Older ones are over its JSON as it was written."""
    if check == check_of(value):
        return True
    return check == f"{crc32(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)[:-1]):08x}"


def without_check(value: Any) -> Any:
    """An object or array without the check it was written with; :class:`ValueError` when it is not what was written."""
    match value:
        case {"check": str(check)}:
            value = {key: one for key, one in value.items() if key != "check"}
        case [*items, str(check)] if items:
            value = items
        case _:
            raise ValueError("it has lost its check")
    if not is_checked(value, check):
        raise ValueError("it was changed after it was written")
    return value
