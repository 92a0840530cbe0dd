"""Runs: prompts, going on, stopping, what a session is doing, its queue, and the answers a human gives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from clew import ids
from clew.actor import current_actor
from clew.address_space import REQUEST_BYTES, check_address_space
from clew.engine.base import EnginePart
from clew.errors import InvalidInput, MessageNotFound
from clew.fit import fit
from clew.live.base import Event, Status
from clew.transcript.chunk import chunk_dict
from clew.transcript.gate import check_value
from clew.transcript.message import Message, shown_message
from clew.transcript.metadata import check_metadata, from_client
from clew.transcript.session import Model

if TYPE_CHECKING:
    from clew.runtime.answers import Decision
    from clew.runtime.continuation import Mode
    from clew.runtime.submission import OnBusy, Submission

__all__ = ["Runs"]


class Runs(EnginePart):
    """What starts, stops, watches or answers a run."""

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
        """Send a prompt. It is durable when this returns; its run goes on by itself.

        On a busy session ``on_busy`` says what happens: ``queue`` it, ``reject`` it (``SessionBusy``), or
        ``interrupt`` what runs. ``message_id`` is the client's own id: sending it again changes nothing.
        ``output`` is a JSON Schema: the answer is a value of it, in a ``data-output`` part, or the turn has failed.
        ``metadata`` is stored with the message; keys that mean something to clew are ignored. At most 64 KiB of each.
        """
        if message_id is not None:
            ids.check_named_message_id(message_id)
        check_metadata(output, "output")
        check_metadata(metadata)
        check_address_space(REQUEST_BYTES, "a turn")
        return await self._runtime.prompts.submit(
            await self._own(session_id),
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
        self, session_id: str, *, replay: bool = True, message_id: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Follow what runs now, from its message's first part, or without ``replay`` from what comes next; ends at once
        when nothing does.

        With ``message_id`` it is the turn that holds that message: one that is over is shown as it is stored, to its
        end.
        """
        from clew.engine.turn_stream import find_batches

        session, find = await self._find_own(session_id), self._runtime.streams.find
        batches = await find_batches(self._store, find, session.id, replay=replay, message_id=message_id)
        if batches is not None:
            async for batch in batches:
                for chunk in batch:
                    yield chunk_dict(chunk)

    async def abort(self, session_id: str, *, queue: Literal["stay", "go_on"] = "stay") -> bool:
        """Stop what runs on the session, or deny what waits there. True when there was something.

        What waits in the queue stays there until a person's next prompt, or ``continue_turn``; with ``go_on`` it is
        fired at once.
        """
        if queue not in ("stay", "go_on"):
            raise InvalidInput(f"queue must be stay or go_on, not {queue!r}")
        session = await self._find_own(session_id)
        return await self._runtime.runner.abort(session.id, queue=queue)

    async def continue_turn(self, session_id: str, *, mode: Mode = "on", queue: bool = False) -> Submission:
        """Go on with the newest turn, after its last complete step: one that nobody answered, that failed, was aborted
        or interrupted, or came to a limit. Else a paused queue goes on.

        ``mode="again"`` has the same prompt answered anew, in a turn beside that one. With ``queue`` a paused queue is
        started and nothing else.
        """
        return await self._runtime.continuation.go_on(await self._own(session_id), mode, queue=queue)

    async def get_status(self, session_id: str) -> Status:
        return await self._runtime.status(await self._find_own(session_id))

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """The present status, then each change."""
        session_id = await self._own(session_id)
        changes = self._host.live.watch_status(session_id)
        last = await self.get_status(session_id)
        yield last
        async for change in changes:
            if change is None:
                status = await self.get_status(session_id)
            else:
                status = await self._runtime.with_pause(session_id, change)
            if status != last:
                last = status
                yield status

    async def answer(
        self,
        session_id: str,
        approval_id: str,
        decision: Decision,
        reason: str | None = None,
        pattern: str | None = None,
    ) -> int:
        """Answer a request for approval; how many of the step are still open.

        ``pattern`` is one of those the request offers: how far the rule goes that session and project store. Without
        it, the rule covers this call and no other.
        """
        check_value([approval_id, reason, pattern], "answer")
        answers, session_id, actor = self._runtime.answers, await self._own(session_id), current_actor(self.owner)
        return await self._seen_through(answers.answer(session_id, approval_id, decision, reason, pattern, actor=actor))

    async def answer_all(
        self,
        session_id: str,
        decision: Decision,
        reason: str | None = None,
        approval_ids: Sequence[str] | None = None,
    ) -> int:
        """Answer every request for approval that waits, alike; how many questions are still open.

        ``approval_ids`` are those that were seen: none but these is answered.
        """
        check_value([reason, approval_ids], "answer")
        answers, session_id, actor = self._runtime.answers, await self._own(session_id), current_actor(self.owner)
        return await self._seen_through(answers.answer_all(session_id, decision, reason, approval_ids, actor=actor))

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any) -> int:
        """Answer a question the model asked."""
        check_value([tool_call_id, output], "answer")
        answers, session_id, actor = self._runtime.answers, await self._own(session_id), current_actor(self.owner)
        return await self._seen_through(answers.answer_question(session_id, tool_call_id, output, actor=actor))

    async def _seen_through(self, answering: Coroutine[Any, Any, int]) -> int:
        """Whoever answers may leave: once the answer is stored, the turn must go on."""
        return await asyncio.shield(self._runtime.sessions.work(answering))

    async def queue(self, session_id: str) -> list[Message]:
        """The messages that wait, in the order they will be fired."""
        waiting = await self._runtime.queue.load(await self._own(session_id))
        return [shown_message(entry.message, None) for entry in waiting]

    async def cancel_queued(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue, by clew's id or the client's own."""
        session = await self._find_own(session_id)
        cancelled = await self._find_queued(session.id, message_id)
        async with self._runtime.sessions.lock(session.id):
            await self._runtime.queue.cancel(session.id, cancelled)

    async def edit_queued(self, session_id: str, message_id: str, text: str) -> None:
        """Say a message that waits in other words. Its files stay with it, and it keeps its place."""
        session = await self._find_own(session_id)
        edited = await self._find_queued(session.id, message_id)
        async with self._runtime.sessions.lock(session.id):
            await self._runtime.queue.edit(session.id, edited, text)

    async def move_queued(self, session_id: str, message_id: str, *, before: str | None = None) -> None:
        """Have a message fired before another one that waits, or last."""
        session = await self._find_own(session_id)
        moved = await self._find_queued(session.id, message_id)
        behind = await self._find_queued(session.id, before) if before is not None else None
        async with self._runtime.sessions.lock(session.id):
            await self._runtime.queue.move(session.id, moved, behind)

    async def send_queued(self, session_id: str, message_id: str) -> Submission:
        """Send a message that waits now. What runs is interrupted for it, and what asks for approval denied."""
        session = await self._find_own(session_id)
        return await self._runtime.prompts.send_queued(session.id, await self._find_queued(session.id, message_id))

    async def pause_queue(self, session_id: str, *, paused: bool = True) -> None:
        """Let what waits stay in the queue until somebody says go on, which is ``paused=False``: whatever it was paused
        by, it goes on, at once where nothing runs. What is sent meanwhile runs, or waits behind it."""
        session = await self._find_own(session_id)
        if paused:
            await self._runtime.queue.pause(session.id, "person")
            return
        async with self._runtime.sessions.lock(session.id):
            self._runtime.sessions.check_open(session.id)
            await self._runtime.queue.resume(session.id)
            await self._runtime.runner.fire_idle(session.id)

    async def _find_queued(self, session_id: str, message_id: str) -> str:
        """Clew's id of a message: under a client's own, of the one that waits."""
        ids.check_named_message_id(message_id)
        rows = await self._store.load_client_messages(session_id, message_id)
        named = [row.id for row in sorted(rows, key=lambda row: row.queued_at is None)]
        if not named and await self._store.find_message(session_id, message_id) is None:
            raise MessageNotFound(f"there is no message {message_id}", message_id=message_id)
        return named[0] if named else message_id

    def subscribe(self) -> AsyncIterator[Event]:
        """What happens on this host, from now on."""
        return self._shown(cast(AsyncGenerator[Event, None], self._host.live.subscribe()))

    async def _shown(self, events: AsyncGenerator[Event, None]) -> AsyncIterator[Event]:
        """The events as they are shown, an owner's alone: a run's own status knows nothing of the queue."""
        async with contextlib.aclosing(events):
            async for event in events:
                if self.owner is not None and not await self._is_own(event):
                    continue
                if event.type == "status":
                    told = fit(event.data["status"], Status)
                    shown = await self._runtime.with_pause(event.data["session_id"], told)
                    event = Event("status", {**event.data, "status": msgspec.to_builtins(shown)})
                yield event

    async def _is_own(self, event: Event) -> bool:
        """Whether the owner may be told. An event of no session is the host's; that one is gone says whose it was."""
        session_id = event.data.get("session_id")
        if event.type == "session_deleted":
            return event.data.get("owner") == self.owner
        # By id: what one owner calls a session may be the id of another's.
        return isinstance(session_id, str) and await self._store.find_named(session_id, self.owner) == session_id
