"""The stream of a run: chunks on their way to viewers, with the last ones held back until the turn is settled.

They come from the recorder: durable if ``save_on`` is ``chunk``; with ``step`` or ``turn`` they are stored later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from clew.live.base import LiveStream
from clew.session.host import Host
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from clew.transcript.stream_cursor import NumberedChunk

__all__ = ["RunStream"]

log = logging.getLogger("clew.run")
_REQUEST_CHUNKS: Final[frozenset[type[Any]]] = frozenset({c.ToolApprovalRequest, c.ToolInputAvailable})
"""Chunks that a human may have to answer."""


class RunStream:
    """The live streams of a run, one after the other: each message has a new one."""

    def __init__(
        self, host: Host, session_id: str, message_id: str, message: MessageRow | None, *, epoch: int, last_n: int
    ) -> None:
        self._host = host
        self._session_id = session_id
        self._epoch = epoch
        # The recorder numbers stored chunks and shows them in that order, so counting is enough.
        self._n = last_n
        self._requests: set[str] = set()
        self._held_back: list[c.Chunk] | None = None
        self._is_stored = True
        self._newest: c.Chunk | None = None
        parts = [part.data for part in message.parts] if message is not None else []
        self.live: LiveStream = host.live.open_stream(session_id, message_id, parts, epoch=epoch, last_n=last_n)

    def show(self, chunks: Sequence[c.Chunk]) -> None:
        """Show chunks of the recorder to viewers."""
        for chunk in chunks:
            if chunk.__class__ in _REQUEST_CHUNKS:
                self._note_request(chunk)
        if self._held_back is not None:
            # Earlier chunks are shown as usual; everything from the chunk that ends the message is held back.
            until = (
                0
                if self._held_back
                else next((n for n, one in enumerate(chunks) if one.__class__ in c.TERMINAL_CHUNKS), None)
            )
            self._held_back += () if until is None else chunks[until:]
            chunks = chunks[:until]
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
        numbered: list[NumberedChunk] = []
        n = self._n
        for chunk in chunks:
            # Transient chunks have the number of the chunk before them.
            if chunk.__class__ is not c.Data or not c.is_transient(chunk):
                n += 1
            numbered.append((n, chunk))
        self._n = n
        self.live.show(numbered)

    def has_asked(self, request_id: str | None = None) -> bool:
        """Return whether viewers were shown this request, or any: an approval's id, or a question's call id."""
        return bool(self._requests) if request_id is None else request_id in self._requests

    def begin_next(self, message_id: str) -> None:
        """End the message's stream and open one for the next message of the run."""
        self.live.end()
        self._n, self._newest = 0, None
        self.live = self._host.live.open_stream(self._session_id, message_id, [], epoch=self._epoch)

    def keep_back(self, *instead: c.Chunk) -> None:
        """Hold back what ends the message until ``end``: clients that act on the last chunk find the settled state.

        ``instead`` replaces everything held back before: nothing more could be stored.
        """
        if instead or self._held_back is None:
            self._held_back = list(instead)
            self._is_stored = not instead

    def end(self) -> None:
        """Show what was held back and end the stream. Calling it twice is fine."""
        last, self._held_back = self._held_back, None
        try:
            if last and self._is_stored:
                self._show(last)
            elif last:
                self._newest = last[-1]
                self.live.show([(None, chunk) for chunk in last])
        except Exception:
            log.exception("could not show viewers of %s how the stream ended", self._session_id)
        self.live.end(None if self._newest.__class__ in c.TERMINAL_CHUNKS else "the run broke off")
