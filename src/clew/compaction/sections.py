"""The sections of a summary: their headings, and the lines under each.

A summary is parsed into sections whenever it is changed, so that headings a model wrote with other markup
(``**Goal**``, ``# goal:``) become the standard ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["MAIN", "NOTHING", "is_placeholder", "read_sections", "write_sections"]

MAIN: Final = (
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
HEADINGS: Final = (*MAIN[:3], "### Done", "### In Progress", "### Blocked", *MAIN[3:])
NOTHING: Final = "(none)"

_NAMES: Final = {heading.lstrip("# ").lower(): heading for heading in HEADINGS}
_BULLET: Final = re.compile(r"(?:[-*+•]|\d+[.)])(?:\s+|$)")
_BOX: Final = re.compile(r"\[[ xX]?\](?:\s+|$)")
_PLACEHOLDER: Final = re.compile(
    r"[\s\-–—.…]*|\W*(?:none|n/?a|nothing|empty|tbd|to be determined|not applicable|unknown)(?: yet| so far)?\W*"
    r"|\[[^\]]*\]\W*|<[^>]*>\W*",
    re.IGNORECASE,
)


def read_sections(text: str) -> dict[str, list[str]]:
    """Return the lines under each known heading, in order. Text before the first heading is dropped."""
    sections: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        heading = _heading_of(line)
        if heading is not None:
            lines = sections.setdefault(heading, [])
        elif lines is not None and line.strip():
            lines.append(line.rstrip())
    return sections


def write_sections(sections: Mapping[str, list[str]]) -> str:
    """Return the text of a summary with all headings in order. An empty section says so."""
    out: list[str] = []
    for heading in HEADINGS:
        lines = sections.get(heading, [])
        if heading.startswith("## ") and out:
            out.append("")
        out.append(heading)
        if lines or heading != "## Progress":
            out += lines or [f"- {NOTHING}"]
    return "\n".join(out) + "\n"


def is_placeholder(line: str) -> bool:
    """Return whether a line has no content: empty, ``(none)``, or an unfilled bracket from the template."""
    bare = _BOX.sub("", _BULLET.sub("", line.strip(), count=1), count=1).strip("*_ ")
    return _PLACEHOLDER.fullmatch(bare) is not None


def _heading_of(line: str) -> str | None:
    bare = line.strip()
    if not bare.startswith(("#", "**", "__")):
        return None
    words = bare.strip("#*_: \t").lower().split()
    return _NAMES.get(" ".join("&" if word == "and" else word for word in words))
