"""Files that are sent along: named by an option, by an @ in what is typed, or, when they are images, by their path."""

from __future__ import annotations

import base64
import mimetypes
import re
from pathlib import Path
from typing import Any, Final

from clew.errors import InvalidInput
from clew.runtime.admission import MAX_FILE_BYTES
from clew.transcript.part import text_part

__all__ = ["attach", "attach_bytes", "with_files"]

_NAMED: Final = re.compile(r"(?:(?<=\s)|\A)(@?)(?:'([^'\n]+)'|((?:[^\s\\]|\\.)+))")
_LONGEST: Final = 4096


def attach(file: Path) -> dict[str, Any]:
    """A file of the user's as a part; what it is, its bytes say, and whether it is too large, who takes it."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    return attach_bytes(file.name, data)


def attach_bytes(name: str, data: bytes) -> dict[str, Any]:
    """Bytes as a file that has a name and nothing else."""
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return {"type": "file", "mediaType": media_type, "filename": name, "url": url}


def with_files(text: str, folder: Path) -> list[dict[str, Any]]:
    """What is typed, and behind it every file it names: ``@path``, and the path of an image as a terminal drops it."""
    files: dict[Path, None] = {}
    for at, quoted, bare in _NAMED.findall(text):
        name = quoted or re.sub(r"\\(.)", r"\1", bare)
        is_image = (mimetypes.guess_type(name)[0] or "").startswith("image/")
        if len(name) > _LONGEST or not (at or is_image):
            continue
        for named in (name, name.rstrip(".,;:!?)")):
            file = folder / Path(named).expanduser()
            if file.is_file():
                files[file] = None
                break
    return [text_part(text), *map(attach, files)]
