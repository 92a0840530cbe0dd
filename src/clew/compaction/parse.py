"""Parsing a summary: a model's answer becomes a clean text with standard headings, or is rejected with a reason.

An empty template accepted as a summary would lose all the history it replaces, so the checks are whether the sections
have content, and whether the text is smaller than what it replaces.
"""

from __future__ import annotations

import re
from typing import Final

from clew.compaction.files import FILE_TAGS
from clew.compaction.sections import MAIN, is_placeholder, read_sections, write_sections
from clew.errors import CompactionError

__all__ = ["SummaryRejected", "check_smaller", "parse_summary"]

MIN_HEADINGS: Final = 4
"""Of the six. A summary with fewer did not follow its format."""

_THINKING: Final = re.compile(
    r"\s*<(think|thinking|thought|thoughts|reasoning|analysis|scratchpad)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_FRAME: Final = re.compile(r"</?(?:summary|previous-summary|conversation)>", re.IGNORECASE)
_FENCE: Final = re.compile(r"\s*```[\w-]*\s*")


class SummaryRejected(CompactionError):
    """An answer that is not a valid summary. ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the summary was rejected: {reason}")
        self.reason = reason


def parse_summary(text: str) -> str:
    """Return the summary in an answer. Raise :class:`SummaryRejected` if there is none."""
    # Only leading tags are thinking: a summary may itself mention such tags.
    while thought := _THINKING.match(text):
        text = text[thought.end() :]
    cleaned = _FRAME.sub("", FILE_TAGS.sub("", text))
    if not cleaned.strip():
        raise SummaryRejected("it is empty")
    sections = read_sections(_unfenced(cleaned))
    if "## Goal" not in sections:
        raise SummaryRejected("it has no Goal section")
    if any(heading.startswith("### ") for heading in sections):
        sections.setdefault("## Progress", [])
    found = sum(heading in sections for heading in MAIN)
    if found < MIN_HEADINGS:
        raise SummaryRejected(f"it has {found} of the {len(MAIN)} sections")
    filled = {heading: [line for line in lines if not is_placeholder(line)] for heading, lines in sections.items()}
    if not any(filled.values()):
        raise SummaryRejected("all its sections are empty")
    return write_sections(filled)


def check_smaller(summary_tokens: int, replaced_tokens: int) -> None:
    """Raise :class:`SummaryRejected` unless the summary is smaller than what it replaces."""
    if summary_tokens >= replaced_tokens:
        raise SummaryRejected(f"it has {summary_tokens} tokens, what it replaces only {replaced_tokens}")


def _unfenced(text: str) -> str:
    """Remove a code fence around the whole text; fences inside it stay."""
    lines = text.strip().splitlines()
    fences = [index for index, line in enumerate(lines) if _FENCE.fullmatch(line)]
    if fences and not any(read_sections(line) for line in lines[: fences[0]]):
        del lines[fences[0]]
        # Remove the closing fence too, unless an odd number of fences shows that it is missing.
        if len(fences) % 2 == 0:
            del lines[fences[-1] - 1]
    return "\n".join(lines)
