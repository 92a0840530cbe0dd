"""The documentation as a site: its navigation is the index of docs/, and its links lead to pages of the site."""

from __future__ import annotations

import re

import pytest

from tests.unit.pages import DOCS, ROOT, prose
from tools import docs_site

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_navigation_has_the_sections_pages_and_titles_of_the_index() -> None:
    """In the same order; the index is the first page."""
    index = prose(DOCS / "README.md")
    expected = [
        (heading, [(title, docs_site.pages()[(DOCS / path).resolve()]) for title, path in rows])
        for heading, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", index, re.MULTILINE)
        if (rows := re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\) \|", body, re.MULTILINE))
    ]
    first, nav = CONFIG.split("\nnav:\n")[1].split("\n", 1)
    found = [
        (heading, re.findall(r"^      - ([^:]+): (\S+)$", body, re.MULTILINE))
        for heading, body in re.findall(r"^  - ([^:]+):\n((?:      .*\n)*)", nav, re.MULTILINE)
    ]
    assert first == "  - Documentation: README.md"
    assert found == expected


def test_the_navigation_names_every_page_once() -> None:
    """A page that is missing there would be in the site without a way to it."""
    assert sorted(docs_site.nav()) == sorted(docs_site.pages().values())
    assert CONFIG.count(".md\n") == len(docs_site.nav())


def test_the_site_loads_nothing_from_another_host() -> None:
    """No fonts, scripts, badges or addresses in its configuration, and no registry in its requirements."""
    requirements = (ROOT / "requirements" / "docs.txt").read_text(encoding="utf-8")
    assert "font: false" in CONFIG
    assert [text for text in (CONFIG, docs_site.STYLE, requirements) if "://" in text] == []
    pinned = re.findall(r"^[\w-]+==\S+(?: ; .*)? \\$", requirements, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^\w", requirements, re.MULTILINE))


def test_the_site_can_be_searched() -> None:
    """Without another host; `make docs` looks into the index that is built."""
    assert "\nplugins:\n  - search\n" in CONFIG
    assert "build/site/search.json" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("docs/web.md", "[a](cluster.md#x) ![b](images/i.png) [c](#d)", "[a](cluster.md#x) ![b](images/i.png) [c](#d)"),
        ("docs/README.md", "[`a`](../CONTRIBUTING.md)", "[`a`](CONTRIBUTING.md)"),
        ("SECURITY.md", "[a](docs/web.md#x)", "[a](web.md#x)"),
        ("CONTRIBUTING.md", "[`a.py`](src/a.py) is", "`a.py` is"),
        ("docs/web.md", "| `a \\| b` | c \\| d |", "| `a | b` | c \\| d |"),
        ("docs/web.md", "```text\n[a](../x.md)\n```\n", "```text\n[a](../x.md)\n```\n"),
    ],
)
def test_a_link_leads_to_its_page_in_the_site(page: str, text: str, expected: str) -> None:
    """One that leads to no page is plain text, and a code block is left as it is."""
    assert docs_site.convert(ROOT / page, text) == expected
