"""A permission rule as a value: who may do what. How rules are weighed is not known here."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Rule"]


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule; ``source`` names the scope it came from, ``pinned`` marks manifest rules nobody may override."""

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    source: Literal["manifest", "session", "project"] = "session"
    added_at: int | None = None
    pinned: bool = False
