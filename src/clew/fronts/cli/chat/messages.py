"""What is said on a terminal for good, beside what the conversation itself says."""

from __future__ import annotations

import sys
import textwrap

from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.render import Look
from clew.fronts.cli.safe_text import plain

__all__ = ["ChatMessages"]


class ChatMessages:
    """Says things on a terminal, in the look of a conversation; to whoever reads a pipe, beside it."""

    def __init__(self, terminal: Terminal, look: Look) -> None:
        self.terminal = terminal
        self.look = look

    def say(self, text: str) -> None:
        """Something for good, without anything that could steer the terminal."""
        self.terminal.print(plain(text) + "\n")

    def say_below(self, text: str, indent: str, first: str | None = None) -> None:
        """Something of our own for good, broken at words, its lines indented; the first one may begin otherwise."""
        first = indent if first is None else first
        if self.terminal.attended:
            width = max(self.terminal.size[0] - 1, len(indent) + 10)
            text = textwrap.fill(
                text,
                width,
                initial_indent=first,
                subsequent_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,
            )
        else:
            text = first + text
        self.say(text)

    def note(self, text: str) -> None:
        """Something about the conversation that is not part of it."""
        if self.terminal.attended:
            self.terminal.print(self.look.style(self._wrapped(text), "dim") + "\n")
        else:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Something that is wrong."""
        line = f"clew: {plain(text)}"
        if self.terminal.attended:
            self.terminal.print(self.look.style(self._wrapped(line), "red") + "\n")
        else:
            print(line, file=sys.stderr, flush=True)

    def _wrapped(self, text: str) -> str:
        """At the end of a word, where there is one; a terminal would do it anywhere."""
        width = max(self.terminal.size[0] - 1, 10)
        lines = (textwrap.wrap(line, width, break_on_hyphens=False) or [""] for line in plain(text).split("\n"))
        return "\n".join(piece for line in lines for piece in line)
