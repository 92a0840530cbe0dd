"""Care of a folder of sessions: a look at all of it, and a copy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from clew.errors import InvalidInput
from clew.store.base import Damage
from clew.store.files import folder
from clew.store.files.codec import Codec, format_mark
from clew.store.files.shared import SHARED, Shared

__all__ = ["copy_folder", "look_over"]


def look_over(path: Path, codec: Codec) -> Sequence[Damage]:
    """Everything that does not read, or is not there though it is named. Reads the files, whatever is in memory."""
    found: list[Damage] = []
    shared = Shared(path)
    with folder.translated(path):
        blobs = {sha: shared.read_blob(sha) is not None for sha in shared.load("_blobs")}
        for name in SHARED.keys() - {"_blobs"}:
            shared.load(name)
        for session_id in codec.on_disk():
            loaded = codec.load(session_id)
            if loaded is None:
                continue  # removed since it was listed
            found += loaded.damages
            missing = [sha for sha in loaded.value.blobs if sha not in blobs]
            found += [Damage("a file that it names is missing", session_id, sha) for sha in missing]
    return (*found, *(Damage(what) for what in shared.unread))


def copy_folder(codec: Codec, shared: Shared, target: Path) -> None:
    """A store of its own at ``target``, which must not be there yet."""
    if target.exists():
        raise InvalidInput(f"{target} is already there; name a new folder")
    making = target.with_name(f"{target.name}.making")
    with folder.translated(target):
        try:
            shutil.rmtree(making, ignore_errors=True)
            folder.make_folder(making / "clew")
            codec.copy(making)
            shared.copy(making)
            folder.write_whole(making / "clew" / "format.json", format_mark(codec.kind), sync=True)
            making.rename(target)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
