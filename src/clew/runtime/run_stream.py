"""The stream of a run: chunks on their way to the viewers, the last of them kept back until all is settled.

They come from the recorder: durable when ``save_on`` is ``chunk``; with ``step`` or ``turn`` they are stored later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from clew.live.base import LiveStream
from clew.runtime.host import Host
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow

__all__ = ["RunStream"]

log = logging.getLogger("clew.run")
_LAST: Final[frozenset[type[Any]]] = frozenset({c.Finish, c.Abort, c.Error})
_ASKING: Final[frozenset[type[Any]]] = frozenset({c.ToolApprovalRequest, c.ToolInputAvailable})
"""What a human may have to answer."""


class RunStream:
    """One live stream after the other: a run has a new one for each message it begins."""

    def __init__(
        self, host: Host, session_id: str, message_id: str, message: MessageRow | None, *, epoch: int, last_n: int
    ) -> None:
        self._host = host
        self._session_id = session_id
        self._epoch = epoch
        # The recorder numbers what it stores, and what it shows comes in that order: counting is enough.
        self._n = last_n if host.live.reaches_others else None
        self._requests: set[str] = set()
        self._kept_back: list[c.Chunk] | None = None
        self._is_stored = True
        self._newest: c.Chunk | None = None
        parts = [part.data for part in message.parts] if message is not None else []
        self.live: LiveStream = host.live.open_stream(session_id, message_id, parts, epoch=epoch, last_n=last_n)

    def show(self, chunks: Sequence[c.Chunk]) -> None:
        """Hand on what the recorder shows."""
        for chunk in chunks:
            if chunk.__class__ in _ASKING:
                self._note_request(chunk)
        if self._kept_back is not None:
            # What was said before goes on as usual; from the chunk that ends the message on, all waits.
            said = 0 if self._kept_back else next((n for n, one in enumerate(chunks) if one.__class__ in _LAST), None)
            self._kept_back += () if said is None else chunks[said:]
            chunks = chunks[:said]
        if chunks:
            self._show(chunks)

    def _note_request(self, chunk: c.Chunk) -> None:
        if isinstance(chunk, c.ToolApprovalRequest):
            self._requests.add(chunk.approval_id)
        elif isinstance(chunk, c.ToolInputAvailable):
            tool = self._host.tools.get(chunk.tool_name)
            if tool is not None and tool.asks_human:
                self._requests.add(chunk.tool_call_id)

    def _show(self, chunks: Sequence[c.Chunk]) -> None:
        self._newest = chunks[-1]
        if self._n is None:
            self.live.show(chunks)
        else:
            # What is transient has no number.
            self._n += len(chunks) - sum(map(c.is_transient, chunks))
            self.live.show(chunks, self._n)

    def has_asked(self, request_id: str | None = None) -> bool:
        """Whether a viewer has seen this request, or any: an approval by its id, a question by its call's."""
        return bool(self._requests) if request_id is None else request_id in self._requests

    def begin_next(self, message_id: str) -> None:
        """The message has ended and another one of the same run begins."""
        self.live.end()
        self._n, self._newest = None if self._n is None else 0, None
        self.live = self._host.live.open_stream(self._session_id, message_id, [], epoch=self._epoch)

    def keep_back(self, *instead: c.Chunk) -> None:
        """What ends the message is kept back until ``end``: whoever acts on the last finds the session as it says.

        With ``instead`` these are the last, whatever was kept back before: nothing more could be stored.
        """
        if instead or self._kept_back is None:
            self._kept_back = list(instead)
            self._is_stored = not instead

    def end(self) -> None:
        """Show what was kept back and end the stream. Saying it twice is fine."""
        last, self._kept_back = self._kept_back, None
        try:
            if last and self._is_stored:
                self._show(last)
            elif last:
                self._newest = last[-1]
                self.live.show(last)
        except Exception:
            log.exception("viewers of %s could not be told how it ended", self._session_id)
        self.live.end(None if self._newest.__class__ in _LAST else "the run broke off")
