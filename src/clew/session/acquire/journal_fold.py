"""Folding of journaled chunks into their parts: during recovery, and before a session is used again."""

from __future__ import annotations

import logging

import msgspec

from clew.errors import IllegalChunk, InternalError
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.base import PendingStream, Store
from clew.store.tail import with_tail
from clew.store.unit import MarkFolded, PatchMessage, PutParts, Refused, Unit, Write
from clew.transcript.damage import DAMAGED

__all__ = ["fold_streams", "plan_fold"]

log = logging.getLogger("clew.recovery")


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
