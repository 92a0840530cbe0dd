"""The token: one secret per user, made once and kept, so that a restart keeps open pages alive."""

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

__all__ = ["Token", "load_token", "make_token"]

_FORM = re.compile(r"[\x21-\x7e]{8,512}", re.ASCII)


class Token(msgspec.Struct, frozen=True):
    """``chosen``: the user set it, and so decided that others may come to have it."""

    value: str
    chosen: bool

    def __repr__(self) -> str:
        return "Token(…)"


def load_token(environ: Mapping[str, str] = os.environ) -> Token | None:
    """``CLEW_TOKEN``, else the one that was kept; None when there is neither.

    Never from a command line: others could read it.
    """
    chosen = environ.get("CLEW_TOKEN")
    if chosen:
        if not _FORM.fullmatch(chosen):
            raise InvalidInput("CLEW_TOKEN must be 8 to 512 printable ASCII characters without spaces")
        return Token(chosen, chosen=True)
    kept = _read(_path(environ))
    return None if kept is None else Token(kept, chosen=False)


def make_token(environ: Mapping[str, str] = os.environ) -> Token:
    """The token, made now if there is none. Two that make one at once get the same."""
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
            # A link is made or is not: whoever comes second keeps the first one's.
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    kept = _read(path)
    if kept is None:
        raise InvalidInput(f"{path} holds no token; remove it, and a new one is made")
    return Token(kept, chosen=False)


def _path(environ: Mapping[str, str]) -> Path:
    return config_folder(environ) / "token"


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(fd, encoding="ascii", errors="replace") as file:
        if os.fstat(fd).st_mode & 0o077:
            os.fchmod(fd, 0o600)
        text = file.read(1024).strip()
    if not _FORM.fullmatch(text):
        raise InvalidInput(f"{path} holds no token; remove it, and a new one is made")
    return text
