"""Directives: what the user demanded, forbade or corrected, in the user's own words.

A summary must not lose or bend them, so they are found by rule and put into it verbatim. Only what a person wrote is
read: no tool output, and nothing clew put into the conversation itself, can become one.
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

MAX_DIRECTIVE: Final = 300
"""Characters. A longer sentence is a text of its own, and no rule to be repeated."""

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
    """One sentence of the user's, and the message it stands in."""

    message_id: str
    text: str


def directives_of(messages: Iterable[Message]) -> tuple[Directive, ...]:
    """The directives in these messages, oldest first. One that is repeated counts where it was said last."""
    return _once(
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
    """The summary with each directive it does not hold as a quote among the constraints, and those it then holds.

    The lines that are added take at most ``limit_tokens``; the newest are kept, in their order.
    """
    kept: list[Directive] = []
    added: list[str] = []
    held = " ".join(summary.split())
    left = limit_tokens
    for one in reversed(_once(directives)):
        if " ".join(one.text.split()) in held:
            kept.append(one)
            continue
        line = quoted(one)
        size = estimate_tokens(len(line) + 1)
        if size <= left:
            left -= size
            kept.append(one)
            added.append(line)
    if added:
        sections = read_sections(summary)
        before = [line for line in sections.get(_SECTION, []) if not is_placeholder(line)]
        summary = write_sections({**sections, _SECTION: [*before, *reversed(added)]})
    return summary, tuple(reversed(kept))


def quoted(directive: Directive) -> str:
    """A directive as a line of a list."""
    return f'- "{directive.text}"'


def _sentences(text: str) -> Iterator[str]:
    for raw in _SENTENCE.split(_FENCE.sub("\n", text)):
        sentence = _MARK.sub("", raw.strip()).strip()
        if 0 < len(sentence) <= MAX_DIRECTIVE:
            yield sentence


def _once(directives: Iterable[Directive]) -> tuple[Directive, ...]:
    newest: dict[str, Directive] = {}
    for one in directives:
        newest.pop(one.text, None)
        newest[one.text] = one
    return tuple(newest.values())
