"""Real models through ``pydantic_ai.direct``: the only place that knows that library, its SDKs and their traps.

Importing this package imports none of them; the first call does, in a thread. Without the extra ``clew[models]`` that
call fails with a sentence that says so.
"""

from clew.providers.pydantic_ai.endpoint import Endpoint, is_installed
from clew.providers.pydantic_ai.provider import CONNECT_LIMIT_MS, EFFORTS, IDLE_LIMIT_MS, PydanticAIProvider

__all__ = ["CONNECT_LIMIT_MS", "EFFORTS", "IDLE_LIMIT_MS", "Endpoint", "PydanticAIProvider", "is_installed"]
