"""Certainty: how sure it is that a rule is meant."""

from __future__ import annotations

from enum import Enum

__all__ = ["Certainty"]


class Certainty(Enum):
    NO = "no"
    MAYBE = "maybe"
    YES = "yes"
