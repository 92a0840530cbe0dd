"""Owner tokens: a file that maps token digests to owners, so that one server can serve a small team.

A token is shown once, when it is created. Only its SHA-256 is stored: with 256 random bits, no slower digest is needed.
"""

from __future__ import annotations

import contextlib
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
from clew.convert import convert_json
from clew.errors import Conflict, InvalidInput, NotFound, NotSupported
from clew.platform import WINDOWS
from clew.platform.files import CLOEXEC, NOFOLLOW, NONBLOCK, make_private
from clew.platform.locks import locked_folder

__all__ = ["OwnerToken", "OwnerTokens"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_BYTES: Final = 1 << 20


class OwnerToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The owner of a token, its digest, its creation time, and the folders in which the owner's sessions may work."""

    name: str
    sha256: str
    created_at: int
    roots: tuple[str, ...] = ()


class OwnerTokens:
    """The token file. It is read again after each change, so a revoked token is refused from the next request on."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.path: Path = config_folder(environ) / "owners.json"
        self._fingerprint: tuple[object, ...] | None = None
        self._tokens: tuple[OwnerToken, ...] = ()

    def find(self, token: str) -> OwnerToken | None:
        """Return the entry of a token. All entries are compared, so that timing reveals nothing."""
        digest, found = _digest(token), None
        for one in self.list():
            if hmac.compare_digest(one.sha256, digest):
                found = one
        return found

    def list(self) -> tuple[OwnerToken, ...]:
        """Return all tokens, sorted by owner name."""
        try:
            stat = self.path.stat()
            fingerprint = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if fingerprint != self._fingerprint:
                self._tokens, self._fingerprint = self._read(), fingerprint
        except FileNotFoundError:
            self._tokens, self._fingerprint = (), None
        except OSError as error:
            raise InvalidInput(f"{self.path} cannot be read: {error.strerror}; fix or delete it") from error
        return self._tokens

    def add(self, name: str, now: int, roots: tuple[str, ...] = ()) -> str:
        """Create a token for an owner who has none. It is returned here and cannot be read again."""
        if not _NAME.fullmatch(name):
            raise InvalidInput("an owner name has 1 to 128 letters, digits or . _ @ + -")
        if WINDOWS:
            raise NotSupported("tokens of owners are off on Windows: folders are kept apart on POSIX systems only")
        token = secrets.token_urlsafe(32)
        with self._locked():
            known = self._reload()
            if any(one.name == name for one in known):
                raise Conflict(f"{name} already has a token; revoke it with `clew token revoke {name}`")
            self._write((*known, OwnerToken(name, _digest(token), now, roots)))
        return token

    def revoke(self, name: str) -> None:
        """Revoke an owner's token. The owner's sessions stay."""
        with self._locked():
            known = self._reload()
            if all(one.name != name for one in known):
                raise NotFound(f"{name[:128]!r} has no token; `clew token list` shows all owners")
            self._write(tuple(one for one in known if one.name != name))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other writers: concurrent changes could undo each other, including a revocation."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked_folder(self.path.parent):
            yield

    def _reload(self) -> tuple[OwnerToken, ...]:
        self._fingerprint = None
        return self.list()

    def _read(self) -> tuple[OwnerToken, ...]:
        # O_NONBLOCK, because opening a pipe would block.
        flags = os.O_RDONLY | NOFOLLOW | NONBLOCK | CLOEXEC
        with open(self.path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            make_private(file.fileno())
            data = file.read(_MAX_BYTES + 1)
        try:
            tokens = convert_json(data, tuple[OwnerToken, ...])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self.path} is not a list of tokens: {error}; fix or delete it") from error
        for one in tokens:
            if not (_NAME.fullmatch(one.name) and _DIGEST.fullmatch(one.sha256)):
                raise InvalidInput(f"{self.path} has a bad name or digest for {one.name[:128]!r}; fix or delete it")
        if any(len({getattr(one, field) for one in tokens}) < len(tokens) for field in ("name", "sha256")):
            raise InvalidInput(f"{self.path} lists an owner or a digest twice; fix or delete it")
        if not all(Path(root).is_absolute() for one in tokens for root in one.roots):
            raise InvalidInput(f"{self.path} lists a folder that is not an absolute path; fix or delete it")
        return tuple(sorted(tokens, key=lambda one: one.name))

    def _write(self, tokens: tuple[OwnerToken, ...]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
            os.replace(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
