"""Where a chat is shown, and where its other side types: what any terminal can do, and a pipe in the place of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union

from clew.fronts.cli.chat.action import Act
from clew.fronts.cli.safe_text import plain

if TYPE_CHECKING:
    from clew.fronts.cli.chat.screen import Screen

__all__ = ["Pipe", "Terminal"]


class Pipe:
    """Somebody who reads text and may send lines; nobody who could be asked. The next line waits for the answer."""

    attended = False
    size = (80, 24)

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Act] = asyncio.Queue()
        self._signals: asyncio.Queue[Act] = asyncio.Queue()
        self._free = asyncio.Event()
        self._free.set()

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        signals = {signal.SIGINT: Act("interrupt"), signal.SIGTERM: Act("end")}
        for number, act in signals.items():
            loop.add_signal_handler(number, self._signals.put_nowait, act)
        # A thread, since a file cannot be watched; one that ends with the process, since reading cannot be left.
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        held = ""
        with contextlib.suppress(RuntimeError):  # the loop is gone
            for line in sys.stdin:
                held += line.rstrip("\n")
                if held.endswith("\\"):
                    held = held[:-1] + "\n"
                    continue
                loop.call_soon_threadsafe(self._lines.put_nowait, Act("line", held))
                held = ""
            loop.call_soon_threadsafe(self._lines.put_nowait, Act("end"))

    def print(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts

    def show(self, lines: Sequence[str], status: str = "", above: str = "") -> None:
        """There is no place for what does not last."""
        self.print(above)

    def ask(self, question: str | None, words: Sequence[str] = ()) -> None:
        """There is nobody to be asked."""

    async def pick(self, title: str, choices: Sequence[tuple[str, str]]) -> str | None:
        """There is nobody to choose; what there is, is listed."""
        self.print("".join(f"{value}  {plain(label)}\n" for value, label in choices))
        return None

    def draft(self, text: str) -> None:
        if text:
            self.print(f"draft: {text}\n")

    def clear(self) -> bool:
        return False

    def busy(self, busy: bool) -> None:
        if busy:
            self._free.clear()
        else:
            self._free.set()

    async def next(self) -> Act:
        signalled = asyncio.ensure_future(self._signals.get())
        line = asyncio.ensure_future(self._line())
        try:
            await asyncio.wait({signalled, line}, return_when=asyncio.FIRST_COMPLETED)
            return signalled.result() if signalled.done() else line.result()
        finally:
            signalled.cancel()
            line.cancel()

    async def _line(self) -> Act:
        await self._free.wait()
        return await self._lines.get()


Terminal: TypeAlias = Union[Pipe, "Screen"]
"""Where a conversation is shown, and where its other side types: both do the same things, each in its way."""
