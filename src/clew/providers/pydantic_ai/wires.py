"""What each kind of endpoint is spoken through: the library, and the extra of clew that brings it.

Whatever pydantic-ai calls by a name and reaches through OpenAI's client is one kind under that name, made the same way;
only a library with a client of its own has code of its own (:mod:`clew.providers.pydantic_ai.endpoint`).
"""

from __future__ import annotations

import importlib.util
from typing import Final, get_args

from clew.providers.base import EndpointKind

__all__ = ["NEWER_LIMIT", "OPENAI_WIRES", "OWN_FORMS", "how_to_install", "what_to_install"]

_LIBRARIES: Final[dict[EndpointKind, tuple[str, str]]] = {
    "anthropic": ("anthropic", "models"),
    "bedrock": ("boto3", "bedrock"),
    "google": ("google.genai", "google"),
    "google-cloud": ("google.genai", "google"),
    "groq": ("groq", "groq"),
    "mistral": ("mistralai", "mistral"),
    "xai": ("xai_sdk", "xai"),
}
"""The library and the extra."""
_USUAL: Final = ("openai", "models")
"""Those of every other kind."""

OPENAI_WIRES: Final[frozenset[EndpointKind]] = frozenset(get_args(EndpointKind)) - frozenset(_LIBRARIES)
NEWER_LIMIT: Final[frozenset[EndpointKind]] = frozenset(
    {"openai", "openai-responses", "openrouter", "cerebras", "crusoe", "meta"}
)
"""Those where an output limit is called what OpenAI calls it now, or what the library knows they call it."""

OWN_FORMS: Final[frozenset[EndpointKind]] = frozenset(
    {"anthropic", "openai", "openai-responses", "google", "google-cloud"}
)
"""Those that are asked for an answer of a schema by a way of their own, also beside tools and in a stream. A server
that merely speaks OpenAI's dialect may pass over it without a word."""


def how_to_install(kind: EndpointKind) -> str:
    """What brings the library of this kind."""
    return f'run pip install "clew[{_LIBRARIES.get(kind, _USUAL)[1]}]"'


def what_to_install(kind: EndpointKind) -> str | None:
    """The same, where it is not there yet; imports nothing but a parent package."""
    for name in ("pydantic_ai", _LIBRARIES.get(kind, _USUAL)[0]):
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            return how_to_install(kind)
    return None
