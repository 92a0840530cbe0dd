"""Settling: tool calls and turns that were left open, whatever left them so, given a truthful end.

Done for the whole store when it is opened, and for a session at the start of every run. A call that waits for a human
is not left open. What a call did before it was cut off nobody knows, and its result says so; it is never run again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.runtime.turn import settling
from clew.runtime.waiting import is_answered, waits_of
from clew.store.base import OpenCall, Store
from clew.store.unit import EpochIs, Guard, OpenTurnIs, PutParts, SealMessage, SetEpoch, Unit, Write
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import closed
from clew.transcript.seal import seal_of
from clew.transcript.turn import Turn

__all__ = ["RESTART", "close_calls", "settle_session"]

RESTART = "aborted by host restart; its effects are unknown"
ABORT = "aborted; its effects are unknown"


def close_calls(message: MessageRow, calls: Sequence[OpenCall], reason: str, now: int) -> tuple[Write, ...]:
    """The writes that end these calls of one message as errors, and seal it anew."""
    ended = {call.part.index: _closed(call.part, reason, now) for call in calls}
    parts = [ended.get(part.index, part) for part in message.parts]
    return (
        PutParts(message.id, tuple(ended[index] for index in sorted(ended))),
        SealMessage(message.id, seal_of(part.data for part in parts)),
    )


def _closed(part: PartRow, reason: str, now: int) -> PartRow:
    return msgspec.structs.replace(part, data=closed(part.data, reason), updated_at=now)


async def settle_session(store: Store, session_id: str, now: int, reason: str = RESTART) -> Turn | None:
    """End what no run is going to end: the open turn, unless it waits for a human, and calls without a result.

    The turn that is still open afterwards, because it waits, is returned.
    """
    state = await store.load_state(session_id)
    turn: Turn | None = None
    held: Sequence[MessageRow] = ()
    if state.open_turn_id is not None:
        newest = (await store.load_line(session_id, turns=1, keep_damaged=True)).turns[-1]
        turn, held = newest.turn, newest.messages
    # A turn whose requests are all answered waits for nobody: what should have gone on with it did not.
    waiting = turn if turn is not None and turn.status == "waiting" and not is_answered(waits_of(turn)) else None
    asked = {wait.tool_call_id for wait in waits_of(waiting)}
    writes: list[Write] = []
    by_message: dict[str, list[OpenCall]] = {}
    for call in await store.open_calls(session_id):
        if call.part.tool_call_id not in asked:
            by_message.setdefault(call.message_id, []).append(call)
    for message_id, calls in by_message.items():
        message = await store.find_message(session_id, message_id)
        # What is damaged is left as it is: a new seal would make it pass for what was stored. A model is sent a stub.
        if message is not None and message.damage is None:
            writes += close_calls(message, calls, reason, now)
    guards: list[Guard] = [EpochIs(state.epoch)]
    if turn is not None and waiting is None:
        writes.append(SetEpoch(state.epoch + 1))
        writes += settling(turn.id, "failed", now, {"error": {"code": "interrupted", "message": reason}, "waiting": []})
        guards.append(OpenTurnIs(turn.id))
        # Nobody goes on with what it had begun to say. Sealed, it shows when somebody does all the same.
        sealed = {*await store.seals(session_id), *by_message}
        unsealed = [message for message in held if message.id not in sealed and message.damage is None]
        writes += [SealMessage(message.id, seal_of(part.data for part in message.parts)) for message in unsealed]
    if writes:
        await store.commit(Unit(session_id, tuple(writes), tuple(guards), sync="power"))
    return waiting
