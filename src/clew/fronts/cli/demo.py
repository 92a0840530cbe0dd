"""The command that fills a store with the sample sessions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from clew.fronts.cli.command import Json, Store, end, opened, print_json, shapes
from clew.fronts.cli.plain import plain
from clew.fronts.cli.remote import RemoteEngine
from clew.fronts.samples import fill

__all__ = ["COMMANDS"]


def demo(*, store: Store = None, json: Json = False) -> int:
    """Fill a store with sample sessions: branches, summaries, an approval, a queue, 2,000 turns. Twice changes nothing.

    Example: clew demo --store sqlite:///demo.db
    """

    async def run() -> int:
        async with opened(store, write=True, make=True) as engine:
            if isinstance(engine, RemoteEngine):
                made = await engine.examples()
            else:
                made = await fill(engine, Path.cwd(), lambda title: _progress(f"making: {title}"))
            shown = await shapes(engine, made)
        if json:
            print_json({"sessions": shown})
        for session in () if json else shown:
            print(plain(f"{session.id}  {session.title}"))
        return 0

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {"demo": demo}


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"clew: {text}", file=sys.stderr)
