"""The hash of the page's source, and the build that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import web_hash


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


SOURCE = {"package.json": "{}", "index.html": "<p>", "src/main.tsx": "go()", "src/api/schema.ts": "//"}


@pytest.mark.parametrize(
    "change",
    [
        {"src/main.tsx": "go( )"},
        {"package.json": "{ }"},
        {"src/new.ts": ""},
        {"src/main.tsx": "", "src/main.tsxgo()": ""},
        {"public/x.svg": "<svg/>"},
    ],
)
def test_whatever_the_build_could_depend_on_changes_it(tmp_path: Path, change: dict[str, str]) -> None:
    """Content, names, new files; and never one file's end as another's beginning."""
    before = web_hash.web_hash(tree(tmp_path, SOURCE))
    assert web_hash.web_hash(tree(tmp_path, change)) != before


def test_what_tools_and_tests_leave_does_not(tmp_path: Path) -> None:
    """And neither does the order in which files were made."""
    before = web_hash.web_hash(tree(tmp_path / "a", SOURCE))
    other = tree(tmp_path / "b", dict(reversed(SOURCE.items())))
    left = [
        "node_modules/x/index.js",
        "dist/index.html",
        "coverage/a.html",
        ".vite/deps.json",
        "src/api/client.test.ts",
    ]
    tree(other, dict.fromkeys(left, "x"))
    assert web_hash.web_hash(other) == before


@pytest.mark.skipif(not web_hash.DIST.exists(), reason="the page is not built in this checkout")
def test_the_built_page_is_of_this_source() -> None:
    """`make web` builds it anew."""
    assert web_hash.STAMP.is_file(), "the build does not say what it was made from: run `make web`"
    assert web_hash.STAMP.read_text().strip() == web_hash.web_hash(), "the page is older than web/: run `make web`"
