"""The built-in tools, one per module. They are imported on first use, so that ``import clew`` stays fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from clew.tools.base import Tool

__all__ = ["BUILTIN", "NAMES", "POSIX_ONLY"]

NAMES: Final = (
    "read", "write", "edit", "ls", "glob", "grep", "bash", "web_fetch", "todo", "question", "task", "skill", "recall",
    "schedule",
)  # fmt: skip
"""Names in the order in which tools are offered to a model."""

POSIX_ONLY: Final = frozenset({"read", "write", "edit", "ls", "glob", "grep", "bash"})
"""Tools of files and programs, which are off on Windows."""

BUILTIN: tuple[Tool, ...]


def __getattr__(name: str) -> Any:
    if name != "BUILTIN":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = tuple(getattr(import_module(f"{__name__}.{each}"), each) for each in NAMES)
    globals()["BUILTIN"] = made
    return made
