"""The guide for contributors says what is in the tree: its map of a prompt, its folders, its targets."""

from __future__ import annotations

import re

import pytest

from tests.unit.pages import ROOT, section

PAGE = ROOT / "CONTRIBUTING.md"
MAP = section(PAGE, "How a prompt flows")
LINKS = re.findall(r"\[`([\w/]+\.py)`\]\(([\w/]+\.py)\)([^\[]*)", MAP)


def test_the_map_of_a_prompt_leads_from_a_front_to_the_viewers() -> None:
    """Through the session and the store; every link of the section is one of those that are checked."""
    paths = [path for _, path, _ in LINKS]
    assert [paths[0], paths[-2]] == ["src/clew/fronts/http/chat.py", "src/clew/fronts/http/sse.py"]
    assert {path.split("/")[2] for path in paths} == {"fronts", "session", "store", "live"}
    assert sorted(paths) == sorted(re.findall(r"\]\((src/[^)]+)\)", MAP))


@pytest.mark.parametrize(("name", "path", "rest"), LINKS, ids=[path for _, path, _ in LINKS])
def test_each_link_of_the_map_is_a_module_with_the_functions_named(name: str, path: str, rest: str) -> None:
    """The text of the link is the end of its path; in brackets after it is a function or a class of the module."""
    assert f"/{path}".endswith(f"/{name}")
    code = (ROOT / path).read_text(encoding="utf-8")
    missing = [one for one in re.findall(r"\(`(\w+)`\)", rest) if not re.search(rf"\b(def|class) {one}\b", code)]
    assert missing == []


def test_every_folder_of_the_layout_exists() -> None:
    """A folder without the whole path is inside the first of its row, or next to it."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]*) \|$", section(PAGE, "Layout"), re.MULTILINE)
    assert len(rows) > 10
    for folders, about in rows:
        first, *others = re.findall(r"`([\w/]+/)`", folders)
        assert (ROOT / first).is_dir(), first
        for other in [*others, *re.findall(r"`([\w/]+/)`", about)]:
            assert any((place / other).is_dir() for place in ((ROOT / first).parent, ROOT / first)), other
        for path in re.findall(r"`(\w+(?:/[\w.]+)+)`", about):
            assert (ROOT / path).exists(), path


def test_every_target_of_the_table_is_in_the_makefile() -> None:
    """And every target with a description is in the table, except those for the page's pictures and measurements."""
    listed = re.findall(r"^\| `make ([\w-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    described = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*described} - {*listed} == {"help", "web-check", "screenshots", "measure-web"}
    assert {*listed} - {*described} == set()
