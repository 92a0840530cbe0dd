"""Assembles a system prompt and computes its digest.

Pure: the same inputs give the same bytes, on every machine and in every process. Assistant messages carry the digest;
the prompt is stored once per digest, and :func:`sections_of` splits it again. Tools are part of the digest and stored
with the rest, but sent to a model as tools: repeated in the text, they would be paid for twice.
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
from clew.transcript.value_check import clean_text

__all__ = ["Section", "SystemPrompt", "assemble", "digest_system_prompt", "sections_of", "sent_text"]

_SEPARATOR: Final = "\n\n"
_NATIVE: Final = "tools"
"""The section that is sent to a model in its own format."""
_MAX_CACHE_CHARS: Final = 1024 * 1024


class Section(msgspec.Struct, frozen=True):
    """One part of the prompt, with its name."""

    name: str
    text: str


class SystemPrompt(msgspec.Struct, frozen=True):
    """A system prompt. ``text`` is sent, ``stored_text`` is stored; ``digest`` is the SHA-256 of the latter in hex."""

    sections: tuple[Section, ...]
    text: str
    stored_text: str
    digest: str

    @property
    def outline(self) -> list[list[Any]]:
        """Name and length of each section, as JSON: what is needed to split the stored text.

        A third item marks a section that was not sent as text; prompts of older versions, which were sent whole, have
        none.
        """
        return [[one.name, len(one.text), *(["native"] if one.name == _NATIVE else [])] for one in self.sections]


_cache: Final[dict[bytes, SystemPrompt]] = {}
_lock: Final = threading.Lock()


def assemble(inputs: PromptInputs) -> SystemPrompt:
    """Return the prompt for one turn, without empty sections.

    Most turns have the same inputs as the previous one, so prompts are cached by their encoded inputs.
    """
    try:
        cache_key = msgspec.json.encode(inputs)
    except (TypeError, ValueError, RecursionError):
        # A tool's schema may contain values that are not JSON.
        return _assemble(inputs)
    with _lock:
        prompt = _cache[cache_key] = _cache.pop(cache_key) if cache_key in _cache else _assemble(inputs)
        while sum(len(key) + len(one.stored_text) for key, one in _cache.items()) > _MAX_CACHE_CHARS:
            _cache.pop(next(iter(_cache)))
    return prompt


def _assemble(inputs: PromptInputs) -> SystemPrompt:
    built = ((name, clean_text(build(inputs))[0]) for name, build in SECTIONS)
    sections = tuple(Section(name, text) for name, text in built if text)
    stored_text = _SEPARATOR.join(section.text for section in sections)
    text = _SEPARATOR.join(section.text for section in sections if section.name != _NATIVE)
    return SystemPrompt(sections, text, stored_text, digest_system_prompt(stored_text))


def digest_system_prompt(text: str) -> str:
    """Return the digest of a prompt: SHA-256 over its UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def sections_of(text: str, outline: Sequence[Sequence[Any]]) -> tuple[Section, ...]:
    """Split a stored prompt into its sections. Raise ``InvalidInput`` if the outline does not match."""
    sections: list[Section] = []
    at = 0
    for name, length, *_ in outline:
        at += len(_SEPARATOR) if sections else 0
        sections.append(Section(name, text[at : at + length]))
        at += length
    if at != len(text) or _SEPARATOR.join(section.text for section in sections) != text:
        raise InvalidInput("the outline does not match this prompt")
    return tuple(sections)


def sent_text(text: str, outline: Sequence[Sequence[Any]]) -> str:
    """Return the part of a stored prompt that was sent as text. Raise ``InvalidInput`` if the outline does not
    match."""
    pairs = zip(sections_of(text, outline), outline, strict=True)
    return _SEPARATOR.join(section.text for section, (_, _, *native) in pairs if not native)
