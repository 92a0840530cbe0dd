"""Putting a system prompt together, and the digest that names it.

Pure: the same inputs give the same bytes, on every machine and in every process. The digest is what assistant
messages carry; what it names is kept once for each digest, and :func:`sections_of` takes it apart again. The tools are
named and kept with the rest, but a model is given them as tools: told in the text as well they would be paid for twice.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput
from clew.system_prompt.inputs import PromptInputs
from clew.system_prompt.sections import SECTIONS
from clew.transcript.gate import clean_text

__all__ = ["Section", "SystemPrompt", "assemble", "digest_system_prompt", "sections_of", "sent_text"]

_BETWEEN: Final = "\n\n"
_NATIVE: Final = "tools"
"""The section that goes to a model in a form of its own."""
_MOST_CHARS: Final = 1024 * 1024


class Section(msgspec.Struct, frozen=True):
    """One part of the prompt, by the name it has in the order."""

    name: str
    text: str


class SystemPrompt(msgspec.Struct, frozen=True):
    """A system prompt. ``text`` is sent, ``kept`` is stored; ``digest`` is the latter's SHA-256 as UTF-8, in hex."""

    sections: tuple[Section, ...]
    text: str
    kept: str
    digest: str

    @property
    def outline(self) -> list[list[Any]]:
        """Name and length of each section, as JSON: what is needed to take the stored text apart.

        A third item marks what was not sent as text; prompts of older versions, which were sent whole, have none.
        """
        return [[one.name, len(one.text), *(["native"] if one.name == _NATIVE else [])] for one in self.sections]


_kept: Final[dict[bytes, SystemPrompt]] = {}
_lock: Final = threading.Lock()


def assemble(inputs: PromptInputs) -> SystemPrompt:
    """The prompt for one turn. A section with nothing to say is left out and leaves no trace.

    Most turns are told what the one before was: a prompt is kept by what it was made of, to the byte.
    """
    try:
        made_of = msgspec.json.encode(inputs)
    except (TypeError, ValueError, RecursionError):
        # A tool's schema may hold what is no JSON.
        return _assemble(inputs)
    with _lock:
        known = _kept[made_of] = _kept.pop(made_of) if made_of in _kept else _assemble(inputs)
        while sum(len(key) + len(one.kept) for key, one in _kept.items()) > _MOST_CHARS:
            _kept.pop(next(iter(_kept)))
    return known


def _assemble(inputs: PromptInputs) -> SystemPrompt:
    built = ((name, clean_text(build(inputs))[0]) for name, build in SECTIONS)
    sections = tuple(Section(name, text) for name, text in built if text)
    kept = _BETWEEN.join(section.text for section in sections)
    text = _BETWEEN.join(section.text for section in sections if section.name != _NATIVE)
    return SystemPrompt(sections, text, kept, digest_system_prompt(kept))


def digest_system_prompt(text: str) -> str:
    """The name of a prompt: SHA-256 over its UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def sections_of(text: str, outline: Sequence[Sequence[Any]]) -> tuple[Section, ...]:
    """A stored prompt by section. Raises ``InvalidInput`` when the outline is not this text's."""
    sections: list[Section] = []
    at = 0
    for name, length, *_ in outline:
        at += len(_BETWEEN) if sections else 0
        sections.append(Section(name, text[at : at + length]))
        at += length
    if at != len(text) or _BETWEEN.join(section.text for section in sections) != text:
        raise InvalidInput("the outline does not belong to this prompt")
    return tuple(sections)


def sent_text(text: str, outline: Sequence[Sequence[Any]]) -> str:
    """What of a stored prompt was sent as text. Raises ``InvalidInput`` when the outline is not this text's."""
    pairs = zip(sections_of(text, outline), outline, strict=True)
    return _BETWEEN.join(section.text for section, (_, _, *native) in pairs if not native)
