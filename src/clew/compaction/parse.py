"""Reading a summary back: what a model wrote becomes a clean text with our headings, or is rejected with a reason.

An empty template that passes for a summary would lose the whole history it stands for, so what counts is whether the
sections say anything, and whether the text is smaller than what it replaces.
"""

from __future__ import annotations

import re
from typing import Final

from clew.compaction.files import FILE_TAGS
from clew.compaction.sections import MAIN, is_placeholder, read_sections, write_sections
from clew.errors import CompactionError

__all__ = ["SummaryRejected", "check_smaller", "parse_summary"]

LEAST_HEADINGS: Final = 4
"""Of the six. A summary that has fewer did not follow its format."""

_THINKING: Final = re.compile(
    r"\s*<(think|thinking|thought|thoughts|reasoning|analysis|scratchpad)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_FRAME: Final = re.compile(r"</?(?:summary|previous-summary|conversation)>", re.IGNORECASE)
_FENCE: Final = re.compile(r"\s*```[\w-]*\s*")


class SummaryRejected(CompactionError):
    """An answer that is no summary. ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the summary was rejected: {reason}")
        self.reason = reason


def parse_summary(text: str) -> str:
    """The summary in an answer. Raises :class:`SummaryRejected`."""
    # Thinking comes first, or it is not that: a summary may well be about such tags.
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
    if found < LEAST_HEADINGS:
        raise SummaryRejected(f"it has {found} of the {len(MAIN)} sections")
    told = {heading: [line for line in lines if not is_placeholder(line)] for heading, lines in sections.items()}
    if not any(told.values()):
        raise SummaryRejected("all its sections are empty")
    return write_sections(told)


def check_smaller(summary_tokens: int, replaced_tokens: int) -> None:
    """Raises :class:`SummaryRejected` unless the summary takes less than what it replaces."""
    if summary_tokens >= replaced_tokens:
        raise SummaryRejected(f"it takes {summary_tokens} tokens and what it replaces {replaced_tokens}")


def _unfenced(text: str) -> str:
    """Without a code fence around it all; one inside of it stays."""
    lines = text.strip().splitlines()
    fences = [index for index, line in enumerate(lines) if _FENCE.fullmatch(line)]
    if fences and not any(read_sections(line) for line in lines[: fences[0]]):
        del lines[fences[0]]
        # Its other end, if it has one: else the number of fences was even before.
        if len(fences) % 2 == 0:
            del lines[fences[-1] - 1]
    return "\n".join(lines)
