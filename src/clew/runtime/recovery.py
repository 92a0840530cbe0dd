"""Recovery: what a process that died left behind, folded and settled before the first read.

Streams in the journal are folded into the parts they belong to; turns that wait for nobody, and calls without a
result, are given a truthful end. A second recovery finds nothing to do. Each stream and each session is one unit, so a
kill in between leaves the others for the next time.
"""

from __future__ import annotations

import logging

import msgspec

from clew.errors import IllegalChunk, InternalError, RowUndecodable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.runtime.take import RESTART, CutOff, Standing, plan_settle, plan_take
from clew.store.base import PendingStream, Store
from clew.store.tail import with_tail
from clew.store.unit import MarkFolded, PatchMessage, PutParts, Refused, Unit, Write
from clew.transcript.line import LineTurn
from clew.transcript.message import PartRow
from clew.transcript.metadata import DAMAGED

__all__ = ["fold_streams", "load_standing", "plan_fold", "recover", "settle_session"]

log = logging.getLogger("clew.recovery")


def plan_fold(stream: PendingStream, mint: Mint, now: int) -> Unit:
    """The unit that writes what the journal holds of this stream and moves its mark past it.

    A stream that may have lost something says so for good: once it is folded nothing else would tell.
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


async def recover(store: Store, mint: Mint, now: int) -> None:
    """Fold every stream that was left behind, then settle what no run will."""
    await fold_streams(store, mint, now)
    for session_id in await store.unsettled_sessions():
        failpoint("recovery.before_settle")
        try:
            await settle_session(store, session_id, now)
        except RowUndecodable as error:
            # It stays as it was left, and says so when it is read; the others are opened.
            log.error("session %s could not be settled: %s", session_id, error)


async def fold_streams(store: Store, mint: Mint, now: int, session_id: str | None = None) -> int:
    """Fold every stream that was left behind; how many there were."""
    streams = await store.pending_streams(session_id)
    for stream in streams:
        failpoint("recovery.before_fold")
        if stream.damage is not None:
            log.error("message %s: %s", stream.message.id, stream.damage)
        try:
            unit = plan_fold(stream, mint, now)
        except IllegalChunk as error:
            # One stream that no longer fits its message must not keep every other session from being opened.
            log.error("the journal of message %s does not fit it and was set aside: %s", stream.message.id, error)
            damage = {DAMAGED: f"what the journal held of it did not fit its parts: {error}"}
            writes = (PatchMessage(stream.message.id, now, damage), MarkFolded(stream.message.id, _last(stream)))
            unit = Unit(stream.session_id, writes, sync="power")
        outcome = await store.commit(unit)
        if isinstance(outcome, Refused):
            raise InternalError(f"recovery was refused: {outcome.reason}", message_id=stream.message.id)
    return len(streams)


async def load_standing(store: Store, session_id: str) -> Standing:
    """Read how a session stands. For a session at rest this is two small reads."""
    state = await store.load_state(session_id)
    opened: LineTurn | None = None
    sealed: frozenset[str] = frozenset()
    if state.open_turn_id is not None:
        opened = (await store.load_line(session_id, turns=1, keep_damaged=True)).turns[-1]
        sealed = frozenset(await store.seals(session_id))
    calls: dict[str, list[PartRow]] = {}
    for call in await store.open_calls(session_id):
        calls.setdefault(call.message_id, []).append(call.part)
    cut_off: list[CutOff] = []
    if calls:
        holders = {row.id: opened.turn for row in opened.messages} if opened is not None else {}
        if calls.keys() - holders.keys():
            try:
                tree = await store.load_tree(session_id)
                holders |= {held: tree.turns[turn_id] for turn_id, messages in tree.links.items() for held in messages}
            except RowUndecodable as error:
                # Who cut a call off cannot be told then; that is no reason to leave it open.
                log.error("the turns of session %s cannot all be read: %s", session_id, error)
        for message_id, parts in calls.items():
            message = await store.find_message(session_id, message_id)
            if message is not None:
                cut_off.append(CutOff(message, tuple(parts), holders.get(message_id)))
    return Standing(session_id, state, opened, tuple(cut_off), sealed)


async def settle_session(store: Store, session_id: str, now: int, left_open: str = RESTART) -> Standing:
    """End what no run is going to end, as one unit; how the session stood before. Nobody may run on it."""
    standing = await load_standing(store, session_id)
    if plan_settle(standing, now, left_open):
        # Taken for nobody: a run that was thought dead and is not must not write into a turn that has ended.
        await store.commit(plan_take(standing, now, (), left_open=left_open, goes_on=standing.waiting))
    return standing
