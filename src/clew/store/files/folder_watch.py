"""The watch over a folder of sessions: detects files that another program has changed, before and after a write."""

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
    """The state in which the owner left the files of each session in memory. Without a lock nothing is written."""

    def __init__(self, path: Path, codec: Codec, lock: OwnerLock | None) -> None:
        self._path = path
        self._codec = codec
        self._lock = lock
        self._left: dict[str, object] = {}

    def note(self, session_id: str) -> None:
        """Note the state of its files, which are about to be read or were updated."""
        if self._lock is not None:
            self._left[session_id] = self._codec.owned(session_id)

    def forget(self, session_id: str) -> None:
        self._left.pop(session_id, None)

    @contextlib.contextmanager
    def writing(self, session_id: str, *, removing: bool = False) -> Iterator[None]:
        """Check, around a write to files of a session, that they and the folder were not replaced."""
        self.check()
        if not removing and session_id in self._left and self._codec.owned(session_id) != self._left[session_id]:
            raise StoreGone(
                f"the files of session {session_id} were changed by another program while {self._path} was open; "
                "clew does not write to it any more. Restore them and open the store again (restart the server)",
                session_id=session_id,
            )
        try:
            yield
        finally:
            self.note(session_id)
        self.check()

    def check(self) -> None:
        """Check that the folder is the one that was opened."""
        if self._lock is not None:
            self._lock.check()

    def write_down(self, persist: Callable[[], None], session_id: str | None = None) -> None:
        """Write data that is not part of a unit, to a session's files or, without a session, to shared ones."""
        with translated(self._path):
            if session_id is not None:
                with self.writing(session_id):
                    persist()
            else:
                self.check()
                persist()
                self.check()

    def write_all(self, savings: Mapping[str, Saving | None]) -> None:
        """Write the changes of each session that are only in memory. A failure does not affect other sessions."""
        failed: list[StoreError] = []
        for session_id, saving in savings.items():
            try:
                if saving is not None:
                    self.write_down(saving.persist, session_id)
            except StoreError as error:
                failed.append(error)
        if failed:
            raise failed[0]
