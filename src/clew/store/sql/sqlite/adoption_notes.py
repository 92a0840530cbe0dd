"""Adoption notes: long sessions without unadopted messages, noted next to the database when the writer closes.

Another program may have added messages to a session while the store was closed, which is checked when the session is
first used. Checking each message against its turn is slow for long sessions. A session whose messages have the same
number and rowids as when the store was closed has no new ones, and an index alone shows that. A missing or outdated
note, or one of another store, only makes the full check necessary.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from clew.convert import convert_json
from clew.platform.files import CLOEXEC, NOFOLLOW, NONBLOCK
from clew.store.sql.statements import Statements

__all__ = ["AdoptionNotes", "looked_path"]

MANY: Final = 1_000
"""Messages: a session with fewer is checked in less than a millisecond."""
_MAX_NOTES: Final = 100
_MAX_NOTES_BYTES: Final = 1 << 16

_Fingerprint = tuple[int, int, int]
"""Number of messages, sum of their rowids, sum of their times."""


class _Notes(msgspec.Struct):
    store_id: str
    sessions: dict[str, _Fingerprint]


def looked_path(path: Path) -> Path:
    return path.with_name(path.name + ".looked")


class AdoptionNotes:
    """The notes of the last close, and the sessions checked since, of which the newest are noted again."""

    def __init__(self, sql: Statements, path: Path) -> None:
        self._sql = sql
        self._path = looked_path(path)
        mark = sql.first("get_store_mark", {})
        self._store_id: str = mark[0] if mark else ""
        self._noted: dict[str, _Fingerprint] = {}
        self._recent: dict[str, None] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            fd = os.open(self._path, os.O_RDONLY | NOFOLLOW | CLOEXEC | NONBLOCK)
            try:
                notes = convert_json(os.read(fd, _MAX_NOTES_BYTES), _Notes)
            finally:
                os.close(fd)
            self._noted = notes.sessions if notes.store_id == self._store_id else {}

    def is_unchanged(self, session_id: str) -> bool:
        """Return whether nothing was added to a session since it was noted. Used once: from here on changes are
        noticed."""
        self.mark_checked(session_id)
        noted = self._noted.pop(session_id, None)
        return noted is not None and noted == self._fingerprint(session_id)

    def mark_checked(self, session_id: str) -> None:
        """Record that a session was checked or created: from here on changes to it are noticed."""
        self._recent.pop(session_id, None)
        self._recent[session_id] = None
        if len(self._recent) > _MAX_NOTES:
            del self._recent[next(iter(self._recent))]

    def note(self, is_known: Callable[[str], bool]) -> None:
        """Note the sessions without unadopted messages; ``is_known`` is called after each was fingerprinted."""
        fingerprints = {
            id_: found for id_ in self._recent if (found := self._fingerprint(id_))[0] >= MANY and is_known(id_)
        }
        if not fingerprints:
            self._path.unlink(missing_ok=True)
            return
        new_path = self._path.with_name(f".new-{secrets.token_hex(8)}-{self._path.name}"[:200])
        fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600)
        try:
            os.write(fd, msgspec.json.encode(_Notes(self._store_id, fingerprints)))
            new_path.replace(self._path)
        except BaseException:
            new_path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _fingerprint(self, session_id: str) -> _Fingerprint:
        found = self._sql.first("print_messages", {"id": session_id})
        return (found[0], found[1] or 0, found[2] or 0) if found is not None else (0, 0, 0)
