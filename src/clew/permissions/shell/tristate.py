"""The three possible results of matching a rule."""

from __future__ import annotations

from enum import Enum

__all__ = ["Certainty"]


class Certainty(Enum):
    NO = "no"
    MAYBE = "maybe"
    YES = "yes"
