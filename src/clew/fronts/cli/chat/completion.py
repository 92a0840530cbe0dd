"""What a line could become: commands, files behind an @, and what each command takes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

__all__ = ["LineCompleter"]

_AT: Final = re.compile(r"(?:\A|\s)@('[^'\n]*|\S*)\Z")

Choices = Callable[[str], Sequence[tuple[str, str]]]
"""The whole lines that a beginning could become, each with a word about it."""


class LineCompleter(Completer):
    """Completes the line of a chat; ``files`` are those of its folder that hold what is typed."""

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
            # One name, though there are spaces in it.
            whole = f"'{name}'" if " " in name else name
            yield Completion(whole, start_position=-len(at[1]), display=name)
