"""Write the pages of the documentation site into build/docs, for `make docs`.

The pages of docs/ and those of the repository's root become siblings there. A link to a file that is not a page,
such as a source file, becomes plain text. mermaid is copied from the node modules of the web page, so that no
page loads it from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUT = ROOT / "build" / "docs"
CONFIG = ROOT / "mkdocs.yml"
PROJECT_PAGES = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
MERMAID = ROOT / "web" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset table:not([class]) th { min-width: 0; }
.md-typeset table:not([class]) td:first-child code { overflow-wrap: normal; word-break: normal; }
"""
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`\n]+`")
_NAV_ENTRY = re.compile(r"^ +- ([^:]+): (\S+\.md)$", re.MULTILINE)


def pages() -> dict[Path, str]:
    """Return each page of the repository with its path in the site."""
    found = {page: page.relative_to(DOCS).as_posix() for page in sorted(DOCS.rglob("*.md"))}
    return found | {ROOT / name: name for name in PROJECT_PAGES}


def nav() -> dict[str, str]:
    """Return the title of each path that `nav` in mkdocs.yml names, in its order."""
    entries = _NAV_ENTRY.findall(CONFIG.read_text(encoding="utf-8").split("\nnav:\n")[1])
    return {path: title for title, path in entries}


def convert(page: Path, text: str) -> str:
    """Return a page with its links as they are in the site. Code blocks stay as they are."""
    places = pages()

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        file, hash_sign, anchor = target.partition("#")
        if not file or "://" in file or file.startswith("mailto:"):
            return match[0]
        there = (page.parent / file).resolve()
        place = places.get(there) or (there.relative_to(DOCS).as_posix() if image and DOCS in there.parents else None)
        if place is None:
            return label
        return f"{image}[{label}]({os.path.relpath(place, Path(places[page]).parent)}{hash_sign}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, _plain_pipes(part)) for part in parts)


def _plain_pipes(prose: str) -> str:
    """Write `|` for `\\|` in code: the site's Markdown does not split a cell there, and would show the backslash."""
    return _CODE.sub(lambda match: match[0].replace("\\|", "|"), prose)


def main() -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    missing = sorted(set(pages().values()) ^ set(nav()))
    if missing:
        print("nav of mkdocs.yml and the pages differ:", *missing, file=sys.stderr)
        return 1
    for page, place in pages().items():
        (OUT / place).parent.mkdir(parents=True, exist_ok=True)
        (OUT / place).write_text(convert(page, page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(DOCS / "images", OUT / "images")
    (OUT / "assets").mkdir()
    shutil.copy(MERMAID, OUT / "assets")
    (OUT / "assets" / "site.css").write_text(STYLE, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
