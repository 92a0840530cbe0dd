"""A workspace as somebody outside names it: checked, and spelt as sessions keep it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.errors import InvalidInput
from clew.transcript.gate import check_value

__all__ = ["resolve_workspace", "without_links"]


def resolve_workspace(folder: str | Path, roots: Sequence[Path] | None = None) -> Path:
    """The folder, absolute and without links. What is not one is refused, and what lies in none of ``roots``, of which
    it is not told whether it is there."""
    check_value(str(folder), "workspace_root")
    try:
        path = Path(folder).expanduser().resolve()
        if roots is not None and not any(path.is_relative_to(root) for root in roots):
            raise InvalidInput(f"the workspace {str(folder)[:200]!r} is in none of the folders that you may work in")
        is_folder = path.is_dir() and folder != ""
    except (OSError, RuntimeError) as error:
        # A name that is too long, a loop of links, the home of a user who is not there.
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder") from error
    if not is_folder:
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder")
    return path


def without_links(folder: str) -> str:
    """A folder's name as sessions keep it. What cannot be one is nobody's workspace, and finds nothing."""
    try:
        return str(Path(folder).expanduser().resolve())
    except (OSError, RuntimeError):
        return folder
