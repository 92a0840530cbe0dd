"""The scribe writes sessions into a store as the engine does, turn by turn, without a model.

Tests, benches and the kill harness use it to create histories that read like transcripts::

    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi there"))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clew.clock import Clock, SystemClock
from clew.config import SavePolicy
from clew.errors import InternalError
from clew.ids import Mint
from clew.session.acquire.acquire import plan_end, plan_open
from clew.session.acquire.loaded_session import LoadedSession
from clew.session.prompt.admission import assistant_row
from clew.session.turn.recorder import Recorder
from clew.store.base import Store, get_session
from clew.store.unit import (
    Committed,
    Guard,
    InsertMessage,
    InsertSession,
    Outcome,
    RecordStep,
    SealMessage,
    Sync,
    Unit,
    Write,
)
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import text_part
from clew.transcript.session import Model, Session
from clew.transcript.turn import Step
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage

__all__ = ["MODEL", "OpenedTurn", "Scribe", "settled", "user_row"]

MODEL = Model("demo", "echo")


def user_row(mint: Mint, session_id: str, text: str, now: int, metadata: dict[str, Any] | None = None) -> MessageRow:
    """Return a user message of one text part."""
    part = PartRow(mint.part(), 0, text_part(text), now, now)
    return MessageRow(mint.message(), session_id, "user", now, now, metadata or {}, (part,))


def settled(row: MessageRow) -> tuple[Write, ...]:
    """Return the writes that store a complete message with its seal."""
    return InsertMessage(row), SealMessage(row.id, row.seal)


class OpenedTurn:
    """An open turn."""

    def __init__(self, scribe: Scribe, turn_id: str, epoch: int, user: MessageRow) -> None:
        self.scribe = scribe
        self.id = turn_id
        self.epoch = epoch
        self.user = user
        self.shown: list[c.Chunk] = []
        self._steps = 0

    def recorder(self, *, policy: SavePolicy | None = None, message_id: str | None = None) -> Recorder:
        """Return a recorder for the assistant message of this turn; its chunks are collected in ``shown``."""
        scribe = self.scribe
        row = assistant_row(scribe.session_id, message_id or scribe.mint.message(), scribe.clock.now_ms(), {})
        return Recorder(
            scribe.store,
            row,
            turn_id=self.id,
            epoch=self.epoch,
            mint=scribe.mint,
            clock=scribe.clock,
            policy=policy,
            on_shown=self.shown.extend,
        )

    def step(self, message_id: str, usage: Usage) -> Step:
        """Return the next step of this turn, as the end of a model call records it."""
        now = self.scribe.clock.now_ms()
        self._steps += 1
        return Step(
            turn_id=self.id,
            index=self._steps - 1,
            message_id=message_id,
            usage=usage,
            model=MODEL,
            started_at=now,
            finished_at=now,
            finish_reason="stop",
        )

    def settling(self, status: TurnStatus = "completed") -> tuple[Write, ...]:
        return plan_end(self.id, status, self.scribe.clock.now_ms())


class Scribe:
    """The writer of one session."""

    def __init__(self, store: Store, session_id: str, mint: Mint, clock: Clock) -> None:
        self.store = store
        self.session_id = session_id
        self.mint = mint
        self.clock = clock

    @classmethod
    async def create(
        cls,
        store: Store,
        *,
        mint: Mint | None = None,
        clock: Clock | None = None,
        session_id: str | None = None,
        **fields: Any,
    ) -> Scribe:
        """Return a scribe with a new session; ``fields`` are those of its row."""
        clock = clock or SystemClock()
        mint = mint or Mint(clock)
        now = clock.now_ms()
        fields = {"agent": "assistant", "model": MODEL, "created_at": now, "updated_at": now, **fields}
        session = Session(id=session_id or mint.session(store.capabilities.session_ids), **fields)
        scribe = cls(store, session.id, mint, clock)
        await scribe.commit(InsertSession(session))
        return scribe

    async def session(self) -> Session:
        return await get_session(self.store, self.session_id)

    async def commit(self, *writes: Write, guards: Sequence[Guard] = (), sync: Sync = "process") -> None:
        """Commit writes to this session; raise an error unless they succeed."""
        outcome = await self.try_commit(*writes, guards=guards, sync=sync)
        if not isinstance(outcome, Committed):
            raise InternalError(f"the unit was refused: {outcome}")

    async def try_commit(self, *writes: Write, guards: Sequence[Guard] = (), sync: Sync = "process") -> Outcome:
        return await self.store.commit(Unit(self.session_id, writes, tuple(guards), sync))

    async def prompt(self, text: str, metadata: dict[str, Any] | None = None) -> OpenedTurn:
        """Store a user message and acquire the session for a turn."""
        state = await self.store.load_state(self.session_id)
        user = user_row(self.mint, self.session_id, text, self.clock.now_ms(), metadata)
        turn_id = self.mint.turn()
        outcome = await self.store.commit(plan_open(LoadedSession(self.session_id, state), turn_id, user))
        if not isinstance(outcome, Committed):
            raise InternalError(f"the prompt was refused: {outcome}")
        return OpenedTurn(self, turn_id, state.epoch + 1, user)

    async def turn(
        self,
        text: str,
        chunks: Iterable[c.Chunk],
        *,
        usage: Usage | None = None,
        status: TurnStatus = "completed",
        policy: SavePolicy | None = None,
    ) -> tuple[str, str, str]:
        """Write a turn of one step; return the ids of the turn, its user message and its assistant message."""
        opened = await self.prompt(text)
        recorder = opened.recorder(policy=policy)
        await recorder.send(c.Start(message_id=recorder.message.id))
        await recorder.send(c.StartStep())
        for chunk in chunks:
            await recorder.send(chunk)
        await recorder.send(c.FinishStep())
        await recorder.end_step(RecordStep(opened.step(recorder.message.id, usage or Usage(10, 5))))
        await recorder.send(c.Finish(finish_reason="stop"))
        await recorder.close(*opened.settling(status))
        return opened.id, opened.user.id, recorder.message.id
