"""Searching files for a regular expression in a process of its own, with an end that is certain.

Python's ``re`` backtracks, and a pattern such as ``(a+)+$`` can take longer than anybody lives; it cannot be
interrupted in a thread. So the matching happens in ``search_worker.py``, a bare interpreter with limits on time and
memory, which is killed when its time is over; what it had found by then is kept. Which files may be searched is
decided before and not known here.
"""

from __future__ import annotations

import json
import signal as signals
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.tools.base import Signal
from clew.tools.process.program import Program, run_program
from clew.tools.thread import run_in_thread

__all__ = ["LineMatch", "SearchResult", "search"]

_WORKER: Final = Path(__file__).with_name("search_worker.py")
_MAX_ANSWER: Final = 16 * 1024 * 1024
_LIMIT_SIGNALS: Final = (-signals.SIGXCPU, -signals.SIGKILL)


class LineMatch(msgspec.Struct, frozen=True):
    """A line that fits; ``file`` is its index in the list that was searched."""

    file: int
    line: int
    text: str


class SearchResult(msgspec.Struct, frozen=True):
    """What was found. ``stopped_at`` is the file the time ran out in, None when all were searched."""

    matches: tuple[LineMatch, ...]
    total: int
    binary: int = 0
    unreadable: int = 0
    stopped_at: int | None = None


async def search(
    pattern: str,
    handle: int,
    files: Sequence[str],
    *,
    ignore_case: bool,
    max_matches: int,
    seconds: float,
    signal: Signal,
) -> SearchResult:
    """Search ``files``, paths below the open folder ``handle`` (or the one empty path: the handle's own file)."""
    request = {
        "pattern": pattern,
        "ignore_case": ignore_case,
        "files": list(files),
        "handle": handle,
        "max_matches": max_matches,
        "seconds": seconds,
    }
    answer = bytearray()

    def take(piece: bytes) -> None:
        # One line a file tells how far it got; the cap is for a worker gone wrong.
        if len(answer) < _MAX_ANSWER:
            answer.extend(piece)

    with await run_in_thread(_file_with, request) as stdin:
        program = Program(
            script=_WORKER, cwd=Path("/"), env={}, timeout_ms=int(seconds * 1000), stdin=stdin, handles=(handle,)
        )
        ending = await run_program(program, take, signal)
    if ending.cause == "abort":
        raise ToolFailed(f"the search was aborted: {signal.reason or 'no reason given'}")
    matches: list[LineMatch] = []
    at = 0
    lines = bytes(answer).splitlines()
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue  # The last line of a worker that was killed, or a trace of one that failed.
        if "bad_pattern" in said:
            raise ToolFailed(f"the pattern is not a valid regular expression: {said['bad_pattern']}")
        if "done" in said:
            tally = said["done"]
            return SearchResult(tuple(matches), tally["matches"], tally["binary"], tally["unreadable"])
        if "at" in said:
            at = said["at"]
        else:
            matches.append(LineMatch(said["file"], said["line"], said["text"]))
    if ending.cause == "exit" and ending.exit_code not in _LIMIT_SIGNALS:
        last = lines[-1].decode("utf-8", "replace")[:300] if lines else ""
        raise ToolFailed(f"the search broke off with exit code {ending.exit_code}: {last}")
    return SearchResult(tuple(matches), len(matches), stopped_at=at)


def _file_with(request: dict[str, Any]) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(json.dumps(request).encode())
    file.seek(0)
    return file
