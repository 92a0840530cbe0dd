"""A session that is open in an editor: its updates, its pending requests and its prompts.

Updates follow the session's events, so a prompt sent from this editor, the queue or the page looks the same. A prompt
ends with the event of its turn, not with the call that submitted it: a later protocol version that responds to a prompt
immediately needs no change here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from clew.convert import convert
from clew.errors import BlobNotFound, ClewError, Conflict, InvalidInput, NotFound, StoreError, ViewerLagged
from clew.fronts.acp.approvals import ApprovalRequests
from clew.fronts.acp.options import Choice
from clew.fronts.acp.params import ClientCapabilities
from clew.fronts.acp.rpc import INTERNAL, Closed, Connection, Refused, refusal_of
from clew.fronts.acp.updates import UpdateSender
from clew.fronts.failure_messages import failure_message
from clew.live.base import Event, Status
from clew.session.api import Operations
from clew.session.turn.continuation import Mode
from clew.transcript.chunk import Start, parse_chunk
from clew.transcript.message import Message
from clew.transcript.part import texts_of
from clew.transcript.session import Session
from clew.transcript.turn_state import OPEN

__all__ = ["OpenSession", "Prompt"]

log = logging.getLogger("clew.acp")
_AT_WORK: Final = frozenset({"busy", "retrying"})
_CATCH_UP_MESSAGES: Final = 50
"""Newest messages that are checked for missed updates."""
_STOPS: Final[Mapping[str, str]] = {"length": "max_tokens", "step_limit": "max_turn_requests"}
_NOTICES: Final[Mapping[str, str]] = {
    "step_limit": "Stopped: step limit reached. /continue to resume.",
    "doom_loop": "Stopped: repeating the same calls. /continue to resume.",
    "length": "The answer was cut off at the output limit. /continue to resume.",
    "content_filter": "Stopped by the provider's content filter.",
    "error": "The model ended with an error. /retry to ask again.",
    "other": "The model stopped for an unknown reason. /continue to resume if the answer is incomplete.",
}


class Prompt:
    """An unfinished prompt of this editor. Once accepted it is identified by its message, or by the turn it resumes."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self.turn_id: str | None = None
        self.queued = False
        self.cancelled = False
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(self, reason: str) -> None:
        if not self.end.done():
            self.end.set_result("cancelled" if self.cancelled else reason)

    def fail(self, error: Exception) -> None:
        if self.cancelled:
            self.stop("cancelled")
        elif not self.end.done():
            self.end.set_exception(error)
            # Retrieved, so that asyncio does not report it when the prompt's request is gone.
            self.end.exception()


