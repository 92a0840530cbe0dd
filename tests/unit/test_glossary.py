"""One word, one sense: the glossary has each word once, and stays short enough to read."""

from __future__ import annotations

import re

from tests.unit.pages import DOCS, prose

WORDS = re.findall(r"^\| (?!word \|)([^|-][^|]*) \| [^|]+ \|$", prose(DOCS / "glossary.md"), re.MULTILINE)


def test_no_word_is_explained_twice() -> None:
    """And every row has a word and a meaning, nothing else."""
    rows = [line for line in prose(DOCS / "glossary.md").splitlines() if line.startswith("| ")]
    assert len(WORDS) == len(rows) - rows.count("| word | meaning |")
    assert sorted(WORDS) == sorted(set(WORDS))


def test_the_glossary_stays_short() -> None:
    """A word that needs explaining is better replaced by a plain one."""
    assert 20 < len(WORDS) <= 40
