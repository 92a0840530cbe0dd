"""Reading the lines of a log: their records, units and faults. Pure.

Each line has a number and its position in a unit, ``[i, n]``; the first of a unit has the last number in the file
before it. So an incomplete unit of a process that died, which was never acknowledged and is ignored, differs from a
unit with lost or changed lines: that loses only these lines, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, Final, Literal, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from clew.store.files.crc import BOM, CHECKED_END, is_check, is_checked, verdict
from clew.transcript.session import Spend

__all__ = ["AHEAD", "END_OF_TORN", "TORN", "Ending", "Lines", "Memo", "has_place", "read_lines"]

TORN: Final = "torn"
"""The type of a record of older versions: a process died while it wrote the line before."""


END_OF_TORN: Final = b" <torn>\n"
"""The end that older versions appended to an incomplete line, so that no reader takes it for a record."""

Ending = Literal["", "line", "torn"]
"""The end of a file: a newline, a complete record without a newline, or an incomplete record."""

_NAMED: Final = re.compile(rb'"(?:clew":\{"id|key)":"(msg_[0-9A-Za-z]{26})"')
_CHANGED: Final = " was changed after it was written"
_SAYS: Final = re.compile(rb'"recordType":"(?:message|part|metadata|compaction|aside|chunks|mark)"|"clew":|"key":"msg_')
Record = dict[str, Any]


class Lines(NamedTuple):
    """The contents of a log. ``units`` are the valid records, unit by unit; ``faults`` its damage; ``named`` the
    messages that invalid lines refer to, each with the highest number that the last of these lines may have had, with
    an empty id if a line has none; ``last_seq`` the last number ever in it."""

    units: list[list[Record]]
    faults: list[str]
    named: dict[str, float]
    last_seq: int
    ending: Ending


class _Line(NamedTuple):
    """A line with its record, or with its ``fault``. ``cut``: the process that wrote it died."""

    raw: bytes
    record: Record | None
    fault: str
    cut: bool = False


def read_lines(data: bytes, name: str, promised: int = 0) -> Lines:
    """Return the contents of a file's bytes. All numbers up to ``promised`` were in the file once."""
    *whole, rest = data.split(b"\n")
    lines = [line for number, raw in enumerate(whole, 1) if raw for line in _read(raw, f"line {number} of {name}")]
    ending: Ending = ""
    if rest:
        # An incomplete record is not a JSON object: one that can be parsed only lacks its newline.
        last = _read(rest, f"line {len(whole) + 1} of {name}")
        ending = "line" if any(line.record is not None or line.fault.endswith(_CHANGED) for line in last) else "torn"
        lines += last if ending == "line" else ()
    units = _Units(name)
    checked = False
    for place, line in enumerate(lines):
        record = line.record
        followed = lines[place + 1].record if place + 1 < len(lines) else None
        if record is None and (line.cut or (followed is not None and followed["recordType"] == TORN)):
            continue  # its writer died, and nothing acknowledged is lost
        if record is not None and checked and has_place(record) and "check" not in record:
            line = _Line(line.raw, None, f"{line.fault} has lost its check")
        checked = checked or (record is not None and is_check(record.get("check")))
        units.take(line)
    units.end(promised)
    return Lines(units.found, units.faults, units.named, units.last, ending)


def _read(raw: bytes, place: str) -> list[_Line]:
    """Return the record of a line, or of several lines if the newlines between them were damaged."""
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
    # Another program may have rewritten the line with the same content.
    content = {key: one for key, one in record.items() if key != "check"}
    ours = has_place(record) or is_check(record.get("check"))
    changed = ours and "check" in record and verdict(raw) != "whole" and not is_checked(content, record["check"])
    return _Line(raw, None if changed else record, f"{place}{_CHANGED if changed else ''}", cut)


