"""Fills stores quickly: many turns per unit, many units at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench import talk
from clew.ids import Mint
from clew.session.acquire.acquire import plan_end
from clew.store.base import Store
from clew.store.unit import (
    Committed,
    InsertMessage,
    InsertSession,
    LinkMessage,
    OpenTurn,
    Outcome,
    RecordStep,
    SealMessage,
    Unit,
    Write,
)
from clew.testing.scribe import MODEL, user_row
from clew.transcript.damage import seal_of
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.session import Session
from clew.transcript.turn import Step, Turn
from clew.transcript.usage import Usage

__all__ = ["add_sessions", "answer", "check", "fill_turns"]

_TURNS_PER_UNIT = 100
_MAX_PENDING_UNITS = 5_000


def check(outcome: Outcome) -> None:
    if not isinstance(outcome, Committed):
        raise RuntimeError(f"a unit was refused: {outcome}")


async def add_sessions(store: Store, mint: Mint, count: int, metadata: Callable[[int], dict[str, Any]]) -> str:
    """Add sessions, one per unit, and return the id of the last."""
    session_id = ""
    pending: list[Awaitable[Outcome]] = []
    for n in range(count):
        session_id = mint.session(store.capabilities.session_ids)
        now = talk.START_MS + n
        session = Session(
            id=session_id,
            agent="assistant",
            workspace_root="/work",
            model=MODEL,
            created_at=now,
            updated_at=now,
            metadata=metadata(n),
        )
        pending.append(store.submit(Unit(session_id, (InsertSession(session),))))
        if len(pending) == _MAX_PENDING_UNITS:
            await _all(pending)
    await _all(pending)
    return session_id


async def fill_turns(
    store: Store,
    mint: Mint,
    session_id: str,
    turns: Sequence[int],
    parts_of: Callable[[int], list[dict[str, Any]]] = talk.assistant_parts,
) -> str | None:
    """Append complete turns to a session and return the id of the last."""
    pending: list[Awaitable[Outcome]] = []
    writes: list[Write] = []
    parent: str | None = (await store.load_state(session_id)).head_turn_id
    for n in turns:
        now = talk.START_MS + n
        turn_id = mint.turn()
        user = user_row(mint, session_id, talk.prompt(n), now)
        writes.append(OpenTurn(Turn(id=turn_id, session_id=session_id, parent_turn_id=parent, created_at=now)))
        writes += (InsertMessage(user), SealMessage(user.id, user.seal), LinkMessage(turn_id, user.id))
        writes += answer(mint, session_id, turn_id, parts_of(n), now)
        parent = turn_id
        if len(writes) >= _TURNS_PER_UNIT * 10:
            pending.append(store.submit(Unit(session_id, tuple(writes))))
            writes.clear()
    if writes:
        pending.append(store.submit(Unit(session_id, tuple(writes))))
    await _all(pending)
    return parent


def answer(mint: Mint, session_id: str, turn_id: str, parts: list[dict[str, Any]], now: int) -> tuple[Write, ...]:
    """Return the writes of an answer: the message, two steps, the seal, the settled turn and the head move."""
    rows = tuple(PartRow(mint.part(), index, data, now, now) for index, data in enumerate(parts))
    message = MessageRow(mint.message(), session_id, "assistant", now, now, {}, rows)
    return (
        InsertMessage(message),
        LinkMessage(turn_id, message.id),
        RecordStep(step(turn_id, 0, message.id, now)),
        RecordStep(step(turn_id, 1, message.id, now)),
        SealMessage(message.id, seal_of(parts)),
        *plan_end(turn_id, "completed", now),
    )


def step(turn_id: str, index: int, message_id: str, now: int) -> Step:
    return Step(
        turn_id=turn_id,
        index=index,
        message_id=message_id,
        usage=Usage(*talk.USAGE),
        model=MODEL,
        started_at=now,
        finished_at=now,
        finish_reason="tool-calls" if index == 0 else "stop",
    )


async def _all(pending: list[Awaitable[Outcome]]) -> None:
    for outcome in await asyncio.gather(*pending):
        check(outcome)
    pending.clear()
