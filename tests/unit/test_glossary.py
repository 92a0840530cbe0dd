"""One word, one sense: the glossary has each word once, and each of the code's own words has a home."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
GLOSSARY: Final = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| word |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_no_word_is_explained_twice() -> None:
    """Words that share a row are words of their own."""
    words = Counter(word for row in rows(GLOSSARY) for word in re.split(r" / |, (?!of )", row[0]))
    assert [word for word, count in words.items() if count > 1] == []


def test_the_codes_own_words_have_a_home_that_is_there() -> None:
    """A module of the package, named at the end of the row."""
    own = rows(GLOSSARY.split("## The code's own words")[1])
    assert len(own) > 20
    assert [row for row in own if not (ROOT / "src" / "clew" / row[2].strip("`")).is_file()] == []
