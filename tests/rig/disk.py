"""A model of a disk that loses power: the file operations in order, and the possible contents after a power loss.

Synced data survives. Of the rest, nothing survives, or a prefix, or a random half, and the last surviving write may be
torn at a sector. Directory entries (created, renamed, removed) are lost in order, as on a journaling file system, and
independently of file contents; syncing a folder preserves all entries up to then.

Not in the model: disks that report a sync without doing it, and file systems that preserve a later entry without an
earlier one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["Disk", "Loss"]

Loss = Literal["none", "prefix", "half", "all"]
_SECTOR = 512


class Write(NamedTuple):
    file: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    file: int
    size: int


class Sync(NamedTuple):
    file: int


class Named(NamedTuple):
    path: str
    file: int


class Removed(NamedTuple):
    path: str


class Renamed(NamedTuple):
    before: str
    after: str


class SyncFolder(NamedTuple):
    path: str


class Report(NamedTuple):
    line: Any


Event: TypeAlias = Write | Truncate | Sync | Named | Removed | Renamed | SyncFolder | Report


class Disk:
    """The operations below one folder. Each is executed and recorded under ``lock``, so that the order is exact."""

    def __init__(self, root: Path, *, names_last: bool) -> None:
        self.root = root.resolve()
        self.events: list[Event] = []
        self._names_last = names_last
        self._files: dict[str, int] = {}
        self._made = 0
        self.lock = threading.RLock()

    # Recording

    def file(self, path: str) -> int:
        """Return the file of this name, created if missing."""
        if path not in self._files:
            self._made += 1
            self._files[path] = self._made
            self.events.append(Named(path, self._made))
        return self._files[path]

    def record(self, event: Event) -> None:
        with self.lock:
            self.events.append(event)

    def report(self, *line: Any) -> None:
        self.record(Report(line))

    def made_folder(self, path: str) -> None:
        """Record a folder, as a name that ends with a slash."""
        with self.lock:
            self._files[f"{path}/"] = 0
            self.events.append(Named(f"{path}/", 0))

    def removed(self, path: str) -> None:
        with self.lock:
            for known in [one for one in self._files if one == path or one.startswith(path + "/")]:
                del self._files[known]
                self.events.append(Removed(known))

    def renamed(self, before: str, after: str) -> None:
        with self.lock:
            self._files = _rename(self._files, before, after)
            self.events.append(Renamed(before, after))

    # After a power loss

    def reports(self, end: int) -> Iterator[Any]:
        return (event.line for event in self.events[:end] if isinstance(event, Report))

    def left(self, end: int, loss: Loss, random: Random, *, lies: bool = False) -> dict[str, bytes]:
        """Return the files after a power loss before event ``end``. A disk that ``lies`` ignores syncs."""
        images: dict[int, bytearray] = {}
        names: dict[str, int] = {}
        pending: list[Event] = []
        for event in self.events[:end]:
            if isinstance(event, Report):
                continue
            if isinstance(event, Sync):
                if not lies:
                    pending = _settle(pending, images, names, functools.partial(_is_of, event.file))
            elif isinstance(event, SyncFolder):
                if not lies:
                    pending = _sync_names(pending, images, names, event.path)
            elif self._names_last and isinstance(event, Named | Removed | Renamed):
                _apply(event, images, names)
            else:
                pending.append(event)
        for event in _survivors(pending, loss, random):
            _apply(event, images, names)
        return {path: b"" if path.endswith("/") else bytes(images.get(file, b"")) for path, file in names.items()}

    def check_recording(self, ignored: Callable[[Path], bool]) -> None:
        """Check that the model without losses equals the folder; else an operation was not recorded."""
        model = self.left(len(self.events), "all", Random(0))
        real = {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file() and not ignored(path)}
        model = {path: data for path, data in model.items() if path[-1] != "/" and not ignored(Path(path))}
        if model != real:
            wrong = sorted(path for path in {*model, *real} if model.get(path) != real.get(path))
            raise AssertionError(f"the recording is incomplete for {wrong}")

    def put(self, left: dict[str, bytes], target: Path) -> None:
        """Write the surviving files below another folder."""
        for path, data in left.items():
            path_ = target / Path(path).relative_to(self.root)
            (path_ if path.endswith("/") else path_.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                path_.write_bytes(data)


def _is_of(file: int, event: Event) -> bool:
    return isinstance(event, Write | Truncate) and event.file == file


def _settle(
    pending: list[Event], images: dict[int, bytearray], names: dict[str, int], is_synced: Callable[[Event], bool]
) -> list[Event]:
    left = []
    for event in pending:
        if is_synced(event):
            _apply(event, images, names)
        else:
            left.append(event)
    return left


def _sync_names(pending: list[Event], images: dict[int, bytearray], names: dict[str, int], folder: str) -> list[Event]:
    last = max((index for index, event in enumerate(pending) if folder in _folders(event)), default=-1)
    head = _settle(pending[: last + 1], images, names, lambda one: not isinstance(one, Write | Truncate))
    return head + pending[last + 1 :]


def _folders(event: Event) -> set[str]:
    if isinstance(event, Named | Removed):
        return {event.path.rstrip("/").rpartition("/")[0]}
    if isinstance(event, Renamed):
        return {event.before.rpartition("/")[0], event.after.rpartition("/")[0]}
    return set()


def _survivors(pending: list[Event], loss: Loss, random: Random) -> list[Event]:
    if loss in ("none", "all"):
        return pending if loss == "all" else []
    if loss == "prefix":
        survivors = pending[: random.randint(0, len(pending))]
    else:
        names = [index for index, event in enumerate(pending) if not isinstance(event, Write | Truncate)]
        lost = set(names[random.randint(0, len(names)) :])
        survivors = [
            event
            for index, event in enumerate(pending)
            if index not in lost and (not isinstance(event, Write | Truncate) or random.random() < 0.5)
        ]
    if survivors and isinstance(last := survivors[-1], Write) and random.random() < 0.5:
        start = -last.offset % _SECTOR
        edges = range(start, len(last.data), _SECTOR)
        survivors[-1] = last._replace(data=last.data[: random.choice(edges)] if edges else b"")
    return survivors


def _apply(event: Event, images: dict[int, bytearray], names: dict[str, int]) -> None:
    match event:
        case Write(file, offset, data):
            image = images.setdefault(file, bytearray())
            if len(image) < offset:
                image.extend(bytes(offset - len(image)))
            image[offset : offset + len(data)] = data
        case Truncate(file, size):
            image = images.setdefault(file, bytearray())
            del image[size:]
            image.extend(bytes(size - len(image)))
        case Named(path, file):
            names[path] = file
        case Removed(path):
            names.pop(path, None)
        case Renamed(before, after):
            renamed = _rename(names, before, after)
            names.clear()
            names.update(renamed)


def _rename(names: dict[str, int], before: str, after: str) -> dict[str, int]:
    """Rename a file, replacing the other, or a folder with its contents."""
    moved: dict[str, int] = {}
    for path, file in names.items():
        if path == before or path.startswith(before + "/"):
            moved[after + path[len(before) :]] = file
    rest = {path: file for path, file in names.items() if not (path == before or path.startswith(before + "/"))}
    return {**rest, **moved}
