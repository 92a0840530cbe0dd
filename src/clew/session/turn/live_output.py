"""Progress of a running tool call: throttled, limited in size, and stored like every other chunk.

Each report replaces the previous one. The first is shown soon after the call begins, later ones at growing intervals,
so that a call of an hour produces about a hundred chunks, not ten thousand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from clew.clock import Clock, Timer
from clew.transcript import chunk as c

__all__ = ["LiveOutput"]

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
