"""Tokens of owners: a file that says by digest which token is whose, so that one server can serve a small team.

A token is shown once, when it is made. What is kept is its SHA-256: 256 bits of chance need no slower digest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from clew.config import config_folder
from clew.errors import Conflict, InvalidInput, NotFound
from clew.fit import fit_json

__all__ = ["OwnerToken", "OwnerTokens"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_BYTES: Final = 1 << 20


class OwnerToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose a token is, its digest, when it was made, and the folders that sessions made with it may work in."""

    name: str
    sha256: str
    created_at: int
    roots: tuple[str, ...] = ()


class OwnerTokens:
    """The file. Read anew when it has changed: one that was revoked is good for nothing from the next request on."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.path: Path = config_folder(environ) / "owners.json"
        self._seen: tuple[object, ...] | None = None
        self._kept: tuple[OwnerToken, ...] = ()

    def find(self, token: str) -> OwnerToken | None:
        """Whose token this is. Every one is compared, so that the time it takes says nothing."""
        digest, found = _digest(token), None
        for one in self.list():
            if hmac.compare_digest(one.sha256, digest):
                found = one
        return found

    def list(self) -> tuple[OwnerToken, ...]:
        """All of them, by name."""
        try:
            stat = self.path.stat()
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if seen != self._seen:
                self._kept, self._seen = self._read(), seen
        except FileNotFoundError:
            self._kept, self._seen = (), None
        except OSError as error:
            raise InvalidInput(f"{self.path} cannot be read: {error.strerror}; mend it, or remove it") from error
        return self._kept

    def add(self, name: str, now: int, roots: tuple[str, ...] = ()) -> str:
        """A new token for an owner who has none; it is in this answer and nowhere else."""
        if not _NAME.fullmatch(name):
            raise InvalidInput("an owner is named by 1 to 128 letters, digits and . _ @ + -")
        token = secrets.token_urlsafe(32)
        with self._alone():
            known = self._read_now()
            if any(one.name == name for one in known):
                raise Conflict(f"{name} has a token already; `clew token revoke {name}` takes it away")
            self._write((*known, OwnerToken(name, _digest(token), now, roots)))
        return token

    def revoke(self, name: str) -> None:
        """Take an owner's token away. What is theirs stays."""
        with self._alone():
            known = self._read_now()
            if all(one.name != name for one in known):
                raise NotFound(f"{name[:128]!r} has no token; `clew token list` says who has")
            self._write(tuple(one for one in known if one.name != name))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One changes the file at a time: two at once would take back what the other did, a revocation too."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _read_now(self) -> tuple[OwnerToken, ...]:
        self._seen = None
        return self.list()

    def _read(self) -> tuple[OwnerToken, ...]:
        # O_NONBLOCK, since opening a pipe already waits.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(self.path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
            data = file.read(_MOST_BYTES + 1)
        try:
            kept = fit_json(data, tuple[OwnerToken, ...])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self.path} holds no list of tokens: {error}; mend it, or remove it") from error
        for one in kept:
            if not (_NAME.fullmatch(one.name) and _DIGEST.fullmatch(one.sha256)):
                raise InvalidInput(f"{self.path} names {one.name[:128]!r} or its digest wrongly; mend it, or remove it")
        if any(len({getattr(one, field) for one in kept}) < len(kept) for field in ("name", "sha256")):
            raise InvalidInput(f"{self.path} names an owner or a digest twice; mend it, or remove it")
        if not all(Path(root).is_absolute() for one in kept for root in one.roots):
            raise InvalidInput(f"{self.path} names a folder that does not begin with /; mend it, or remove it")
        return tuple(sorted(kept, key=lambda one: one.name))

    def _write(self, kept: tuple[OwnerToken, ...]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
            os.replace(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
