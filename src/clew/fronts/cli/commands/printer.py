"""A turn on stdout: its text as it comes, or its chunks, one a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from clew.fronts.cli.commands.fresh import Fresh
from clew.fronts.cli.safe_text import plain, plain_json
from clew.transcript import chunk as c

__all__ = ["Printer"]


class Printer:
    """Chunks to stdout. Whoever reads it may leave; the turn goes on without."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._at_start = True
        self._said: list[str] = []
        self._places: dict[str, int] = {}
        self._end_shown = False
        self._fresh = Fresh()

    def show(self, chunks: Sequence[c.Chunk], *, replayed: bool = False) -> None:
        """Print chunks of the turn. ``replayed``: from the message's first part on, whatever was printed of it."""
        if self.json:
            fresh = [new for chunk in chunks for new in self._fresh.take(chunk, replayed=replayed)]
            self._end_shown |= any(isinstance(chunk, c.Error | c.Abort) for chunk in fresh)
            self._print("".join(plain_json(c.encode_chunk(chunk).decode()) + "\n" for chunk in fresh))
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
        if self._end_shown:
            return
        self._end_shown = True
        if self.json:
            self.show([c.Error(text), c.Finish("error")])
        else:
            self.end()
            print(f"clew: {plain(text)}", file=sys.stderr)

    def show_abort(self) -> None:
        """Among chunks, that the turn was aborted, unless that was one of them."""
        if self.json and not self._end_shown:
            self.show([c.Abort()])

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
