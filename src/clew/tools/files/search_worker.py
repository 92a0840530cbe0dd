"""The program that searches for a regular expression; ``search.py`` starts it and reads its output.

It is a process of its own because ``re`` cannot be interrupted and blocks the interpreter while it matches: a pattern
that does not end blocks only this process, which can be killed. It uses the standard library only and is started by
its path, so that it starts in a few milliseconds. Files are opened from the inherited handle, one path component at a
time, never through a link.
"""

from __future__ import annotations

import json
import os
import re
import sys

assert sys.platform != "win32"

import resource  # noqa: E402

# Loading it takes longer than many a search.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_SNIFF = 8192
_LINE = 1 << 20
_SHOWN = 300
_MEMORY = 1 << 30


def main() -> None:
    request = json.load(sys.stdin)
    # Before the pattern is compiled: that alone can use up the memory.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    seconds = int(request["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        say({"bad_pattern": str(error) or type(error).__name__})
        return
    tally = {"matches": 0, "binary": 0, "unreadable": 0}
    for number, path in enumerate(request["files"]):
        say({"at": number})
        try:
            search(request["handle"], path, number, pattern, request["max_matches"], tally)
        except (OSError, MemoryError):
            tally["unreadable"] += 1
    say({"done": tally})


def search(
    handle: int, path: str, number: int, pattern: re.Pattern[str], max_matches: int, tally: dict[str, int]
) -> None:
    with os.fdopen(open_below(handle, path), "rb") as file:
        if b"\x00" in file.read(_SNIFF):
            tally["binary"] += 1
            return
        file.seek(0)
        line_number, goes_on = 0, False
        # A line longer than this is searched in pieces: memory must not grow with it.
        while piece := file.readline(_LINE):
            line_number += not goes_on
            goes_on = not piece.endswith(b"\n")
            text = piece.decode("utf-8", "replace").rstrip("\r\n")
            found = pattern.search(text)
            if found is None:
                continue
            tally["matches"] += 1
            if tally["matches"] <= max_matches:
                say({"file": number, "line": line_number, "text": around(text, found.start())})


def open_below(handle: int, path: str) -> int:
    """Open a file, each component of its path by its folder's handle. An empty path is the handle's own file."""
    if not path:
        return os.dup(handle)
    *folders, name = path.split("/")
    at = os.dup(handle)
    try:
        for folder in folders:
            below = os.open(folder, _PASS, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, _READ, dir_fd=at)
    finally:
        os.close(at)


def around(text: str, position: int) -> str:
    """Return the line, or of a long one the part around the match."""
    start = max(0, min(position - _SHOWN // 3, len(text) - _SHOWN))
    shown = text[start : start + _SHOWN]
    return ("…" if start else "") + shown + ("…" if start + _SHOWN < len(text) else "")


def say(value: dict[str, Any]) -> None:
    # Written immediately, in one call each, so that matches are not lost when the process is killed.
    os.write(1, json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
