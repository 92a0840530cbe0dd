"""Lines and units: which lines of a log count. Pure.

Each line says of which unit it is a part, ``[i, n]``. A unit counts when its lines are all there. What a process that
died left behind, half a line or half a unit, is passed over at every load, wherever it stands by now. A line in the
middle that does not read costs itself, and is reported.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

__all__ = ["END_OF_TORN", "TORN", "Lines", "read_lines"]

TORN: Final = "torn"
"""The type of the record that says: the line before this one was left behind by a process that died."""


END_OF_TORN: Final = b" <torn>\n"
"""What a line that was cut short is ended with, so that nobody takes it for a record."""


class Lines(NamedTuple):
    """What a log says. ``units`` holds the records that count, unit by unit; ``bad`` the numbers of lines that do not
    read; ``last_seq`` the largest number that was ever given; ``torn`` whether the file ends within a line."""

    units: list[list[dict[str, Any]]]
    bad: list[int]
    last_seq: int
    torn: bool


def read_lines(data: bytes) -> Lines:
    """Everything that counts in the bytes of a log."""
    *whole, rest = data.split(b"\n")
    records: list[dict[str, Any] | None] = [_parse(line) for line in whole]
    given = [record["seq"] for record in (*records, _parse(rest)) if record is not None]
    last_seq = max(given, default=0)
    cut = {place for place, line in enumerate(whole) if line.endswith(END_OF_TORN[:-1])}
    return Lines(*_units(records, _residues(records, cut)), last_seq, bool(rest))


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("recordType"), str):
        return None
    seq = record.get("seq")
    return record if isinstance(seq, int) and not isinstance(seq, bool) else None


def _residues(records: list[dict[str, Any] | None], cut: set[int]) -> set[int]:
    """The places of lines that do not read because somebody died over them, and that nobody lost anything by."""
    found = {place for place in cut if records[place] is None}
    pending: list[int] = []
    for place, record in enumerate(records):
        if record is None:
            pending.append(place)
        else:
            if record["recordType"] == TORN:
                found.update(pending)
            pending = []
    return found


def _units(records: list[dict[str, Any] | None], residues: set[int]) -> tuple[list[list[dict[str, Any]]], list[int]]:
    units: list[list[dict[str, Any]]] = []
    bad = [place + 1 for place, record in enumerate(records) if record is None and place not in residues]
    held: list[dict[str, Any]] = []
    place_in_unit, length = 0, 0
    damaged = 0
    for place, record in enumerate(records):
        if record is None:
            if place in residues:
                held, place_in_unit, length, damaged = [], 0, 0, 0
            else:
                damaged += 1
                # The end of the unit that was being read may be what does not read any more.
                if length and place_in_unit + damaged == length:
                    units.append(held)
                    held, place_in_unit, length, damaged = [], 0, 0, 0
            continue
        if record["recordType"] == TORN:
            held, place_in_unit, length, damaged = [], 0, 0, 0
            continue
        i, n = _place(record)
        if i != place_in_unit + damaged + 1 or (length and n != length):
            # Another unit begins: what was held never got its end. Lines before this one may have been damaged.
            held = []
            if i > damaged + 1:
                damaged = 0
                place_in_unit, length = 0, 0
                continue
        held.append(record)
        place_in_unit, length, damaged = i, n, 0
        if i == n:
            units.append(held)
            held, place_in_unit, length = [], 0, 0
    return units, bad


def _place(record: dict[str, Any]) -> tuple[int, int]:
    match record.get("unit"):
        case [int(i), int(n)] if 1 <= i <= n:
            return i, n
        case _:
            return 1, 1
