"""The script of the kill matrix: prompts, words, the tool. Standard library only, since peers run it too."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = [
    "CALL",
    "NEXT",
    "PAST",
    "PROMPTS",
    "RELEASED",
    "SUMMARY",
    "TARGET",
    "TOOL",
    "WORDS",
    "Side",
    "run_side",
    "said",
]

WORDS: Final = tuple(f"oak{n:02}elm" for n in range(40))
"""The answer of the scenario ``text``; each word can be found in any file."""
PROMPTS: Final = {
    "text": "Recite birch-seven.",
    "tool": "Deploy birch-seven.",
    "approval": "Deploy birch-seven.",
    "compaction": "Recall birch-seven.",
}
NEXT: Final = "What is next, larch-nine?"
"""The prompt after the restart."""
PAST: Final = tuple((f"Question fir{n}yew.", f"Answer ash{n}bay. " + "It is long. " * 40) for n in range(8))
"""The turns before a compaction."""
TOOL: Final = "deploy"
TARGET: Final = "blue-7"
CALL: Final = "call_km1"
RELEASED: Final = f"released {TARGET}"
SUMMARY: Final = "Digest-cedar: eight questions were answered."


def said(**event: Any) -> None:
    """Report to the driver, at once."""
    print(json.dumps(event), flush=True)


@dataclass(frozen=True)
class Side:
    """The arguments of an adapter.

    ``way`` is ``start`` in the process that is killed; ``resume``: continue as the docs of the library say, then send
    the next prompt; ``next``: send the next prompt without continuing.
    """

    scenario: str
    folder: Path
    url: str
    way: str

    def submit(self) -> str:
        """Return the prompt of the scenario, which the user sends now."""
        said(submitted=True)
        return PROMPTS[self.scenario]

    @property
    def blocks(self) -> bool:
        """Return whether the tool never returns: in the scenario ``tool``, until the process is killed."""
        return self.scenario == "tool" and self.way == "start"

    def apply(self, target: str) -> str:
        """Do what the tool does: append a line to ``effects.txt``."""
        with (self.folder / "effects.txt").open("a", encoding="utf-8") as file:
            file.write(f"{target}\n")
            file.flush()
            os.fsync(file.fileno())
        return f"released {target}"

    def deploy(self, target: str) -> str:
        """Run the tool in a thread."""
        result = self.apply(target)
        if self.blocks:
            threading.Event().wait()
        return result

    async def adeploy(self, target: str) -> str:
        """Run the tool on the event loop."""
        result = self.apply(target)
        if self.blocks:
            await asyncio.Event().wait()
        return result

    def show(self, text: str) -> None:
        """Show a piece of an answer to the user."""
        if text:
            said(shown=text)

    def stored(self, texts: list[str]) -> None:
        """Report the history as the peer's own API reads it."""
        said(stored=texts)

    async def wait_for_kill(self, **event: Any) -> None:
        """Report, then do nothing until the driver kills this process."""
        said(**event)
        await asyncio.Event().wait()


def run_side(start: Callable[[Side], Awaitable[None]], resume: Callable[[Side], Awaitable[None]]) -> None:
    """``python -m MODULE start|resume|next SCENARIO FOLDER URL``."""
    way, scenario, folder, url = sys.argv[1:]
    side = Side(scenario, Path(folder), url, way)
    asyncio.run(_run(start if way == "start" else resume, side))
    said(done=True)
    os._exit(0)  # some peers leave threads running


async def _run(entry: Callable[[Side], Awaitable[None]], side: Side) -> None:
    await entry(side)
