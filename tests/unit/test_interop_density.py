"""How many values a file may hold for its size."""

from __future__ import annotations

import json

import pytest

from clew.errors import InvalidInput
from clew.interop.density import check_density, check_foreign_density, check_records, max_records

pytestmark = pytest.mark.rule("IO-1")
TINY = [{"id": n, "role": "user", "parts": [{"type": "text", "text": "x"}]} for n in range(60_000)]


@pytest.mark.parametrize("text", ['{"a":[1,2,3]},' * 100_000, '\\"{,[' * 300_000, "\\" * 999_999])
def test_marks_in_a_text_are_no_values(text: str) -> None:
    data = json.dumps({"said": text}).encode()
    for lines in (False, True):
        check_density(data, lines=lines)


def test_a_session_of_messages_of_one_word_passes() -> None:
    check_density(json.dumps({"messages": TINY}, separators=(",", ":")).encode(), lines=False)
    check_density(b"\n".join(json.dumps(one, separators=(",", ":")).encode() for one in TINY), lines=True)


@pytest.mark.parametrize("value", [b"{}", b"[]", b"0", b'""', b'{"":0}'])
@pytest.mark.parametrize("lines", [False, True])
def test_a_file_of_nothing_but_values_is_refused(lines: bool, value: bytes) -> None:
    data = b'{"first":1}\n[' + b",".join([value] * 700_000) + b"]"
    with pytest.raises(InvalidInput, match="it has more than"):
        check_density(data, lines=lines)


def test_a_file_may_have_six_thousand_records_and_one_for_each_768_bytes() -> None:
    assert max_records(768_000) == 7_000
    check_records(7_000, 768_000)
    with pytest.raises(InvalidInput, match=r"more than 7,000 records, the limit for 768,000 bytes"):
        check_records(7_001, 768_000)


def test_a_file_of_another_program_has_fewer_values_than_an_export() -> None:
    """Whether they stand in one line or in many; marks in texts are no values."""
    part = b'{"type":"text","text":"x"},'
    for data in (part * 100_000, (part * 100 + b"\n") * 1_000):
        with pytest.raises(InvalidInput, match="the file has more than"):
            check_foreign_density(data)
    check_foreign_density(json.dumps({"text": "{,[" * 400_000}).encode())
