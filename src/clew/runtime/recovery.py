"""Recovery: what a process that died left behind, folded and settled before the first read.

Streams in the journal are folded into the parts they belong to; turns that wait for nobody, and calls without a
result, are given a truthful end. A second recovery finds nothing to do. Each stream and each session is one unit, so a
kill in between leaves the others for the next time.
"""

from __future__ import annotations

import logging

import msgspec

from clew.errors import IllegalChunk, InternalError
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.runtime.settle import settle_session
from clew.store.base import PendingStream, Store
from clew.store.tail import with_tail
from clew.store.unit import MarkFolded, PatchMessage, PutParts, Refused, Unit, Write

__all__ = ["fold_streams", "plan_fold", "recover"]

log = logging.getLogger("clew.recovery")


def plan_fold(stream: PendingStream, mint: Mint, now: int) -> Unit:
    """The unit that writes what the journal holds of this stream and moves its mark past it."""
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
    if after.metadata != before.metadata:
        writes.append(PatchMessage(before.id, now, after.metadata))
    writes.append(MarkFolded(before.id, stream.entries[-1].n))
    return Unit(stream.session_id, tuple(writes), sync="power")


async def recover(store: Store, mint: Mint, now: int) -> None:
    """Fold every stream that was left behind, then settle what no run will."""
    await fold_streams(store, mint, now)
    for session_id in await store.unsettled_sessions():
        failpoint("recovery.before_settle")
        await settle_session(store, session_id, now)


async def fold_streams(store: Store, mint: Mint, now: int, session_id: str | None = None) -> int:
    """Fold every stream that was left behind; how many there were."""
    streams = await store.pending_streams(session_id)
    for stream in streams:
        failpoint("recovery.before_fold")
        try:
            unit = plan_fold(stream, mint, now)
        except IllegalChunk as error:
            # One stream that no longer fits its message must not keep every other session from being opened.
            log.error("the journal of message %s does not fit it and was set aside: %s", stream.message.id, error)
            unit = Unit(stream.session_id, (MarkFolded(stream.message.id, stream.entries[-1].n),), sync="power")
        outcome = await store.commit(unit)
        if isinstance(outcome, Refused):
            raise InternalError(f"recovery was refused: {outcome.reason}", message_id=stream.message.id)
    return len(streams)
