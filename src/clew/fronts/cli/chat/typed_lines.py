"""The lines that were typed in the chats of a folder, kept in the data folder for their owner alone."""

from __future__ import annotations

import contextlib
import os
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from clew.config import data_folder
from clew.convert import fit_json

__all__ = ["KEPT", "TypedLines"]

KEPT: Final = 1_000


class TypedLines:
    """Lines in a file, oldest first, each as JSON, so that one may hold several. A file that is in the way is left."""

    def __init__(self, project: Path) -> None:
        self._path = data_folder() / "typed" / sha256(os.fsencode(project)).hexdigest()[:32]

    def load(self) -> list[str]:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            # Before each folder had lines of its own, all had these.
            before = data_folder() / "chat_history"
            for raw in (self._path if self._path.exists() else before).read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    lines.append(fit_json(raw, str))
            if len(lines) > 2 * KEPT:
                draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
                self._write(draft, lines[-KEPT:], os.O_TRUNC)
                draft.replace(self._path)
        return lines[-KEPT:]

    def add(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._path, [line], os.O_APPEND)

    def _write(self, path: Path, lines: list[str], how: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)
            file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
