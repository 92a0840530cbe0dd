"""Real models through ``pydantic_ai.direct``: the only place that knows that library, its SDKs and their traps.

Importing this package imports none of them; the first call does, in a thread. Without the extra that brings one
(:mod:`clew.providers.pydantic_ai.wires`) that call fails with a sentence that says what to install.
"""

from clew.providers.pydantic_ai.endpoint import Endpoint
from clew.providers.pydantic_ai.provider import CONNECT_LIMIT_MS, EFFORTS, IDLE_LIMIT_MS, PydanticAIProvider
from clew.providers.pydantic_ai.wires import what_to_install

__all__ = ["CONNECT_LIMIT_MS", "EFFORTS", "IDLE_LIMIT_MS", "Endpoint", "PydanticAIProvider", "what_to_install"]