def has_place(record: Record) -> bool:
    """Return whether a record has its position in a unit, as each of clew's does."""
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
    """The assembly of lines to units. ``last`` is the number up to which the file was once complete."""

    def __init__(self, name: str) -> None:
        self.found: list[list[Record]] = []
        self.faults: list[str] = []
        self.named: dict[str, float] = {}
        self._unplaced: set[str] = set()  # named since the last valid line
        self.last = 0
        self._name = name
        self._held: list[Record] = []
        self._start, self._end = 0, 0
        self._bad = False  # there is an invalid line after the last record

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
            # The end of the unit is missing. It was lost if the file continued after it.
            continued = after >= self._end if isinstance(after, int) else self._bad and start > self.last + 1
            self._close(lost=continued and not torn)
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
        """Finish at the end of the file."""
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
        """Report these numbers as lost, unless an unreadable line may have had them."""
        if first <= through and not self._bad:
            self.faults.append(f"numbers {first} to {through} of {self._name} are lost")
        self.last = max(self.last, through)


AHEAD: Final = frozenset({"messages", "links", "calls"})
"""Tables of which the stream file may have entries that the log gets later, together with their message."""

Place = tuple[int, int]


def count_calls(content: object) -> int:
    """Return the number of tool calls in the content of a record."""
    blocks = content if isinstance(content, list) else []
    return sum(block.get("type") == "toolCall" for block in blocks if isinstance(block, dict))


class Memo(msgspec.Struct):
    """The state of a session's files besides its value.

    ``end`` is the last number of the log and ``stream_end`` that of the stream file; ``ending`` and ``stream_ending``
    say how the files end. ``ahead`` has the log's version of entries that are newer in the stream file. ``places`` has
    the numbers at which the parts of a message begin; ``readable`` the messages that other programs can read; ``count``
    the number of such records, ``tool_calls`` that of the calls in them. ``base`` is what another program had counted
    before, which is added to the totals of the session. ``repaired`` are messages that were repaired in memory only:
    once one changes, all of it is written. ``synced``: the last number of the log that survives a loss of power.
    ``damaged``: the files cannot be read, and are not written to; ``damaged_files``: files that can be read in part,
    and are backed up before they change (of the log only its end). ``copied_by_hand``: the log is a copy of another
    session's. ``aside``: the copy of a session is not complete, and in a folder that no list shows. ``spend`` is the
    session's spend, None if it has to be added up again.
    """

    damaged: bool = False
    seq: int = 0
    end: int = 0
    synced: int = 0
    damaged_files: frozenset[str] = frozenset()
    spend: Spend | None = None
    ending: Ending = ""
    stream_end: int = 0
    stream_ending: Ending = ""
    streams: bool = False
    logged: bool = False
    copied_by_hand: bool = False
    aside: bool = False
    count: int = 0
    tool_calls: int = 0
    base: tuple[int, ...] = ()
    others: dict[str, Any] = {}
    places: dict[str, list[Place]] = {}
    readable: set[str] = set()
    ahead: dict[tuple[str, str], Any] = {}
    repaired: dict[str, Any] = {}

    def note(self, record: Mapping[str, Any], message_id: str, seq: int, first: int | None = None) -> None:
        """Note that other programs can read this message: the log has a record of it, from its part ``first`` on."""
        self.count += record["recordType"] == "message"
        if "copyOf" not in record:
            self.tool_calls += count_calls(record.get("content"))
        self.readable.add(message_id)
        if record.get("role") != "toolResult":
            if first is None:
                own = record["clew"]
                first = 0 if "row" in own else min((spec[1] for spec in own["parts"]), default=0)
            self.places[message_id] = [*self.places.get(message_id, ()), (seq, first)]

    def copied(self, *, streamed: bool) -> Memo:
        """Return a copy for a unit, of all that a unit may change. ``streamed``: other programs cannot read it yet."""
        if streamed:
            return replace(self, ahead=dict(self.ahead))
        copies: dict[str, Any] = {name: dict(getattr(self, name)) for name in ("places", "ahead", "repaired")}
        return replace(self, readable=set(self.readable), **copies)
