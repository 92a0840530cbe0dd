"""Banned words: the checker finds them, and the folders that have been cleaned stay clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import CHECKED, ROOT, checked_files, find_words

FIXED = {
    "KeptRule": "a name of the API",
    "KeptRules": "a name of the API",
    "figures": "a deprecated method of the API",
    "kept": "a parameter of the store's contract",
    "told": "a field of the API",
    "most": "a field of files.toml",
}
FIXED_TEXTS = {
    "src/clew/system_prompt/sections.py": "the digest of the prompt",
    "src/clew/tools/builtin/schedule.py": "the digest of the tools",
}
"""Files with a text that is compared, and that is clear enough to stay."""
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


@pytest.mark.parametrize("folder", [*CHECKED, "tests/services"])
def test_no_banned_word_is_in_the_folder(folder: str) -> None:
    """The failure says what to write instead. Migrations that have been shipped stay as they are."""
    found = []
    for one in find_words(checked_files(folder)):
        path = one.path.relative_to(ROOT).as_posix()
        shipped = "/migrations/" in path or path.endswith("postgres/schema.sql")
        if not (shipped or path in FIXED_TEXTS or one.word in FIXED):
            found.append(str(one))
    assert found == []


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
