"""Directives: what the user demanded, forbade or corrected, in the user's own words.

A summary must not lose or distort them, so they are found by rule and added to it verbatim. Only text written by a
person is searched: tool output, and text that clew inserted, cannot become a directive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from clew.compaction.budget import estimate_tokens
from clew.compaction.sections import is_placeholder, read_sections, write_sections
from clew.transcript.message import Message

__all__ = ["Directive", "directives_of", "quoted", "with_directives"]

MAX_DIRECTIVE_CHARS: Final = 300
"""Characters. A longer sentence is not treated as a directive."""

_SECTION: Final = "## Constraints & Preferences"
_FENCE: Final = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_MARK: Final = re.compile(r"^(?:[-*+•>]|\d+[.)])\s+")
_COMMAND: Final = re.compile(
    r"\b(?:must(?:n['’]t)?|never|always|only|do\s*n['’]t|do not|prefer\w*|should(?:n['’]t)?|instead|please use"
    r"|from now on|remember|make sure|no longer|stop (?:using|doing)|avoid)\b"
    r"|(?:^|\b(?:please|and|but)\s+)keep\b"
    r"|^(?:no|nope|wait|stop|rather|correction)\s*[,:—–]\s*\S|^actually\b",
    re.IGNORECASE,
)


class Directive(msgspec.Struct, frozen=True):
    """One sentence of the user's, and the message that contains it."""

    message_id: str
    text: str


def directives_of(messages: Iterable[Message]) -> tuple[Directive, ...]:
    """Return the directives in these messages, oldest first. A repeated one counts at its last position."""
    return _deduplicated(
        Directive(message.id, sentence)
        for message in messages
        if message.is_prompt
        for text in message.texts
        for sentence in _sentences(text)
        if _COMMAND.search(sentence)
    )


def with_directives(
    summary: str, directives: Sequence[Directive], *, limit_tokens: int
) -> tuple[str, tuple[Directive, ...]]:
    """Return the summary with the missing directives added as quotes, and all directives it then contains.

    The added lines take at most ``limit_tokens``; the newest are preferred, in their order.
    """
    contained: list[Directive] = []
    added: list[str] = []
    text = " ".join(summary.split())
    tokens_left = limit_tokens
    for directive in reversed(_deduplicated(directives)):
        if " ".join(directive.text.split()) in text:
            contained.append(directive)
            continue
        line = quoted(directive)
        size = estimate_tokens(len(line) + 1)
        if size <= tokens_left:
            tokens_left -= size
            contained.append(directive)
            added.append(line)
    if added:
        sections = read_sections(summary)
        before = [line for line in sections.get(_SECTION, []) if not is_placeholder(line)]
        summary = write_sections({**sections, _SECTION: [*before, *reversed(added)]})
    return summary, tuple(reversed(contained))


def quoted(directive: Directive) -> str:
    """Return a directive as a list item."""
    return f'- "{directive.text}"'


def _sentences(text: str) -> Iterator[str]:
    for raw in _SENTENCE.split(_FENCE.sub("\n", text)):
        sentence = _MARK.sub("", raw.strip()).strip()
        if 0 < len(sentence) <= MAX_DIRECTIVE_CHARS:
            yield sentence


def _deduplicated(directives: Iterable[Directive]) -> tuple[Directive, ...]:
    newest: dict[str, Directive] = {}
    for directive in directives:
        newest.pop(directive.text, None)
        newest[directive.text] = directive
    return tuple(newest.values())
