"""The progress of a subagent, for people who watch the call that started it: what it does now, and what that took."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from clew.errors import ClewError
from clew.runtime.host import Host
from clew.transcript import chunk as c
from clew.transcript.part import first_words

__all__ = ["ChildProgress"]

_WORDS: Final = 240
"""How much of the end of what it says is told."""
_GIST: Final = 120


class ChildProgress:
    """Follows the streams of one child session until it is stopped, and reports each time there is more to tell."""

    def __init__(self, host: Host, session_id: str, report: Callable[[Any], None]) -> None:
        self._host = host
        self._session_id = session_id
        self._report = report
        self._told: dict[str, Any] = {"session_id": session_id}
        self._said: dict[str, str] = {}

    @property
    def taken(self) -> dict[str, Any]:
        """What it took so far."""
        return {key: self._told[key] for key in ("steps", "tokens", "cost_usd") if key in self._told}

    async def follow(self) -> None:
        self._report(dict(self._told))
        last = None
        # A message that was cut, or a warning, begins another stream in the same run.
        while (stream := self._host.live.find_stream(self._session_id)) is not None and stream is not last:
            last = stream
            # A viewer that was too slow is told no more; the subagent goes on.
            with contextlib.suppress(ClewError):
                async for batch in stream.follow(replay=False):
                    await self._take(batch)

    async def _take(self, chunks: Sequence[c.Chunk]) -> None:
        told = self._told
        for chunk in chunks:
            if isinstance(chunk, c.StartStep):
                told["steps"] = told.get("steps", 0) + 1
            elif isinstance(chunk, c.TextDelta):
                said = self._said.get(chunk.id, "") + chunk.delta
                self._said = {chunk.id: said[-4 * _WORDS :]}
                told["text"] = " ".join(said.split())[-_WORDS:]
            elif isinstance(chunk, c.ToolInputAvailable):
                told["tool"], told["doing"] = chunk.tool_name, _gist(chunk.input)
            elif isinstance(chunk, c.FinishStep):
                await self.count()
        self._report(dict(told))

    async def count(self) -> None:
        """Look up what it has spent."""
        spend = (await self._host.store.load_spend([self._session_id])).get(self._session_id)
        if spend is not None and spend.tokens:
            self._told |= {"tokens": spend.tokens, "cost_usd": spend.cost_usd}


def _gist(given: Any) -> str:
    """The first text among the arguments: what most tools are about."""
    values = given.values() if isinstance(given, dict) else (given,)
    return first_words(next((value for value in values if isinstance(value, str)), ""), _GIST)
