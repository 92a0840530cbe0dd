"""What a line could become: commands, files behind an @, and what each command takes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

__all__ = ["LineCompleter", "find_files"]

_AT: Final = re.compile(r"(?:\A|\s)@(\S*)\Z")
_MOST_SEEN: Final = 5_000
_MOST_SHOWN: Final = 50
_FRESH_S: Final = 5.0
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv"})

Choices = Callable[[str], Sequence[tuple[str, str]]]
"""The whole lines that a beginning could become, each with a word about it."""


class LineCompleter(Completer):
    """Completes the line of a chat that works in a folder."""

    def __init__(self, choices: Choices, folder: Callable[[], Path | None]) -> None:
        self._choices = choices
        self._folder = folder
        self._seen: tuple[Path | None, float, list[str]] = (None, 0.0, [])

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and "\n" not in before:
            for line, about in self._choices(before):
                yield Completion(line, start_position=-len(before), display_meta=about)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        at = _AT.search(document.text_before_cursor)
        if at is None:
            for completion in self.get_completions(document, complete_event):
                yield completion
            return
        folder = self._folder()
        if folder is None:
            return
        known, seen_at, files = self._seen
        if known != folder or time.monotonic() - seen_at > _FRESH_S:
            files = await asyncio.to_thread(find_files, folder)
            self._seen = (folder, time.monotonic(), files)
        typed = at[1].casefold()
        found = [name for name in files if typed in name.casefold()]
        # What begins so, or whose own name does, before what only holds it somewhere.
        found.sort(key=lambda name: _distance(name.casefold(), typed))
        for name in found[:_MOST_SHOWN]:
            yield Completion(name, start_position=-len(at[1]))


def _distance(name: str, typed: str) -> int:
    return 0 if name.startswith(typed) else 1 if Path(name).name.startswith(typed) else 2


def find_files(folder: Path) -> list[str]:
    """Names of files below a folder, the nearest first; not all of a very large one, and none that begin with a dot."""
    names: list[str] = []
    ahead = [""]
    while ahead and len(names) < _MOST_SEEN:
        below = ahead.pop(0)
        try:
            entries = sorted(os.scandir(folder / below), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith(".") or entry.name in _SKIPPED or not name.isprintable() or " " in name:
                continue
            if entry.is_dir(follow_symlinks=False):
                ahead.append(name)
            elif entry.is_file():
                names.append(name)
    return names[:_MOST_SEEN]
