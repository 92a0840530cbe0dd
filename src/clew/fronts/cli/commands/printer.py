"""A turn on stdout: its text as it arrives, or its chunks, one per line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from clew.fronts.cli.safe_text import plain, plain_json
from clew.transcript import chunk as c

__all__ = ["Printer"]


class Printer:
    """Prints chunks to stdout. If the reader closes the pipe, the turn continues."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._at_start = True
        self._end_shown = False

    def show(self, chunks: Sequence[c.Chunk]) -> None:
        """Print the next chunks of the turn."""
        if self.json:
            self._end_shown |= any(isinstance(chunk, c.Error | c.Abort) for chunk in chunks)
            self._print("".join(plain_json(c.encode_chunk(chunk).decode()) + "\n" for chunk in chunks))
            return
        for chunk in chunks:
            if isinstance(chunk, c.TextStart):
                self.end()
            elif isinstance(chunk, c.TextDelta):
                self._print(plain(chunk.delta))

    def show_error(self, text: str) -> None:
        """Print once why the turn failed; with JSON as a chunk."""
        if self._end_shown:
            return
        self._end_shown = True
        if self.json:
            self.show([c.Error(text), c.Finish("error")])
        else:
            self.end()
            print(f"clew: {plain(text)}", file=sys.stderr)

    def show_abort(self) -> None:
        """Print an abort chunk with JSON, unless there was one."""
        if self.json and not self._end_shown:
            self.show([c.Abort()])

    def end(self) -> None:
        """End the current line, unless it is empty."""
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
