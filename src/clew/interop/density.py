"""Limits on the JSON values and records in a file, by its size: parsed, a value of two bytes takes fifty times as much
memory, and a message of one letter two thousand bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from clew.errors import InvalidInput

__all__ = ["MAX_LINE_VALUES", "check_density", "check_foreign_density", "check_records", "max_records"]

MAX_LINE_VALUES: Final = 200_000
"""Values in one record of a JSON Lines file. Records are parsed one by one."""
_FREE_VALUES: Final = 300_000
_BYTES_PER_VALUE: Final = 12
"""Fewer than in any real session, even one with messages of one word."""
_FREE_FOREIGN_VALUES: Final = 100_000
_BYTES_PER_FOREIGN_VALUE: Final = 20
_FREE_RECORDS: Final = 6_000
_BYTES_PER_RECORD: Final = 768
"""Records (lines, messages) in the sessions of other programs are two to ten times as long, on average."""
_MARKS: Final = (b"{", b"[", b",")
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def check_density(data: bytes, *, lines: bool) -> None:
    """Refuse a file with far more values than a session of its size has, without parsing it."""
    if not lines:
        _check(data, 0, len(data), _FREE_VALUES + len(data) // _BYTES_PER_VALUE)
        return
    for start, end in _lines_of(data):
        if end - start > MAX_LINE_VALUES:
            _check(data, start, end, MAX_LINE_VALUES)


def check_foreign_density(data: bytes) -> None:
    """Refuse a file of another program with far more values than its sessions have: each part of a message takes ten
    times its size."""
    limit, found = _FREE_FOREIGN_VALUES + len(data) // _BYTES_PER_FOREIGN_VALUE, 0
    if sum(map(data.count, _MARKS)) <= limit:
        return
    for start, end in _lines_of(data):
        found += _count_values(data, start, end)
        if found > limit:
            raise InvalidInput(f"the file has more than {limit:,} values in {len(data):,} bytes, which no session does")


def _lines_of(data: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield start, end
        start = end + 1


def max_records(size: int) -> int:
    """Return how many records a file of this size may hold."""
    return _FREE_RECORDS + size // _BYTES_PER_RECORD


def check_records(count: int, size: int) -> None:
    """Refuse a file with more records than its size explains."""
    if count > (limit := max_records(size)):
        raise InvalidInput(
            f"the file has more than {limit:,} records, the limit for {size:,} bytes "
            f"({_FREE_RECORDS:,}, and one for each {_BYTES_PER_RECORD} bytes)"
        )


def _count_values(data: bytes, start: int, end: int) -> int:
    """Count the marks outside of texts, one text at a time: millions of short ones would take much memory together."""
    marks = sum(data.count(mark, start, end) for mark in _MARKS)
    for match in _TEXT.finditer(data, start, end):
        first, last = match.span()
        if last - first > 2:
            marks -= sum(data.count(mark, first, last) for mark in _MARKS)
    return marks


def _check(data: bytes, start: int, end: int, limit: int) -> None:
    # The quick count includes marks in texts: most files pass it.
    if sum(data.count(mark, start, end) for mark in _MARKS) <= limit:
        return
    if _count_values(data, start, end) > limit:
        raise InvalidInput(f"it has more than {limit:,} values in {end - start:,} bytes, which no session has")
