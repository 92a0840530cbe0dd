"""File names of a workspace, for completion while a user types; ``workspace:PATH`` attaches one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from clew.errors import InvalidInput, ToolFailed
from clew.session.api.base import EnginePart
from clew.tools.base import Signal
from clew.transcript.value_check import check_value

if TYPE_CHECKING:
    from clew.tools.files.walk import Entry

__all__ = ["Files"]

_MAX_SEARCH_S: Final = 2.0
_MAX_IGNORE_BYTES: Final = 64 * 1024
# Skipped even if no ignore file lists them: they are not the user's own files.
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv"})


class Files(EnginePart):
    """The search for files in the workspace of a session, or of one about to be created."""

    async def find_files(
        self,
        q: str = "",
        *,
        session_id: str | None = None,
        workspace: str | Path | None = None,
        limit: int = 50,
        folders: bool = False,
    ) -> list[str]:
        """Return names of workspace files that contain ``q``, best match first: paths that start with it, then file
        names that do. Ignored files and dotfiles are left out. Only part of a very large folder is searched, but the
        folder that ``q`` itself names always is. With ``folders``, return the names of top-level folders that start
        with it, for choosing a workspace."""
        if not 1 <= limit <= 200:
            raise InvalidInput(f"limit must be from 1 to 200, not {limit}")
        check_value(q, "q")
        root = await self._root(session_id, workspace)
        closed = (*self._host.protected_paths.folders, *self._host.protected_paths.files)
        if root is None:
            return []
        signal = Signal()
        try:
            if folders:
                return await asyncio.to_thread(_find_folders, root, q, limit)
            return await asyncio.to_thread(_find, root, q, limit, closed, signal)
        finally:
            # The client is gone: a thread cannot be cancelled and would continue.
            signal.abort("the search was cancelled")

    async def _root(self, session_id: str | None, workspace: str | Path | None) -> Path | None:
        """Return the folder with links resolved. They are not resolved again, as an owner may change them meanwhile."""
        if session_id is None:
            return await self._resolve_workspace(workspace)
        folder = (await self._get_session(session_id)).workspace_root
        if self.roots is not None:
            return await self._resolve_workspace(folder)
        return Path(await asyncio.to_thread(os.path.realpath, folder)) if folder else None


def _find_folders(root: Path, q: str, limit: int) -> list[str]:
    from clew.tools.files.access import open_folder
    from clew.tools.files.walk import list_folder

    try:
        with open_folder(root) as handle:
            names = [entry.path for entry in list_folder(handle) if entry.kind == "folder" and entry.path.isprintable()]
    except (OSError, ToolFailed):
        return []
    shown = [name for name in names if name.casefold().startswith(q.casefold()) and (q or not name.startswith("."))]
    return sorted(shown)[:limit]


def _find(root: Path, q: str, limit: int, closed: tuple[str, ...], signal: Signal) -> list[str]:
    from clew.tools.files.access import open_folder, read_all
    from clew.tools.files.pattern import IGNORE_FILE, IgnoredPaths
    from clew.tools.files.walk import LeftOut, StopCheck, list_folder, walk

    typed = q.casefold()
    ignored: dict[str, IgnoredPaths] = {}

    def read_ignored(folder: str) -> None:
        try:
            data, _ = read_all(root / folder / IGNORE_FILE, _MAX_IGNORE_BYTES)
            ignored[folder] = IgnoredPaths(data.decode("utf-8", "replace"))
        except (OSError, ToolFailed):
            return

    def left_out(path: str, *, is_folder: bool) -> bool:
        name = path.rpartition("/")[2]
        if name.startswith(".") or name in _SKIPPED or not path.isprintable():
            return True
        # clew's own: a store's file and its companions of the same name.
        if any(f"{root}/{path}".startswith(protected) for protected in closed):
            return True
        # The nearest ignore file with a matching rule decides.
        for above in map(str, PurePosixPath(path).parents):
            folder = "" if above == "." else above
            if folder in ignored:
                verdict = ignored[folder].verdict(path[len(folder) :].lstrip("/"), is_folder=is_folder)
                if verdict is not None:
                    return verdict
        return False

    def enter(path: str) -> bool:
        if left_out(path, is_folder=True):
            return False
        read_ignored(path)
        return True

    found: dict[str, None] = {}

    def collect(entries: Iterable[Entry], prefix: str = "") -> None:
        for entry in entries:
            path = prefix + entry.path
            if entry.kind == "file" and typed in path.casefold() and not left_out(path, is_folder=False):
                found[path] = None

    try:
        read_ignored("")
        # Always searched: a user who types a folder's name means its content.
        folder_part = PurePosixPath(q).parent if "/" in q else PurePosixPath()
        above = [str(folder) for folder in reversed((folder_part, *folder_part.parents))][1:]
        if not folder_part.is_absolute() and ".." not in folder_part.parts and all(map(enter, above)):
            with contextlib.suppress(OSError, ToolFailed), open_folder(root / folder_part) as handle:
                collect(list_folder(handle), f"{folder_part}/" if above else "")
        with open_folder(root) as handle:
            collect(walk(handle, StopCheck(signal, _MAX_SEARCH_S), LeftOut(), enter))
    except (OSError, ToolFailed):
        return []

    def distance(name: str) -> tuple[int, int, str]:
        folded = name.casefold()
        own = folded.rpartition("/")[2]
        near = 0 if folded.startswith(typed) else 1 if own.startswith(typed) else 2
        return near, name.count("/"), name

    return sorted(found, key=distance)[:limit]
