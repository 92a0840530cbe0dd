"""The table of operations: the requests an engine accepts from outside, their arguments and their results.

HTTP's routes, the OpenAPI document, the page's types and the remote engine are made from it. A new operation is a
method of the facade and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clew.fronts.operations import history, host, runs, sessions, triggers
from clew.fronts.operations.operation import Operation

__all__ = ["BY_NAME", "OPERATIONS", "Operation"]

OPERATIONS: Final[tuple[Operation, ...]] = (
    *host.OPERATIONS,
    *sessions.OPERATIONS,
    *runs.OPERATIONS,
    *sessions.PERMISSION_OPERATIONS,
    *history.OPERATIONS,
    *sessions.TRANSFER_OPERATIONS,
    *runs.STREAM_OPERATIONS,
    *triggers.OPERATIONS,
    host.DOCUMENT,
)
"""In the order of the OpenAPI document; operations on the same path are adjacent."""

BY_NAME: Final[Mapping[str, Operation]] = {operation.name: operation for operation in OPERATIONS}
