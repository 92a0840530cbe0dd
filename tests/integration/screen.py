"""A terminal in memory for ``clew chat``: what is drawn there, and what is typed."""

from __future__ import annotations

import asyncio
import io
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input

from clew.errors import ClewError
from clew.fronts.cli.chat import chat as chat_command
from clew.fronts.cli.chat import screen as screen_module
from clew.fronts.cli.command import exit_code
from tests.integration.processes import environment

Open = Callable[..., "Screen"]
_PATIENCE_S = float(os.environ.get("CLEW_TEST_PATIENCE_S", "60"))


_OUTPUTS: queue.SimpleQueue[screen_module.PlainOutput] = queue.SimpleQueue()


class _Paper(io.StringIO):
    """Where a chat draws. ``sent`` is all of it."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.sent = ""
        self.more = threading.Condition()

    def write(self, text: str) -> int:
        with self.more:
            self.sent += text
            self.more.notify_all()
        return len(text)


class Screen:
    """A terminal with ``clew chat`` on it: what it was sent, and what somebody who looks at it sees."""

    def __init__(self, *, session: str | None, model: str | None, new: bool, columns: int, rows: int) -> None:
        self._paper = _Paper()
        self._rows = rows
        self._widths: list[tuple[int, int]] = []
        self._read = 0
        self._drawn = (-1, -1, "")
        self._ended = False
        self._code: int | BaseException | None = None
        self.error = ""
        self.resize(columns)
        output = screen_module.PlainOutput(
            self._paper, lambda: Size(self._rows, self._widths[-1][1]), term="xterm-256color"
        )
        _OUTPUTS.put(output)
        self._keys = create_pipe_input()
        self._pipe = self._keys.__enter__()

        async def talk() -> int:
            with create_app_session(input=self._pipe):
                try:
                    return await chat_command.chat(None, session, model, new)
                except ClewError as error:
                    self.error = str(error)
                    return exit_code(error)

        def run() -> None:
            try:
                self._code = asyncio.run(talk())
            except BaseException as error:
                self._code = error
            with self._paper.more:
                self._ended = True
                self._paper.more.notify_all()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def sent(self) -> str:
        return self._paper.sent

    def resize(self, columns: int, rows: int | None = None) -> None:
        self._rows = rows or self._rows
        self._widths.append((len(self._paper.sent), columns))

    def type(self, text: str) -> None:
        self._pipe.send_text(text)

    def until(self, text: str) -> str:
        """Wait for something to be seen in the row of what was waited for last, or below; all from there on."""
        self._wait(lambda: text in self.seen[self._read :], text)
        seen, start = self.seen, self._read
        place = seen.index(text, start)
        self._read = seen.rfind("\n", 0, place + 1) + 1
        return seen[start : place + len(text)]

    def send(self, line: str, *texts: str) -> str:
        """Type a line where nothing is at work; wait until all that comes of it is to be seen, and is over."""
        start = len(self.said) - 1
        self.type(line + "\r")
        self._wait(lambda: self._is_idle() and all(text in self.said[start:] for text in texts), texts)
        self._read = len(self.said)
        return self.said[start:]

    def answer(self, key: str, text: str) -> None:
        """Press a key at a question; wait for what comes of it."""
        self.type(key)
        self.until(text)

    def shows(self, text: str) -> None:
        """Wait until something is to be seen, however often the screen was drawn on the way."""
        self._wait(lambda: text in self.seen, text)

    def hides(self, text: str) -> None:
        """Wait until something is not to be seen any more."""
        self._wait(lambda: text not in self.seen, text)

    def idle(self) -> None:
        """Wait until nothing is at work."""
        self._wait(self._is_idle, "idle")

    def _wait(self, is_so: Callable[[], bool], what: Any) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        with self._paper.more:
            while not is_so():
                in_time = time.monotonic() < deadline and not self._ended
                assert in_time, (what, self.seen[self._read :], self._code, self.error, self.seen[-3000:])
                self._paper.more.wait(0.05)

    def _is_idle(self) -> bool:
        bottom = re.search(r"\n› ?\n[^\n]+\n/ commands[^\n]*\Z", self.seen)
        return bottom is not None and "… Esc stops" not in self.seen

    @property
    def seen(self) -> str:
        """Everything that is to be seen, scrolled away or not."""
        as_of = (len(self.sent), len(self._widths))
        if self._drawn[:2] != as_of:
            self._drawn = (*as_of, drawn(self.sent, self._widths))
        return self._drawn[2]

    @property
    def said(self) -> str:
        """What is to be seen above the line that is being written."""
        return self.seen.rpartition("\n›")[0] + "\n"

    def end(self) -> int:
        """The exit code, once the chat has ended by itself."""
        self._thread.join(_PATIENCE_S)
        assert isinstance(self._code, int), self._code
        return self._code

    def leave(self) -> int:
        self.type("\x04")
        return self.end()

    def close(self) -> None:
        while self._thread.is_alive():
            self.type("\x15\x04")
            self._thread.join(0.2)
        self._keys.__exit__(None, None, None)


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens terminals in a folder of their own; whatever happens, they are gone afterwards."""
    screens: list[Screen] = []
    for name, value in environment(tmp_path, TERM="xterm-256color", FORCE_COLOR="1").items():
        monkeypatch.setenv(name, value)
    for name in ("CLEW_TOKEN", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chat_command, "is_attended", lambda: True)

    monkeypatch.setattr(screen_module, "standard_output", _OUTPUTS.get)
    # The chat runs in a thread, and signals are the process's.
    monkeypatch.setattr(screen_module, "SIGNALS", {})

    def open_(
        session: str | None = None,
        *,
        model: str | None = None,
        new: bool = False,
        columns: int = 80,
        rows: int = 24,
        moment_s: float = 0.01,
    ) -> Screen:
        monkeypatch.setattr(screen_module, "MOMENT_S", moment_s)
        screens.append(Screen(session=session, model=model, new=new, columns=columns, rows=rows))
        return screens[-1]

    yield open_
    for screen in screens:
        screen.close()


