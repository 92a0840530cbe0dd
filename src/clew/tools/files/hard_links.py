"""Files with several names, some of them maybe outside a folder: writing one inside changes it outside, too."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

__all__ = ["Identity", "count_names", "files_named_outside", "has_names"]

Identity = tuple[int, int]
"""The device and inode of a file, the same under all of its names."""


def has_names(status: os.stat_result) -> bool:
    """Return whether this is a file with more than one name."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def count_names(folder: Path, limit: int) -> Counter[Identity]:
    """Return how many names each file with several has in the folder, up to ``limit`` names in all. Blocking."""
    return Counter((status.st_dev, status.st_ino) for _, status in islice(_linked(folder), limit))


def files_named_outside(folder: Path) -> list[str]:
    """Return the paths in the folder of files that also have names outside of it. Blocking."""
    found = list(_linked(folder))
    names = Counter((status.st_dev, status.st_ino) for _, status in found)
    return [path for path, status in found if names[status.st_dev, status.st_ino] < status.st_nlink]


def _linked(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    below = [str(folder)]
    while below:
        try:
            entries = os.scandir(below.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif has_names(status := entry.stat(follow_symlinks=False)):
                        yield entry.path, status
                except OSError:
                    continue
