"""The server token: one secret per user, created once and stored, so that open pages survive a restart."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clew.config import config_folder
from clew.errors import InvalidInput
from clew.platform.files import CLOEXEC, NOFOLLOW, make_private

__all__ = ["Token", "load_token", "make_token"]

_VALID_TOKEN = re.compile(r"[\x21-\x7e]{8,512}", re.ASCII)


class Token(msgspec.Struct, frozen=True):
    """``chosen``: the user set it explicitly, and may therefore expose the server to other machines."""

    value: str
    chosen: bool

    def __repr__(self) -> str:
        return "Token(…)"


def load_token(environ: Mapping[str, str] = os.environ) -> Token | None:
    """Return ``CLEW_TOKEN``, else the stored token, else None.

    It is never read from the command line, which other users of the machine can see.
    """
    chosen = environ.get("CLEW_TOKEN")
    if chosen:
        if not _VALID_TOKEN.fullmatch(chosen):
            raise InvalidInput("CLEW_TOKEN must be 8 to 512 printable ASCII characters without spaces")
        return Token(chosen, chosen=True)
    stored = _read(_path(environ))
    return None if stored is None else Token(stored, chosen=False)


def make_token(environ: Mapping[str, str] = os.environ) -> Token:
    """Return the token; create it if there is none. Concurrent callers get the same one."""
    known = load_token(environ)
    if known is not None:
        return known
    path = _path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        if _read(path) is None:
            # Linking is atomic: if another process was first, its token stays.
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    stored = _read(path)
    if stored is None:
        raise InvalidInput(f"{path} does not hold a valid token; delete it to create a new one")
    return Token(stored, chosen=False)


def _path(environ: Mapping[str, str]) -> Path:
    return config_folder(environ) / "token"


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | NOFOLLOW | CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(fd, encoding="ascii", errors="replace") as file:
        make_private(fd)
        text = file.read(1024).strip()
    if not _VALID_TOKEN.fullmatch(text):
        raise InvalidInput(f"{path} does not hold a valid token; delete it to create a new one")
    return text
