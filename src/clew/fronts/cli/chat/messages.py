"""Lines that clew itself prints in a conversation."""

from __future__ import annotations

import sys
import textwrap

from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.render import Theme
from clew.fronts.cli.safe_text import plain

__all__ = ["ChatMessages"]


class ChatMessages:
    """Prints text, notes and errors: styled on a terminal, to stderr for a pipe."""

    def __init__(self, terminal: Terminal, theme: Theme) -> None:
        self.terminal = terminal
        self.theme = theme

    def say(self, text: str) -> None:
        """Print text, with control characters escaped."""
        self.terminal.print(plain(text) + "\n")

    def say_wrapped(self, text: str, indent: str, first: str | None = None) -> None:
        """Print text wrapped at words and indented; ``first`` replaces the indent of the first line."""
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
        """Print a note that is not part of the conversation."""
        if self.terminal.attended:
            self.terminal.print(self.theme.style(self._wrapped(text), "dim") + "\n")
        else:
            self.error(text)

    def error(self, text: str) -> None:
        """Print an error."""
        line = f"clew: {plain(text)}"
        if self.terminal.attended:
            self.terminal.print(self.theme.style(self._wrapped(line), "red") + "\n")
        else:
            print(line, file=sys.stderr, flush=True)

    def _wrapped(self, text: str) -> str:
        """Wrap text between words; the terminal would break it anywhere."""
        width = max(self.terminal.size[0] - 1, 10)
        lines = (textwrap.wrap(line, width, break_on_hyphens=False) or [""] for line in plain(text).split("\n"))
        return "\n".join(piece for line in lines for piece in line)
