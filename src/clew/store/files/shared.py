"""Tables shared by all sessions: prompts, blobs, rules, events, triggers. Each entry is a file under ``DIR/clew``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from clew.errors import RowUndecodable
from clew.failpoints import failpoint
from clew.store.base import Blob
from clew.store.files import folder
from clew.store.files.crc import with_check, without_check
from clew.store.files.session_value import ABSENT, Entries
from clew.transcript.model_call import ModelCall
from clew.triggers.values.ledger import Direction, LedgerEvent
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

__all__ = ["SHARED", "SharedFiles", "SharedPlan", "SharedTable", "event_key"]


Key = str | tuple[str, ...]


def event_key(direction: Direction, source: str, source_id: str, attempt: int) -> Key:
    """Return the key of an event: from the second attempt on with its number."""
    return (direction, source, source_id, *((str(attempt),) if attempt > 1 else ()))


class SharedTable(NamedTuple):
    """The encoding of a table's values. ``by_digest``: the key is a digest of the value, so that an entry left by a
    failure does no harm; other entries are restored."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    by_digest: bool = False


def _of(kind: Any) -> SharedTable:
    return SharedTable(msgspec.to_builtins, partial(msgspec.convert, type=kind))


SHARED: Final[dict[str, SharedTable]] = {
    "prompts": SharedTable(str, str, by_digest=True),
    "rules": SharedTable(list, tuple),
    "blobs": SharedTable(lambda blob: blob.media_type, str, by_digest=True),
    "events": _of(LedgerEvent),
    "schedules": _of(Schedule),
    "webhooks": _of(Webhook),
    "calls": _of(tuple[ModelCall, ...]),
    "accepted": SharedTable(int, int),
}
"""Every shared table by the name of its folder, and the losses that a user has accepted."""

SessionMark = tuple[str, Any]
"""A session's id, and the mark by which a later write of it is detected."""

WITH_SESSION: Final = frozenset({"rules"})
"""Tables whose entries are valid only if the session in the same unit was written."""

_MEANT: Final = ".meant"


class SharedPlan(NamedTuple):
    """The actions before the session's own files are written, each with its undo if it has one, and those after."""

    before: list[tuple[Callable[[], None], Callable[[], None] | None]]
    after: list[Callable[[], None]]


