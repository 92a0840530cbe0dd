"""Log lines: what the lines of a log say, and which of them count. Pure.

Each line has a number and says of which unit it is a part, ``[i, n]``; the first of a unit says after which number the
file ended before it. So it can be told apart what a process that died never finished, which was promised to nobody and
is passed over, and what was whole once and is lost or changed: that costs the line itself, and is reported.
"""

from __future__ import annotations

import re
from math import inf
from typing import Any, Final, Literal, NamedTuple

import orjson

from clew.store.files.crc import BOM, CHECKED_END, is_check, is_checked, verdict

__all__ = ["END_OF_TORN", "TORN", "Ending", "Lines", "has_place", "read_lines"]

TORN: Final = "torn"
"""The type of the record by which an older clew said that the line before was left by a process that died."""


END_OF_TORN: Final = b" <torn>\n"
"""The end that an older clew gave a line that was cut short, so that no reader took it for a record."""

Ending = Literal["", "line", "torn"]
"""How a file ends: with a newline, with a whole record that has none, or within one."""

_NAMED: Final = re.compile(rb'"(?:clew":\{"id|key)":"(msg_[0-9A-Za-z]{26})"')
_CHANGED: Final = " was changed after it was written"
_SAYS: Final = re.compile(rb'"recordType":"(?:message|part|metadata|compaction|aside|chunks|mark)"|"clew":|"key":"msg_')
Record = dict[str, Any]


class Lines(NamedTuple):
    """What a log says. ``units`` holds the records that count, unit by unit; ``faults`` what is wrong with it;
    ``named`` the messages that lines which do not count speak of, each with the highest number that the last of these
    may have had, and with an empty name where they do not say which; ``last_seq`` the last number ever in it."""

    units: list[list[Record]]
    faults: list[str]
    named: dict[str, float]
    last_seq: int
    ending: Ending


class _Line(NamedTuple):
    """A line with its record; without one, ``fault`` says what is wrong. ``cut``: somebody died over it."""

    raw: bytes
    record: Record | None
    fault: str
    cut: bool = False


def read_lines(data: bytes, name: str, promised: int = 0) -> Lines:
    """Everything that counts in the bytes of a file, which once held all numbers up to ``promised``."""
    *whole, rest = data.split(b"\n")
    lines = [line for number, raw in enumerate(whole, 1) if raw for line in _read(raw, f"line {number} of {name}")]
    ending: Ending = ""
    if rest:
        # Nothing that was cut short is a JSON object: one that reads was whole but for its newline.
        last = _read(rest, f"line {len(whole) + 1} of {name}")
        ending = "line" if any(line.record is not None or line.fault.endswith(_CHANGED) for line in last) else "torn"
        lines += last if ending == "line" else ()
    units = _Units(name)
    checked = False
    for place, line in enumerate(lines):
        record = line.record
        followed = lines[place + 1].record if place + 1 < len(lines) else None
        if record is None and (line.cut or (followed is not None and followed["recordType"] == TORN)):
            continue  # somebody died over it, and nobody lost anything by it
        if record is not None and checked and has_place(record) and "check" not in record:
            line = _Line(line.raw, None, f"{line.fault} has lost its check")
        checked = checked or (record is not None and is_check(record.get("check")))
        units.take(line)
    units.end(promised)
    return Lines(units.found, units.faults, units.named, units.last, ending)


def _read(raw: bytes, place: str) -> list[_Line]:
    """The record of a line; the records of several, where what stood between them is no newline any more."""
    raw = raw.removeprefix(BOM).strip(b" \t\r")
    if verdict(raw) == "whole" and (record := _parse(raw)) is not None:
        return [_Line(raw, record, place)]
    cut = raw.endswith(END_OF_TORN[:-1])
    found: list[_Line] = []
    start = 0
    for end in [match.end() for match in CHECKED_END.finditer(raw)] if not cut else ():
        piece = raw[start:end] if raw[start : start + 1] == b"{" else raw[start + 1 : end]
        found.append(_line(piece, place, cut))
        start = end
    if not found or len(raw) > start + 1:
        found.append(_line(raw[start:], place, cut))
    return found


def _line(raw: bytes, place: str, cut: bool) -> _Line:
    record = _parse(raw)
    if record is None:
        return _Line(raw, None, f"{place} does not read", cut)
    # A program that wrote the line again may have written the same.
    content = {key: one for key, one in record.items() if key != "check"}
    ours = has_place(record) or is_check(record.get("check"))
    changed = ours and "check" in record and verdict(raw) != "whole" and not is_checked(content, record["check"])
    return _Line(raw, None if changed else record, f"{place}{_CHANGED if changed else ''}", cut)


def has_place(record: Record) -> bool:
    """Return whether a record says its place in a unit, as each of clew's does."""
    match record.get("unit"):
        case [int(), int()]:
            return True
    return False


def _parse(line: bytes) -> Record | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("recordType"), str):
        return None
    seq = record.get("seq")
    return record if isinstance(seq, int) and not isinstance(seq, bool) else None


class _Units:
    """Puts lines together to units again. ``last`` is the number up to which the file once held all there was."""

    def __init__(self, name: str) -> None:
        self.found: list[list[Record]] = []
        self.faults: list[str] = []
        self.named: dict[str, float] = {}
        self._unplaced: set[str] = set()  # named since the last line that counts
        self.last = 0
        self._name = name
        self._held: list[Record] = []
        self._start, self._end = 0, 0
        self._bad = False  # a line that does not count stands between the last record and here

    def take(self, line: _Line) -> None:
        record = line.record
        if record is None:
            self.faults.append(line.fault)
            if _SAYS.search(line.raw):
                self._unplaced |= {found.decode() for found in _NAMED.findall(line.raw)} or {""}
            self._bad = True
            return
        match record.get("unit"):
            case [int(i), int(n)] if 1 <= i <= n:
                pass
            case _:
                i, n = 1, 1
        seq, start, after = record["seq"], record["seq"] - i + 1, record.get("after") if has_place(record) else None
        self._place(seq - 1)
        torn = record["recordType"] == TORN
        begins = torn or (start, start + n - 1) != (self._start, self._end) or seq <= self.last
        if self._held and begins:
            # Its end is missing. It was there once if the file went on behind it.
            went_on = after >= self._end if isinstance(after, int) else self._bad and start > self.last + 1
            self._close(lost=went_on and not torn)
        if self._held or i > 1:
            self._note_lost(max(start, self.last + 1), seq - 1)
        elif isinstance(after, int):
            self._note_lost(self.last + 1, after)
        self._bad = False
        self.last = max(self.last, seq)
        if not torn:
            self._start, self._end = start, start + n - 1
            self._held.append(record)
            if seq == self._end:
                self._close(lost=False, whole=True)

    def end(self, promised: int) -> None:
        """The file is at its end."""
        self._place(inf)
        if self._held:
            self._close(lost=self._bad or promised >= self._end)
        self._note_lost(self.last + 1, promised)

    def _place(self, last: float) -> None:
        self.named |= {name: max(last, self.named.get(name, 0)) for name in self._unplaced}
        self._unplaced.clear()

    def _close(self, *, lost: bool, whole: bool = False) -> None:
        if lost:
            self._note_lost(self.last + 1, self._end)
        if lost or whole:
            self.found.append(self._held)
        self._held = []

    def _note_lost(self, first: int, through: int) -> None:
        """Lines with these numbers were there; where none is seen that does not read, they are gone."""
        if first <= through and not self._bad:
            self.faults.append(f"numbers {first} to {through} of {self._name} are lost")
        self.last = max(self.last, through)
