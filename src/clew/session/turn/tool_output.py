"""The output of a tool call: its progress while it runs, and the files that it returns.

Each report of progress replaces the previous one. The first is shown soon after the call begins, later ones at growing
intervals, so that a call of an hour produces about a hundred chunks, not ten thousand.

Each file becomes an AI SDK ``file`` part of the answer that refers to its blob and to the call. Viewers, exports and
searches treat it like any other file, and models receive it with the result of that call.
"""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import os
import stat
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.clock import Clock, Timer
from clew.errors import ToolFailed
from clew.platform.files import CLOEXEC, NONBLOCK
from clew.session.prompt.admission import MAX_FILE_BYTES, MAX_FILES, MAX_FILES_BYTES, media_type_from
from clew.session.prompt.file_content import content_of, extent_of
from clew.store.unit import PutBlob
from clew.tools.base import File
from clew.transcript import chunk as c
from clew.transcript.part import OWN, blob_url, first_words

__all__ = ["LiveOutput", "take_files"]

log = logging.getLogger("clew.tools")

_FIRST_MS: Final = 200
_MIN_INTERVAL_MS: Final = 250
_INTERVAL_RATIO: Final = 0.05
"""The interval between two reports, as a fraction of the time since the call began."""
_MAX_BYTES: Final = 32 * 1024


class LiveOutput:
    """The progress of one call. ``report`` is thread-safe, everything else runs on the event loop."""

    def __init__(self, clock: Clock, call_id: str, show: Callable[[c.Chunk], None]) -> None:
        self._clock = clock
        self._call_id = call_id
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._began = clock.monotonic_ms()
        self._due = self._began + _FIRST_MS
        self.newest: Any = None
        """The last report, shown or not."""
        self.child: Any = None
        """The last report about a subagent that the call started; None if it started none."""
        self._is_scheduled = self._ended = False
        self._timer: Timer | None = None

    def report(self, value: Any) -> None:
        self.newest = value
        if not self._is_scheduled and not self._ended:
            # At most one callback per shown report, however many there are.
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._schedule)

    def report_child(self, value: Any) -> None:
        """Report progress of a subagent, kept apart from values that the tool itself reports."""
        self.child = value
        self.report(value)

    def end(self) -> None:
        """End the call: nothing more is shown."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if not self._ended:
            self._timer = self._clock.call_later(max(0, self._due - self._clock.monotonic_ms()), self._show_newest)

    def _show_newest(self) -> None:
        if self._ended:
            return
        self._is_scheduled = False
        now = self._clock.monotonic_ms()
        self._due = now + max(_MIN_INTERVAL_MS, _INTERVAL_RATIO * (now - self._began))
        try:
            encoded = msgspec.json.encode(self.newest)
            # Values that are too large are not decoded: this runs on the event loop.
            value: Any = {"text": "(the output so far is too large to show)"}
            if len(encoded) <= _MAX_BYTES:
                value = msgspec.json.decode(encoded)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            log.warning("cannot show the progress of a tool: %s", error)
            return
        self._show(c.ToolOutputAvailable(tool_call_id=self._call_id, output=value, preliminary=True))


_NAME_CHARS = 200


def take_files(files: Sequence[File], call_id: str, now: int) -> list[PutBlob | c.File]:
    """Return the blobs to store, each followed by its chunk. Read the disk. Raise ``ToolFailed`` above the limits."""
    if len(files) > MAX_FILES:
        raise ToolFailed(f"a call may return at most {MAX_FILES} files, not {len(files)}; none was stored")
    items: list[PutBlob | c.File] = []
    total = 0
    for file in files:
        data = file.data if isinstance(file.data, bytes) else _read(file.data)
        total += len(data)
        if len(data) > MAX_FILE_BYTES or total > MAX_FILES_BYTES:
            raise ToolFailed(
                f"{file.name or 'a file'} is too large: a file may have {MAX_FILE_BYTES:,} bytes, all files of a call "
                f"{MAX_FILES_BYTES:,}; none was stored"
            )
        claimed = file.media_type or (mimetypes.guess_type(file.name)[0] if file.name else None) or ""
        media_type = content_of(data, media_type_from(claimed)).media_type
        digest = sha256(data).hexdigest()
        details = {"call": call_id, "size": len(data), **extent_of(data, media_type)}
        if file.name:
            details["name"] = first_words(file.name, _NAME_CHARS)
        items.append(PutBlob(digest, media_type, data, now))
        items.append(c.File(url=blob_url(digest), media_type=media_type, provider_metadata={OWN: details}))
    return items


def _read(path: Path) -> bytes:
    try:
        # Pipes and devices have no size and no end; O_NONBLOCK because opening a pipe would already block.
        with open(os.open(path, os.O_RDONLY | NONBLOCK | CLOEXEC), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ToolFailed(f"{path.name} is not a file")
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ToolFailed(f"{path.name} cannot be read: {error.strerror}") from error
