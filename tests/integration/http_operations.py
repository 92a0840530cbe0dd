"""Every operation of the API, with a path to call it by."""

from __future__ import annotations

import sys
from typing import Any

from tests.integration.http_document import document

OPERATIONS = [(method.upper(), path) for path, said in document()["paths"].items() for method in said]
GOOD = {
    "id": "ses_" + "0" * 26,
    "message_id": "m1",
    "loss_id": "loss-1",
    "approval_id": "apr_" + "0" * 26,
    "tool_call_id": "call_1",
    "sha256": "0" * 64,
    "file": "index-00000000.js",
    "name": "door",
}
KINDS = {"turns": "trn_", "schedules": "sch_"}


def path_of(path: str, **ids: str) -> str:
    kind = KINDS.get("/".join(path.split("/")[2:3]))
    good = GOOD if kind is None else {**GOOD, "id": kind + "0" * 26}
    return path.format(**{**good, **ids})


class Audit:
    """What this process does of these things while the block lasts; without a choice, what a bad id could lead to."""

    _live: Audit | None = None
    _added = False
    _files = ("open", "os.remove", "os.rename", "os.listdir", "os.scandir", "socket.connect", "socket.getaddrinfo")

    def __init__(self, *events: str) -> None:
        self.seen: list[str] = []
        self._events = events or Audit._files

    def __enter__(self) -> Audit:
        if not Audit._added:
            # A hook cannot be taken away again, so there is one for all, and it looks for whoever listens.
            sys.addaudithook(Audit._hook)
            Audit._added = True
        Audit._live = self
        return self

    def __exit__(self, *_: object) -> None:
        Audit._live = None

    @staticmethod
    def _hook(event: str, args: Any) -> None:
        live = Audit._live
        if live is not None and event in live._events:
            live.seen.append(f"{event} {str(args)[:500]}")
