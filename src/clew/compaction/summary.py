"""The summary: the summariser's request, its answer, and a summary by rule if no summariser is available.

An answer becomes a clean text with standard headings, or is rejected with a reason. An empty template accepted as a
summary would lose all the history it replaces, so the checks are whether the sections have content, and whether the
text is smaller than what it replaces.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as files_of_package
from typing import Final

from clew.compaction.budget import estimate_tokens
from clew.compaction.directive import Directive, quoted
from clew.compaction.files import FILE_TAGS, Files, file_tags
from clew.compaction.sections import MAIN, is_placeholder, read_sections, write_sections
from clew.compaction.serialise import without_tags
from clew.errors import CompactionError
from clew.transcript.message import Message

__all__ = ["SummaryRejected", "check_smaller", "mechanical_summary", "parse_summary", "request_text", "system_prompt"]

_LINE_LIMITS: Final = ((24, 600), (12, 400), (8, 240), (5, 160), (3, 120), (2, 80), (1, 60), (1, 24))
"""Lines per section and characters per line, from largest to smallest."""
_MIN_HEADINGS: Final = 4
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


@cache
def _texts(prompts: str) -> dict[str, str]:
    texts = tomllib.loads(files_of_package(__package__).joinpath("summary.toml").read_text("utf-8"))
    texts |= texts.get(prompts, {})
    return {name: text.strip() for name, text in texts.items() if isinstance(text, str)}


def system_prompt(prompts: str) -> str | None:
    """Return the summariser's system prompt if a preset has its own; else it is the agent's."""
    return _texts(prompts).get("system")


def request_text(
    history: str,
    *,
    previous: str | None,
    focus: str | None,
    directives: Sequence[Directive],
    summary_tokens: int,
    prompts: str = "own",
) -> str:
    """Return the summariser's request: the task, the format, and the history between tags; ``overlay``: that first."""
    texts = _texts(prompts)
    task = [texts["update" if previous else "new"], texts["material"], texts["format"]]
    task.append(
        f"Stay below {summary_tokens} tokens, which is about {summary_tokens * 3} characters. Keep paths, names and "
        "error messages exactly as they stand."
    )
    if directives:
        quotes = "\n".join(without_tags(quoted(one)) for one in directives)
        task.append(
            "The user said the following. Where it still holds it belongs under Constraints & Preferences, verbatim "
            f"and in quotes:\n<directives>\n{quotes}\n</directives>"
        )
    if focus:
        task.append(f"The user asks that the summary pay special attention to this: {without_tags(focus)}")
    material = [f"<conversation>\n{history}\n</conversation>"]
    if previous:
        before = without_tags(FILE_TAGS.sub("", previous)).strip()
        summary = f"<previous-summary>\n{before}\n</previous-summary>"
        material = [*material, summary] if prompts == "overlay" else [summary, *material]
    pieces = [*material, *task] if prompts == "overlay" else [*task, *material]
    return "\n\n".join(pieces) + "\n"


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
    if found < _MIN_HEADINGS:
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


def mechanical_summary(
    messages: Sequence[Message],
    previous: str | None,
    directives: Sequence[Directive],
    files: Files,
    *,
    limit_tokens: int,
) -> str:
    """Return a summary made by rule, without a model: the first and last prompts, the directives, and the previous
    summary.

    States how many messages it replaces. Uses fewer and shorter lines until it is within the limit, down to the bare
    sections; the newest directives stay longest.
    """
    before = read_sections(FILE_TAGS.sub("", previous or ""))
    prompts = [
        text for message in messages if message.is_prompt and (text := " ".join(" ".join(message.texts).split()))
    ]
    tags = file_tags(files, limit_tokens // 4)
    quotes = [quoted(one) for one in directives]
    carried = [line for line in before.get("## Constraints & Preferences", []) if line not in quotes]
    note = f"- {len(messages)} earlier messages were left out; they are stored and can be recalled."
    sections = {
        **before,
        "## Goal": before.get("## Goal") or [f"- {text}" for text in prompts[:1]],
        "## Constraints & Preferences": carried + quotes,
        "### In Progress": [f"- {text}" for text in prompts[-1:]] or before.get("### In Progress", []),
        "## Critical Context": [*before.get("## Critical Context", []), note],
    }
    sections = {name: [line for line in lines if not is_placeholder(line)] for name, lines in sections.items()}
    text = ""
    for count, width in _LINE_LIMITS:
        text = write_sections({name: _fewer(lines, count, width) for name, lines in sections.items()})
        if estimate_tokens(len(text) + len(tags)) <= limit_tokens:
            return text + tags
    return text


def _fewer(lines: list[str], count: int, width: int) -> list[str]:
    """Return the newest lines, none longer than ``width``."""
    return [line if len(line) <= width else line[: width - 1].rstrip() + "…" for line in lines[-count:]]
