"""Writes the operations of the blocking client from the table of operations: ``python -m tools.blocking_client``.

One line per operation, so that type checkers and readers have them by name; a test compares the file with the table.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

from clew.fronts.operations.table import OPERATIONS
from clew.fronts.remote.client import AsyncClient
from clew.fronts.remote.engine import RemoteEvents, RemoteSchedules, RemoteWebhooks

TARGET: Final = Path(__file__).resolve().parents[1] / "src/clew/fronts/remote/blocking_operations.py"
COMPOSED: Final = (
    *("rename_session", "archive_session", "losses", "examples", "outcome"),
    *("schedules.pause", "schedules.resume"),
)
"""Methods of the asynchronous client that consist of other operations."""
_CLASSES: Final[dict[str, tuple[str, type, str]]] = {
    "": ("ClientOperations", AsyncClient, "The operations on sessions and on the server."),
    "events": ("Events", RemoteEvents, "The event ledger of a server."),
    "schedules": ("ScheduleOperations", RemoteSchedules, "The schedules of a server."),
    "webhooks": (
        "Webhooks",
        RemoteWebhooks,
        "The webhooks of a server. The secret is set only when it was just created.",
    ),
}
_BY_HAND: Final = ("schedules.change",)
"""Takes any keywords, which no wrapper can pass on with its types."""
_WRAPPERS: Final = {"Submission": "submitting", "Rewound": "rewinding"}
_HEAD: Final = '''"""The operations of the blocking client. Written by ``make client`` from the table of operations."""

from __future__ import annotations

from clew.fronts.remote.blocking_call import BlockingView, Iterator, blocking, rewinding, submitting
from clew.fronts.remote.client import AsyncClient
from clew.fronts.remote.engine import RemoteEvents, RemoteSchedules, RemoteWebhooks

__all__ = ["ClientOperations", "Events", "ScheduleOperations", "Webhooks"]
'''


def main() -> None:
    TARGET.write_text(written(), encoding="utf-8")


def written() -> str:
    """Return the module."""
    names = [name for operation in OPERATIONS for name in (operation.name, operation.watched_by) if name]
    served = {operation.name for operation in OPERATIONS if operation.served}
    known = [*(name for name in names if name not in served), *COMPOSED]
    return _HEAD + "".join(_class(group, known) for group in _CLASSES)


def _class(group: str, names: list[str]) -> str:
    name, source, docstring = _CLASSES[group]
    own = [method for prefix, _, method in (one.rpartition(".") for one in names) if prefix == group]
    lines = "".join(_line(source, method) for method in own if f"{group}.{method}" not in _BY_HAND)
    return f'\n\nclass {name}(BlockingView):\n    """{docstring}"""\n\n{lines}'


def _line(source: type, name: str) -> str:
    method: Any = getattr(source, name)
    returned = str(method.__annotations__["return"])
    follows = inspect.isasyncgenfunction(method) or returned.startswith("AsyncIterator")
    wrapper = "Iterator" if follows else _WRAPPERS.get(returned, "blocking")
    return f"    {name} = {wrapper}({source.__name__}.{name})\n"


if __name__ == "__main__":
    main()
