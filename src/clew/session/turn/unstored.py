"""Output that is shown before it is stored (``save_on`` is ``step`` or ``turn``), and saving it to a full disk.

The end of a step or message is shown only once everything before it is durable. If the disk is full by then, as much
of the message is stored as fits: the newest text is cut first, and text that is already stored never is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from clew.errors import ClewError, InternalError, SessionNotFound, StaleEpoch, StorageFull
from clew.session.acquire.acquire import plan_end
from clew.session.progress import problem_of
from clew.store import unit as u
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow
from clew.transcript.part import cut_text, error_text, is_call, result_text, text_of

__all__ = ["LOST_RESULT", "Unstored", "problem_with_loss", "refused_error", "settle_short", "shortened"]

log = logging.getLogger("clew.run")

SaveOn: TypeAlias = Literal["chunk", "step", "turn"]
Settle: TypeAlias = Callable[[int, int], Sequence[u.Write]]
"""Returns the writes that end a turn, given how many characters of how many are lost."""
Close: TypeAlias = Callable[[Settle], Awaitable[tuple[int, int] | None]]
_ENDS: Final[dict[SaveOn, tuple[type[c.Chunk], ...]]] = {
    "chunk": (),
    "step": (c.FinishStep, c.Finish),
    "turn": (c.Finish,),
}
"""By ``save_on``; with ``chunk`` every chunk is stored before it is shown."""
LOST_RESULT: Final = "its result could not be stored: the disk was full"
_SHRINK_RATIO: Final = 0.75
_MIN_CHARS: Final = 64
_STREAMED: Final = ("text", "reasoning")
_INDEPENDENT_WRITES: Final = (u.RecordStep, u.FinishStep, u.RecordUsage, u.PutCall, u.PutPrompt)
"""Writes next to the message that are small and useful without it."""


class Unstored:
    """The output that is not stored yet. ``ends`` are the chunks after which viewers assume that it is."""

    def __init__(self, store: Store, save_on: SaveOn, *, stored: bool) -> None:
        self.ends = _ENDS[save_on]
        self._store = store
        self._shows_first = save_on != "chunk"
        # Such a store writes a unit to disk only if it ends a step or is synced.
        self._whole_steps = self._shows_first and not store.capabilities.chunk_durable
        self._inserted = self._inserting = stored
        self._lengths: tuple[int, ...] = ()
        self._sent: tuple[int, ...] = ()
        self._unstored_writes: tuple[u.Write, ...] = ()

    def split(self, chunks: list[c.Chunk]) -> tuple[list[c.Chunk], list[c.Chunk]]:
        """Split chunks into those that may be shown before they are stored, and the rest from the first end on."""
        end = next((n for n, chunk in enumerate(chunks) if isinstance(chunk, self.ends)), len(chunks))
        return chunks[:end], chunks[end:]

    def sync_of_end(self, sync: u.Sync) -> u.Sync:
        """Return the sync level of a unit with an end: a store of whole steps writes only synced units."""
        return "power" if self._whole_steps else sync

    def send(self, unit: u.Unit, fold: Fold) -> None:
        """Note that a unit was submitted."""
        self._inserting = self._inserting or any(isinstance(one, u.InsertMessage) for one in unit.writes)
        if not self._shows_first:
            return
        writes_step = unit.sync == "power" or any(isinstance(one, _INDEPENDENT_WRITES) for one in unit.writes)
        if writes_step or not self._whole_steps:
            self._sent = tuple(map(_length, fold.parts))

    def settle(self) -> None:
        """Note that the unit was stored."""
        self._lengths, self._inserted = self._sent, self._inserting

    def lost(self, fold: Fold) -> tuple[int, int]:
        """Return how many characters of how many are shown and not stored."""
        whole = sum(map(_length, fold.parts))
        return (whole - sum(self._lengths) if self._shows_first else 0), whole

    def fail(self, *lost: Sequence[u.Write]) -> None:
        """Note that the unit failed: its other writes must still be stored."""
        self._unstored_writes = tuple(one for writes in lost for one in writes if isinstance(one, _INDEPENDENT_WRITES))

    async def store(
        self, row: MessageRow, link: u.LinkMessage, mark: u.MarkFolded, guard: u.Guard, settle: Settle
    ) -> tuple[int, int] | None:
        """Store as much of a message as fits, and how its turn ended.

        Return how many characters of how many are lost; None if nothing could be stored, or if every chunk was stored
        before it was shown. ``settle`` returns the writes of the end.
        """
        whole = sum(_length(part.data) for part in row.parts)
        for parts in shortened([part.data for part in row.parts], self._lengths) if self._shows_first else ():
            lost = whole - sum(map(_length, parts))
            less = replace(row, parts=tuple(replace(p, data=data) for p, data in zip(row.parts, parts, strict=True)))
            own = (u.PutParts(row.id, less.parts),) if self._inserted else (u.InsertMessage(less), link)
            end = mark, *self._unstored_writes, *settle(lost, whole), u.SealMessage(row.id, less.seal)
            try:
                outcome = await self._store.commit(u.Unit(row.session_id, (*own, *end), (guard,), "power"))
            except StorageFull:
                continue
            return None if isinstance(outcome, u.Refused) else (lost, whole)
        return None


async def settle_short(close: Close, turn_id: str, full: BaseException, now: int) -> dict[str, Any] | None:
    """End a turn on a full disk with as much of its answer as fits; ``close`` is the recorder's method.

    Return the problem to report; None if the disk is not full, or nothing could be stored.
    """
    if not isinstance(full, StorageFull):
        return None

    def settle(lost: int, whole: int) -> tuple[u.Write, ...]:
        return plan_end(turn_id, "failed", now, {"error": problem_with_loss(full, lost, whole)})

    try:
        stored = await close(settle)
    except ClewError as error:
        log.warning("could not store part of an answer: %s", error)
        return None
    return None if stored is None else problem_with_loss(full, *stored)


def problem_with_loss(error: BaseException, lost: int, whole: int) -> dict[str, Any]:
    """Return the problem of an error; after a full disk it names how much of the answer is lost."""
    problem = problem_of(error)
    if not lost or not isinstance(error, StorageFull):
        return problem
    message = f"{problem['message']}; the last {lost} of {whole} characters shown are lost"
    return {**problem, "message": message, "lost_chars": lost}


def refused_error(refused: u.Refused, message: MessageRow) -> ClewError:
    """Return the error that ends a recorder whose unit was refused."""
    if refused.reason == "session_not_found":
        return SessionNotFound("the session was deleted while a run was writing", session_id=message.session_id)
    if refused.reason == "stale_epoch":
        return StaleEpoch("a newer run has acquired the session", session_id=message.session_id)
    return InternalError(f"a unit was refused: {refused.reason}", message_id=message.id)


def shortened(parts: Sequence[dict[str, Any]], stored: Sequence[int] = ()) -> Iterator[list[dict[str, Any]]]:
    """Yield the whole parts, then less and less of what is not ``stored``; the newest text is cut first."""
    stored_lengths = [*stored, *([0] * (len(parts) - len(stored)))]
    growth = [max(_length(part) - length, 0) for part, length in zip(parts, stored_lengths, strict=True)]
    growth_left = sum(growth)
    while True:
        left, short = growth_left, []
        for part, length, grown in zip(parts, stored_lengths, growth, strict=True):
            short.append(_cut(part, length + min(grown, left)))
            left = max(left - grown, 0)
        yield short
        if growth_left == 0:
            return
        growth_left = int(growth_left * _SHRINK_RATIO) if growth_left > _MIN_CHARS else 0


def _length(part: dict[str, Any]) -> int:
    if is_call(part):
        return 0 if error_text(part) == LOST_RESULT else len(result_text(part))
    return len(text_of(part, *_STREAMED) or "")


def _cut(part: dict[str, Any], length: int) -> dict[str, Any]:
    """Return a part with its text cut to a length; the result of a call is stored whole or not at all."""
    if text_of(part, *_STREAMED) is not None:
        return cut_text(part, length)
    if not is_call(part) or _length(part) <= length:
        return part
    left = {key: value for key, value in part.items() if key not in ("output", "preliminary", "resultProviderMetadata")}
    return {**left, "state": "output-error", "errorText": LOST_RESULT}
