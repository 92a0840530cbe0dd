"""A line that is too long to be held: what its beginning and its end say of whom it is for."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from clew.convert import fit_json

__all__ = ["LongLine"]

_KEPT: Final = 1024
_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
# Of keys whose values are short; whatever stands behind a longer one may be inside of it.
_SHORT: Final = rb'(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,200}"\s*,\s*)*'
_FIRST: Final = re.compile(rb"\s*\{\s*" + _SHORT + _ID + rb"\s*,\s*" + _SHORT + rb'"(?:params|result|error)"')
# Many say last whose answer it is.
_ANSWER: Final = re.compile(rb"\s*\{\s*" + _SHORT + rb"(?:" + _ID + rb"\s*,\s*)?" + _SHORT + rb'"(?:result|error)"')
# What stands right before the last brace is a key of the message itself.
_LAST: Final = re.compile(rb"[\]}\d\"el]\s*,\s*" + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class LongLine:
    """Takes a line piece by piece and keeps no more than its ends."""

    def __init__(self) -> None:
        self._head = self._tail = b""

    def add(self, piece: bytes) -> None:
        self._head += piece[: _KEPT - len(self._head)]
        self._tail = (self._tail + piece[-_KEPT:])[-_KEPT:]

    @property
    def id(self) -> int | str | None:
        """Of the request or the answer; None where it cannot be read, or there is none."""
        found = _FIRST.match(self._head) or _LAST.search(self._tail)
        try:
            return None if found is None else fit_json(found[1], int | str)
        except msgspec.DecodeError:
            return None

    @property
    def is_answer(self) -> bool:
        """It answers something that was asked from here."""
        return _ANSWER.match(self._head) is not None
