"""What a writer has looked at, noted beside the database when it closes: long sessions that hold nothing of others'.

Whether another program has put messages into a session while nobody had the store open is asked when the session is
first used. To hold each message against its turn takes as long as there are many. A session whose messages are in
number and place what they were at the last closing has none that came since, and that an index says alone. A note that
is missing, old or of another store only makes the longer look necessary.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from clew.fit import fit_json
from clew.store.sql.statements import Statements

__all__ = ["Looked", "looked_path"]

MANY: Final = 1_000
"""Messages: a session that has fewer is gone through in less than a millisecond."""
_MOST: Final = 100
_MOST_BYTES: Final = 1 << 16

_Print = tuple[int, int, int]
"""How many messages, the sum of their places in the table, and that of their times."""


class _Notes(msgspec.Struct):
    store_id: str
    sessions: dict[str, _Print]


def looked_path(path: Path) -> Path:
    return path.with_name(path.name + ".looked")


class Looked:
    """The notes of the last closing, and the sessions looked at since, of which the newest are noted again."""

    def __init__(self, sql: Statements, path: Path) -> None:
        self._sql = sql
        self._path = looked_path(path)
        mark = sql.first("get_store_mark", {})
        self._store_id: str = mark[0] if mark else ""
        self._noted: dict[str, _Print] = {}
        self._lately: dict[str, None] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                notes = fit_json(os.read(fd, _MOST_BYTES), _Notes)
            finally:
                os.close(fd)
            self._noted = notes.sessions if notes.store_id == self._store_id else {}

    def is_as_noted(self, session_id: str) -> bool:
        """Whether nothing has come into a session since it was noted. Asked once: from here on others are noticed."""
        self.saw(session_id)
        noted = self._noted.pop(session_id, None)
        return noted is not None and noted == self._print(session_id)

    def saw(self, session_id: str) -> None:
        """It was looked at, or begun here: whether anything comes into it is known from here on."""
        self._lately.pop(session_id, None)
        self._lately[session_id] = None
        if len(self._lately) > _MOST:
            del self._lately[next(iter(self._lately))]

    def note(self, is_known: Callable[[str], bool]) -> None:
        """Note the sessions that hold nothing of others' now: ``is_known`` is asked after each was looked at."""
        prints = {id_: found for id_ in self._lately if (found := self._print(id_))[0] >= MANY and is_known(id_)}
        if not prints:
            self._path.unlink(missing_ok=True)
            return
        making = self._path.with_name(f".new-{secrets.token_hex(8)}-{self._path.name}"[:200])
        fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, msgspec.json.encode(_Notes(self._store_id, prints)))
            making.replace(self._path)
        except BaseException:
            making.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _print(self, session_id: str) -> _Print:
        found = self._sql.first("print_messages", {"id": session_id})
        return (found[0], found[1] or 0, found[2] or 0) if found is not None else (0, 0, 0)
