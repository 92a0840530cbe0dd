"""The assistant's message as it grows, from the live stream, and from the store for what was missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.command import AnyEngine
from clew.fronts.cli.render import Look, Reply, fallback_note
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message

__all__ = ["LiveReply", "find_message"]

_FRAME_S: Final = 1 / 30
"""How often a growing message is drawn: more than that nobody sees."""


class LiveReply:
    """Shows one message at a time. ``redraw`` is called when there is more of it."""

    def __init__(
        self, engine: Callable[[], AnyEngine], terminal: Terminal, look: Look, redraw: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._terminal = terminal
        self._look = look
        self._redraw = redraw
        self._session_id = ""
        self._message_id: str | None = None
        self._reply = Reply(look, live=True)
        self._fold: Fold | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._frame: asyncio.TimerHandle | None = None

    def begin(self, session_id: str, message_id: str | None) -> None:
        """Follow a run. One that goes on with the message shown before is shown from where that was."""
        if message_id is None or message_id != self._message_id:
            self._message_id, self._reply = message_id, Reply(self._look, live=True)
        self._session_id, self._fold = session_id, None
        self._streaming = asyncio.get_running_loop().create_task(self._stream())

    def resume(self, session_id: str, message: Message | None) -> None:
        """Show as much of a message as is over, of which a part waits; the run that goes on with it goes on here."""
        self._session_id, self._reply = session_id, Reply(self._look, live=True)
        if message is not None:
            self._message_id = message.id
            self._terminal.print("".join(self._reply.finished(message.parts, self._terminal.size[0])))

    def leave(self) -> None:
        """Look away; whatever runs goes on."""
        if self._streaming is not None:
            self._streaming.cancel()
        if self._frame is not None:
            self._frame.cancel()
        self._streaming = self._frame = self._fold = self._message_id = None

    async def _stream(self) -> None:
        async for given in self._engine().attach(self._session_id):
            if self._fold is None:
                shown_id = str(given.get("messageId"))
                if self._message_id not in (None, shown_id):
                    return  # this run is over already; the next one announces itself
                self._message_id, self._fold = shown_id, Fold(shown_id)
            self._fold.apply(parse_chunk(given))
            if self._frame is None:
                self._frame = asyncio.get_running_loop().call_later(_FRAME_S, self._redraw)

    def lines(self) -> tuple[str, list[str]]:
        """What is finished since it was asked for last, to be printed; and what is not, to be shown for now."""
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if self._fold is None:
            return "", []
        width, height = self._terminal.size
        parts = self._fold.parts
        finished = "".join(self._reply.finished(parts, width))
        # No more than half of the rows: a terminal that becomes half as wide makes twice as many of them, and what it
        # pushes out of sight nobody can take back.
        return finished, self._reply.unfinished(parts, width - 1, max(height // 2 - 3, 2))

    async def settle(self, *, final: bool) -> bool:
        """The run is over: show what is stored of it, since it may have been over before anybody could watch it.

        False when nothing was being followed."""
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            # A viewer that was too slow, or a stream that was cut: the store has it all the same.
            await asyncio.gather(streaming, return_exceptions=True)
        stored = await find_message(self._engine(), self._session_id, self._message_id) if self._message_id else None
        parts = stored.parts if stored is not None else self._fold.parts if self._fold is not None else []
        self._fold = None
        note = fallback_note(stored) if stored is not None and final else None
        above = "".join(self._reply.finished(parts, self._terminal.size[0], final=final))
        self._terminal.show((), above=above + (self._look.style(note, "dim") + "\n" if note else ""))
        if final:
            self._message_id = None
        return streaming is not None


async def find_message(engine: AnyEngine, session_id: str, message_id: str | None) -> Message | None:
    """One of the newest messages of a session."""
    newest = await engine.messages(session_id, limit=10)
    return next((message for message in newest if message.id == message_id), None)
