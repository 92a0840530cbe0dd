"""The watch over a folder of sessions: nothing is written, or called written, into files that somebody else changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from clew.errors import StoreError, StoreGone
from clew.store.disk import translated
from clew.store.files.codec import Codec, Saving
from clew.store.owner import OwnerLock

__all__ = ["FolderWatch"]


class FolderWatch:
    """Remembers how the owner left the files of each session it has in memory. Without a lock nothing is written."""

    def __init__(self, path: Path, codec: Codec, lock: OwnerLock | None) -> None:
        self._path = path
        self._codec = codec
        self._lock = lock
        self._left: dict[str, object] = {}

    def note(self, session_id: str) -> None:
        """Its files are about to be read, or were brought in line."""
        if self._lock is not None:
            self._left[session_id] = self._codec.owned(session_id)

    def forget(self, session_id: str) -> None:
        self._left.pop(session_id, None)

    def is_as_left(self, session_id: str) -> bool:
        """Whether the owner has had its files, and they are as they were then."""
        return self._left.get(session_id) == self._codec.owned(session_id)

    @contextlib.contextmanager
    def writing(self, session_id: str, *, removing: bool = False) -> Iterator[None]:
        """While files of a session are written: they and the folder are what they were, the folder also afterwards."""
        self.check()
        if not removing and session_id in self._left and self._codec.owned(session_id) != self._left[session_id]:
            raise StoreGone(
                f"the files of session {session_id} were changed by somebody else while {self._path} was open; "
                "nothing more is written to it. Bring them back as they were, and open the store again; a server "
                "is to be restarted for that",
                session_id=session_id,
            )
        try:
            yield
        finally:
            self.note(session_id)
        self.check()

    def check(self) -> None:
        """The folder is the one that was opened."""
        if self._lock is not None:
            self._lock.check()

    def write_down(self, persist: Callable[[], None], session_id: str | None = None) -> None:
        """Bring something to disk that is no unit's; without a session, something that is no session's either."""
        with translated(self._path):
            if session_id is not None:
                with self.writing(session_id):
                    persist()
            else:
                self.check()
                persist()
                self.check()

    def write_all(self, savings: Mapping[str, Saving | None]) -> None:
        """Bring to disk what memory alone holds of each session. One that cannot be written keeps no other from it."""
        failed: list[StoreError] = []
        for session_id, saving in savings.items():
            try:
                if saving is not None:
                    self.write_down(saving.persist, session_id)
            except StoreError as error:
                failed.append(error)
        if failed:
            raise failed[0]
