"""How many values a file may hold for its size."""

from __future__ import annotations

import json

import pytest

from clew.errors import InvalidInput
from clew.interop.density import check_density

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
