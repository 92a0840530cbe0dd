"""What belongs to no single session: prompts, blobs, rules, events, triggers. Each entry is a file under ``DIR/clew``.

A table that is added to the memory store gets its line in :data:`SHARED`; without it, writing to it is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from clew.errors import InternalError, RowUndecodable
from clew.store.base import Blob
from clew.store.files import folder
from clew.store.files.crc import stamped, unstamped
from clew.store.session_value import ABSENT, Changed
from clew.triggers.ledger import LedgerEvent
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

__all__ = ["SHARED", "Shared", "SharedPlan", "SharedTable"]


class SharedTable(NamedTuple):
    """The folder of a table, and how its values are written. ``by_digest``: a key names its value, so that an entry
    that a failure left behind does no harm; any other is put back as it was."""

    folder: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    by_digest: bool = False


SHARED: Final[dict[str, SharedTable]] = {
    "_prompts": SharedTable("prompts", str, str, by_digest=True),
    "_project_rules": SharedTable("rules", list, tuple),
    "_blobs": SharedTable("blobs", lambda blob: blob.media_type, lambda kind: kind, by_digest=True),
    "_events": SharedTable("events", msgspec.to_builtins, partial(msgspec.convert, type=LedgerEvent)),
    "_schedules": SharedTable("schedules", msgspec.to_builtins, partial(msgspec.convert, type=Schedule)),
    "_accepted": SharedTable("accepted", int, int),
    "_webhooks": SharedTable("webhooks", msgspec.to_builtins, partial(msgspec.convert, type=Webhook)),
}

Key = str | tuple[str, ...]


class SharedPlan(NamedTuple):
    """What is done before the session's own files, each with its way back if it has one, and what after them."""

    before: list[tuple[Callable[[], None], Callable[[], None] | None]]
    after: list[Callable[[], None]]


class Shared:
    """The files of these tables. Blobs keep their bytes in a file of their own, and out of memory."""

    def __init__(self, root: Path) -> None:
        self._root = root / "clew"
        self._unread: dict[Path, str] = {}

    def load(self, name: str) -> dict[Any, Any]:
        """A table as the files have it. An entry that does not read is passed over, remembered, and left alone."""
        table = SHARED[name]
        found: dict[Key, Any] = {}
        for path in sorted((self._root / table.folder).glob("*.json")):
            self._unread.pop(path, None)
            try:
                entry = orjson.loads(path.read_bytes())
                entry = unstamped(entry) if "check" in entry else entry
                key = tuple(entry["key"]) if isinstance(entry["key"], list) else entry["key"]
                if self._path(name, key) != path:
                    raise ValueError("its name is that of another entry")
                found[key] = table.decode(entry["value"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._unread[path] = str(error)
        if name == "_blobs":
            return {key: Blob(str(key), media_type, b"") for key, media_type in found.items()}
        return found

    @property
    def unread(self) -> tuple[str, ...]:
        """What is wrong with each entry that does not read."""
        return tuple(
            f"{path.relative_to(self._root.parent)} does not read: {why}" for path, why in self._unread.items()
        )

    def is_unread(self, name: str, key: Key) -> bool:
        """Whether there is such an entry, and it does not read."""
        return self._path(name, key) in self._unread

    def must_read(self, name: str, key: Key) -> None:
        """Refuse to say that an entry is not there when it is, and does not read."""
        path = self._path(name, key)
        if path in self._unread:
            raise RowUndecodable(f"{path} does not read: {self._unread[path]}; put it back from a copy, or remove it")

    def put(self, name: str, key: Key, value: Any) -> None:
        self._writing(name, key, value, self._path(name, key))()

    def forget(self, name: str, key: Key) -> None:
        self._remove(self._path(name, key))

    def plan(self, tables: dict[int, str], done: Sequence[Changed]) -> SharedPlan:
        """What a change means for these files."""
        plan = SharedPlan([], [])
        for name, key, _, after in self._changes(tables, done):
            path = self._path(name, key)
            if after is ABSENT:
                plan.after.append(partial(self._remove, path))
                continue
            if not SHARED[name].by_digest:
                # A way back that needs no room on the disk: the old file under another name.
                kept = folder.temporary(path)
                plan.before.append((partial(_keep_old, path, kept), partial(_put_back, path, kept)))
                plan.after.append(partial(kept.unlink, missing_ok=True))
            plan.before.append((self._writing(name, key, after, path), None))
        return plan

    def _changes(self, tables: dict[int, str], done: Sequence[Changed]) -> Iterator[tuple[str, Key, Any, Any]]:
        found: dict[tuple[str, Key], tuple[Any, Any]] = {}
        for table, key, before, after in done:
            if id(table) in tables:
                place = (tables[id(table)], key)
                found[place] = (found.get(place, (before, ABSENT))[0], after)
        for (name, key), (before, after) in found.items():
            if name not in SHARED:
                raise InternalError(f"the file stores do not know the table {name!r}; add it to SHARED")
            yield name, key, before, after

    def _writing(self, name: str, key: Key, after: Any, path: Path) -> Callable[[], None]:
        entry = stamped(orjson.dumps({"key": key, "value": SHARED[name].encode(after)})) + b"\n"
        data = after.data if name == "_blobs" else None

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
        """The bytes that this digest names; None, and an entry that does not read, when the file has others."""
        path = self._path("_blobs", sha)
        data = folder.read(path.with_suffix(".bin"))
        if data is not None and sha256(data).hexdigest() == sha:
            return data
        self._unread[path] = "its bytes are missing" if data is None else "its bytes are not those of its digest"
        return None

    def tidy(self) -> None:
        """Remove what a process that died had begun."""
        for table in SHARED.values():
            for path in (self._root / table.folder).glob("*"):
                if folder.is_temporary(path):
                    path.unlink(missing_ok=True)

    def collect(self, named: set[str]) -> None:
        """Remove blobs that no session names. Only for whoever has read every session in full."""
        for key in self.load("_blobs"):
            if key not in named:
                self._remove(self._path("_blobs", key))

    @staticmethod
    def _remove(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.with_suffix(".bin").unlink(missing_ok=True)

    def _path(self, name: str, key: Key) -> Path:
        # No path is ever built from what somebody else has named.
        named = key.encode() if isinstance(key, str) else orjson.dumps(key)
        return self._root / SHARED[name].folder / f"{sha256(named).hexdigest()}.json"

    def copy(self, target: Path) -> None:
        for table in SHARED.values():
            for path in (self._root / table.folder).glob("*"):
                data = None if folder.is_temporary(path) else folder.read(path)
                if data is not None:
                    folder.make_folder(target / "clew" / table.folder)
                    folder.write_whole(target / "clew" / table.folder / path.name, data, sync=False)


def _keep_old(path: Path, kept: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.link(path, kept)


def _put_back(path: Path, kept: Path) -> None:
    if kept.exists():
        kept.rename(path)
    else:
        path.unlink(missing_ok=True)
