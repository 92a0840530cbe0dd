"""Workspace paths from outside: checked and normalized."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.errors import InvalidInput
from clew.transcript.value_check import check_value

__all__ = ["resolve_workspace", "without_links"]


def resolve_workspace(folder: str | Path, roots: Sequence[Path] | None = None) -> Path:
    """Return the folder as an absolute path without links. Refuse one that is no folder, or in none of ``roots``,
    without revealing whether that exists."""
    check_value(str(folder), "workspace_root")
    try:
        path = Path(folder).expanduser().resolve()
        if roots is not None and not any(path.is_relative_to(root) for root in roots):
            raise InvalidInput(f"the workspace {str(folder)[:200]!r} is in none of the folders that you may work in")
        is_folder = path.is_dir() and folder != ""
    except (OSError, RuntimeError) as error:
        # A name that is too long, a loop of links, or an unknown user's home.
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder") from error
    if not is_folder:
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder")
    return path


def without_links(folder: str) -> str:
    """Return a folder's normalized path. An invalid path stays as it is and matches no workspace."""
    try:
        return str(Path(folder).expanduser().resolve())
    except (OSError, RuntimeError):
        return folder
