"""Files of other programs that nobody wrote: they are refused, or become a session that is sound. Never a crash."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import Invalid
from clew.ids import SessionIdForm
from clew.interop.programs.claude_code_file import format_claude_code
from clew.interop.programs.import_session import ImportTarget, import_foreign
from clew.interop.programs.pi_file import format_pi
from clew.interop.programs.readers import READERS, read_foreign
from clew.interop.validate_import import check_portable
from clew.transcript.session import Model
from tests.rounds import rounds

PROGRAMS = Path(__file__).parents[1] / "fixtures" / "programs"
TARGET = ImportTarget(SessionIdForm.CLEW, None, "assistant", Model("demo", "echo"))
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    2**70,
    "",
    "x",
    "\x00",
    "\ud800",
    [],
    {},
    [None],
    {"type": "text"},
    "🧵" * 5,
]
LINES = [
    json.loads(line)
    for file in sorted(PROGRAMS.rglob("*.jsonl"))
    for line in file.read_text().splitlines()
    if line.startswith("{") and line.endswith("}")
]
DOCUMENT = {
    "info": {"id": "ses_1", "title": "t", "directory": "/d", "time": {"created": 1, "updated": 2}},
    "messages": [
        {
            "info": json.loads(file.read_text()),
            "parts": [json.loads(part.read_text()) for part in sorted(file.parents[2].glob(f"part/{file.stem}/*"))],
        }
        for file in sorted(PROGRAMS.glob("opencode/files/storage/message/*/*.json"))
    ],
}


def takes(program: Any, data: bytes) -> None:
    """Refused in words, or a session that any store would take and that is exported again."""
    try:
        found = read_foreign(program, data)
    except Invalid:
        return
    for foreign in found:
        portable = import_foreign(foreign, TARGET)
        check_portable(portable)
        assert format_claude_code(portable)
        assert format_pi(portable)


def spoilt(value: Any, chance: random.Random) -> Any:
    """The same value with something in it put in the place of something else, or gone."""
    if chance.random() < 0.04:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {key: spoilt(item, chance) for key, item in value.items() if chance.random() > 0.02}
    if isinstance(value, list):
        items = [spoilt(item, chance) for item in value]
        return items + items[:1] if chance.random() < 0.05 else items
    return value


@pytest.mark.slow
@pytest.mark.rule("IO-1")
@settings(max_examples=rounds(20), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_spoilt_file_is_refused_or_becomes_a_sound_session(seed: int) -> None:
    """Lines of every program and version, mixed, spoilt, twice, in any order, and read as any program's."""
    chance = random.Random(seed)
    lines = [json.dumps(spoilt(line, chance)) for line in LINES if chance.random() > 0.3]
    if chance.random() < 0.3:
        chance.shuffle(lines)
    lines += [lines[0], '{"cut":', "[" * 5000, json.dumps({"type": "user", "message": {"content": "a" * 9}}), "5"]
    data = "\n".join(lines).encode(errors="surrogatepass")
    for program in READERS:
        takes(program, data)
    takes("opencode", json.dumps(spoilt(DOCUMENT, chance)).encode())


@pytest.mark.rule("IO-1")
@settings(max_examples=rounds(30), deadline=None)
@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_session_are_refused(data: bytes) -> None:
    """Whatever they are."""
    for program in READERS:
        takes(program, data)


@pytest.mark.rule("IO-1")
def test_a_huge_line_is_cut_and_told() -> None:
    """A text of more than a part may hold comes as far as it goes; a record that is too large is named."""
    text = "x" * 5_000_000
    lines = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-03-01T09:00:00Z", "cwd": "/"},
        {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": text}},
        {"type": "custom", "id": "2", "parentId": "1", "data": text},
    ]
    [found] = read_foreign("pi", "\n".join(map(json.dumps, lines)).encode())
    said = import_foreign(found, TARGET).messages[0].parts[0].data["text"]
    assert (len(said), [(one.what, one.fate, one.where) for one in found.remarks]) == (
        4_194_304,
        [
            ("texts longer than 4,194,304 characters, truncated", "lost", "line 2"),
            ("entries of kind custom, too large to preserve", "lost", "line 3"),
        ],
    )


@pytest.mark.rule("IO-1")
def test_a_small_file_cannot_ask_for_a_huge_session() -> None:
    """Each way inside a turn repeats what stands before it: so many of them are refused."""
    tree = {"u": None, "long": "u", **{str(n): "long" for n in range(40)}}
    lines = [
        {
            "type": "assistant" if above else "user",
            "uuid": own,
            "parentUuid": above,
            "message": {"content": own * 500_000},
        }
        for own, above in tree.items()
    ]
    [found] = read_foreign("claude-code", "\n".join(map(json.dumps, lines)).encode())
    with pytest.raises(Invalid, match="multiply its size"):
        import_foreign(found, TARGET)
