"""A real terminal for ``clew``: tmux, with what it shows and the keys somebody presses."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.processes import CLEW, environment

OpenTmux = Callable[..., "Tmux"]
_PATIENCE_S = float(os.environ.get("CLEW_TEST_PATIENCE_S", "60"))
_LOOK_S = 0.05


class Tmux:
    """One window with ``clew`` in it, as large as it is said."""

    def __init__(self, folder: Path, *words: str, columns: int, rows: int, **env: str) -> None:
        self._name = f"clew-{os.getpid()}-{id(self)}"
        own = environment(folder, **env)
        for name in ("TMUX", "NO_COLOR", "TERM"):
            own.pop(name, None)
        command = f"{CLEW} {' '.join(words)}; echo ended with $?; exec sleep 600"
        size = ("-x", str(columns), "-y", str(rows))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(folder), command, env=own)

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *words], env=env, capture_output=True, text=True, check=True)
        return done.stdout

    def press(self, *keys: str) -> None:
        """Keys by their names: Enter, Escape, BTab, C-c."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def say(self, line: str) -> None:
        self.type(line)
        self.press("Enter")

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self) -> str:
        """What is to be seen now."""
        return self._tmux("capture-pane", "-p")

    @property
    def seen(self) -> str:
        """What is to be seen, and what has scrolled away."""
        return self._tmux("capture-pane", "-p", "-S", "-2000").rstrip("\n")

    def until(self, *texts: str) -> str:
        """Wait until all of these are on the screen."""
        deadline = time.monotonic() + _PATIENCE_S
        while not all(text in (screen := self.screen) for text in texts):
            assert time.monotonic() < deadline, f"{texts} not on:\n{screen}"
            time.sleep(_LOOK_S)
        return screen

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[OpenTmux]:
    """Opens terminals in the test's folder; whatever happens, they are gone afterwards."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed, so the chat is not tried in a real terminal")
    opened: list[Tmux] = []

    def open_(*words: str, columns: int = 80, rows: int = 24, **env: str) -> Tmux:
        opened.append(Tmux(tmp_path, *words, columns=columns, rows=rows, **env))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()
