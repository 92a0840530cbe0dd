"""The recorder: takes a run's chunks, makes them durable, and hands them on.

When ``save_on`` is ``chunk``, a chunk is handed on only once it is durable. With ``step`` or ``turn`` (``step`` is the
default of a ``json:`` store) it is handed on first and stored with the end of its step or turn, or when the buffer is
full or has waited long enough: a kill in between takes back what was shown. The end itself waits until it is durable.

chunk → gate → fold → journal row → group commit → acknowledged → shown, with ``chunk``. One unit of a stream is under
way at a time; chunks that come meanwhile travel together in the next one. When, and in whose company, is the store's
hub's to say, unless somebody waits. Now and then a unit also writes the parts the
fold has grown, with the mark that says how far; then its own chunks need no journal. When folds happen: at the
end of a part or a step, whenever the text has doubled, after a second (five for each 64 KB), and last;
a part of more than 64 KB otherwise only once a quarter of it is new, so that a reply costs what its text costs,
however long it is. Where many streams are due at once, the hub says whose turn it is.

The recorder knows no transport and no model. A unit that is refused or fails ends it: with ``chunk`` nothing of that
unit was shown, and every later call raises why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Final

import msgspec

from clew.clock import Clock, GrowingTime, Timer
from clew.config import SavePolicy
from clew.errors import IllegalChunk, InternalError
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.runtime.fold_timing import FOLD_TURN_MS, FoldTiming
from clew.runtime.unstored import Unstored, refused_error
from clew.store import unit as u
from clew.store.base import Store
from clew.store.hub import Answer
from clew.transcript import chunk as c
from clew.transcript.chunk_gate import ChunkGate
from clew.transcript.damage import seal_of
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import from_stream

__all__ = ["Recorder"]

log = logging.getLogger("clew.recorder")

_REST_MS: Final = 20
_STARTS: Final = frozenset({c.TextStart, c.ReasoningStart, c.ToolInputStart})
_TAKING: Final = u.Unit("", ())
_PARTLESS: Final = frozenset({c.Start, c.MessageMetadata, c.Finish, c.Abort, c.Error})


class Recorder:
    """Records one stream into one assistant message.

    ``message`` is the row as it will be: the recorder inserts it with the first chunk and links it to ``turn_id``.
    To go on with a message that is ``stored``, give its row and the number of its last journalled chunk as
    ``last_n``. ``on_shown`` is called on the event loop with chunks that may be shown, in order. With ``ahead`` it is
    there before its session is taken: what it has by then goes with that (:meth:`plan_start`).
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
        ahead: bool = False,
    ) -> None:
        self.message = message
        self.fold = Fold(message.id, parts=[part.data for part in message.parts], metadata=message.metadata)
        self._hub = store.hub
        self._turn_id = turn_id
        # Whoever takes the session raises the epoch: from then on nothing of this stream is written any more.
        self._guard = u.EpochIs(epoch)
        self._mint, self._clock = mint, clock
        policy = policy or SavePolicy()
        self._policy = msgspec.structs.replace(policy, save_on=policy.save_on or store.capabilities.save_on)
        self._at_chunk, self._at_turn = self._policy.save_on == "chunk", self._policy.save_on == "turn"
        self._unstored = Unstored(store, self._policy.save_on or "chunk", stored=stored)
        self._most_bytes = policy.save_buffer_size if policy.save_buffer_size > 0 else sys.maxsize
        self._on_shown = on_shown
        self._gate = ChunkGate()
        self._stored = stored
        self._n = last_n
        self._pending: list[tuple[int, int | None, c.Chunk]] = []
        self._joined: list[u.Write] = []
        self._held: list[u.Write] = []
        self._unshown: list[c.Chunk] = []
        self._bytes = 0
        self._parts: list[tuple[str, int]] = [(part.id, part.created_at) for part in message.parts]
        self._time = GrowingTime(clock, max((message.created_at, *(at for _, at in self._parts))))
        self._dirty: set[int] = set()
        self._metadata_dirty = False
        self._timing = FoldTiming(clock, self._hub.next_phase())
        # The unit that takes the session is under way, to this recorder, until it is told what became of it.
        self._inflight: u.Unit | None = _TAKING if ahead else None
        self._hurried = False
        self._showing: list[c.Chunk] = []
        self._awaited = False
        self._overdue = False
        self._timer: Timer | None = None
        self._rest: Timer | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._committing = 0
        self._error: BaseException | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    # Taking chunks

    def write(self, chunk: c.Chunk) -> None:
        """Take a chunk. Raises ``IllegalChunk`` and changes nothing when it does not belong here."""
        self._check()
        if self._gate.passes(chunk):
            self._take(chunk)
        else:
            for clean in self._gate.clean(chunk):
                self._take(clean)
        if not self._at_chunk:
            self._buffer(chunk)
        elif self._inflight is None and not self._awaited:
            self._flush_soon()

    @property
    def is_full(self) -> bool:
        """Whether more than a buffer of chunks is not yet durable."""
        return self._bytes > self._most_bytes

    async def drain(self) -> None:
        """Wait while it is full: this slows the model down."""
        while self.is_full and self._error is None:
            await self._unit_over()
        self._check()

    async def send(self, chunk: c.Chunk) -> None:
        """``write``, and wait while more than a buffer is not yet durable."""
        self.write(chunk)
        if self.is_full:
            await self.drain()

    async def flush(self) -> None:
        """Wait until everything written so far is durable, and shown."""
        await self._commit((), fold=self._wants_fold(), sync="process")

    def join(self, *writes: u.Write) -> None:
        """Let these go with the next unit, soon. Whoever is aborted after this has not lost them."""
        self._joined += writes
        self._flush_soon()

    def hold(self, *writes: u.Write) -> None:
        """The same, for the next unit that somebody waits for: the one that is synced as they need it."""
        self._held += writes

    def rest(self) -> None:
        """Somebody is about to commit: what waits goes with that, in one unit. If nobody does, it goes by itself."""
        if self._rest is None:
            self._rest = self._clock.call_later(_REST_MS, self._end_rest)

    async def book(self, *, sync: u.Sync = "power") -> None:
        """Wait until everything written so far is durable, synced: what comes next may be interrupted.

        With ``turn`` only model calls and what was joined are: chunks and steps wait for the end of the turn.
        """
        await self._commit((), fold=not self._at_turn and self._wants_fold(), sync=sync, whole=not self._at_turn)

    async def end_step(self, *writes: u.Write) -> None:
        """Fold everything written so far, in one unit with ``writes`` and what was joined. Not synced."""
        self.hold(*writes)
        await self._commit((), fold=True, sync="process")

    async def close(self, *writes: u.Write, seal: bool = True) -> None:
        """Fold what is left and end, together with ``writes`` (a turn settled, the head moved), in one unit.

        ``seal=False`` leaves the message open for a later run to go on with.
        """
        for chunk in self._gate.left_over():
            with contextlib.suppress(IllegalChunk):
                self._take(chunk)
        await self._commit(writes, fold=True, sync="power", seal=seal)
        self._closed = True
        self._stop_timers()

    async def close_short(self, settle: Callable[[int, int], Sequence[u.Write]]) -> tuple[int, int] | None:
        """End after a full disk with as much of what was shown as there is room for; see :meth:`Unstored.store`."""
        now, held = self._time.now_ms(), enumerate(self._parts)
        parts = tuple(PartRow(id_, index, self.fold.part(index), at, now) for index, (id_, at) in held)
        end = u.LinkMessage(self._turn_id, self.message.id), u.MarkFolded(self.message.id, self._n), self._guard
        return await self._unstored.store(msgspec.structs.replace(self.message, parts=parts), *end, settle)

    def plan_start(self) -> Sequence[u.Write]:
        """Everything written so far, for the unit that takes the session; ``answered`` says what became of that."""
        writes = self._unit((), fold=True).writes
        self._showing = self._take_unshown()
        return writes

    def withdraw(self, tool_call_id: str, reason: str) -> None:
        """Deny a request that nobody will answer any more, as the run that made it ends."""
        self._check()
        note = {"via": "abort", "answered_at": self._clock.now_ms()}
        self._dirty.add(self.fold.answer(tool_call_id, approved=False, reason=reason, note=note))
        self.write(c.ToolOutputDenied(tool_call_id=tool_call_id))

    def abandon(self) -> None:
        """Stop without writing anything more; what is durable stays for recovery to fold."""
        self._closed = True
        self._pending.clear()
        self._joined.clear()
        self._held.clear()
        self._stop_timers()

    # Inside

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise InternalError("the recorder is closed", message_id=self.message.id)

    def _take(self, chunk: c.Chunk) -> None:
        index = self.fold.apply(chunk)
        kind = chunk.__class__
        if kind is c.Data and chunk.transient is True:  # type: ignore[union-attr]
            # Shown in its place in the stream, and never stored: it has no number.
            self._unshown.append(chunk)
            return
        self._n += 1
        self._pending.append((self._n, index, chunk))
        self._unshown.append(chunk)
        if index is not None:
            self._dirty.add(index)
            if index >= len(self._parts):
                self._parts.append((self._mint.part(), self._time.now_ms()))
        if isinstance(chunk, c.DELTAS):
            size = len(chunk.delta if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)) else chunk.input_text_delta)
            self._timing.grown += size
            self._timing.unfolded += size
            self._bytes += size + 64
        elif kind in _STARTS:
            self._bytes += 64
        else:
            self._timing.unfolded += 256
            self._bytes += 256
            self._timing.due = True
            self._metadata_dirty = self._metadata_dirty or kind in _PARTLESS

    def _buffer(self, chunk: c.Chunk) -> None:
        """With ``step`` and ``turn`` a chunk is shown now and stored later."""
        if self._inflight is _TAKING:
            return
        self._show_ahead()
        policy = self._policy
        full = 0 < policy.save_buffer_size <= self._bytes
        if full or (isinstance(chunk, self._unstored.ends) and self._rest is None):
            self._flush(whole=True)
        elif policy.save_buffer_ms > 0 and self._timer is None:
            self._timer = self._clock.call_later(policy.save_buffer_ms, self._on_timer)

    def _show_ahead(self) -> None:
        """Show what is not stored yet, up to the next end: that is shown with the unit that stores it."""
        if not self._showing:
            chunks, self._unshown = self._unstored.split(self._unshown)
            self._show(chunks)

    def _flush_soon(self) -> None:
        if self._inflight is None and not self._awaited:
            self._awaited = True
            self._hub.wake(self)

    def gather(self) -> None:
        """The hub makes its next item; see :class:`clew.store.hub.Stream`."""
        self._awaited = False
        under_way = self._inflight
        if self._rest is None:
            self._flush()
        if self._inflight is not under_way:
            self._hurried = False

    def _end_rest(self) -> None:
        self._stop_rest()
        self._flush_soon()

    def _flush(self, *, whole: bool = False) -> None:
        """Send what waits, with ``turn`` chunks only if ``whole``; the end of a unit under way will send it."""
        whole = whole or not self._at_turn
        if self._inflight is not None or self._closed or self._error is not None:
            self._overdue = self._overdue or whole
            return
        if not whole:
            if self._joined:
                self._submit(self._unit((), fold=False, whole=False), whole=False)
            return
        if not self._pending and not self._joined:
            self._show(self._take_unshown())
            return
        self._submit(self._unit((), fold=self._wants_fold()))

    def _wants_fold(self) -> bool:
        return self._timing.wants_fold(self._dirty_size, self._hub.takes_fold)

    def _dirty_size(self) -> int:
        """Characters a fold would write."""
        return sum(self.fold.text_length(index) for index in self._dirty)

    def _unit(
        self, writes: Sequence[u.Write], *, fold: bool, sync: u.Sync = "process", seal: bool = False, whole: bool = True
    ) -> u.Unit:
        """A unit of everything that waits: as parts when it folds, else as journal entries."""
        if not whole:
            joined, self._joined = self._joined, []
            return u.Unit(self.message.session_id, (*joined, *writes), (self._guard,), sync)
        own: list[u.Write] = []
        entries = self._pending
        parts: tuple[PartRow, ...] = ()
        now = 0
        if fold:
            now = self._time.now_ms()
            parts = tuple(
                PartRow(self._parts[index][0], index, self.fold.part(index), self._parts[index][1], now)
                for index in sorted(self._dirty)
            )
        if not self._stored and entries:
            metadata = {**self.message.metadata, **from_stream(self.fold.metadata)} if fold else self.message.metadata
            own.append(u.InsertMessage(msgspec.structs.replace(self.message, parts=parts, metadata=metadata)))
            own.append(u.LinkMessage(self._turn_id, self.message.id))
            self._stored = True
        else:
            if parts:
                own.append(u.PutParts(self.message.id, parts))
            if fold and self._metadata_dirty and self._stored:
                own.append(u.PatchMessage(self.message.id, now, from_stream(self.fold.metadata)))
        if fold and self._stored:
            # Parts and mark in one unit: recovery applies only what is above the mark, and never a chunk twice.
            own.append(u.MarkFolded(self.message.id, self._n))
            self._timing.note_fold()
            self._dirty.clear()
            self._metadata_dirty = False
            self._stop_timer()
        elif entries:
            own.append(u.AppendChunks(self.message.id, tuple(starmap(u.JournalEntry, entries))))
            if self._at_chunk:
                self._start_timer()
            else:
                # There the timer is for what waits to be stored, and now nothing does.
                self._stop_timer()
        if seal and self._stored:
            own.append(u.SealMessage(self.message.id, seal_of(self.fold.parts)))
        if not self._at_chunk and self._unshown:
            sync = self._unstored.sync_of_end(sync)
        own += self._joined
        self._pending, self._joined = [], []
        self._bytes = 0
        self._overdue = False
        return u.Unit(self.message.session_id, (*own, *writes), (self._guard,), sync)

    def _submit(self, unit: u.Unit, *, whole: bool = True) -> None:
        self._showing = self._take_unshown() if whole else []
        if whole:
            self._unstored.send(unit, self.fold)
        failpoint("recorder.before_submit")
        # What is handed in outside of the hub's own turn goes at once.
        self._inflight, self._hurried = unit, True
        self._hub.hand_in(self, unit)

    def answered(self, answer: Answer) -> None:
        """What became of the unit under way; see :class:`clew.store.hub.Stream`."""
        unit, shown, self._inflight, self._showing = self._inflight, self._showing, None, []
        if isinstance(answer, u.Refused):
            answer = refused_error(answer, self.message)
        if isinstance(answer, BaseException):
            self._unstored.fail(unit.writes if unit is not None else (), self._joined, self._held)
            self._fail(answer)
            return
        self._unstored.settle()
        # With ``chunk``, only here, in the answer to its commit, is one handed on: what is shown survives a kill.
        failpoint("recorder.before_show")
        self._show(shown)
        if not self._at_chunk:
            self._show_ahead()
        self._wake()
        if self._committing:
            return  # what came meanwhile goes with the unit that somebody waits to commit
        if self._joined or (self._pending and self._at_chunk):
            self._flush_soon()
        elif self._pending and (self._overdue or (self._unshown and self._rest is None)):
            self._flush(whole=True)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._pending.clear()
        self._joined.clear()
        self._held.clear()
        self._unshown.clear()
        self._stop_timers()
        self._wake()

    def _wake(self) -> None:
        """Whoever waits for the unit that was under way looks again."""
        idle, self._idle = self._idle, []
        for waiter in idle:
            if not waiter.done():
                waiter.set_result(None)

    def _take_unshown(self) -> list[c.Chunk]:
        shown, self._unshown = self._unshown, []
        return shown

    def _show(self, chunks: list[c.Chunk]) -> None:
        if chunks and self._on_shown is not None:
            try:
                self._on_shown(chunks)
            except Exception:
                log.exception("a consumer of message %s failed; the recording goes on", self.message.id)

    async def _unit_over(self) -> None:
        """Wait for the end of the unit under way, sending one first when none is."""
        if self._inflight is None:
            self._flush(whole=True)
        elif not self._hurried:
            self._hurried = True
            self._hub.hurry()
        if self._inflight is not None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    async def _commit(
        self, writes: Sequence[u.Write], *, fold: bool, sync: u.Sync, seal: bool = False, whole: bool = True
    ) -> None:
        self._check()
        # One unit of a stream at a time: that alone keeps its chunks in order, however units are grouped.
        self._committing += 1
        try:
            while self._inflight is not None:
                await self._unit_over()
        except BaseException:
            self._flush_soon()
            raise
        finally:
            self._committing -= 1
            self._stop_rest()
        self._check()
        held, self._held = self._held, [] if whole else [one for one in self._held if not isinstance(one, u.PutCall)]
        writes = (*(one for one in held if whole or isinstance(one, u.PutCall)), *writes)
        seal = seal and (self._stored or bool(self._pending))
        waits = writes or (whole and self._pending) or self._joined
        if not (waits or seal or (fold and self._stored and (self._dirty or self._metadata_dirty))):
            if whole:
                self._show(self._take_unshown())
            return
        self._submit(self._unit(writes, fold=fold, sync=sync, seal=seal, whole=whole), whole=whole)
        await self._unit_over()
        self._check()

    def _start_timer(self) -> None:
        if self._timer is None and self._dirty:
            self._timer = self._clock.call_later(self._timing.limit_ms(self._dirty_size()), self._on_timer)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _stop_rest(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.cancel()

    def _stop_timers(self) -> None:
        self._stop_timer()
        self._stop_rest()

    def _on_timer(self) -> None:
        """The stream has paused with chunks that no part holds (or that are not stored) yet."""
        self._timer = None
        if not self._at_chunk:
            if self._rest is None:
                self._flush(whole=True)
        elif self._inflight is not None or self._closed or self._error is not None:
            self._timing.due = True
        elif self._wants_fold():
            self._submit(self._unit((), fold=True))
        elif self._timing.is_over(self._dirty_size()):
            # Others were due at the same moment, and have their turn first.
            self._timer = self._clock.call_later(FOLD_TURN_MS, self._on_timer)
        else:
            # It has grown since the timer was set, and may wait for longer.
            self._start_timer()