class SharedFiles:
    """The files of these tables. The bytes of blobs are in files of their own, not in memory."""

    def __init__(self, root: Path) -> None:
        self._root = root / "clew"
        self._unread: dict[Path, str] = {}

    def load(self, name: str, keys: Iterable[Key] | None = None) -> dict[Any, Any]:
        """Return a table, or some entries of it, from the files. Unreadable entries are skipped, remembered and left
        unchanged."""
        table = SHARED[name]
        found: dict[Key, Any] = {}
        paths = (self._root / name).glob("*.json") if keys is None else (self._path(name, key) for key in keys)
        for path in sorted(path for path in paths if not folder.is_temporary(path) and (keys is None or path.exists())):
            self._unread.pop(path, None)
            try:
                entry = orjson.loads(path.read_bytes())
                entry = without_check(entry) if "check" in entry else entry
                key = tuple(entry["key"]) if isinstance(entry["key"], list) else entry["key"]
                if self._path(name, key) != path:
                    raise ValueError("its name is that of another entry")
                found[key] = table.decode(entry["value"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._unread[path] = str(error)
        if name == "blobs":
            return {key: Blob(str(key), media_type, b"") for key, media_type in found.items()}
        return found

    def signature(self, name: str) -> str:
        """Return a value that changes when the files of a table do."""
        found: list[tuple[str, int, int, int]] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / name) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                found.append((entry.name, about.st_ino, about.st_size, about.st_mtime_ns))
        return sha256(repr(sorted(found)).encode()).hexdigest()

    @property
    def unread(self) -> tuple[str, ...]:
        """The errors of unreadable entries."""
        return tuple(
            f"{path.relative_to(self._root.parent)} does not read: {why}" for path, why in self._unread.items()
        )

    def is_unread(self, name: str, key: Key) -> bool:
        """Return whether there is such an entry that is unreadable."""
        return self._path(name, key) in self._unread

    def must_read(self, name: str, key: Key) -> None:
        """Raise ``RowUndecodable`` for an unreadable entry, which must not be treated as missing."""
        path = self._path(name, key)
        if path in self._unread:
            raise RowUndecodable(f"{path} does not read: {self._unread[path]}; put it back from a copy, or remove it")

    def put(self, name: str, key: Key, value: Any) -> None:
        self._writing(name, key, value)()

    def forget(self, name: str, key: Key) -> None:
        path = self._path(name, key)
        path.unlink(missing_ok=True)
        path.with_suffix(".bin").unlink(missing_ok=True)

    def plan(self, entries: Entries, session_mark: SessionMark | None = None) -> SharedPlan:
        """Plan the writes for changes of these tables. ``session_mark``: the session that is written in the same
        unit."""
        plan = SharedPlan([], [])
        for (name, key), (_, after) in entries.items():
            if after is ABSENT:
                plan.after.append(partial(self.forget, name, key))
                continue
            path = self._path(name, key)
            if name in WITH_SESSION and session_mark is not None:
                # The entry is provisional until the session is written: a kill in between leaves neither.
                meant = path.with_suffix(_MEANT)
                write = self._writing(name, key, after, meant, session_mark)
                plan.before.append((write, partial(meant.unlink, missing_ok=True)))
                plan.after.append(partial(self._make_true, meant, path))
                continue
            if not SHARED[name].by_digest:
                # For the undo, a hard link to the old file, which needs no disk space.
                backup = folder.temporary(path)
                plan.before.append((partial(_keep_old, path, backup), partial(_put_back, path, backup)))
                plan.after.append(partial(backup.unlink, missing_ok=True))
            plan.before.append((self._writing(name, key, after), None))
        return plan

    def _writing(
        self, name: str, key: Key, after: Any, path: Path | None = None, session_mark: SessionMark | None = None
    ) -> Callable[[], None]:
        path = path or self._path(name, key)
        content = {
            "key": key,
            "value": SHARED[name].encode(after),
            **({"beside": session_mark} if session_mark is not None else {}),
        }
        entry = with_check(orjson.dumps(content)) + b"\n"
        data = after.data if name == "blobs" else None

        def write() -> None:
            folder.make_folder(path.parent)
            if path in self._unread:
                folder.keep_aside(path, self._root / "damaged", f"{path.parent.name}-{path.name}")
            if data is not None:
                folder.write_whole(path.with_suffix(".bin"), data, sync=True)
            folder.write_whole(path, entry, sync=True)
            self._unread.pop(path, None)

        return write

    def read_blob(self, sha: str) -> bytes | None:
        """Return the bytes of this digest; if the file has others, mark the entry as unreadable and return None."""
        path = self._path("blobs", sha)
        data = folder.read(path.with_suffix(".bin"))
        if data is not None and sha256(data).hexdigest() == sha:
            return data
        self._unread[path] = "its bytes are missing" if data is None else "its bytes are not those of its digest"
        return None

    def _make_true(self, meant: Path, path: Path) -> None:
        if path in self._unread:
            folder.keep_aside(path, self._root / "damaged", f"{path.parent.name}-{path.name}")
        failpoint("files.before_true")
        meant.rename(path)
        folder.sync_folder(path.parent)
        self._unread.pop(path, None)

    def tidy(self, is_written: Callable[[SessionMark], bool]) -> None:
        """Complete the work of a process that died: a provisional entry becomes valid if its session was written."""
        for name in SHARED:
            folder.remove_temporary(self._root / name)
            for meant in (self._root / name).glob(f"*{_MEANT}"):
                try:
                    entry = without_check(orjson.loads(meant.read_bytes()))
                    true = is_written(entry["beside"])
                except (OSError, ValueError, KeyError, TypeError):
                    true = False
                with contextlib.suppress(OSError):
                    self._make_true(meant, meant.with_suffix(".json")) if true else meant.unlink()

    def collect(self, named: set[str]) -> None:
        """Remove blobs without references. The caller must have read every session completely."""
        for key in self.load("blobs"):
            if key not in named:
                self.forget("blobs", key)

    def _path(self, name: str, key: Key) -> Path:
        # Paths are built from digests, never from names of other programs.
        named = key.encode() if isinstance(key, str) else orjson.dumps(key)
        return self._root / name / f"{sha256(named).hexdigest()}.json"

    def copy(self, target: Path) -> None:
        for name in SHARED:
            for path in (self._root / name).glob("*"):
                data = None if folder.is_temporary(path) or path.suffix == _MEANT else folder.read(path)
                if data is not None:
                    folder.make_folder(target / "clew" / name)
                    folder.write_whole(target / "clew" / name / path.name, data, sync=False)


def _keep_old(path: Path, backup: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.link(path, backup)


def _put_back(path: Path, backup: Path) -> None:
    if backup.exists():
        backup.rename(path)
        backup.unlink(missing_ok=True)  # still there if both were names of one file
    else:
        path.unlink(missing_ok=True)
