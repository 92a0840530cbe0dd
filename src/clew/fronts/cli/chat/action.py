"""What somebody at the keyboard wants."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Act"]


class Act(msgspec.Struct, frozen=True):
    """A line that is sent, or something else that is to happen."""

    kind: Literal["line", "key", "stop", "interrupt", "end", "mode"]
    """``stop`` is Esc, ``interrupt`` Ctrl-C, ``mode`` the next of the modes."""
    text: str = ""
    asked: int = 0
    """Which question it was typed at, counted from 1; 0 when at none."""
