"""Recovery: fold and settle what a dead process left behind, before the first read.

Streams in the journal are folded into their parts; turns that wait for no human, and calls without a result, are
settled with what is known; queues are paused. A second recovery finds nothing to do. Each stream and each session is
its own unit, so a crash in between leaves the others for the next recovery.

The streams of one session are folded in the same way before it is used again.
"""

from __future__ import annotations

import logging

import msgspec

from clew.errors import IllegalChunk, InternalError, RowUndecodable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.session.acquire.acquire import settle_session
from clew.session.acquire.loaded_session import load_session_state
from clew.session.model_calls import Cost, end_interrupted
from clew.store.base import PendingStream, Store
from clew.store.deletion import delete_unfinished
from clew.store.pending_work import with_tail
from clew.store.unit import MarkFolded, PatchMessage, PatchSession, PutParts, Refused, Unit, Write
from clew.transcript.damage import DAMAGED
from clew.transcript.metadata import PAUSED_KEY

__all__ = ["fold_streams", "plan_fold", "recover"]

log = logging.getLogger("clew.recovery")


async def recover(store: Store, mint: Mint, now: int, cost: Cost | None = None) -> tuple[str, ...]:
    """Delete what is left of unfinished copies and deletions, fold every pending stream, close interrupted model calls,
    and settle every open turn without a run.

    Return the sessions whose turn can be resumed.
    """
    resumable: list[str] = []
    await delete_unfinished(store)
    await fold_streams(store, mint, now)
    await end_interrupted(store, cost, now)
    for session_id in await store.unsettled_sessions():
        failpoint("recovery.before_settle")
        try:
            loaded = await load_session_state(store, session_id)
            await settle_session(store, loaded, now)
            if loaded.is_resumable:
                resumable.append(session_id)
            session = await store.find_session(session_id)
            if session is not None and session.paused_by is None and await store.load_queue(session_id):
                # The process that would start the queue is gone; the user decides whether it is still wanted.
                paused = PatchSession(metadata={PAUSED_KEY: "restart"})
                await store.commit(Unit(session_id, (paused,), sync="power"))
        except RowUndecodable as error:
            # It stays as it was left, and reports the damage when read; the others are opened.
            log.error("session %s could not be settled: %s", session_id, error)
    return tuple(resumable)


async def fold_streams(store: Store, mint: Mint, now: int, session_id: str | None = None) -> int:
    """Fold every pending stream; return how many there were."""
    streams = await store.pending_streams(session_id)
    for stream in streams:
        failpoint("recovery.before_fold")
        if stream.damage is not None:
            log.error("message %s: %s", stream.message.id, stream.damage)
        try:
            unit = plan_fold(stream, mint, now)
        except IllegalChunk as error:
            # A stream that does not match its message must not keep other sessions from being opened.
            log.error("the journal of message %s does not match it and was discarded: %s", stream.message.id, error)
            damage = {DAMAGED: f"the journaled text did not match the stored parts: {error}"}
            writes = (PatchMessage(stream.message.id, now, damage), MarkFolded(stream.message.id, _last(stream)))
            unit = Unit(stream.session_id, writes, sync="power")
        outcome = await store.commit(unit)
        if isinstance(outcome, Refused):
            raise InternalError(f"recovery was refused: {outcome.reason}", message_id=stream.message.id)
    return len(streams)


def plan_fold(stream: PendingStream, mint: Mint, now: int) -> Unit:
    """Return the unit that writes the journaled chunks of a stream to its parts and marks them as folded.

    A stream that may have lost chunks is marked as damaged: after the fold nothing else would show it.
    """
    before = stream.message
    after = with_tail(before, stream.entries)
    touched = {entry.part for entry in stream.entries if entry.part is not None}
    parts = tuple(
        msgspec.structs.replace(part, id=part.id or mint.part(), updated_at=now)
        for part in after.parts
        if part.index in touched
    )
    writes: list[Write] = []
    if parts:
        writes.append(PutParts(before.id, parts))
    metadata = {**after.metadata, **({DAMAGED: stream.damage} if stream.damage else {})}
    if metadata != before.metadata:
        writes.append(PatchMessage(before.id, now, metadata))
    writes.append(MarkFolded(before.id, _last(stream)))
    return Unit(stream.session_id, tuple(writes), sync="power")


def _last(stream: PendingStream) -> int:
    return stream.last if stream.last is not None else stream.entries[-1].n
