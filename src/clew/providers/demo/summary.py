"""The demo summariser: deterministic rules that fill fixed sections from labelled text.

It reads the conversation as flat text (``[User]:``, ``[Assistant]:``, ``[Assistant tool calls]:``,
``[Tool result]:``) and an earlier summary between ``<previous-summary>`` tags, whose lines it repeats. It shortens the
summary until that is at most half as long as the text it read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from clew.providers.base import ModelRequest
from clew.providers.demo.reading import words_of
from clew.transcript.part import first_words

__all__ = ["SECTIONS", "summarise"]

SECTIONS: Final = (
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "### Done",
    "### In Progress",
    "### Blocked",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
_NOTHING: Final = "(none)"
_LONGEST: Final = 1_600
"""Characters: the 400 tokens that are the output limit of a demo model."""
_TIGHTER: Final = ((6, 200), (4, 160), (3, 120), (2, 80), (1, 60), (1, 30), (1, 12))
"""Lines per section and characters per line, from roomy to bare."""

_PREVIOUS: Final = re.compile(r"<previous-summary>(.*?)</previous-summary>", re.DOTALL)
_LABEL: Final = re.compile(r"\[(User|Assistant tool calls|Assistant|Tool result)\b[^\]]*\]:[ \t]?(.*)")
_END: Final = re.compile(r"</?[a-z][a-z-]*>")
_BULLET: Final = re.compile(r"(?:[-*]|\d+\.)\s+(?:\[[ x]\]\s+)?(.*)")
_RULE: Final = re.compile(r"\b(must|never|always|only|prefer|don't|do not|should|instead of|without)\b", re.IGNORECASE)
_CHOICE: Final = re.compile(r"\b(decided|decision|chose|choose|will use|instead of|agreed)\b", re.IGNORECASE)
_TROUBLE: Final = re.compile(r"\b(error|failed|denied|not found|cannot|interrupted|timed out)\b", re.IGNORECASE)


class _Entry(msgspec.Struct, frozen=True):
    label: str
    text: str


def summarise(request: ModelRequest) -> str:
    """Return the summary of a request's messages."""
    given = "\n".join(words_of(message) for message in request.messages)
    limit = min(_LONGEST, max(len(given) // 2, 1))
    if request.max_output_tokens is not None:
        limit = min(limit, request.max_output_tokens * 4)
    previous = _PREVIOUS.search(given)
    entries = _entries(_PREVIOUS.sub("", given))
    if not entries:
        entries = [_Entry(message.role.capitalize(), words_of(message)) for message in request.messages]
    lines = _sorted(entries, _carried(previous[1]) if previous else {})
    text = ""
    for count, width in _TIGHTER:
        text = _written(lines, count, width)
        if len(text) <= limit:
            break
    return text


def _entries(text: str) -> list[_Entry]:
    """Return the labelled pieces of a conversation. Text outside of them is instructions and is not read."""
    found: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines():
        match = _LABEL.match(line)
        if match is not None:
            found.append((match[1], [match[2]]))
            inside = True
        elif _END.fullmatch(line.strip()):
            inside = False
        elif inside:
            found[-1][1].append(line)
    return [_Entry(label, "\n".join(lines).strip()) for label, lines in found]


def _carried(summary: str) -> dict[str, list[str]]:
    """Return the lines of an earlier summary by section."""
    lines: dict[str, list[str]] = {}
    section = ""
    for line in (raw.strip() for raw in summary.splitlines()):
        if line in SECTIONS:
            section = line
        elif section and (match := _BULLET.fullmatch(line)) is not None and match[1] != _NOTHING:
            lines.setdefault(section, []).append(match[1])
    return lines


def _sorted(entries: Sequence[_Entry], before: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the lines of each section, the earlier ones first."""

    def lines_of(label: str, limit: int | None) -> list[str]:
        return [line for entry in entries if entry.label == label for line in _lines(entry.text)[:limit]]

    asked, answered, returned = (lines_of(label, 1) for label in ("User", "Assistant", "Tool result"))
    called = lines_of("Assistant tool calls", None)
    new = {
        "## Goal": [] if before.get("## Goal") else asked[:1],
        "## Constraints & Preferences": [line for line in asked if _RULE.search(line)],
        "### Done": called + answered,
        "### In Progress": asked[-1:],
        "### Blocked": [line for line in returned if _TROUBLE.search(line)],
        "## Key Decisions": [line for line in answered + asked if _CHOICE.search(line)],
        "## Next Steps": [f"Go on from: {asked[-1]}"] if asked else [],
        "## Critical Context": asked,
    }
    # Every summary replaces the work in progress and the next steps.
    fleeting = {"### In Progress", "## Next Steps"}
    return {
        section: [*dict.fromkeys([*(before.get(section, []) if section not in fleeting or not lines else []), *lines])]
        for section, lines in new.items()
    }


def _written(lines: dict[str, list[str]], count: int, width: int) -> str:
    out: list[str] = []
    for section in SECTIONS:
        out.append(section)
        if section == "## Progress":
            continue
        chosen = lines[section]
        if len(chosen) > count:
            # The first line has the subject, the newest ones matter now.
            chosen = chosen[:1] + chosen[len(chosen) - count + 1 :] if count > 1 else chosen[-1:]
        mark = "- [x] " if section == "### Done" else "- "
        out += [mark + first_words(line, width) for line in chosen] or [f"- {_NOTHING}"]
        if section not in ("### Done", "### In Progress"):
            out.append("")
    return "\n".join(out).strip() + "\n"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
