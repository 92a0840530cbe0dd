"""Input and output of a chat: a screen, or a pipe instead of a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union

from clew.fronts.cli.chat.action import Action
from clew.fronts.cli.safe_text import plain
from clew.platform.processes import add_signal_handler, remove_signal_handler

if TYPE_CHECKING:
    from clew.fronts.cli.chat.screen import Screen

__all__ = ["Pipe", "Terminal"]


class Pipe:
    """Text output and input lines without a person to ask. Each line waits for the answer to the one before."""

    attended = False
    size = (80, 24)

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Action] = asyncio.Queue()
        self._signals: asyncio.Queue[Action] = asyncio.Queue()
        self.ended = asyncio.Event()
        """Set by SIGTERM: the chat must end, whatever it waits for."""
        self._free = asyncio.Event()
        self._free.set()

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        signals = {signal.SIGINT: Action("interrupt"), signal.SIGTERM: Action("end")}
        for number, act in signals.items():
            add_signal_handler(number, self._on_signal, act)
        # A daemon thread: the event loop cannot watch a file, and a read cannot be cancelled.
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()
        try:
            yield
        finally:
            for number in signals:
                remove_signal_handler(number)

    def _on_signal(self, act: Action) -> None:
        self._signals.put_nowait(act)
        if act.kind == "end":
            self.ended.set()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        text = ""
        with contextlib.suppress(RuntimeError):  # the loop is gone
            for line in sys.stdin:
                text += line.rstrip("\n")
                if text.endswith("\\"):
                    text = text[:-1] + "\n"
                    continue
                loop.call_soon_threadsafe(self._lines.put_nowait, Action("line", text))
                text = ""
            loop.call_soon_threadsafe(self._lines.put_nowait, Action("end"))

    def print(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts

    def show(self, lines: Sequence[str], status: str = "", above: str = "") -> None:
        """Print ``above``; a pipe has no live rows."""
        self.print(above)

    def ask(self, question: str | None, words: Sequence[str] = ()) -> None:
        """Do nothing: no person can answer."""

    async def pick(self, title: str, choices: Sequence[tuple[str, str]]) -> str | None:
        """List the choices; no person can choose."""
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

    async def next(self) -> Action:
        signalled = asyncio.ensure_future(self._signals.get())
        line = asyncio.ensure_future(self._line())
        try:
            await asyncio.wait({signalled, line}, return_when=asyncio.FIRST_COMPLETED)
            return signalled.result() if signalled.done() else line.result()
        finally:
            signalled.cancel()
            line.cancel()

    async def _line(self) -> Action:
        await self._free.wait()
        return await self._lines.get()


Terminal: TypeAlias = Union[Pipe, "Screen"]
"""The input and output of a conversation."""
