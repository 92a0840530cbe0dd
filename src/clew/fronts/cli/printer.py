"""A turn on stdout: its text as it comes, or its chunks, one a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from clew.fronts.cli.plain import plain
from clew.transcript import chunk as c

__all__ = ["Printer"]


class Printer:
    """Chunks to stdout. Whoever reads it may leave; the turn goes on without."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._at_start = True
        self._said: list[str] = []
        self._places: dict[str, int] = {}
        self._error_shown = False
        self.said_anything = False

    def show(self, chunks: Sequence[c.Chunk]) -> None:
        self.said_anything = True
        if self.json:
            self._print("".join(c.encode_chunk(chunk).decode() + "\n" for chunk in chunks))
            return
        for chunk in chunks:
            if isinstance(chunk, c.TextStart):
                self.end()
                self._places.pop(chunk.id, None)
            elif isinstance(chunk, c.TextDelta) and chunk.delta:
                self._say(self._places.setdefault(chunk.id, len(self._said)), chunk.delta)
            elif isinstance(chunk, c.Error):
                self.show_error(chunk.error_text)

    def show_error(self, text: str) -> None:
        """Why the turn failed, once; among chunks it is one of them."""
        if not self.json and not self._error_shown:
            self._error_shown = True
            self.end()
            print(f"clew: {plain(text)}", file=sys.stderr)

    def catch_up(self, texts: Sequence[str]) -> None:
        """Print what of these, all the texts so far, was not printed yet."""
        for place, text in enumerate(() if self.json else texts):
            if place == len(self._said):
                self.end()
            said = self._said[place] if place < len(self._said) else ""
            if text.startswith(said) and text != said:
                self._say(place, text[len(said) :])

    def _say(self, place: int, text: str) -> None:
        if place == len(self._said):
            self._said.append("")
        self._said[place] += text
        self._print(plain(text))

    def end(self) -> None:
        """Begin a new line, unless one was just begun."""
        if not self.json and not self._at_start:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            self._at_start = text.endswith("\n")
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts
