"""A line that exceeds the limit, of which only both ends are held: enough to read the id it belongs to."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from clew.convert import fit_json

__all__ = ["LongLine"]

_END_BYTES: Final = 1024
_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
# Keys with short values; what follows a long value may be inside of it.
_SHORT: Final = rb'(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,200}"\s*,\s*)*'
_FIRST: Final = re.compile(rb"\s*\{\s*" + _SHORT + _ID + rb"\s*,\s*" + _SHORT + rb'"(?:params|result|error)"')
# Many implementations write the id last.
_ANSWER: Final = re.compile(rb"\s*\{\s*" + _SHORT + rb"(?:" + _ID + rb"\s*,\s*)?" + _SHORT + rb'"(?:result|error)"')
# A key right before the last brace is one of the message itself.
_LAST: Final = re.compile(rb"[\]}\d\"el]\s*,\s*" + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class LongLine:
    """A line added piece by piece, of which only the two ends are held."""

    def __init__(self) -> None:
        self._head = self._tail = b""

    def add(self, piece: bytes) -> None:
        self._head += piece[: _END_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-_END_BYTES:])[-_END_BYTES:]

    @property
    def id(self) -> int | str | None:
        """The id of the request or response; None if absent or unreadable."""
        found = _FIRST.match(self._head) or _LAST.search(self._tail)
        try:
            return None if found is None else fit_json(found[1], int | str)
        except msgspec.DecodeError:
            return None

    @property
    def is_answer(self) -> bool:
        """Whether it is a response to a request of clew."""
        return _ANSWER.match(self._head) is not None
