"""Settings that can be changed while the host runs; they override what its config said at start."""

from __future__ import annotations

import msgspec

from clew.transcript.session import Model

__all__ = ["Choices"]


class Choices(msgspec.Struct):
    """The current choices, read wherever the setting counts, so that a change applies from the next turn on.

    ``default_model`` None leaves the choice to the providers, ``max_steps`` None to the preset of the session.
    """

    default_model: Model | None = None
    default_agent: str = "assistant"
    max_steps: int | None = None
