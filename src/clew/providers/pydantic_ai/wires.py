"""Client libraries by kind of endpoint, and the extras of clew that install them.

All providers that pydantic-ai reaches through OpenAI's client are connected in the same way, by their names in
pydantic-ai; only other clients have code of their own (:mod:`clew.providers.pydantic_ai.endpoint`).
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
_DEFAULT: Final = ("openai", "models")
"""The library and the extra of every other kind."""

OPENAI_WIRES: Final[frozenset[EndpointKind]] = frozenset(get_args(EndpointKind)) - frozenset(_LIBRARIES)
NEWER_LIMIT: Final[frozenset[EndpointKind]] = frozenset(
    {"openai", "openai-responses", "openrouter", "cerebras", "crusoe", "meta"}
)
"""Kinds with OpenAI's newer name of the output limit, or a name that the library knows."""

OWN_FORMS: Final[frozenset[EndpointKind]] = frozenset(
    {"anthropic", "openai", "openai-responses", "google", "google-cloud"}
)
"""Kinds with native structured output, also together with tools and in a stream. An OpenAI-compatible server may ignore
the request for it silently."""


def how_to_install(kind: EndpointKind) -> str:
    """Return how to install the library of this kind."""
    return f'run pip install "clew-sessions[{_LIBRARIES.get(kind, _DEFAULT)[1]}]"'


def what_to_install(kind: EndpointKind) -> str | None:
    """Return how to install the library of this kind; None if it is installed. Imports at most a parent package."""
    for name in ("pydantic_ai", _LIBRARIES.get(kind, _DEFAULT)[0]):
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            return how_to_install(kind)
    return None
