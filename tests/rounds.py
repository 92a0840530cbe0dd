"""How much of what is drawn by chance the tests draw: ``CLEW_ROUNDS`` percent of the usual, 100 unless set."""

from __future__ import annotations

import os
from typing import Final

ROUNDS: Final = int(os.environ.get("CLEW_ROUNDS", "100"))


def rounds(usual: int) -> int:
    """As many as are drawn this time, at least one."""
    return max(usual * ROUNDS // 100, 1)


ON_POSTGRESQL: Final = os.environ.get("CLEW_TEST_STORE") == "postgresql"
"""Whether all of what can be tried on PostgreSQL is wanted (``make test-postgres``), and not a little of it."""
