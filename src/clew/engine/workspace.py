"""A workspace as somebody outside names it: checked, and spelt as sessions keep it."""

from __future__ import annotations

from pathlib import Path

from clew.errors import InvalidInput
from clew.transcript.gate import check_value

__all__ = ["resolve_workspace", "without_links"]


def resolve_workspace(folder: str | Path) -> Path:
    """The folder, absolute and without links. What is not one is refused."""
    check_value(str(folder), "workspace_root")
    try:
        path = Path(folder).expanduser().resolve()
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
