"""Packed rows are the rows, wherever they lie and whatever is in them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from clew.transcript.message import MessageRow, PartRow
from clew.transcript.packed import PackedParts, PackedRows, mapped, sorted_rows


def message(n: int, data: Any, size: int = 0) -> MessageRow:
    parts = (
        PartRow(f"p{n}", 0, {"type": "text", "text": "é" * size, "held": data}, n, n + 1),
        PartRow("", 1, {"type": "step-start"}, n, n),
    )
    return MessageRow(f"m{n}", "s", "assistant", n, n + 2, {"cost": 0.5, "deep": {"a": [1, None, True]}}, parts)


ROWS = (
    message(3, {"z": 1, "a": [1.0, -1, "\x00", {}]}),
    message(1, 1 << 70),
    message(2, "\ud800"),
    message(0, None, size=900_000),
    message(4, 1 << 63, size=900_000),
    message(5, "last"),
)


@pytest.mark.parametrize("room", [True, False], ids=["in a file", "without room for one"])
def test_rows_come_back_as_they_were(room: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path if room else tmp_path / "gone"))
    before = len(os.listdir("/proc/self/fd"))
    packed = PackedRows(ROWS)
    assert len(os.listdir("/proc/self/fd")) == before + room
    assert (len(packed), tuple(packed), packed[-1], packed[3], packed[1:3]) == (6, ROWS, ROWS[5], ROWS[3], ROWS[1:3])
    assert packed == ROWS
    assert packed != ROWS[:-1]
    assert list(packed[1].parts[0].data) == ["type", "text", "held"]
    assert [row.id for row in sorted_rows(packed)] == ["m0", "m1", "m2", "m3", "m4", "m5"]
    with pytest.raises(IndexError):
        packed[6]
    del packed
    assert len(os.listdir("/proc/self/fd")) == before
    assert os.listdir(tmp_path) == []


def test_what_is_packed_stays_packed_and_what_is_not_does_not() -> None:
    def same(row: MessageRow) -> MessageRow:
        return row

    assert type(mapped(PackedRows(ROWS), same)) is PackedRows
    assert type(mapped(ROWS, same)) is tuple
    assert mapped(PackedRows(ROWS), same) == mapped(ROWS, same) == ROWS


def test_parts_are_kept_by_number() -> None:
    held = PackedParts()
    assert [held.add(row.parts) for row in ROWS] == [0, 1, 2, 3, 4, 5]
    assert [held.get(n) for n in (4, 0, 2, 1)] == [ROWS[n].parts for n in (4, 0, 2, 1)]
