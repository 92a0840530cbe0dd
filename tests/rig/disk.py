"""A disk that loses power: everything that was done to files, in order, and what may be left of it at any moment.

What was synced is there. Of what was not, nothing is left, or a beginning of it, or a random half, and the last write
that is left may be torn at a sector. Names (made, renamed, removed) are lost and kept in order, as a file system with
a journal does it, and independently of what the files hold; syncing a folder keeps all names up to then.

Not in the model: disks that say they have synced and have not, and file systems that keep a later name without an
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


class Said(NamedTuple):
    line: Any


Event: TypeAlias = Write | Truncate | Sync | Named | Removed | Renamed | SyncFolder | Said


class Disk:
    """What happened under one folder. ``done`` carries out and notes in one go, so that the order is the true one."""

    def __init__(self, root: Path, *, names_last: bool) -> None:
        self.root = root.resolve()
        self.events: list[Event] = []
        self._names_last = names_last
        self._files: dict[str, int] = {}
        self._made = 0
        self.lock = threading.RLock()

    # Noting

    def file(self, path: str) -> int:
        """The file of that name, which is made when there is none."""
        if path not in self._files:
            self._made += 1
            self._files[path] = self._made
            self.events.append(Named(path, self._made))
        return self._files[path]

    def note(self, event: Event) -> None:
        with self.lock:
            self.events.append(event)

    def say(self, *line: Any) -> None:
        self.note(Said(line))

    def made_folder(self, path: str) -> None:
        """A folder is a name that ends with a slash, and holds nothing."""
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

    # What is left

    def said(self, end: int) -> Iterator[Any]:
        return (event.line for event in self.events[:end] if isinstance(event, Said))

    def left(self, end: int, loss: Loss, random: Random, *, lies: bool = False) -> dict[str, bytes]:
        """The files after a cut before event ``end``. A disk that ``lies`` has synced nothing."""
        images: dict[int, bytearray] = {}
        names: dict[str, int] = {}
        waiting: list[Event] = []
        for event in self.events[:end]:
            if isinstance(event, Said):
                continue
            if isinstance(event, Sync):
                if not lies:
                    waiting = _settle(waiting, images, names, functools.partial(_is_of, event.file))
            elif isinstance(event, SyncFolder):
                if not lies:
                    waiting = _sync_names(waiting, images, names, event.path)
            elif self._names_last and isinstance(event, Named | Removed | Renamed):
                _apply(event, images, names)
            else:
                waiting.append(event)
        for event in _kept(waiting, loss, random):
            _apply(event, images, names)
        return {path: b"" if path.endswith("/") else bytes(images.get(file, b"")) for path, file in names.items()}

    def check_recording(self, ignored: Callable[[Path], bool]) -> None:
        """With nothing lost the model must be the folder: else something was done that nobody noted."""
        model = self.left(len(self.events), "all", Random(0))
        real = {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file() and not ignored(path)}
        model = {path: data for path, data in model.items() if path[-1] != "/" and not ignored(Path(path))}
        if model != real:
            wrong = sorted(path for path in {*model, *real} if model.get(path) != real.get(path))
            raise AssertionError(f"the recording is not what happened to {wrong}")

    def put(self, left: dict[str, bytes], target: Path) -> None:
        """Write what is left below another folder."""
        for path, data in left.items():
            place = target / Path(path).relative_to(self.root)
            (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                place.write_bytes(data)


def _is_of(file: int, event: Event) -> bool:
    return isinstance(event, Write | Truncate) and event.file == file


def _settle(
    waiting: list[Event], images: dict[int, bytearray], names: dict[str, int], is_synced: Callable[[Event], bool]
) -> list[Event]:
    left = []
    for event in waiting:
        if is_synced(event):
            _apply(event, images, names)
        else:
            left.append(event)
    return left


def _sync_names(waiting: list[Event], images: dict[int, bytearray], names: dict[str, int], folder: str) -> list[Event]:
    last = max((place for place, event in enumerate(waiting) if folder in _folders(event)), default=-1)
    head = _settle(waiting[: last + 1], images, names, lambda one: not isinstance(one, Write | Truncate))
    return head + waiting[last + 1 :]


def _folders(event: Event) -> set[str]:
    if isinstance(event, Named | Removed):
        return {event.path.rstrip("/").rpartition("/")[0]}
    if isinstance(event, Renamed):
        return {event.before.rpartition("/")[0], event.after.rpartition("/")[0]}
    return set()


def _kept(waiting: list[Event], loss: Loss, random: Random) -> list[Event]:
    if loss in ("none", "all"):
        return waiting if loss == "all" else []
    if loss == "prefix":
        kept = waiting[: random.randint(0, len(waiting))]
    else:
        names = [place for place, event in enumerate(waiting) if not isinstance(event, Write | Truncate)]
        gone = set(names[random.randint(0, len(names)) :])
        kept = [
            event
            for place, event in enumerate(waiting)
            if place not in gone and (not isinstance(event, Write | Truncate) or random.random() < 0.5)
        ]
    if kept and isinstance(last := kept[-1], Write) and random.random() < 0.5:
        start = -last.offset % _SECTOR
        edges = range(start, len(last.data), _SECTOR)
        kept[-1] = last._replace(data=last.data[: random.choice(edges)] if edges else b"")
    return kept


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
    """A file takes the other's place; of a folder, all that is in it moves."""
    moved: dict[str, int] = {}
    for path, file in names.items():
        if path == before or path.startswith(before + "/"):
            moved[after + path[len(before) :]] = file
    rest = {path: file for path, file in names.items() if not (path == before or path.startswith(before + "/"))}
    return {**rest, **moved}
