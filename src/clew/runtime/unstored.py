"""Output that is shown before it is stored (``save_on`` is ``step`` or ``turn``), and how much of it a full disk takes.

The end of a step, or of a message, is shown only once what it ends is durable. Where the disk is full by then, as much
of the message is stored as there is room for: the newest text is cut first, and what is stored already never is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from clew.errors import ClewError, InternalError, SessionNotFound, StaleEpoch, StorageFull
from clew.runtime.progress import problem_of
from clew.runtime.settle import plan_end
from clew.store import unit as u
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow
from clew.transcript.part import cut_text, error_text, is_call, result_text, text_of

__all__ = ["LOST_RESULT", "Unstored", "refused_error", "settle_short", "shortened"]

log = logging.getLogger("clew.run")

SaveOn: TypeAlias = Literal["chunk", "step", "turn"]
Settle: TypeAlias = Callable[[int, int], Sequence[u.Write]]
"""The writes that end a turn, from how many characters of how many are lost."""
Close: TypeAlias = Callable[[Settle], Awaitable[tuple[int, int] | None]]
_ENDS: Final[dict[SaveOn, tuple[type[c.Chunk], ...]]] = {
    "chunk": (),
    "step": (c.FinishStep, c.Finish),
    "turn": (c.Finish,),
}
"""By ``save_on``; with ``chunk`` every chunk is stored before it is shown."""
LOST_RESULT: Final = "its result could not be stored: the disk was full"
_SHARE: Final = 0.75
_LEAST: Final = 64
_STREAMED: Final = ("text", "reasoning")
_OWED: Final = (u.BookStep, u.FinishStep, u.BookUsage, u.PutCall, u.PutPrompt)
"""Writes next to the message that are small and useful without it."""


class Unstored:
    """The output that is ahead of the store. ``ends`` are the chunks that a viewer takes for stored."""

    def __init__(self, store: Store, save_on: SaveOn, *, stored: bool) -> None:
        self.ends = _ENDS[save_on]
        self._store = store
        # Such a store has nothing of a unit on disk unless it ends a step, or is synced.
        self._whole_steps = save_on != "chunk" and not store.capabilities.chunk_durable
        self._inserted = self._inserting = stored
        self._lengths: tuple[int, ...] = ()
        self._sent: tuple[int, ...] = ()
        self._owed: tuple[u.Write, ...] = ()

    def split(self, chunks: list[c.Chunk]) -> tuple[list[c.Chunk], list[c.Chunk]]:
        """Divide into what may be shown before it is stored, and what follows from the first end on."""
        end = next((place for place, chunk in enumerate(chunks) if isinstance(chunk, self.ends)), len(chunks))
        return chunks[:end], chunks[end:]

    def sync_of_end(self, sync: u.Sync) -> u.Sync:
        """Return how far a unit with an end is synced: a store of whole steps writes only what it has to."""
        return "power" if self._whole_steps else sync

    def send(self, unit: u.Unit, fold: Fold) -> None:
        """Note that a unit is on its way."""
        self._inserting = self._inserting or any(isinstance(one, u.InsertMessage) for one in unit.writes)
        if self._whole_steps and (unit.sync == "power" or any(isinstance(one, _OWED) for one in unit.writes)):
            self._sent = tuple(map(_length, fold.parts))

    def settle(self) -> None:
        """Note that it is stored."""
        self._lengths, self._inserted = self._sent, self._inserting

    def fail(self, *lost: Sequence[u.Write]) -> None:
        """Note that it is not: its other writes are still to be stored."""
        self._owed = tuple(one for writes in lost for one in writes if isinstance(one, _OWED))

    async def store(
        self, row: MessageRow, link: u.LinkMessage, mark: u.MarkFolded, guard: u.Guard, settle: Settle
    ) -> tuple[int, int] | None:
        """Store as much of a message as there is room for, and how its turn ended.

        Return how many characters of how many are lost; None when nothing could be stored, or each unit was on disk
        already. ``settle`` returns the writes of the end.
        """
        whole = sum(_length(part.data) for part in row.parts)
        for parts in shortened([part.data for part in row.parts], self._lengths) if self._whole_steps else ():
            lost = whole - sum(map(_length, parts))
            less = replace(row, parts=tuple(replace(p, data=data) for p, data in zip(row.parts, parts, strict=True)))
            own = (u.PutParts(row.id, less.parts),) if self._inserted else (u.InsertMessage(less), link)
            end = mark, *self._owed, *settle(lost, whole), u.SealMessage(row.id, less.seal)
            try:
                outcome = await self._store.commit(u.Unit(row.session_id, (*own, *end), (guard,), "power"))
            except StorageFull:
                continue
            return None if isinstance(outcome, u.Refused) else (lost, whole)
        return None


async def settle_short(close: Close, turn_id: str, full: BaseException, now: int) -> dict[str, Any] | None:
    """End a turn on a full disk with as much of its answer as there is room for; ``close`` is the recorder's.

    Return the problem that its end reports; None when the disk is not full, or nothing could be stored.
    """
    if not isinstance(full, StorageFull):
        return None

    def problem_with(lost: int, whole: int) -> dict[str, Any]:
        problem = problem_of(full)
        if not lost:
            return problem
        message = f"{problem['message']}; the last {lost} of the {whole} characters that were shown are lost"
        return {**problem, "message": message, "lost_chars": lost}

    def settle(lost: int, whole: int) -> tuple[u.Write, ...]:
        return plan_end(turn_id, "failed", now, {"error": problem_with(lost, whole)})

    try:
        stored = await close(settle)
    except ClewError as error:
        log.warning("an answer could not be stored in part: %s", error)
        return None
    return None if stored is None else problem_with(*stored)


def refused_error(refused: u.Refused, message: MessageRow) -> ClewError:
    """Return the error that a recorder ends with when the store would not take its unit."""
    if refused.reason == "session_not_found":
        return SessionNotFound("the session was deleted while a run was writing", session_id=message.session_id)
    if refused.reason == "stale_epoch":
        return StaleEpoch("a newer run has taken over the session", session_id=message.session_id)
    return InternalError(f"a unit was refused: {refused.reason}", message_id=message.id)


def shortened(parts: Sequence[dict[str, Any]], stored: Sequence[int] = ()) -> Iterator[list[dict[str, Any]]]:
    """Yield the whole parts, then less and less of what is not ``stored``; the newest text is cut first."""
    least = [*stored, *([0] * (len(parts) - len(stored)))]
    growth = [max(_length(part) - held, 0) for part, held in zip(parts, least, strict=True)]
    room = sum(growth)
    while True:
        left, short = room, []
        for part, held, grown in zip(parts, least, growth, strict=True):
            short.append(_cut(part, held + min(grown, left)))
            left = max(left - grown, 0)
        yield short
        if room == 0:
            return
        room = int(room * _SHARE) if room > _LEAST else 0


def _length(part: dict[str, Any]) -> int:
    if is_call(part):
        return 0 if error_text(part) == LOST_RESULT else len(result_text(part))
    return len(text_of(part, *_STREAMED) or "")


def _cut(part: dict[str, Any], length: int) -> dict[str, Any]:
    """Return a part with no more text than that; the result of a call is kept whole or not at all."""
    if text_of(part, *_STREAMED) is not None:
        return cut_text(part, length)
    if not is_call(part) or _length(part) <= length:
        return part
    left = {key: value for key, value in part.items() if key not in ("output", "preliminary", "resultProviderMetadata")}
    return {**left, "state": "output-error", "errorText": LOST_RESULT}
