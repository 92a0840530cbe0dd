"""Files that a tool returns: read, limited in size, and stored next to the result that names them.

Each becomes an AI SDK ``file`` part of the answer that refers to its blob and to the call. Viewers, exports and
searches treat it like any other file, and models receive it with the result of that call.
"""

from __future__ import annotations

import mimetypes
import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from clew.errors import ToolFailed
from clew.platform.files import CLOEXEC, NONBLOCK
from clew.session.prompt.admission import MAX_FILE_BYTES, MAX_FILES, MAX_FILES_BYTES, media_type_from
from clew.session.prompt.file_content import content_of, extent_of
from clew.store.unit import PutBlob
from clew.tools.base import File
from clew.transcript import chunk as c
from clew.transcript.part import OWN, blob_url, first_words

__all__ = ["take_files"]

_NAME_CHARS = 200


def take_files(files: Sequence[File], call_id: str, now: int) -> list[PutBlob | c.File]:
    """Return the blobs to store, each followed by its chunk. Read the disk. Raise ``ToolFailed`` above the limits."""
    if len(files) > MAX_FILES:
        raise ToolFailed(f"a call may return at most {MAX_FILES} files, not {len(files)}; none was stored")
    items: list[PutBlob | c.File] = []
    total = 0
    for file in files:
        data = file.data if isinstance(file.data, bytes) else _read(file.data)
        total += len(data)
        if len(data) > MAX_FILE_BYTES or total > MAX_FILES_BYTES:
            raise ToolFailed(
                f"{file.name or 'a file'} is too large: a file may have {MAX_FILE_BYTES:,} bytes, all files of a call "
                f"{MAX_FILES_BYTES:,}; none was stored"
            )
        claimed = file.media_type or (mimetypes.guess_type(file.name)[0] if file.name else None) or ""
        media_type = content_of(data, media_type_from(claimed)).media_type
        digest = sha256(data).hexdigest()
        details = {"call": call_id, "size": len(data), **extent_of(data, media_type)}
        if file.name:
            details["name"] = first_words(file.name, _NAME_CHARS)
        items.append(PutBlob(digest, media_type, data, now))
        items.append(c.File(url=blob_url(digest), media_type=media_type, provider_metadata={OWN: details}))
    return items


def _read(path: Path) -> bytes:
    try:
        # Pipes and devices have no size and no end; O_NONBLOCK because opening a pipe would already block.
        with open(os.open(path, os.O_RDONLY | NONBLOCK | CLOEXEC), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ToolFailed(f"{path.name} is not a file")
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror}") from error
