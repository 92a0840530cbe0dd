"""Banned words: the checker finds them, and the folders that have been cleaned stay clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import checked_files, find_words

CLEAN = (
    "bench",
    "tools",
    "tests/rig",
    "tests/services",
    "web/src",
    "web/client/src",
    "src/clew/fronts/acp",
    "src/clew/fronts/cli",
)
PYTHON = '''"""What it does."""

def _kept(told: int) -> None:
    """Return whoever asks."""  # for good


KIND = "nobody"
'''
SCRIPT = """/** How it works. */
const told = 1;
interface Shown { told: string; wanted: string }
const texts = ['on the spot', found.look];
"""


@pytest.mark.parametrize("folder", CLEAN)
def test_no_banned_word_is_in_the_folder(folder: str) -> None:
    """The failure says what to write instead."""
    assert list(map(str, find_words(checked_files(folder)))) == []


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("a.py", PYTHON, [(1, "What"), (3, "_kept"), (3, "told"), (4, "for good"), (4, "whoever")]),
        ("a.ts", SCRIPT, [(1, "How"), (2, "told"), (3, "wanted"), (4, "on the spot")]),
        ("a.sql", "SELECT 'nobody' -- anew\n", [(1, "anew")]),
    ],
)
def test_each_kind_of_file_is_read(name: str, source: str, found: list[tuple[int, str]], tmp_path: Path) -> None:
    """A name of the API may be a property; a string that is only the word is a value."""
    (tmp_path / name).write_text(source)
    assert [(one.line, one.word) for one in find_words(iter([tmp_path / name]))] == found
