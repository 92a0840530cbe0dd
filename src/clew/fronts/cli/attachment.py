"""Attached files: named by an option, by ``@path`` in a text, or, for images, by their plain path."""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path
from typing import Any, Final

from clew.fronts.remote.attachment import attach_file
from clew.transcript.part import text_part

__all__ = ["named_files", "with_files"]

_NAMED: Final = re.compile(r"(?:(?<=\s)|\A)(@?)(?:'([^'\n]+)'|((?:[^\s\\]|\\.)+))")
_MAX_PATH: Final = 4096


def named_files(text: str, folder: Path) -> list[Path]:
    """Return the existing files that a text names: by ``@path``, or images by a path as dropped into a terminal."""
    files: dict[Path, None] = {}
    for at, quoted, bare in _NAMED.findall(text):
        name = quoted or re.sub(r"\\(.)", r"\1", bare)
        is_image = (mimetypes.guess_type(name)[0] or "").startswith("image/")
        if len(name) > _MAX_PATH or not (at or is_image):
            continue
        for named in (name, name.rstrip(".,;:!?)")):
            file = folder / Path(named).expanduser()
            if file.is_file():
                files[file] = None
                break
    return list(files)


def with_files(text: str, folder: Path) -> list[dict[str, Any]]:
    """Return a text and the files it names as parts."""
    return [text_part(text), *map(attach_file, named_files(text, folder))]
