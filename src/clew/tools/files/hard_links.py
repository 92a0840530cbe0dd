"""Files with several names (hard links), some possibly outside a folder: writing one inside changes it outside, too."""

from __future__ import annotations

import os
import stat
import sys
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
    """Return the paths in the folder of files that also have names outside of it, and of folders that cannot be listed
    but could be opened by this user. Blocking."""
    unseen: list[str] = []
    found = list(_linked(folder, unseen))
    names = Counter((status.st_dev, status.st_ino) for _, status in found)
    return [path for path, status in found if names[status.st_dev, status.st_ino] < status.st_nlink] + unseen


def _linked(folder: Path, unseen: list[str] | None = None) -> Iterator[tuple[str, os.stat_result]]:
    below = [str(folder)]
    while below:
        path = below.pop()
        try:
            entries = os.scandir(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            if unseen is not None and _could_be_opened(path):
                unseen.append(path)
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


def _could_be_opened(folder: str) -> bool:
    """Return whether a program of this user could get access to a folder: its owner can change its mode."""
    try:
        return sys.platform == "win32" or bool(os.geteuid() in (0, os.lstat(folder).st_uid))
    except OSError:
        return True
