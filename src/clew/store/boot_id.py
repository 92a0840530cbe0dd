"""The id of the machine's current boot: writes that were not synced are certain only until the machine stops."""

from __future__ import annotations

import functools
from pathlib import Path

__all__ = ["boot_id"]


@functools.cache
def boot_id() -> str:
    """Return the system's id for this boot; empty where there is none, and then only synced writes count."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
