"""Search of files for a regular expression in a separate process, with a time limit.

Python's ``re`` backtracks: a pattern such as ``(a+)+$`` can run practically forever, and cannot be interrupted in a
thread. So ``search_worker.py`` does the matching, in a bare interpreter with limits on time and memory, which is killed
when its time is over; its matches so far are returned. The caller decides which files may be searched.
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
_LIMIT_SIGNALS: Final = tuple(-one for one in signals.Signals if one.name in ("SIGXCPU", "SIGKILL"))


class LineMatch(msgspec.Struct, frozen=True):
    """A matching line; ``file`` is its index in the list of files."""

    file: int
    line: int
    text: str


class SearchResult(msgspec.Struct, frozen=True):
    """The matches. ``stopped_at`` is the index of the file where the time ran out, None if all were searched."""

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

    def collect(piece: bytes) -> None:
        # The worker reports its position once per file; the limit is for a worker that misbehaves.
        if len(answer) < _MAX_ANSWER:
            answer.extend(piece)

    with await run_in_thread(_file_with, request) as stdin:
        program = Program(
            script=_WORKER, cwd=Path("/"), env={}, timeout_ms=int(seconds * 1000), stdin=stdin, handles=(handle,)
        )
        ending = await run_program(program, collect, signal)
    if ending.cause == "abort":
        raise ToolFailed(f"the search was aborted: {signal.reason or 'no reason given'}")
    matches: list[LineMatch] = []
    at = 0
    lines = bytes(answer).splitlines()
    for line in lines:
        try:
            report = json.loads(line)
        except ValueError:
            continue  # The last line of a killed worker, or the traceback of a failed one.
        if "bad_pattern" in report:
            raise ToolFailed(f"the pattern is not a valid regular expression: {report['bad_pattern']}")
        if "done" in report:
            totals = report["done"]
            return SearchResult(tuple(matches), totals["matches"], totals["binary"], totals["unreadable"])
        if "at" in report:
            at = report["at"]
        else:
            matches.append(LineMatch(report["file"], report["line"], report["text"]))
    if ending.cause == "exit" and ending.exit_code not in _LIMIT_SIGNALS:
        last = lines[-1].decode("utf-8", "replace")[:300] if lines else ""
        raise ToolFailed(f"the search failed with exit code {ending.exit_code}: {last}")
    return SearchResult(tuple(matches), len(matches), stopped_at=at)


def _file_with(request: dict[str, Any]) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(json.dumps(request).encode())
    file.seek(0)
    return file
