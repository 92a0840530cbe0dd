"""A terminal of its own for ``clew chat``: what is drawn there, and what is typed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clew.fronts.cli.chat.screen import _MOMENT_S
from tests.integration.processes import environment

CLEW = str(Path(sys.executable).with_name("clew"))


class Screen:
    """A terminal with ``clew chat`` on it: what it was sent, and what somebody who looks at it sees."""

    def __init__(self, folder: Path, *words: str, columns: int = 80, **env: str) -> None:
        self.here, there = os.openpty()
        self.sent = ""
        self._widths: list[tuple[int, int]] = []
        self.resize(columns)

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(there, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [CLEW, "chat", *words],
            stdin=there,
            stdout=there,
            stderr=there,
            cwd=folder,
            env=environment(folder, TERM="xterm-256color", **env),
            preexec_fn=own_terminal,
        )
        os.close(there)
        self._read = 0

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.here, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._widths.append((len(self.sent), columns))

    def type(self, text: str) -> None:
        os.write(self.here, text.encode())

    def until(self, text: str) -> str:
        """Wait for something to be sent after what was waited for last; all that came in between."""
        deadline = time.monotonic() + 60
        while (place := self._bare().find(text, self._read)) < 0:
            assert self._more(deadline), (text, self._bare()[self._read :], self.seen)
        start, self._read = self._read, place + len(text)
        return self._bare()[start : self._read]

    def send(self, line: str, *texts: str) -> str:
        """Type a line where nothing is at work; wait until all that comes of it is to be seen, and is over."""
        start = self.seen.rindex("\n")
        self.type(line + "\r")
        deadline = time.monotonic() + 60
        while not (self._is_idle() and all(text in self.seen[start:] for text in texts)):
            assert self._more(deadline), (line, texts, self.seen[start:])
        self._read = len(self._bare())
        return self.seen[start:]

    def answer(self, key: str, text: str) -> None:
        """Press a key at a question once it could have been read; wait for what comes of it."""
        time.sleep(_MOMENT_S + 0.1)
        self.type(key)
        self.until(text)

    def shows(self, text: str) -> None:
        """Wait until something is to be seen, however often the screen was drawn on the way."""
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert self._more(deadline), (text, self.seen)

    def idle(self) -> None:
        """Wait until nothing is at work."""
        deadline = time.monotonic() + 60
        while not self._is_idle():
            assert self._more(deadline), self.seen

    def _is_idle(self) -> bool:
        return self.seen.endswith("\n› ") and "… Ctrl-C aborts" not in self.seen

    @property
    def seen(self) -> str:
        """Everything that is to be seen, scrolled away or not."""
        return drawn(self.sent, self._widths)

    def end(self) -> int:
        """The exit code, once the process has ended by itself."""
        deadline = time.monotonic() + 60
        while self._more(deadline):
            pass
        return self.process.wait(5)

    def leave(self) -> int:
        self.type("\x04")
        return self.end()

    def _bare(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.sent)

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.here], [], [], max(deadline - time.monotonic(), 0))
        data = b""
        if ready:
            # Reading fails once nobody has the other end open.
            with contextlib.suppress(OSError):
                data = os.read(self.here, 65536)
        self.sent += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.here)


def drawn(sent: str, widths: Sequence[tuple[int, int]]) -> str:
    """The lines a terminal shows after these bytes, as far as clew makes use of it.

    ``widths``: from which byte on it is how wide. A row that is longer than that takes several, also after a resize.
    """
    rows, row, column, width = [""], 0, 0, widths[0][1]
    for found in re.finditer(r"\x1b\[\??[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", sent):
        piece = found[0]
        width = next(wide for place, wide in reversed(widths) if place <= found.start())
        if piece == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif piece == "\r":
            column -= column % width
        elif piece.startswith("\x1b"):
            count = int(re.sub(r"\D", "", piece) or 1)
            if piece.endswith("A"):
                up = count - column // width
                while up > 0 and row > 0:
                    row -= 1
                    up -= max(-(-len(rows[row]) // width), 1)
                column = max(-up, 0) * width + column % width
            elif piece.endswith("C"):
                column += count
            elif piece.endswith("J"):
                rows = [*rows[:row], rows[row][:column]]
        else:
            rows[row] = rows[row][:column].ljust(column) + piece + rows[row][column + len(piece) :]
            column += len(piece)
    return "\n".join(rows)


def texts(messages: list[Any]) -> list[str]:
    return [part["text"] for message in messages for part in message.parts if part["type"] == "text"]
