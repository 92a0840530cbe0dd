"""What a tool has given so far, shown while it runs: paced, bounded, and stored like every other chunk.

Each report takes the place of the one before. The first comes soon after the call has begun, the next ones further and
further apart, so that a call of an hour costs some hundred chunks, not some ten thousand.
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
_LEAST_MS: Final = 250
_SHARE: Final = 0.05
"""The pause between two reports, as a part of the time since the call began."""
_MAX_BYTES: Final = 32 * 1024


class LiveOutput:
    """One running call. ``report`` may be called in any thread, all else on the event loop."""

    def __init__(self, clock: Clock, call_id: str, show: Callable[[c.Chunk], None]) -> None:
        self._clock = clock
        self._call_id = call_id
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._began = clock.monotonic_ms()
        self._due = self._began + _FIRST_MS
        self.newest: Any = None
        """What was reported last, shown or not."""
        self.child: Any = None
        """What was reported last of a subagent that the call has started; None where it has started none."""
        self._waits = self._ended = False
        self._timer: Timer | None = None

    def report(self, value: Any) -> None:
        self.newest = value
        if not self._waits and not self._ended:
            # One call into the loop for each report that is shown, however many there are.
            self._waits = True
            self._loop.call_soon_threadsafe(self._wait)

    def report_child(self, value: Any) -> None:
        """The same, of a subagent. A tool's own word on a session is not to be taken for one."""
        self.child = value
        self.report(value)

    def end(self) -> None:
        """The call has its result: nothing more is shown."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if not self._ended:
            self._timer = self._clock.call_later(max(0, self._due - self._clock.monotonic_ms()), self._tell)

    def _tell(self) -> None:
        if self._ended:
            return
        self._waits = False
        now = self._clock.monotonic_ms()
        self._due = now + max(_LEAST_MS, _SHARE * (now - self._began))
        try:
            encoded = msgspec.json.encode(self.newest)
            # What is too long is not read back: this is done on the event loop.
            value: Any = {"text": "(what it gives so far is too long to be shown)"}
            if len(encoded) <= _MAX_BYTES:
                value = msgspec.json.decode(encoded)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            log.warning("what a tool gives so far is not shown: %s", error)
            return
        self._show(c.ToolOutputAvailable(tool_call_id=self._call_id, output=value, preliminary=True))
