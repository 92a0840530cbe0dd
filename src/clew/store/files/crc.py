"""Checksums ("checks") by which a reader detects that a line or value has changed. Pure.

A line has its check as its last key, over the bytes before it. A value inside a document has one over its content,
which stays valid if a program writes the value again with its keys in another order or ``1.0`` as ``1``. They detect
faults, not attacks: a program that can write a file can also write its check.
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
"""The byte order mark at the start of text files of some programs, which is ignored."""

_KEY: Final = b',"check":"'
_LENGTH: Final = len(_KEY) + 8 + 2
CHECKED_END: Final = re.compile(rb',"check":"[0-9a-f]{8}"\}')
"""The end of a line with a check. It cannot occur in a text, where quotes are escaped."""


_CHECK: Final = re.compile("[0-9a-f]{8}")
_WHOLE_FLOAT: Final = re.compile(rb"(?<=[0-9])\.0(?=[],}]|$)")
"""The end of a number that some programs omit. It is removed from texts as well, on both sides of a comparison."""


def with_check(given: bytes) -> bytes:
    """Return a JSON object or array with its check as its last key or item."""
    body, end = given[:-1], given[-1:]
    return b'%s%s%08x"%s' % (body, _KEY if end == b"}" else b',"', crc32(body), end)


def verdict(line: bytes) -> Literal["whole", "changed", "unchecked"]:
    """Return whether a line is unchanged, changed, or has no check."""
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
    """Return an object or array without its check; raise :class:`ValueError` if it has changed or has no check."""
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
