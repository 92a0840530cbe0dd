"""Files that a tool gives back: read, bounded, and put beside the result that names them.

Each becomes a ``file`` part of the answer, as the AI SDK has it, that names its blob and the call it came from. So
viewers, exports and searches know it like any other, and a model is sent it with the result of that call.
"""

from __future__ import annotations

import mimetypes
import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from clew.errors import ToolFailed
from clew.runtime.admission import MAX_FILE_BYTES, MAX_FILES, MAX_FILES_BYTES, media_type_from
from clew.runtime.file_extent import extent_of
from clew.runtime.files import content_of
from clew.store.unit import PutBlob
from clew.tools.base import File
from clew.transcript import chunk as c
from clew.transcript.part import OWN, blob_url, first_words

__all__ = ["take_files"]

_NAME_CHARS = 200


def take_files(files: Sequence[File], call_id: str, now: int) -> list[PutBlob | c.File]:
    """The bytes to keep, and right after each what is shown of it. Reads the disk. Raises ``ToolFailed``."""
    if len(files) > MAX_FILES:
        raise ToolFailed(f"a call gives at most {MAX_FILES} files, and this one gave {len(files)}; none was kept")
    taken: list[PutBlob | c.File] = []
    total = 0
    for file in files:
        data = file.data if isinstance(file.data, bytes) else _read(file.data)
        total += len(data)
        if len(data) > MAX_FILE_BYTES or total > MAX_FILES_BYTES:
            raise ToolFailed(
                f"{file.name or 'a file'} is too large: a file may have {MAX_FILE_BYTES:,} bytes, all of a call "
                f"{MAX_FILES_BYTES:,}; none was kept"
            )
        claimed = file.media_type or (mimetypes.guess_type(file.name)[0] if file.name else None) or ""
        media_type = content_of(data, media_type_from(claimed)).media_type
        digest = sha256(data).hexdigest()
        own = {"call": call_id, "size": len(data), **extent_of(data, media_type)}
        if file.name:
            own["name"] = first_words(file.name, _NAME_CHARS)
        taken.append(PutBlob(digest, media_type, data, now))
        taken.append(c.File(url=blob_url(digest), media_type=media_type, provider_metadata={OWN: own}))
    return taken


def _read(path: Path) -> bytes:
    try:
        # Not a pipe or a device, which has no size and no end; O_NONBLOCK, since opening a pipe already waits.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ToolFailed(f"{path.name} is not a file")
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror}") from error
