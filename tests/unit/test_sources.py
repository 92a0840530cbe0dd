"""The map from the statements of the source documents to the tests that prove them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = tomllib.loads((ROOT / "tests" / "sources.toml").read_text())
REASONS = {"heading", "introduction", "rationale", "example", "see also", "open question", "left to the host"}
DEVIATION = re.compile(r"deviation: tests/deviations\.md#([a-z0-9-]+)")


def statements() -> Iterator[tuple[str, dict[str, Any]]]:
    for number, document in SOURCES.items():
        for row in document["rows"]:
            yield number, row


def test_the_ranges_of_each_document_have_no_gap_and_no_overlap() -> None:
    """From its first line to its last."""
    assert list(SOURCES) == ["000", "001", "002", "003", "004"]
    for number, document in SOURCES.items():
        end = 0
        for row in document["rows"]:
            first, _, last = row["at"].partition("-")
            assert (int(first), int(last or first) >= int(first)) == (end + 1, True), f"{number}:{row['at']}"
            end = int(last or first)
        assert end == document["lines"], number


def test_each_statement_has_tests_or_a_reason() -> None:
    """The reason is one of the list, or a heading of tests/deviations.md; what the row is about is a few words."""
    for number, row in statements():
        assert row.keys() <= {"at", "about", "reason", "tests"}, f"{number}:{row['at']}"
        reason = row.get("reason")
        assert row.get("tests") or reason, f"{number}:{row['at']} names neither a test nor a reason"
        assert reason is None or reason in REASONS or DEVIATION.fullmatch(reason), f"{number}:{row['at']}: {reason}"
        assert len(row.get("about", "").split()) <= 4, f"{number}:{row['at']}: {row['about']}"


def test_each_deviation_is_explained_in_the_docs_and_each_that_is_explained_is_named_here() -> None:
    """A row of the page is of the statement that its line is in; the anchor is made of the heading above it."""
    explained, anchor, number = set(), "", ""
    for line in (ROOT / "tests" / "deviations.md").read_text().splitlines():
        if heading := re.fullmatch(r"#+ (.+?)(?: \((\d{3})\))?", line):
            anchor = re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
            number = heading[2] or ""
        elif row := re.match(r"\| (\d+) \|", line):
            explained.add((number, _range_of(number, int(row[1])), anchor))
    named = {
        (number, row["at"], match[1])
        for number, row in statements()
        if (match := DEVIATION.fullmatch(row.get("reason", "")))
    }
    assert explained == named


def _range_of(number: str, line: int) -> str | None:
    for row in SOURCES[number]["rows"]:
        first, _, last = row["at"].partition("-")
        if int(first) <= line <= int(last or first):
            return str(row["at"])
    return None


def test_each_test_that_is_named_exists() -> None:
    """`path::name`; each file is parsed once."""
    named: dict[str, set[str]] = {}
    for _, row in statements():
        for one in row.get("tests", ()):
            path, _, name = one.partition("::")
            named.setdefault(path, set()).add(name)
    missing = {f"{path}::{name}" for path, names in named.items() for name in names - _tests_of(ROOT / path)}
    assert missing == set()


def _tests_of(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, functions)}
