"""What a person may choose while the host runs, in the place of what its settings said when it was opened."""

from __future__ import annotations

import msgspec

from clew.transcript.session import Model

__all__ = ["Choices"]


class Choices(msgspec.Struct):
    """Asked wherever the setting of that name counts, so that a change holds from the next turn on.

    ``default_model`` None leaves it to the providers, ``max_steps`` None to the preset of the session.
    """

    default_model: Model | None = None
    default_agent: str = "assistant"
    max_steps: int | None = None
