"""How sure a match is."""

from __future__ import annotations

from enum import Enum

__all__ = ["Match"]


class Match(Enum):
    NO = "no"
    MAYBE = "maybe"
    YES = "yes"