class OpenSession:
    """One session, from opening to closing. ``engine`` is called each time, since the connection to a server may have
    been replaced."""

    def __init__(
        self,
        session: Session,
        engine: Callable[[], Operations],
        connection: Connection,
        client: ClientCapabilities,
    ) -> None:
        self.id = session.id
        self.folder = session.workspace_root
        self.choice = Choice()
        self._engine = engine
        self._connection = connection
        self._client = client
        self._title, self._mode, self._model = session.title, session.mode, str(session.model)
        self.options_changed: Callable[[], Any] | None = None
        self.updates = UpdateSender(self.send, self._find_blob, self.folder, shows_compaction=client.shows_compaction)
        self._requests = ApprovalRequests(
            self.id, self.folder, engine, connection, self.updates, by_form=client.asks_by_form, abort=self.cancel
        )
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._submitting = asyncio.Lock()
        self._prompts: list[Prompt] = []
        self._streaming: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._live_id: str | None = None
        self._cursor = ""
        self._waiting_turn: str | None = None
        self._retry: str | None = None
        self._work: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._left = False

    # Used by the agent and by tools

    def hear(self, event: Event | None) -> None:
        """Queue an event of the session; None if events may have been missed."""
        self._events.put_nowait(event)

    def take_over(self, before: OpenSession) -> None:
        """Take over the choices and unfinished prompts of a session that was open before."""
        self.choice, self._prompts = before.choice, before._prompts

    def follow(self) -> None:
        """Start sending updates, beginning with the current state."""
        if self._left:
            return  # reopened or closed before its own response was sent
        self._events.put_nowait(None)
        self._work = asyncio.create_task(self._handle_events())

    async def leave(self) -> None:
        """Stop sending updates. The turn keeps running, and requests stay pending."""
        self._left = True
        await self._requests.leave()
        tasks = [task for task in (self._work, self._streaming, *self._jobs) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run_in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something in the background; errors are logged."""
        task = asyncio.create_task(self._report(work))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _report(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ClewError as error:
            log.warning("session %s: %s", self.id, error)

    async def send(self, update: dict[str, Any]) -> None:
        await self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    async def say(self, text: str) -> None:
        """Send a text of clew as a message of the agent."""
        await self.send({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

    async def notice(self, severity: str, title: str) -> None:
        """Send a notice, if the editor can show it."""
        if self._client.shows_notices:
            await self.send({"sessionUpdate": "notice", "severity": severity, "title": title})

    @contextlib.contextmanager
    def arriving(self) -> Iterator[Prompt]:
        """Register a prompt until its response is sent, so that a cancellation reaches it."""
        prompt = Prompt()
        self._prompts.append(prompt)
        try:
            yield prompt
        except asyncio.CancelledError:
            # Cancelled by a request. Closing the editor does not stop the turn.
            if not self._connection.closed:
                self.run_in_background(self.cancel)
            raise
        finally:
            self._prompts.remove(prompt)

    async def prompt(self, prompt: Prompt, parts: list[dict[str, Any]]) -> str:
        """Send a prompt, or answer the open question with it; return the stop reason of its turn."""
        engine = self._engine()
        async with self._submitting:
            question = self._requests.question
            texts = texts_of(parts)
            if prompt.cancelled:
                return "cancelled"
            if question is not None and texts:
                if len(texts) != len(parts):
                    raise InvalidInput("answer the model's question with text only; send files afterwards")
                self._requests.question = None
                prompt.turn_id = self._waiting_turn
                await engine.answer_question(self.id, question.tool_call_id, "\n".join(texts))
            else:
                model = self.choice.model_for(await engine.get_session(self.id))
                taken = await engine.submit(self.id, parts, model=model, agent=self.choice.agent)
                self.updates.mark_sent(taken.message_id)
                prompt.message_id, prompt.queued = taken.message_id, taken.queued
        return await prompt.end

    async def resume(self, prompt: Prompt, mode: Mode = "on") -> str:
        """Resume the newest turn; return its stop reason."""
        async with self._submitting:
            if prompt.cancelled:
                return "cancelled"
            prompt.message_id = (await self._engine().continue_turn(self.id, mode=mode)).message_id
        return await prompt.end

    async def cancel(self) -> None:
        """Stop the turn, deny pending requests, and remove this editor's messages from the queue."""
        await self._cancel_prompts()
        await self._engine().abort(self.id)

    async def close(self) -> None:
        """Close the session: turns that this editor started are stopped. Requests stay pending."""
        await self._cancel_prompts()
        running = [prompt for prompt in self._prompts if not prompt.queued]
        if running and (await self._engine().get_status(self.id)).state in _AT_WORK:
            await self._engine().abort(self.id)
        for prompt in self._prompts:
            prompt.stop("cancelled")
        await self.leave()

    async def _cancel_prompts(self) -> None:
        """Cancel all prompts, and remove queued ones from the queue."""
        for prompt in self._prompts:
            prompt.cancelled = True
        async with self._submitting:
            queued = [waiting for waiting in self._prompts if waiting.queued and waiting.message_id is not None]
        for waiting in queued:
            with contextlib.suppress(Conflict, NotFound):  # it has left the queue meanwhile
                await self._engine().cancel_queued(self.id, str(waiting.message_id))
                waiting.stop("cancelled")

    def release_prompts(self) -> None:
        """Stop waiting for the end of prompts; the turn keeps running."""
        for prompt in self._prompts:
            prompt.end.cancel()

    def fail(self, error: Exception) -> None:
        """Fail all prompts."""
        for prompt in self._prompts:
            prompt.fail(error)

    def remove(self) -> None:
        """Cancel the requests and fail the prompts of a deleted session."""
        self._requests.close()
        self.fail(Refused(INTERNAL, "this session was deleted", {"code": "session_not_found"}))

    # Events

    async def _handle_events(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await (self._catch_up() if event is None else self._on_event(event.type, event.data))
            except (Closed, asyncio.CancelledError):
                raise
            except ClewError as error:
                log.warning("session %s: %s", self.id, error)
                self._fail_running(event, refusal_of(error))
            except Exception:
                log.exception("unexpected error in an update of session %s", self.id)
                self._fail_running(event, Refused(INTERNAL, "internal error; see clew's log on stderr"))

    def _fail_running(self, event: Event | None, error: Refused) -> None:
        """Fail running prompts if the event that ends them could not be handled; queued ones stay."""
        if event is not None and event.type in ("turn_finished", "session_deleted"):
            for prompt in self._prompts:
                if not prompt.queued:
                    prompt.fail(error)

    async def _on_event(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "turn_started":
            await self._on_started(str(data["message_id"]), str(data["user_message_id"]))
        elif kind == "turn_finished":
            await self._on_finished(str(data["turn_id"]), str(data.get("reason")), data.get("error") or {})
        elif kind == "status":
            await self._on_status(convert(data["status"], Status))
        elif kind == "approval_answered":
            self._requests.close(str(data.get("tool_call_id")))
        elif kind == "context_compacted":
            if isinstance(marker := data.get("message_id"), str):
                await self.send_summary(marker)
        elif kind == "queue_changed":
            await self._on_queue()
        elif kind == "session_updated":
            await self._send_changes(await self._engine().get_session(self.id))
        elif kind == "session_deleted":
            self.remove()

    async def _on_started(self, message_id: str, user_message_id: str) -> None:
        if self._streaming is not None:
            # Already joined while catching up; otherwise the previous run is about to end.
            await self._joined.wait()
            if self._live_id == message_id:
                return
            await self._settle_stream()
        self._requests.close()
        self._retry = self._waiting_turn = None
        async with self._submitting:
            known = self.updates.knows(user_message_id)
        if not known:
            for message in await self._engine().messages(self.id, limit=_CATCH_UP_MESSAGES):
                if message.id == user_message_id:
                    await self.send_message(message)
        self._join(message_id)

    async def send_message(self, message: Message) -> None:
        """Send what is new in a message; of clew's own messages only summaries."""
        is_shown = not message.is_synthetic or message.role == "assistant" or message.is_summary
        if is_shown and await self.updates.send_message(message.id, message.role, message.parts):
            self._cursor = ""

    def _join(self, message_id: str | None) -> None:
        self._joined, self._live_id = asyncio.Event(), None
        self._streaming = asyncio.create_task(self._stream(message_id, self._joined))

    async def _stream(self, message_id: str | None, joined: asyncio.Event) -> None:
        """Send updates from the live stream of a run. If the stream breaks, the stored messages follow."""
        # A run that continues a message is followed from where the one before it ended.
        after = self._cursor if message_id is not None and self._cursor.startswith(f"{message_id}:") else None
        try:
            async for given in self._engine().attach(self.id, after=after):
                chunk = parse_chunk(given)
                shown_id = str(given.get("messageId")) if isinstance(chunk, Start) else message_id
                if message_id not in (None, shown_id):
                    return  # that run has ended; the next one has an event of its own
                self._live_id = message_id = shown_id
                joined.set()
                self._cursor = given.cursor or self._cursor
                await self.updates.send_chunk(str(message_id), chunk, given.cursor)
        except (ViewerLagged, StoreError, Closed) as error:
            log.info("lost the stream of session %s: %s", self.id, error)
        finally:
            joined.set()

    async def _settle_stream(self) -> None:
        streaming, self._streaming = self._streaming, None
        if streaming is not None:
            await asyncio.gather(streaming, return_exceptions=True)

    async def _on_finished(self, turn_id: str, reason: str, error: Mapping[str, Any]) -> None:
        await self._settle_stream()
        engine = self._engine()
        messages = await engine.turn_messages(turn_id)
        for message in messages:
            await self.send_message(message)
        if reason == "waiting":
            self._waiting_turn = turn_id
            await self._ask(messages)
            return
        self._requests.close()
        await self._send_usage()
        stop = "cancelled" if reason == "abort" else "end_turn"
        if reason == "finish":
            left = (await engine.turn(turn_id)).data
            stopped = str(left.get("stopped"))
            stop = _STOPS.get(stopped, stop)
            if stopped in _NOTICES:
                await self._note(_NOTICES[stopped])
        message_ids = {message.id for message in messages}
        async with self._submitting:
            pass  # a turn may end before its prompt's message id is known
        for prompt in self._prompts:
            if prompt.message_id in message_ids or prompt.turn_id == turn_id:
                if reason in ("finish", "abort"):
                    prompt.stop(stop)
                else:
                    prompt.fail(_failure(error))

    async def _note(self, words: str) -> None:
        if self._client.shows_notices:
            await self.notice("warning", words)
        else:
            await self.say(f"\n\n[{words}]")

    async def _ask(self, messages: list[Message]) -> None:
        """Send pending requests. A question ends the prompt if the editor has no form; the next prompt answers it."""
        status = await self._engine().get_status(self.id)
        words = self._requests.ask(status.waiting, messages)
        if words is not None:
            await self.say(words)
            for prompt in self._prompts:
                if not prompt.queued:
                    prompt.stop("end_turn")

    async def _on_status(self, status: Status) -> None:
        message = status.message if status.state == "retrying" else None
        if message is not None and message != self._retry:
            words = failure_message(status.problem or {})
            await self.notice("warning", f"{words.happened} Retrying." if words else f"Retrying: {message}")
        self._retry = message
        if status.waiting and self._streaming is None and self._waiting_turn is not None:
            async with self._submitting:
                pass  # do not ask again while an answer is being stored
            await self._ask(await self._engine().messages(self.id, limit=_CATCH_UP_MESSAGES))

    async def _on_queue(self) -> None:
        """Cancel prompts that left the queue without entering the conversation."""
        queued = [one for one in self._prompts if one.queued]
        if not queued:
            return
        waiting = {message.id for message in await self._engine().queue(self.id)}
        shown = {message.id for message in await self._engine().messages(self.id, limit=_CATCH_UP_MESSAGES)}
        for prompt in queued:
            if prompt.message_id in shown:
                prompt.queued = False
            elif prompt.message_id not in waiting:
                prompt.stop("cancelled")

    async def _catch_up(self) -> None:
        """Send what was missed, join a running turn, and send pending requests."""
        engine = self._engine()
        # No prompt is being submitted meanwhile, so the origin of each message is known.
        async with self._submitting:
            session, status = await engine.get_session(self.id), await engine.get_status(self.id)
            messages = await engine.messages(self.id, limit=_CATCH_UP_MESSAGES) if self._streaming is None else []
        if self._streaming is None:
            for message in messages:
                await self.send_message(message)
            if status.state in _AT_WORK:
                self._join(None)
            elif status.waiting:
                self._waiting_turn = messages[-1].turn_id if messages else None
                await self._ask(messages)
            else:
                await self._end_missed(messages)
        await self._send_usage()
        await self._send_changes(session)

    async def _end_missed(self, messages: list[Message]) -> None:
        """End prompts whose turn ended while the connection was lost."""
        turns = {message.id: message.turn_id for message in messages}
        for prompt in [*self._prompts]:
            turn_id = prompt.turn_id or turns.get(str(prompt.message_id))
            turn = await self._engine().turn(turn_id) if turn_id is not None else None
            if turn is not None and turn.status not in OPEN:
                ends, left = {"completed": "finish", "aborted": "abort"}, turn.data
                await self._on_finished(turn.id, ends.get(turn.status, "error"), left.get("error") or {})

    async def send_summary(self, marker: str) -> None:
        """Send a new summary of earlier turns."""
        if not self.updates.knows(marker):
            for message in await self._engine().messages(self.id, limit=200):
                if message.id == marker:
                    await self.send_message(message)
            await self._send_usage()

    async def _send_usage(self) -> None:
        engine = self._engine()
        with contextlib.suppress(ClewError):  # the model may no longer exist
            report = await engine.context(self.id)
            cost = {"amount": (await engine.get_session(self.id)).spend.cost_usd, "currency": "USD"}
            await self.send({"sessionUpdate": "usage_update", "used": report.used, "size": report.limit, "cost": cost})

    async def _send_changes(self, session: Session) -> None:
        """Send a changed title, mode or model."""
        if session.title != self._title:
            self._title = session.title
            await self.send({"sessionUpdate": "session_info_update", "title": session.title})
        if (session.mode, str(session.model)) != (self._mode, self._model):
            if session.mode != self._mode:
                await self.send({"sessionUpdate": "current_mode_update", "currentModeId": session.mode})
            self._mode, self._model = session.mode, str(session.model)
            if self.options_changed is not None:
                await self.options_changed()

    async def _find_blob(self, sha256: str) -> bytes | None:
        try:
            return (await self._engine().blob(sha256)).data
        except BlobNotFound:
            return None


def _failure(error: Mapping[str, Any]) -> Refused:
    """Return why a turn failed in plain words, with the provider's message as detail."""
    words, message = failure_message(error), str(error.get("message") or "the turn failed; no reason was reported")
    code = str(error.get("code") or "model_failed")
    if words is None:
        return Refused(INTERNAL, message, {"code": code})
    return Refused(INTERNAL, f"{words.happened} {words.next}", {"code": code, "details": message[:1000]})
