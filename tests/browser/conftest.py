"""Browser tests: the cases of ``*.test.mjs``, each an item of its own, run in the system's Chromium.

A file's cases are read off its text, where each name is written out. One node process for each worker runs them by name
and keeps its browser for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

HERE = Path(__file__).parent
CASE = re.compile(r'^test\(\s*"((?:[^"\\\n]|\\.)+)"', re.MULTILINE)
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is installed is taken. The headless shell is the same engine with no window around it, and quicker."""
TIMEOUT_S = 300
"""A case of forty sentences takes half a minute; a loaded machine costs time and never a case."""
MISSING = f"no Chromium ({', '.join(NAMES)}) is installed: the page was NOT tested in a browser"


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> BrowserFile | None:
    if file_path.name.endswith(".test.mjs"):
        file: BrowserFile = BrowserFile.from_parent(parent, path=file_path)
        return file
    return None


class BrowserFile(pytest.File):
    """One file. What its cases share is given up with its last one; the browser stays for the next file."""

    def collect(self) -> Iterator[pytest.Item]:
        names = [json.loads(f'"{name}"') for name in CASE.findall(self.path.read_text(encoding="utf-8"))]
        if len(set(names)) < len(names):
            raise self.CollectError(f"{self.path.name} has two cases of one name")
        for name in names:
            item: BrowserCase = BrowserCase.from_parent(self, name=name)
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            yield item

    def teardown(self) -> None:
        RUNNERS.tell({"file": str(self.path), "case": None})


class BrowserCase(pytest.Item):
    """One case of a file."""

    parent: BrowserFile

    def setup(self) -> None:
        if find_chromium() is None:
            pytest.skip(MISSING)
        if not (HERE / "node_modules" / "playwright-core").is_dir():
            pytest.fail("playwright is not installed in tests/browser: run make, which does it", pytrace=False)

    def runtest(self) -> None:
        told = RUNNERS.ask({"file": str(self.path), "case": self.name})
        if told["error"] is not None:
            raise BrowserFailure(told["error"])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, BrowserFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class BrowserFailure(Exception):
    """What a case and its page complained about."""


class Runner:
    """A node process that runs the cases it is asked for, all in one browser."""

    def __init__(self) -> None:
        environ = {**os.environ, "CLEW_CHROMIUM": find_chromium() or ""}
        environ.setdefault("CLEW_BIN", str(Path(sys.executable).parent / "clew"))
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the runner
        self._process = subprocess.Popen(
            ["node", "runner.mjs", "--ask"],
            cwd=HERE,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BrowserFailure(f"the runner is gone: {self._said()}")
        return dict(json.loads(line))

    def close(self) -> None:
        """Let it close its browser and its servers; one that is stuck is ended with all it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, number)
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


class Runners:
    """The one runner of this process, while there is something to run."""

    _runner: Runner | None = None

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._runner is None:
            self._runner = Runner()
        try:
            return self._runner.ask(question)
        except BaseException:
            # A case that was cut off may have left anything behind.
            self.close()
            raise

    def tell(self, question: dict[str, Any]) -> None:
        """Ask when there is somebody to ask."""
        if self._runner is not None and (error := self.ask(question)["error"]) is not None:
            raise BrowserFailure(error)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None


RUNNERS = Runners()


def pytest_sessionfinish() -> None:
    RUNNERS.close()
