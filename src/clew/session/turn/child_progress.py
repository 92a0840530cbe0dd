"""Progress of a subagent for viewers of the call that started it: its current activity and what it has used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from clew.errors import ClewError
from clew.session.host import Host
from clew.transcript import chunk as c
from clew.transcript.part import first_words

__all__ = ["ChildProgress"]

_MAX_TEXT_CHARS: Final = 240
"""Characters shown from the end of its text."""
_MAX_GIST_CHARS: Final = 120


class ChildProgress:
    """A follower of one child session's streams that reports every change until it is stopped."""

    def __init__(self, host: Host, session_id: str, report: Callable[[Any], None]) -> None:
        self._host = host
        self._session_id = session_id
        self._report = report
        self._progress: dict[str, Any] = {"session_id": session_id}
        self._text: dict[str, str] = {}

    @property
    def taken(self) -> dict[str, Any]:
        """Return what it has used so far."""
        return {key: self._progress[key] for key in ("steps", "tokens", "cost_usd") if key in self._progress}

    async def follow(self) -> None:
        self._report(dict(self._progress))
        last = None
        # A truncated message or a warning starts another stream within the same run.
        while (stream := self._host.live.find_stream(self._session_id)) is not None and stream is not last:
            last = stream
            # A follower that is too slow gets no more progress; the subagent continues.
            with contextlib.suppress(ClewError):
                async for batch in stream.follow(replay=False):
                    await self._add(batch)

    async def _add(self, chunks: Sequence[c.Chunk]) -> None:
        progress = self._progress
        for chunk in chunks:
            if isinstance(chunk, c.StartStep):
                progress["steps"] = progress.get("steps", 0) + 1
            elif isinstance(chunk, c.TextDelta):
                text = self._text.get(chunk.id, "") + chunk.delta
                self._text = {chunk.id: text[-4 * _MAX_TEXT_CHARS :]}
                progress["text"] = " ".join(text.split())[-_MAX_TEXT_CHARS:]
            elif isinstance(chunk, c.ToolInputAvailable):
                progress["tool"], progress["doing"] = chunk.tool_name, _gist(chunk.input)
            elif isinstance(chunk, c.FinishStep):
                await self.count()
        self._report(dict(progress))

    async def count(self) -> None:
        """Load what it has spent."""
        spend = (await self._host.store.load_spend([self._session_id])).get(self._session_id)
        if spend is not None and spend.tokens:
            self._progress |= {"tokens": spend.tokens, "cost_usd": spend.cost_usd}


def _gist(given: Any) -> str:
    """Return the first text among the arguments, which for most tools names their subject."""
    values = given.values() if isinstance(given, dict) else (given,)
    return first_words(next((value for value in values if isinstance(value, str)), ""), _MAX_GIST_CHARS)