def drawn(sent: str, widths: Sequence[tuple[int, int]]) -> str:
    """The lines a terminal shows after these bytes, as far as clew makes use of it.

    ``widths``: from which byte on it is how wide. A row that is longer than that takes several, also after a resize.
    """
    rows, row, column, width, kept = [""], 0, 0, widths[0][1], (0, 0)
    for found in re.finditer(r"\x1b\[[?\d;]*[A-Za-z]|\x1b[78]|[\r\n\x08]|[^\x1b\r\n\x08]+", sent):
        piece = found[0]
        width = next(wide for place, wide in reversed(widths) if place <= found.start())
        if piece == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif piece == "\r":
            column -= column % width
        elif piece == "\x08":
            column = max(column - 1, 0)
        elif piece == "\x1b7":
            kept = row, column
        elif piece == "\x1b8":
            row, column = kept
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
            elif piece.endswith("D"):
                column = max(column - count, 0)
            elif piece.endswith("B"):
                down = count + column // width
                while row + 1 < len(rows) and down >= (tall := max(-(-len(rows[row]) // width), 1)):
                    row, down = row + 1, down - tall
                column = down * width + column % width if len(rows[row]) > width else column % width
            elif piece == "\x1b[2K":
                start = column - column % width
                rows[row] = (rows[row][:start] + " " * width + rows[row][start + width :]).rstrip()
            elif piece.endswith("K"):
                rows[row] = rows[row][:column]
            elif piece.endswith("J"):
                rows = [*rows[:row], rows[row][:column]]
        else:
            rows[row] = rows[row][:column].ljust(column) + piece + rows[row][column + len(piece) :]
            column += len(piece)
    return "\n".join(rows)


def texts(messages: list[Any]) -> list[str]:
    return [part["text"] for message in messages for part in message.parts if part["type"] == "text"]
