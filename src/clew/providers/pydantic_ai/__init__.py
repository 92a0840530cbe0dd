"""Real models through ``pydantic_ai.direct``. Only this package uses that library and its SDKs.

They are not imported with this package but by the first call, in a thread. If the extra with a library is not installed
(:mod:`clew.providers.pydantic_ai.endpoint`), the call fails with a message that says what to install.
"""

from clew.providers.pydantic_ai.endpoint import Endpoint, load_libraries, what_to_install
from clew.providers.pydantic_ai.provider import CONNECT_LIMIT_MS, EFFORTS, IDLE_LIMIT_MS, PydanticAIProvider

__all__ = [
    "CONNECT_LIMIT_MS",
    "EFFORTS",
    "IDLE_LIMIT_MS",
    "Endpoint",
    "PydanticAIProvider",
    "load_libraries",
    "what_to_install",
]
