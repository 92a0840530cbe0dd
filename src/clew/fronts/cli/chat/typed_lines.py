"""The input history of a folder's chats: a private file in the data folder."""

from __future__ import annotations

import contextlib
import os
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from clew.config import data_folder
from clew.convert import convert_json
from clew.platform.files import CLOEXEC, NOFOLLOW, set_mode

__all__ = ["MAX_LINES", "TypedLines"]

MAX_LINES: Final = 1_000


class TypedLines:
    """Typed lines, oldest first, each stored as JSON, since one may contain line breaks. I/O errors are ignored."""

    def __init__(self, project: Path) -> None:
        self._path = data_folder() / "typed" / sha256(os.fsencode(project)).hexdigest()[:32]

    def load(self) -> list[str]:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            # Fall back to the file of earlier versions, which all folders shared.
            before = data_folder() / "chat_history"
            for raw in (self._path if self._path.exists() else before).read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    lines.append(convert_json(raw, str))
            if len(lines) > 2 * MAX_LINES:
                draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
                self._write(draft, lines[-MAX_LINES:], os.O_TRUNC)
                draft.replace(self._path)
        return lines[-MAX_LINES:]

    def add(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._path, [line], os.O_APPEND)

    def _write(self, path: Path, lines: list[str], how: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | NOFOLLOW | CLOEXEC | how, 0o600)
        with os.fdopen(fd, "wb") as file:
            set_mode(fd, 0o600)
            file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
