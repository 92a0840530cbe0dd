"""Runs: prompts, resuming, stopping, status, the queue, and answers to requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from clew import ids
from clew.actor import current_actor
from clew.address_space import REQUEST_BYTES, check_address_space
from clew.convert import convert
from clew.errors import InvalidInput, MessageNotFound
from clew.live.base import Event, Status
from clew.session.acquire.waiting import with_pause
from clew.session.api.base import EnginePart
from clew.transcript.chunk import chunk_dict
from clew.transcript.message import Message, shown_message
from clew.transcript.metadata import check_metadata, from_client
from clew.transcript.session import Model
from clew.transcript.stream_cursor import StreamChunk, StreamCursor
from clew.transcript.value_check import check_value

if TYPE_CHECKING:
    from clew.session.prompt.submission import OnBusy, Submission
    from clew.session.turn.answers import Answered, Decision
    from clew.session.turn.continuation import Mode

__all__ = ["Runs"]


class Runs(EnginePart):
    """The operations that start, stop, watch or answer a run."""

    async def submit(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        on_busy: OnBusy = "queue",
        attended: bool = True,
        output: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Submission:
        """Send a prompt: text, or a list of ``text`` and ``file`` parts. It is durable when this returns; its run
        continues in the background.

        On a busy session, or one that waits for a person, ``on_busy`` decides: ``queue`` it, ``reject`` it
        (``SessionBusy``), or ``interrupt`` the active run. ``model`` becomes the session's model once it has accepted
        the conversation; its variant is for this turn, and so is ``agent``. ``message_id`` is the client's own id:
        sending it again with the same content changes nothing. With ``attended=False`` no person is asked: calls that
        need approval are denied. ``output`` is a JSON Schema: the answer is a matching value, in a ``data-output``
        part, or the turn has failed. ``metadata`` is stored with the message; keys that clew uses are ignored. Both
        have a limit of 64 KiB.
        """
        if message_id is not None:
            ids.check_named_message_id(message_id)
        check_metadata(output, "output")
        check_metadata(metadata)
        check_address_space(REQUEST_BYTES, "a turn")
        return await self._runtime.prompts.submit(
            await self._resolve_session(session_id),
            prompt,
            model=model,
            agent=agent,
            message_id=message_id,
            on_busy=on_busy,
            attended=attended,
            output=output,
            metadata=from_client(metadata),
        )

    async def attach(
        self, session_id: str, *, replay: bool = True, message_id: str | None = None, after: str | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Follow the active run from its message's first part or, without ``replay``, from the next chunk; ends
        immediately if there is none.

        With ``message_id``, follow the turn of that message: one that has ended is shown as stored, to its end. With
        ``after``, the ``cursor`` of a chunk received before, follow its turn from the next chunk on; where the rest is
        not known, a ``data-reset`` chunk comes first, then the message from its first part. The stream of a turn
        continues in its later messages. A viewer more than 50,000 chunks behind is dropped with ``ViewerLagged``.
        """
        from clew.session.api.turn_stream import find_batches

        cursor = None if after is None else StreamCursor.parse(after)
        session, streams = await self._get_session(session_id), self._runtime.streams
        batches = await find_batches(
            self._store, streams, session.id, replay=replay, message_id=message_id, after=cursor
        )
        if batches is not None:
            async for batch in batches:
                for chunk, position in zip(batch, batch.cursors(), strict=True):
                    yield StreamChunk(chunk_dict(chunk), position)

    async def abort(self, session_id: str, *, queue: Literal["stay", "go_on"] = "stay") -> bool:
        """Stop the session's active run, or deny its pending requests. Return whether there was anything to stop.

        Queued messages wait for the user's next prompt or ``continue_turn``; with ``go_on`` they start immediately.
        """
        if queue not in ("stay", "go_on"):
            raise InvalidInput(f"queue must be stay or go_on, not {queue!r}")
        session = await self._get_session(session_id)
        return await self._runtime.runner.abort(session.id, queue=queue)

    async def continue_turn(self, session_id: str, *, mode: Mode = "on", queue: bool = False) -> Submission:
        """Resume the newest turn after its last complete step, if it has no answer, failed, was aborted or interrupted,
        or reached a limit. Otherwise start a paused queue; raises ``NothingToContinue`` if there is neither.

        A step is complete when its model call has ended. Its tool calls are not repeated: one without a result gets an
        error that says it was interrupted. Text of an incomplete step stays visible and is not sent. ``mode="again"``
        answers the same prompt again, in a sibling turn. With ``queue`` only a paused queue is started.
        """
        return await self._runtime.continuation.go_on(await self._resolve_session(session_id), mode, queue=queue)

    async def get_status(self, session_id: str) -> Status:
        """Return the session's status; after a restart it is derived from the store."""
        session = await self._get_session(session_id)
        return await with_pause(self._store, session, await self._present_status(session.id))

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """Yield the current status, then each change."""
        session_id = await self._resolve_session(session_id)
        changes = self._live.watch_status(session_id)
        last = await self.get_status(session_id)
        yield last
        async for change in changes:
            if change is None:
                status = await self.get_status(session_id)
            else:
                status = await self._with_pause(session_id, change)
            if status != last:
                last = status
                yield status

    async def _with_pause(self, session_id: str, status: Status) -> Status:
        """Return a status with the state of the queue added."""
        session = await self._store.find_session(session_id)
        return status if session is None else await with_pause(self._store, session, status)

    async def answer(
        self,
        session_id: str,
        approval_id: str,
        decision: Decision,
        reason: str | None = None,
        pattern: str | None = None,
    ) -> int:
        """Answer an approval request; return how many requests of the step are still open, 0 when the run has resumed.

        ``session`` and ``project`` also store a rule. ``pattern`` is one of the request's offers: the scope of that
        rule. Without it, the rule covers only this call.
        """
        return (await self._answer(session_id, approval_id, decision, reason, pattern)).remaining

    async def answer_all(
        self,
        session_id: str,
        decision: Decision,
        reason: str | None = None,
        approval_ids: Sequence[str] | None = None,
    ) -> int:
        """Answer every pending approval the same way; return how many questions are still open.

        ``approval_ids`` are those shown to the user: only these are answered.
        """
        check_value([reason, approval_ids], "answer")
        answers, session_id, actor = (
            self._runtime.answers,
            await self._resolve_session(session_id),
            current_actor(self.owner),
        )
        answering = answers.answer_all(session_id, decision, reason, approval_ids, actor=actor)
        return (await self._shielded(answering)).remaining

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any) -> int:
        """Answer a question of the model."""
        return (await self._answer_question(session_id, tool_call_id, output)).remaining

    async def _answer(
        self, session_id: str, approval_id: str, decision: Decision, reason: str | None, pattern: str | None
    ) -> Answered:
        check_value([approval_id, reason, pattern], "answer")
        answers, session_id, actor = (
            self._runtime.answers,
            await self._resolve_session(session_id),
            current_actor(self.owner),
        )
        return await self._shielded(answers.answer(session_id, approval_id, decision, reason, pattern, actor=actor))

    async def _answer_question(self, session_id: str, tool_call_id: str, output: Any) -> Answered:
        check_value([tool_call_id, output], "answer")
        answers, session_id, actor = (
            self._runtime.answers,
            await self._resolve_session(session_id),
            current_actor(self.owner),
        )
        return await self._shielded(answers.answer_question(session_id, tool_call_id, output, actor=actor))

    async def _shielded(self, answering: Coroutine[Any, Any, Answered]) -> Answered:
        """Store an answer even if the client disconnects: once it is stored, the turn must be resumed."""
        return await asyncio.shield(self._runtime.sessions.work(answering))

    async def queue(self, session_id: str) -> list[Message]:
        """Return the queued messages in the order in which they will start."""
        session = await self._get_session(session_id)
        return [shown_message(entry.message, None) for entry in await self._store.load_queue(session.id)]

    async def cancel_queued(self, session_id: str, message_id: str) -> None:
        """Remove a message from the queue, by clew's id or the client's own."""
        session = await self._get_session(session_id)
        cancelled = await self._find_queued(session.id, message_id)
        async with self._runtime.sessions.lock(session.id):
            await self._runtime.queue.cancel(session.id, cancelled)

    async def edit_queued(self, session_id: str, message_id: str, text: str) -> None:
        """Replace the text of a queued message. Its files and its position stay. A message of a trigger cannot be
        edited."""
        session = await self._get_session(session_id)
        edited = await self._find_queued(session.id, message_id)
        async with self._runtime.sessions.lock(session.id):
            await self._runtime.queue.edit(session.id, edited, text)

    async def move_queued(self, session_id: str, message_id: str, *, before: str | None = None) -> None:
        """Move a queued message before another one, or to the end."""
        session = await self._get_session(session_id)
        moved = await self._find_queued(session.id, message_id)
        behind = await self._find_queued(session.id, before) if before is not None else None
        async with self._runtime.sessions.lock(session.id):
            await self._runtime.queue.move(session.id, moved, behind)

    async def send_queued(self, session_id: str, message_id: str) -> Submission:
        """Send a queued message now. The active run is interrupted, and pending requests are denied."""
        session = await self._get_session(session_id)
        return await self._runtime.prompts.send_queued(session.id, await self._find_queued(session.id, message_id))

    async def pause_queue(self, session_id: str, *, paused: bool = True) -> None:
        """Pause the queue until it is resumed with ``paused=False``, which ends a pause of any kind and starts the next
        message if the session is idle. Messages sent meanwhile run, or wait behind it."""
        session = await self._get_session(session_id)
        if paused:
            await self._runtime.queue.pause(session.id, "person")
            return
        async with self._runtime.sessions.lock(session.id):
            self._runtime.sessions.check_open(session.id)
            await self._runtime.queue.resume(session.id)
            await self._runtime.runner.fire_idle(session.id)

    async def _find_queued(self, session_id: str, message_id: str) -> str:
        """Return clew's id of a message; for a client's id, that of the queued one."""
        ids.check_named_message_id(message_id)
        rows = await self._store.load_client_messages(session_id, message_id)
        named = [row.id for row in sorted(rows, key=lambda row: row.queued_at is None)]
        if not named and await self._store.find_message(session_id, message_id) is None:
            raise MessageNotFound(f"there is no message {message_id}", message_id=message_id)
        return named[0] if named else message_id

    def subscribe(self) -> AsyncIterator[Event]:
        """Return the events of this host from now on."""
        return self._shown(cast(AsyncGenerator[Event, None], self._live.subscribe()))

    async def _shown(self, events: AsyncGenerator[Event, None]) -> AsyncIterator[Event]:
        """Yield events as clients see them, for an owner only their own: statuses of runs lack the state of the
        queue."""
        async with contextlib.aclosing(events):
            async for event in events:
                if self.owner is not None and not await self._is_own(event):
                    continue
                if event.type == "status":
                    status = convert(event.data["status"], Status)
                    shown = await self._with_pause(event.data["session_id"], status)
                    event = Event("status", {**event.data, "status": msgspec.to_builtins(shown)})
                yield event

    async def _is_own(self, event: Event) -> bool:
        """Return whether the owner may see an event. Those without a session are the host's; a deletion names its
        owner."""
        session_id = event.data.get("session_id")
        if event.type == "session_deleted":
            return event.data.get("owner") == self.owner
        # By id: an owner's alias may be the id of another owner's session.
        return isinstance(session_id, str) and await self._store.find_named(session_id, self.owner) == session_id
