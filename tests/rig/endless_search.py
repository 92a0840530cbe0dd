"""``clew`` in which no search ends."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import clew
from clew.fronts.cli import app


async def _search(*args: Any, **options: Any) -> None:
    print(end="searching", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    with mock.patch.object(clew.Engine, "search", _search):
        app.main()
