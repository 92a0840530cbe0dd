"""Files that a command creates: readable by the user alone, complete or not there, never over an existing one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from clew.errors import InvalidInput
from clew.platform.files import CLOEXEC

__all__ = ["new_file", "new_folder", "refuse_existing"]


def refuse_existing(path: Path) -> None:
    """Raise before long work if the result has no place."""
    if os.path.lexists(path):
        raise InvalidInput(f"{path} cannot be written: it exists already; choose another --out")


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file next to its place, and move it there once it is complete."""
    partial = _partial_of(path)
    with _failures_named(path):
        refuse_existing(path)
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600), "wb") as target:
                yield target
                target.flush()
                os.fsync(target.fileno())
            _place_file(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder next to its place, and move it there once it is complete."""
    partial = _partial_of(path)
    with _failures_named(path):
        refuse_existing(path)
        partial.mkdir(mode=0o700)
        try:
            yield partial
            refuse_existing(path)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _partial_of(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")


def _place_file(partial: Path, path: Path) -> None:
    try:
        # Unlike a rename, this never replaces a file.
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links.
        refuse_existing(path)
        partial.rename(path)


@contextlib.contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "; choose another --out" if isinstance(error, FileExistsError) else ""
        raise InvalidInput(f"{path} cannot be written: {error.strerror}{hint}") from error
