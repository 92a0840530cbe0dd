"""Files of a workspace that a person names in a message, found while they type; ``workspace:PATH`` sends one along."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from clew.engine.base import EnginePart
from clew.errors import InvalidInput, ToolFailed
from clew.tools.base import Signal
from clew.transcript.gate import check_value

if TYPE_CHECKING:
    from clew.tools.files.walk import Entry

__all__ = ["Files"]

_LOOK_S: Final = 2.0
_MOST_IGNORES: Final = 64 * 1024
# Where there is no file that says so, these are nobody's own words either.
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv"})


class Files(EnginePart):
    """Looks into the workspace of a session, or of one that is about to begin."""

    async def find_files(
        self,
        q: str = "",
        *,
        session_id: str | None = None,
        workspace: str | Path | None = None,
        limit: int = 50,
        folders: bool = False,
    ) -> list[str]:
        """Names of files in the workspace that hold ``q``, the likeliest first: those that begin so, then those whose
        own name does. What its ignore files leave out is not among them, nor what begins with a dot. Of a very large
        folder not all is looked at; what lies in the folder that ``q`` itself names always is. With ``folders`` the
        names of those right in the workspace that begin so, for whoever chooses where to work."""
        if not 1 <= limit <= 200:
            raise InvalidInput(f"limit must be from 1 to 200, not {limit}")
        check_value(q, "q")
        root = await self._root(session_id, workspace)
        closed = (*self._host.places.folders, *self._host.places.files)
        if root is None:
            return []
        signal = Signal()
        try:
            if folders:
                return await asyncio.to_thread(_find_folders, root, q, limit)
            return await asyncio.to_thread(_find, root, q, limit, closed, signal)
        finally:
            # Whoever asked is gone: a thread is not cancelled, and would go on.
            signal.abort("nobody waits for it")

    async def _root(self, session_id: str | None, workspace: str | Path | None) -> Path | None:
        """Return the folder as its links lead now. They are not followed again: an owner may change them meanwhile."""
        if session_id is None:
            return await self._place(workspace)
        folder = (await self._find_own(session_id)).workspace_root
        if self.roots is not None:
            return await self._place(folder)
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
    from clew.tools.files.ignored import IGNORE_FILE, IgnoredPaths
    from clew.tools.files.walk import Brake, LeftOut, list_folder, walk

    typed = q.casefold()
    ignored: dict[str, IgnoredPaths] = {}

    def read_ignored(folder: str) -> None:
        try:
            data, _ = read_all(root / folder / IGNORE_FILE, _MOST_IGNORES)
            ignored[folder] = IgnoredPaths(data.decode("utf-8", "replace"))
        except (OSError, ToolFailed):
            return

    def left_out(path: str, *, is_folder: bool) -> bool:
        name = path.rpartition("/")[2]
        if name.startswith(".") or name in _SKIPPED or not path.isprintable():
            return True
        # clew's own: a store's file, and what lies beside it under the same name.
        if any(f"{root}/{path}".startswith(place) for place in closed):
            return True
        # The nearest file that says something of it decides.
        for above in map(str, PurePosixPath(path).parents):
            folder = "" if above == "." else above
            if folder in ignored:
                said = ignored[folder].verdict(path[len(folder) :].lstrip("/"), is_folder=is_folder)
                if said is not None:
                    return said
        return False

    def enter(path: str) -> bool:
        if left_out(path, is_folder=True):
            return False
        read_ignored(path)
        return True

    found: dict[str, None] = {}

    def look(entries: Iterable[Entry], prefix: str = "") -> None:
        for entry in entries:
            path = prefix + entry.path
            if entry.kind == "file" and typed in path.casefold() and not left_out(path, is_folder=False):
                found[path] = None

    try:
        read_ignored("")
        # However large the rest is: who writes a folder's name means what is in it.
        named = PurePosixPath(q).parent if "/" in q else PurePosixPath()
        above = [str(folder) for folder in reversed((named, *named.parents))][1:]
        if not named.is_absolute() and ".." not in named.parts and all(map(enter, above)):
            with contextlib.suppress(OSError, ToolFailed), open_folder(root / named) as handle:
                look(list_folder(handle), f"{named}/" if above else "")
        with open_folder(root) as handle:
            look(walk(handle, Brake(signal, _LOOK_S), LeftOut(), enter))
    except (OSError, ToolFailed):
        return []

    def distance(name: str) -> tuple[int, int, str]:
        folded = name.casefold()
        own = folded.rpartition("/")[2]
        near = 0 if folded.startswith(typed) else 1 if own.startswith(typed) else 2
        return near, name.count("/"), name

    return sorted(found, key=distance)[:limit]
