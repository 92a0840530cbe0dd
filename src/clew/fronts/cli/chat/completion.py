"""Completion of commands, their arguments, and file names after an @."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

__all__ = ["LineCompleter"]

_AT: Final = re.compile(r"(?:\A|\s)@('[^'\n]*|\S*)\Z")

Choices = Callable[[str], Sequence[tuple[str, str]]]
"""Returns complete lines for a typed beginning, each with a description."""


class LineCompleter(Completer):
    """Completes the line of a chat; ``files`` finds files of its folder by part of their name."""

    def __init__(self, choices: Choices, files: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._choices = choices
        self._files = files

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
        for name in await self._files(at[1].removeprefix("'")):
            # Quoted, so that a name with spaces stays one name.
            whole = f"'{name}'" if " " in name else name
            yield Completion(whole, start_position=-len(at[1]), display=name)
