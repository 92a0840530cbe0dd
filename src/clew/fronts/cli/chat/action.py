"""Actions of the person at the keyboard."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Action"]


class Action(msgspec.Struct, frozen=True):
    """A line that was entered, or another input."""

    kind: Literal["line", "key", "stop", "interrupt", "end", "mode"]
    """``stop`` is Esc, ``interrupt`` Ctrl-C, ``mode`` Shift-Tab."""
    text: str = ""
    asked: int = 0
    """The number of the question it was typed at, from 1; 0 for none."""
