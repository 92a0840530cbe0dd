"""``read``: a text file, page by page; other files are described."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, open_plain
from clew.tools.files.paths import ResolvedPath, judged_path, path_targets
from clew.tools.files.walk import StopCheck, count
from clew.tools.output import SNIFF_BYTES, describe, looks_binary
from clew.tools.thread import run_in_thread

__all__ = ["Page", "page_of", "read", "show_page"]

PAGE_LINES: Final = 2_000
LINE_CHARS: Final = 2_000
NOTE_CHARS: Final = 500
"""Space for the line that says how to continue."""
MAX_DIGEST_BYTES: Final = 1 << 30
_COUNT_BYTES: Final = 64 << 20
_PIECE: Final = 1 << 18


@tool(needs_workspace=True, targets=path_targets("read"), capabilities=["fs.read"])
async def read(
    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute.", min_length=1)],
    context: ToolContext,
    offset: Annotated[int, Meta(description="The first line to show; lines count from 1.", ge=1)] = 1,
    limit: Annotated[int, Meta(description="How many lines to show.", ge=1, le=PAGE_LINES)] = PAGE_LINES,
) -> str:
    """Read a text file.

    Gives the text as it is, at most 2,000 lines and what fits one output at once; a last line in brackets then says how
    to go on. Lines are cut at 2,000 characters. Files that are not text (images, archives, programs) are described, not
    shown. A folder is listed with ls.
    """
    resolved = await judged_path("read", path, context)
    return await run_in_thread(_read, resolved, page_of(context, offset, limit), StopCheck(context.signal, 60))


class Page(NamedTuple):
    """A part of a file: the first line, and the most lines and characters."""

    offset: int
    lines: int
    chars: int


def page_of(context: ToolContext, offset: int = 1, limit: int = PAGE_LINES) -> Page:
    return Page(offset, limit, context.max_output_chars - NOTE_CHARS)


def _read(resolved: ResolvedPath, page: Page, stop_check: StopCheck) -> str:
    with file_errors(resolved.shown), open_plain(resolved.path) as (handle, status):
        head = os.read(handle, SNIFF_BYTES)
        if not head:
            return "[the file is empty]"
        os.lseek(handle, 0, os.SEEK_SET)
        if not looks_binary(head):
            size = status.st_size
            return show_page(
                _pieces(handle, stop_check), page, stop_check, lambda: (size - os.lseek(handle, 0, os.SEEK_CUR), size)
            )
        digest = hashlib.sha256()
        for piece in _pieces(handle, stop_check) if status.st_size <= MAX_DIGEST_BYTES else ():
            digest.update(piece)
        whole = status.st_size <= MAX_DIGEST_BYTES and not stop_check.stop_reason
        return f"[{describe('binary file', head, status.st_size, digest.hexdigest() if whole else None)}]"


def show_page(pieces: Iterator[bytes], page: Page, stop_check: StopCheck, sizes: Callable[[], tuple[int, int]]) -> str:
    """Return the lines of the page, and how to continue. ``sizes`` returns the remaining and the total bytes."""
    offset = page.offset
    lines = _lines(pieces)
    shown_lines: list[str] = []
    number = chars = cut = 0
    next_page = None
    for number, line in enumerate(lines, 1):
        if number < offset:
            continue
        if number >= offset + page.lines or (shown_lines and chars + len(line) > page.chars):
            next_page = number
            break
        if len(line.rstrip("\n")) > LINE_CHARS:
            line = line[:LINE_CHARS] + "…" + "\n" * line.endswith("\n")
            cut += 1
        shown_lines.append(line)
        chars += len(line)
    notes = []
    if next_page is not None:
        # Count the other lines, but do not read a huge file for it.
        left, size = sizes()
        if left <= _COUNT_BYTES:
            total = f" of {number + sum(1 for _ in lines):,}"
        else:
            total = f"; the file has {size:,} bytes"
        notes.append(f"lines {offset:,} to {next_page - 1:,}{total}; go on with offset {next_page}")
    elif number < offset:
        notes.append(f"nothing to show: the file has {count(number, 'line')}")
    elif offset > 1:
        notes.append(f"lines {offset:,} to {number:,}, the last one")
    if cut:
        notes.append(f"{count(cut, 'line')} cut at {LINE_CHARS:,} characters")
    text = "".join(shown_lines)
    if "\ufffd" in text:
        notes.append("what is not valid UTF-8 is shown as \ufffd")
    if stopped := stop_check.stop_reason:
        notes.append(f"stopped early: {stopped}")
    if not notes:
        return text
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[{'; '.join(notes)}]"


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines with their ends, CRLF as LF; of a long line one character more than is shown."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    current = ""
    for piece in chain(pieces, [b""]):
        first, *more = decoder.decode(piece, final=not piece).split("\n")
        current += first[: max(LINE_CHARS + 2 - len(current), 0)]
        for part in more:
            yield current.removesuffix("\r") + "\n"
            current = part[: LINE_CHARS + 2]
    if current:
        yield current


def _pieces(handle: int, stop_check: StopCheck) -> Iterator[bytes]:
    while not stop_check.stop_reason and (piece := os.read(handle, _PIECE)):
        yield piece
