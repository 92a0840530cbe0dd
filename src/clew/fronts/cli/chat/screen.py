"""The screen: what is said stays above, what is being said and typed moves below it.

The rows at the bottom are drawn anew whenever they change, in one write, so that nothing flickers; what is finished is
printed above them once and scrolls away as any output does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import shutil
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from clew.fronts.cli.chat.keyboard import Act, Editor, Key, Keys
from clew.fronts.cli.safe_text import plain

__all__ = ["Screen", "cut"]

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_RESET: Final = "\x1b[0m"
_BRACKETED: Final = ("\x1b[?2004h", "\x1b[?2004l")
_MOMENT_S: Final = 0.3
"""So soon after a question was shown nobody has read it: what is typed then, without a pause, is no answer."""
_PROMPT: Final = "› "


def cut(line: str, width: int) -> str:
    """A styled line cut to so many cells."""
    if cell_len(_STYLE.sub("", line)) <= width:
        return line
    styles = "".join(_STYLE.findall(line)[:1])
    return f"{styles}{set_cell_size(_STYLE.sub('', line), max(width - 1, 0)).rstrip()}…{_RESET if styles else ''}"


class Screen:
    """The terminal of a person."""

    attended = True
    """Somebody sees what is asked and can answer."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._keys = Keys()
        self._acts: asyncio.Queue[Act] = asyncio.Queue()
        self._lines: Sequence[str] = ()
        self._status = ""
        self._question: str | None = None
        self._words: Sequence[str] = ()
        self._asked = 0
        self._asked_at = 0.0
        self._parked = ""
        self._drawn: list[int] = []
        self._drawing = ""
        self._cursor = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            # Of the terminal itself: a COLUMNS that somebody exported does not follow it.
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except (OSError, ValueError):
            columns, rows = shutil.get_terminal_size()
        return max(columns, 10), max(rows, 4)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """While this lasts, keys come as they are pressed, and the terminal is ours to draw on."""
        loop = asyncio.get_running_loop()
        fd = sys.stdin.fileno()
        self._saved: list[Any] = termios.tcgetattr(fd)
        self._raw()
        loop.add_reader(fd, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        loop.add_signal_handler(signal.SIGINT, self._acts.put_nowait, Act("interrupt"))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._acts.put_nowait, Act("end"))
        try:
            self._draw()
            yield
        finally:
            loop.remove_reader(fd)
            for number in (signal.SIGWINCH, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            self._give_back()

    def _raw(self) -> None:
        mode = [*self._saved[:6], list(self._saved[6])]
        # Enter and Ctrl-C as the keys they are; what we print still goes through the terminal's own newlines.
        mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, mode)
        self._write(_BRACKETED[0])

    def _give_back(self) -> None:
        self._write(self._erased() + _BRACKETED[1])
        self._drawn, self._cursor, self._drawing = [], (0, 0), ""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    # What is shown

    def print(self, text: str) -> None:
        """Say something for good."""
        if text:
            self._draw(text if text.endswith("\n") else text + "\n")

    def show(self, lines: Sequence[str], status: str = "", above: str = "") -> None:
        """What is shown for now, until something else is; ``above``, said for good in the same moment."""
        self._lines, self._status = lines, status
        self._draw(above)

    def ask(self, question: str | None, words: Sequence[str] = ()) -> None:
        """Put a question in front of the line; with ``words``, one of them is the answer. None: no question."""
        if question is not None and self._question is None:
            self._parked = self._editor.text
            self._editor.set("")
            self._asked += 1
            self._asked_at = asyncio.get_running_loop().time()
        elif question is None and self._question is not None:
            self._editor.set(self._parked)
            self._parked = ""
        self._question, self._words = question, words
        self._draw()

    def draft(self, text: str) -> None:
        """Hand a text over to be changed and sent."""
        if not self._editor.text:
            self._editor.set(text)
        self._draw()

    def clear(self) -> bool:
        """Drop the line that is being written; False when there was none."""
        written = self._editor.text
        self._editor.set("")
        self._draw()
        return bool(written)

    def _draw(self, above: str = "") -> None:
        width, height = self.size
        prompt = _PROMPT if self._question is None else self._question
        kept = f"⋯ {plain(' '.join(self._parked.split()))}  (kept; answer with Enter)" if self._parked else ""
        shown = [cut(line, width - 1) for line in [*self._lines, *filter(None, (self._status, kept))]]
        shown = shown[-(height - 2) :] if height > 2 else []
        room = max(width - 1 - cell_len(prompt), 8)
        text, column = self._editor.view(room)
        row = cut(prompt, max(width - 1 - room, 2)) + text
        column += min(cell_len(prompt), max(width - 1 - room, 2))
        rows = [*shown, row]
        back = f"\r\x1b[{column}C" if column else "\r"
        drawing = "\n".join(rows) + back
        if not above and drawing == self._drawing:
            return
        self._write(self._erased() + above + drawing)
        self._drawing = drawing
        self._drawn = [cell_len(_STYLE.sub("", line)) for line in rows]
        self._cursor = (len(rows) - 1, column)

    def _erased(self) -> str:
        """Back to the first of the rows that were drawn, and all of them gone.

        A terminal that became narrower has broken them into more, also before its signal has reached us.
        """
        (row, column), width = self._cursor, self.size[0]
        up = sum(max(math.ceil(cells / width), 1) for cells in self._drawn[:row]) + column // width
        return "\r" + (f"\x1b[{up}A" if up else "") + "\x1b[J"

    def _resized(self) -> None:
        self._drawing = ""
        self._draw()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(text)
            sys.stdout.flush()

    # What is typed

    def busy(self, busy: bool) -> None:
        """Whoever sits at a terminal may go on typing."""

    async def next(self) -> Act:
        """What is wanted next."""
        while (act := await self._acts.get()).asked not in (0, self._asked if self._question is not None else 0):
            pass  # what it was typed at is answered already, perhaps elsewhere
        return act

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._acts.put_nowait(Act("end"))
            return
        for key in self._keys.feed(data):
            self._press(key)
        self._draw()

    def _is_key(self, key: Key) -> bool:
        """One key alone, at a question that one key answers; not of somebody who has half a line written."""
        alone = key.name == "text" and len(key.text) == 1 and not self._editor.text and not self._parked
        typed = key.text.lower()
        begins = any(len(word) > 1 and word.startswith(typed) for word in self._words) and typed not in self._words
        return bool(self._words) and alone and not begins

    def _press(self, key: Key) -> None:
        asked = self._asked if self._question is not None else 0
        if asked and key.name not in ("interrupt", "end-of-input", "suspend", "clear"):
            now = asyncio.get_running_loop().time()
            if now - self._asked_at < _MOMENT_S:
                # Somebody who types on has not seen the question: this belongs to the line it was asked in.
                self._asked_at, asked = now, 0
                answer = self._editor.text
                self._editor.set(self._parked)
                act = self._editor.press(key)
                self._parked = self._editor.text
                self._editor.set(answer)
                self._acted(act, asked)
                return
            if self._is_key(key):
                if key.text.lower() in self._words:
                    self._words = ()
                self._acts.put_nowait(Act("key", key.text.lower(), asked))
                return
        self._acted(self._editor.press(key), asked)

    def _acted(self, act: Act | None, asked: int) -> None:
        if self._editor.choices:
            self.print("  ".join(self._editor.choices))
        if act is None:
            return
        if act.kind == "clear":
            self._cursor, self._drawing = (0, 0), ""
            self._write("\x1b[H\x1b[2J")
        elif act.kind == "suspend":
            self._give_back()
            os.kill(0, signal.SIGTSTP)
            self._raw()
        elif act.kind == "line":
            if not asked:
                self._editor.remember(act.text)
            self._acts.put_nowait(Act("line", act.text, asked))
        else:
            self._acts.put_nowait(act)
