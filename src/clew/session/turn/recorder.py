"""The recorder: accepts a run's chunks, makes them durable, and passes them on to viewers.

With ``save_on: chunk``, a chunk is shown only once it is durable. With ``step`` or ``turn`` (``step`` is the default of
a ``json:`` store) it is shown first and stored at the end of its step or turn, or when the buffer is full or old
enough: a crash in between loses what was shown. The end itself is only shown once it is durable.

With ``chunk``: chunk → sanitizer → fold → journal row → group commit → acknowledged → shown. A stream has one unit in
flight at a time; chunks that arrive meanwhile go into the next one. The store's commit batcher decides when a unit is
sent, unless a caller waits for it. From time to time a unit also writes the parts the fold has grown, with the mark of
how far; its own chunks then need no journal. :mod:`~clew.session.turn.growing_message` decides when.

The verbs that store something, by what becomes durable and when they return:

======================  =====================================  ==========================================
``write``, ``send``     a chunk, with the next unit            at once; ``send`` waits while the buffer is full
``add_to_next_unit``    writes, with the next unit, sent soon  at once
``add_to_next_sync``    writes, with the next unit waited for  at once
``defer_flush``         nothing; holds the next unit back      at once; a waited unit or 20 ms end it
``flush``               all chunks                             when they are durable and shown
``flush_synced``        all chunks and writes, synced          when they are durable and shown
``end_step``            the same, as parts, not synced         when they are durable and shown
``close``               the same, as parts, synced, sealed     when they are durable and shown; ends
``close_short``         what fits on a full disk               when it is durable; ends
======================  =====================================  ==========================================

A unit that is refused or fails ends the recorder: with ``chunk`` nothing of it was shown; later calls raise the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from clew.clock import Clock, Timer
from clew.config import SavePolicy
from clew.errors import IllegalChunk, InternalError
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.session.acquire.acquire import with_chunks
from clew.session.turn.growing_message import FOLD_TURN_MS, FoldTiming, GrowingMessage
from clew.session.turn.unstored import Unstored, refused_error
from clew.store import unit as u
from clew.store.base import Store
from clew.store.commit_batcher import Answer
from clew.transcript import chunk as c
from clew.transcript.chunk_sanitizer import ChunkSanitizer
from clew.transcript.message import MessageRow
from clew.transcript.replay import named_by_part

__all__ = ["Recorder"]

log = logging.getLogger("clew.recorder")

_MAX_DEFER_MS: Final = 20


class Recorder:
    """The recorder of one stream into one assistant message.

    ``message`` is the row to store: the recorder inserts it with the first chunk and links it to ``turn_id``. To resume
    a ``stored`` message, pass its row and the number of its last chunk as ``last_n``. ``on_shown`` is called
    on the event loop with chunks that may be shown, in order.
    """

    def __init__(
        self,
        store: Store,
        message: MessageRow,
        *,
        turn_id: str,
        epoch: int,
        mint: Mint,
        clock: Clock,
        policy: SavePolicy | None = None,
        on_shown: Callable[[Sequence[c.Chunk]], None] | None = None,
        stored: bool = False,
        last_n: int = 0,
        counts: dict[str, int] | None = None,
        by_part: bool = False,
    ) -> None:
        self.message = message
        self._counts, self._by_part = {} if counts is None else counts, by_part
        self._batcher = store.hub
        policy = policy or SavePolicy()
        self._timing = timing = FoldTiming(clock, self._batcher.next_phase(), policy.parts_lag_ms)
        self._growing = GrowingMessage(
            message, turn_id, mint=mint, clock=clock, timing=timing, stored=stored, last_n=last_n
        )
        self.fold = self._growing.fold
        # Acquiring a session raises the epoch: from then on nothing of this stream is written.
        self._guard = u.EpochIs(epoch)
        self._clock = clock
        self._policy = msgspec.structs.replace(policy, save_on=policy.save_on or store.capabilities.save_on)
        self._at_chunk, self._at_turn = self._policy.save_on == "chunk", self._policy.save_on == "turn"
        self.unstored = Unstored(store, self._policy.save_on or "chunk", stored=stored)
        self._max_buffer_bytes = policy.save_buffer_size if policy.save_buffer_size > 0 else sys.maxsize
        self._on_shown = on_shown
        self._sanitizer = ChunkSanitizer()
        self._unit_writes: list[u.Write] = []
        self._sync_writes: list[u.Write] = []
        self._unshown: list[c.Chunk] = []
        self._inflight: u.Unit | None = None
        self._hurried = False
        self._showing: list[c.Chunk] = []
        self._awaited = False
        self._overdue = False
        self._timer: Timer | None = None
        self._defer_timer: Timer | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._committing = 0
        self._error: BaseException | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    # Accepting chunks

    def write(self, chunk: c.Chunk) -> None:
        """Accept a chunk. Raise ``IllegalChunk``, without side effects, if it does not fit the stream."""
        self._check()
        if self._sanitizer.passes(chunk):
            self._apply(chunk)
        else:
            for clean in self._sanitizer.clean(chunk):
                self._apply(clean)
        if not self._at_chunk:
            self._buffer(chunk)
        elif self._inflight is None and not self._awaited:
            self._flush_soon()

    @property
    def is_full(self) -> bool:
        """Return whether more than a buffer of chunks is not yet durable."""
        return self._growing.size > self._max_buffer_bytes

    async def drain(self) -> None:
        """Wait while the buffer is full, which slows the model down."""
        while self.is_full and self._error is None:
            await self._wait_for_unit()
        self._check()

    async def send(self, chunk: c.Chunk) -> None:
        """Accept a chunk and wait while more than a buffer is not yet durable."""
        self.write(chunk)
        if self.is_full:
            await self.drain()

    async def flush(self) -> None:
        """Wait until everything written so far is durable and shown."""
        await self._commit((), fold=self._wants_fold(), sync="process")

    def add_to_next_unit(self, *writes: u.Write) -> None:
        """Add writes to the next unit, which is sent soon. They are not lost by an abort after this."""
        self._unit_writes += writes
        self._flush_soon()

    def add_to_next_sync(self, *writes: u.Write) -> None:
        """Add writes to the next unit that a caller waits for, and that is synced."""
        self._sync_writes += writes

    def defer_flush(self) -> None:
        """Defer the next unit for a commit that is about to follow; without one it is sent after a short time."""
        if self._defer_timer is None:
            self._defer_timer = self._clock.call_later(_MAX_DEFER_MS, self._end_deferral)

    async def flush_synced(self, *, sync: u.Sync = "power") -> None:
        """Wait until everything written so far is durable and synced: what follows may be interrupted. With
        ``save_on: turn`` only model calls and joined writes are; chunks and steps wait for the end of the turn."""
        await self._commit((), fold=not self._at_turn and self._wants_fold(), sync=sync, whole=not self._at_turn)

    async def end_step(self, *writes: u.Write) -> None:
        """Fold everything written so far, in one unit with ``writes`` and joined writes. Not synced."""
        self.add_to_next_sync(*writes)
        await self._commit((), fold=True, sync="process")

    async def close(self, *writes: u.Write, seal: bool = True) -> None:
        """Fold what is left and end, in one unit with ``writes``, such as the settled turn and the head's move.
        ``seal=False`` leaves the message open for a later run to resume."""
        for chunk in self._sanitizer.left_over():
            with contextlib.suppress(IllegalChunk):
                self._apply(chunk)
        writes = tuple(with_chunks(writes, self._counts, self.message.id, self._growing.last_n))
        await self._commit(writes, fold=True, sync="power", seal=seal)
        self._closed = True
        self._stop_timers()

    async def close_short(self, settle: Callable[[int, int], Sequence[u.Write]]) -> tuple[int, int] | None:
        """End after a full disk with as much of the shown text as fits; see :meth:`Unstored.store`."""
        return await self.unstored.store(*self._growing.whole(), self._guard, settle)

    def withdraw(self, tool_call_id: str, reason: str) -> None:
        """Deny a request that can no longer be answered because the run that made it ends."""
        self._check()
        note = {"via": "abort", "answered_at": self._clock.now_ms()}
        self._growing.deny(tool_call_id, reason, note)
        self.write(c.ToolOutputDenied(tool_call_id=tool_call_id))

    def abandon(self) -> None:
        """Stop without writing anything more; recovery folds what is durable."""
        self._closed = True
        self._growing.drop_chunks()
        self._unit_writes.clear()
        self._sync_writes.clear()
        self._stop_timers()

    # Internals

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise InternalError("the recorder is closed", message_id=self.message.id)

    def _apply(self, chunk: c.Chunk) -> None:
        index = self._growing.apply(chunk)
        self._unshown.append(named_by_part(chunk, index) if self._by_part else chunk)

    def _buffer(self, chunk: c.Chunk) -> None:
        """Show a chunk now and store it later, for ``step`` and ``turn``."""
        self._show_ahead()
        policy = self._policy
        full = 0 < policy.save_buffer_size <= self._growing.size
        if full or (isinstance(chunk, self.unstored.ends) and self._defer_timer is None):
            self._flush(whole=True)
        elif policy.save_buffer_ms > 0 and self._timer is None:
            self._timer = self._clock.call_later(policy.save_buffer_ms, self._on_timer)

    def _show_ahead(self) -> None:
        """Show what is not stored yet, up to the next end, which is shown with the unit that stores it."""
        if not self._showing:
            chunks, self._unshown = self.unstored.split(self._unshown)
            self._show(chunks)

    def _flush_soon(self) -> None:
        if self._inflight is None and not self._awaited:
            self._awaited = True
            self._batcher.wake(self)

    def gather(self) -> None:
        """Send the next unit when the batcher asks for it; see :class:`clew.store.commit_batcher.Stream`."""
        self._awaited = False
        before = self._inflight
        if self._defer_timer is None:
            self._flush()
        if self._inflight is not before:
            self._hurried = False

    def _end_deferral(self) -> None:
        self._stop_deferral()
        self._flush_soon()

    def _flush(self, *, whole: bool = False) -> None:
        """Send what is pending, or do so after the unit in flight. With ``turn``, chunks only if ``whole``."""
        whole = whole or not self._at_turn
        if self._inflight is not None or self._closed or self._error is not None:
            self._overdue = self._overdue or whole
            return
        if not whole:
            if self._unit_writes:
                self._submit(self._unit((), fold=False, whole=False), whole=False)
            return
        if not self._growing.has_chunks and not self._unit_writes:
            self._show(self._pop_unshown())
            return
        self._submit(self._unit((), fold=self._wants_fold()))

    def _wants_fold(self) -> bool:
        return self._timing.wants_fold(self._growing.dirty_size, self._batcher.takes_fold)

    def _unit(
        self, writes: Sequence[u.Write], *, fold: bool, sync: u.Sync = "process", seal: bool = False, whole: bool = True
    ) -> u.Unit:
        """Return a unit of everything pending: as parts when it folds, else as journal entries."""
        if not whole:
            joined, self._unit_writes = self._unit_writes, []
            return u.Unit(self.message.session_id, (*joined, *writes), (self._guard,), sync)
        had_chunks = self._growing.has_chunks
        new_writes = self._growing.take_writes(fold=fold, seal=seal)
        if had_chunks and self._at_chunk and not fold:
            self._start_timer()
        elif had_chunks or (fold and self._growing.is_stored):
            # With ``step`` and ``turn`` the timer is for chunks to be stored, and now there are none.
            self._stop_timer()
        if not self._at_chunk and self._unshown:
            sync = self.unstored.sync_of_end(sync)
        new_writes += self._unit_writes
        self._unit_writes = []
        self._overdue = False
        return u.Unit(self.message.session_id, (*new_writes, *writes), (self._guard,), sync)

    def _submit(self, unit: u.Unit, *, whole: bool = True) -> None:
        self._showing = self._pop_unshown() if whole else []
        if whole:
            self.unstored.send(unit, self.fold)
        failpoint("recorder.before_submit")
        # Units submitted outside the batcher's own turn are sent immediately.
        self._inflight, self._hurried = unit, True
        self._batcher.hand_in(self, unit)

    def answered(self, answer: Answer) -> None:
        """Handle the result of the unit in flight; see :class:`clew.store.commit_batcher.Stream`."""
        unit, shown, self._inflight, self._showing = self._inflight, self._showing, None, []
        if isinstance(answer, u.Refused):
            answer = refused_error(answer, self.message)
        if isinstance(answer, BaseException):
            self.unstored.fail(unit.writes if unit is not None else (), self._unit_writes, self._sync_writes)
            self._fail(answer)
            return
        self.unstored.settle()
        # With ``chunk``, chunks are shown only here, after their commit: what was shown survives a crash.
        failpoint("recorder.before_show")
        self._show(shown)
        if not self._at_chunk:
            self._show_ahead()
        self._wake()
        if self._committing:
            return  # chunks that arrived meanwhile go with the unit that a caller waits to commit
        if self._unit_writes or (self._growing.has_chunks and self._at_chunk):
            self._flush_soon()
        elif self._growing.has_chunks and (self._overdue or (self._unshown and self._defer_timer is None)):
            self._flush(whole=True)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._growing.drop_chunks()
        self._unit_writes.clear()
        self._sync_writes.clear()
        self._unshown.clear()
        self._stop_timers()
        self._wake()

    def _wake(self) -> None:
        """Wake the callers that wait for the unit in flight."""
        idle, self._idle = self._idle, []
        for waiter in idle:
            if not waiter.done():
                waiter.set_result(None)

    def _pop_unshown(self) -> list[c.Chunk]:
        shown, self._unshown = self._unshown, []
        return shown

    def _show(self, chunks: list[c.Chunk]) -> None:
        if chunks and self._on_shown is not None:
            try:
                self._on_shown(chunks)
            except Exception:
                log.exception("a consumer of message %s failed; recording continues", self.message.id)

    async def _wait_for_unit(self) -> None:
        """Wait for the end of the unit in flight, sending one first if there is none."""
        if self._inflight is None:
            self._flush(whole=True)
        elif not self._hurried:
            self._hurried = True
            self._batcher.hurry()
        if self._inflight is not None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    async def _commit(
        self, writes: Sequence[u.Write], *, fold: bool, sync: u.Sync, seal: bool = False, whole: bool = True
    ) -> None:
        self._check()
        # Only one unit of a stream at a time, which keeps its chunks in order, however units are batched.
        self._committing += 1
        try:
            while self._inflight is not None:
                await self._wait_for_unit()
        except BaseException:
            self._flush_soon()
            raise
        finally:
            self._committing -= 1
            self._stop_deferral()
        self._check()
        held, self._sync_writes = (
            self._sync_writes,
            [] if whole else [one for one in self._sync_writes if not isinstance(one, u.PutCall)],
        )
        writes = (*(one for one in held if whole or isinstance(one, u.PutCall)), *writes)
        growing = self._growing
        seal = seal and (growing.is_stored or growing.has_chunks)
        has_work = writes or (whole and growing.has_chunks) or self._unit_writes
        if not (has_work or seal or (fold and growing.can_fold)):
            if whole:
                self._show(self._pop_unshown())
            return
        self._submit(self._unit(writes, fold=fold, sync=sync, seal=seal, whole=whole), whole=whole)
        await self._wait_for_unit()
        self._check()

    def _start_timer(self) -> None:
        if self._timer is None and self._growing.has_parts:
            self._timer = self._clock.call_later(self._timing.limit_ms(self._growing.dirty_size()), self._on_timer)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _stop_deferral(self) -> None:
        rest, self._defer_timer = self._defer_timer, None
        if rest is not None:
            rest.cancel()

    def _stop_timers(self) -> None:
        self._stop_timer()
        self._stop_deferral()

    def _on_timer(self) -> None:
        """Handle a pause of the stream with chunks that are not folded, or not stored, yet."""
        self._timer = None
        if not self._at_chunk:
            if self._defer_timer is None:
                self._flush(whole=True)
        elif self._inflight is not None or self._closed or self._error is not None:
            self._timing.due = True
        elif self._wants_fold():
            self._submit(self._unit((), fold=True))
        elif self._timing.is_over(self._growing.dirty_size()):
            # Other streams were due at the same time and are folded first.
            self._timer = self._clock.call_later(FOLD_TURN_MS, self._on_timer)
        else:
            # The text has grown since the timer was set, so the limit is later.
            self._start_timer()
