"""The sections of a summary: their headings, and the lines under each.

A summary is read as sections wherever it is changed, so that what a model wrote with other marks (``**Goal**``,
``# goal:``) comes out with ours.
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
    """The lines under each known heading, in the order they stand. What comes before the first is left out."""
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
    """The text of a summary with all headings in their order. A section without lines says so."""
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
    """Whether a line says nothing: empty, ``(none)``, or a bracket out of a template that nobody filled in."""
    bare = _BOX.sub("", _BULLET.sub("", line.strip(), count=1), count=1).strip("*_ ")
    return _PLACEHOLDER.fullmatch(bare) is not None


def _heading_of(line: str) -> str | None:
    bare = line.strip()
    if not bare.startswith(("#", "**", "__")):
        return None
    words = bare.strip("#*_: \t").lower().split()
    return _NAMES.get(" ".join("&" if word == "and" else word for word in words))
