"""Which run of the machine this is: what was written and not synced is certain only until the machine stops."""

from __future__ import annotations

import functools
from pathlib import Path

__all__ = ["boot_id"]


@functools.cache
def boot_id() -> str:
    """The system's name for this boot; empty where it does not say, and then only what was synced counts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
