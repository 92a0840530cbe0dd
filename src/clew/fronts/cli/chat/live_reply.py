"""The growing assistant message: from the live stream, and from the store for missed parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.command import AnyEngine
from clew.fronts.cli.render import Reply, Theme, fallback_note
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message

__all__ = ["LiveReply", "find_message"]

_FRAME_S: Final = 1 / 30
"""Redraw interval of a growing message; a shorter one would not be visible."""


class LiveReply:
    """Shows one message at a time; ``redraw`` is called when it grows."""

    def __init__(
        self, engine: Callable[[], AnyEngine], terminal: Terminal, theme: Theme, redraw: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._terminal = terminal
        self._theme = theme
        self._redraw = redraw
        self._session_id = ""
        self._message_id: str | None = None
        self._reply = Reply(theme, live=True)
        self._fold: Fold | None = None
        self._waiting: tuple[Fold, str] | None = None
        """A message that waits for an answer, and how far it was shown."""
        self._cursor = ""
        self._streaming: asyncio.Task[None] | None = None
        self._frame: asyncio.TimerHandle | None = None

    def begin(self, session_id: str, message_id: str | None) -> None:
        """Follow a run. If it continues the message shown before, only the rest is shown."""
        if message_id is None or message_id != self._message_id:
            self._message_id, self._reply = message_id, Reply(self._theme, live=True)
        self._session_id, self._fold = session_id, None
        self._streaming = asyncio.get_running_loop().create_task(self._stream())

    def resume(self, session_id: str, message: Message | None) -> None:
        """Show the finished parts of a message that waits for an answer; the next run continues it."""
        self._session_id, self._reply = session_id, Reply(self._theme, live=True)
        if message is not None:
            self._message_id = message.id
            self._terminal.print("".join(self._reply.finished(message.parts, self._terminal.size[0])))

    def leave(self) -> None:
        """Stop following; the run continues."""
        if self._streaming is not None:
            self._streaming.cancel()
        if self._frame is not None:
            self._frame.cancel()
        self._streaming = self._frame = self._fold = self._message_id = None

    async def _stream(self) -> None:
        (before, cursor), self._waiting = self._waiting or (None, ""), None
        after = cursor if before is not None and before.message_id == self._message_id else None
        self._fold = before if after else None
        async for given in self._engine().attach(self._session_id, after=after):
            if given["type"] == "start":
                shown_id = str(given.get("messageId"))
                if self._message_id not in (None, shown_id):
                    return  # that run has ended; the next one has an event of its own
                self._message_id, self._fold = shown_id, Fold(shown_id)
            self._cursor = given.cursor or self._cursor
            if self._fold is not None:
                self._fold.apply_shown(parse_chunk(given))
            if self._frame is None:
                self._frame = asyncio.get_running_loop().call_later(_FRAME_S, self._redraw)

    def lines(self) -> tuple[str, list[str]]:
        """Return newly finished text to print, and the unfinished lines to show below it."""
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if self._fold is None:
            return "", []
        width, height = self._terminal.size
        parts = self._fold.parts
        finished = "".join(self._reply.finished(parts, width))
        # At most half of the rows: if the terminal becomes half as wide, the rows double, and rows scrolled out of view
        # cannot be erased.
        return finished, self._reply.unfinished(parts, width - 1, max(height // 2 - 3, 2))

    async def settle(self, *, final: bool) -> bool:
        """Print the rest of an ended run from the store, since it may have ended before it could be followed.

        Return whether a run was being followed.
        """
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            # Errors of the stream do not matter: the store has the message.
            await asyncio.gather(streaming, return_exceptions=True)
        stored = await find_message(self._engine(), self._session_id, self._message_id) if self._message_id else None
        parts = stored.parts if stored is not None else self._fold.parts if self._fold is not None else []
        self._waiting = None if self._fold is None or final or not self._cursor else (self._fold, self._cursor)
        self._fold = None
        note = fallback_note(stored) if stored is not None and final else None
        above = "".join(self._reply.finished(parts, self._terminal.size[0], final=final))
        self._terminal.show((), above=above + (self._theme.style(note, "dim") + "\n" if note else ""))
        if final:
            self._message_id = None
        return streaming is not None


async def find_message(engine: AnyEngine, session_id: str, message_id: str | None) -> Message | None:
    """Return a message if it is among the newest of a session, else None."""
    newest = await engine.messages(session_id, limit=10)
    return next((message for message in newest if message.id == message_id), None)
