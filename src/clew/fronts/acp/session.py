"""A session that is open in an editor: what happens in it is told, what waits is asked, prompts are answered.

What is told follows the session's own events, whoever caused them: a prompt sent from here, from the queue or from the
page looks the same. A prompt is taken, and its end comes with the event of its turn: nothing here waits inside the call
that sent it, so that a later protocol, which answers a prompt at once, needs nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from clew.convert import fit
from clew.errors import BlobNotFound, ClewError, Conflict, InvalidInput, NotFound, StoreError, ViewerLagged
from clew.fronts.acp.approvals import Asking
from clew.fronts.acp.options import Choice
from clew.fronts.acp.params import ClientCapabilities
from clew.fronts.acp.rpc import INTERNAL, Closed, Connection, Refused, refusal_of
from clew.fronts.acp.updates import UpdateSender
from clew.fronts.failure_messages import words_of
from clew.live.base import Event, Status
from clew.session.api import Operations
from clew.session.turn.continuation import Mode
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.part import texts_of
from clew.transcript.session import Session
from clew.transcript.turn_state import OPEN

__all__ = ["OpenSession", "Prompt"]

log = logging.getLogger("clew.acp")
_AT_WORK: Final = frozenset({"busy", "retrying"})
_LOOKED_AT: Final = 50
"""So many of the newest messages are looked at for what was missed."""
_STOPS: Final[Mapping[str, str]] = {"length": "max_tokens", "step_limit": "max_turn_requests"}
_NOTES: Final[Mapping[str, str]] = {
    "step_limit": "It stopped at its limit of steps; /continue goes on.",
    "doom_loop": "It stopped because it went round in circles; /continue goes on.",
    "length": "The answer was cut off at its limit; /continue goes on.",
    "content_filter": "The answer was stopped by the provider's filter.",
    "error": "The model broke off with an error of its own; ask again.",
    "other": "The model stopped for a reason that clew does not know; if more was to come, /continue goes on.",
}


class Prompt:
    """A prompt of this editor's that has no end yet, from when it arrived. Once taken it is known by its message,
    or by the turn it goes on with."""

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
            # Nobody may be waiting for it yet, or any more.
            self.end.exception()


class OpenSession:
    """One session, from when the editor opens it until it closes it. ``engine`` is asked for anew each time: that of a
    server may be lost and found again."""

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
        self.telling = UpdateSender(self.send, self._find_blob, self.folder, shows_compaction=client.shows_compaction)
        self._asking = Asking(
            self.id, self.folder, engine, connection, self.telling, by_form=client.asks_by_form, abort=self.cancel
        )
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._submitting = asyncio.Lock()
        self._prompts: list[Prompt] = []
        self._streaming: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._live_id: str | None = None
        self._waiting_turn: str | None = None
        self._retry: str | None = None
        self._work: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._left = False

    # What others do with it

    def hear(self, event: Event | None) -> None:
        """Something happened in the session; None: something may have been missed."""
        self._events.put_nowait(event)

    def take_over(self, before: OpenSession) -> None:
        """It was open here already: what was chosen stays, and prompts that have no end yet end here."""
        self.choice, self._prompts = before.choice, before._prompts

    def follow(self) -> None:
        """Tell from now on what happens, beginning with how the session stands."""
        if self._left:
            return  # it was opened again, or closed, before its own answer was sent
        self._events.put_nowait(None)
        self._work = asyncio.create_task(self._tell_events())

    async def leave(self) -> None:
        """Look away. What runs goes on, and what waits goes on waiting."""
        self._left = True
        await self._asking.leave()
        tasks = [task for task in (self._work, self._streaming, *self._jobs) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something while the session goes on."""
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
        """Words of clew's own, in the place of an answer."""
        await self.send({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

    async def notice(self, severity: str, title: str) -> None:
        """Something people should know, where the editor can show that."""
        if self._client.shows_notices:
            await self.send({"sessionUpdate": "notice", "severity": severity, "title": title})

    @contextlib.contextmanager
    def arriving(self) -> Iterator[Prompt]:
        """A prompt that came in, until it is answered: what is cancelled from now on is this, too."""
        prompt = Prompt()
        self._prompts.append(prompt)
        try:
            yield prompt
        except asyncio.CancelledError:
            # By a request to cancel it; whoever closed the editor only looks away.
            if not self._connection.closed:
                self.beside(self.cancel)
            raise
        finally:
            self._prompts.remove(prompt)

    async def prompt(self, prompt: Prompt, parts: list[dict[str, Any]]) -> str:
        """Send a prompt, and wait for its turn's end; why it stopped. What was asked last may be answered by it."""
        engine = self._engine()
        async with self._submitting:
            question = self._asking.question
            texts = texts_of(parts)
            if prompt.cancelled:
                return "cancelled"
            if question is not None and texts:
                if len(texts) != len(parts):
                    raise InvalidInput("the model's question is answered in words alone; send files once it goes on")
                self._asking.question = None
                prompt.turn_id = self._waiting_turn
                await engine.answer_question(self.id, question.tool_call_id, "\n".join(texts))
            else:
                model = self.choice.model_for(await engine.get_session(self.id))
                taken = await engine.submit(self.id, parts, model=model, agent=self.choice.agent)
                self.telling.pass_over(taken.message_id)
                prompt.message_id, prompt.queued = taken.message_id, taken.queued
        return await prompt.end

    async def go_on(self, prompt: Prompt, mode: Mode = "on") -> str:
        """Go on with the newest turn, and wait for its end."""
        async with self._submitting:
            if prompt.cancelled:
                return "cancelled"
            prompt.message_id = (await self._engine().continue_turn(self.id, mode=mode)).message_id
        return await prompt.end

    async def cancel(self) -> None:
        """Stop what runs, deny what waits, and take back what this editor has in the queue."""
        await self._take_back()
        await self._engine().abort(self.id)

    async def close(self) -> None:
        """The editor closes it: what it began is stopped. What waits for a human goes on waiting."""
        await self._take_back()
        running = [prompt for prompt in self._prompts if not prompt.queued]
        if running and (await self._engine().get_status(self.id)).state in _AT_WORK:
            await self._engine().abort(self.id)
        for prompt in self._prompts:
            prompt.stop("cancelled")
        await self.leave()

    async def _take_back(self) -> None:
        """All prompts that have arrived are cancelled, and those that wait in the queue leave it."""
        for prompt in self._prompts:
            prompt.cancelled = True
        async with self._submitting:
            queued = [one for one in self._prompts if one.queued and one.message_id is not None]
        for one in queued:
            with contextlib.suppress(Conflict, NotFound):  # it was fired meanwhile
                await self._engine().cancel_queued(self.id, str(one.message_id))
                one.stop("cancelled")

    def let_go(self) -> None:
        """Nobody waits for the end of a prompt any more; the turn goes on as long as its process does."""
        for prompt in self._prompts:
            prompt.end.cancel()

    def fail(self, error: Exception) -> None:
        """No end of a prompt can be told any more."""
        for prompt in self._prompts:
            prompt.fail(error)

    def remove(self) -> None:
        """The session is no more: nothing is asked in it, and no prompt waits for its end."""
        self._asking.close()
        self.fail(Refused(INTERNAL, "this session was removed", {"code": "session_not_found"}))

    # What happens

    async def _tell_events(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await (self._catch_up() if event is None else self._on_event(event.type, event.data))
            except (Closed, asyncio.CancelledError):
                raise
            except ClewError as error:
                log.warning("session %s: %s", self.id, error)
                self._lose(event, refusal_of(error))
            except Exception:
                log.exception("telling of session %s failed in an unforeseen way", self.id)
                self._lose(event, Refused(INTERNAL, "something went wrong in clew; its log on stderr says more"))

    def _lose(self, event: Event | None, error: Refused) -> None:
        """How a turn ended could not be told: nobody is left waiting for it. What still waits in the queue is."""
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
            await self._on_status(fit(data["status"], Status))
        elif kind == "approval_answered":
            self._asking.close(str(data.get("tool_call_id")))
        elif kind == "context_compacted":
            if isinstance(marker := data.get("message_id"), str):
                await self.tell_summary(marker)
        elif kind == "queue_changed":
            await self._on_queue()
        elif kind == "session_updated":
            await self._tell_changes(await self._engine().get_session(self.id))
        elif kind == "session_deleted":
            self.remove()

    async def _on_started(self, message_id: str, user_message_id: str) -> None:
        if self._streaming is not None:
            # Joined already, when it was looked how the session stands; else what was before it is about to end.
            await self._joined.wait()
            if self._live_id == message_id:
                return
            await self._settle_stream()
        self._asking.close()
        self._retry = self._waiting_turn = None
        async with self._submitting:
            known = self.telling.knows(user_message_id)
        if not known:
            for message in await self._engine().messages(self.id, limit=_LOOKED_AT):
                if message.id == user_message_id:
                    await self.tell(message)
        self._join(message_id)

    async def tell(self, message: Message) -> None:
        """What is new in a message; of what clew put into the conversation by itself, its summaries."""
        if not message.is_synthetic or message.role == "assistant" or message.is_summary:
            await self.telling.tell(message.id, message.role, message.parts)

    def _join(self, message_id: str | None) -> None:
        self._joined, self._live_id = asyncio.Event(), None
        self._streaming = asyncio.create_task(self._stream(message_id, self._joined))

    async def _stream(self, message_id: str | None, joined: asyncio.Event) -> None:
        """Tell a run while it goes on. Where it is lost, the store has it all the same."""
        fold: Fold | None = None
        try:
            async for given in self._engine().attach(self.id):
                if fold is None:
                    shown_id = str(given.get("messageId"))
                    if message_id not in (None, shown_id):
                        return  # this run is over already; the next one announces itself
                    fold, self._live_id = Fold(shown_id), shown_id
                    joined.set()
                await self.telling.tell_chunk(fold, parse_chunk(given))
        except (ViewerLagged, StoreError, Closed) as error:
            log.info("the stream of session %s was lost: %s", self.id, error)
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
            await self.tell(message)
        if reason == "waiting":
            self._waiting_turn = turn_id
            await self._ask(messages)
            return
        self._asking.close()
        await self._tell_usage()
        stop = "cancelled" if reason == "abort" else "end_turn"
        if reason == "finish":
            left = (await engine.turn(turn_id)).data
            stopped = str(left.get("stopped"))
            stop = _STOPS.get(stopped, stop)
            if stopped in _NOTES:
                await self._note(_NOTES[stopped])
        held = {message.id for message in messages}
        async with self._submitting:
            pass  # a prompt may have ended before whoever sent it knows its message
        for prompt in self._prompts:
            if prompt.message_id in held or prompt.turn_id == turn_id:
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
        """Ask for what waits. A question that this editor has no form for ends the prompt; the next one answers it."""
        status = await self._engine().get_status(self.id)
        words = self._asking.ask(status.waiting, messages)
        if words is not None:
            await self.say(words)
            for prompt in self._prompts:
                if not prompt.queued:
                    prompt.stop("end_turn")

    async def _on_status(self, status: Status) -> None:
        said = status.message if status.state == "retrying" else None
        if said is not None and said != self._retry:
            words = words_of(status.problem or {})
            await self.notice("warning", f"{words.happened} It is tried again." if words else f"Trying again: {said}")
        self._retry = said
        if status.waiting and self._streaming is None and self._waiting_turn is not None:
            async with self._submitting:
                pass  # what is being answered is not asked again
            await self._ask(await self._engine().messages(self.id, limit=_LOOKED_AT))

    async def _on_queue(self) -> None:
        """What waited here and is neither in the queue nor in the conversation was taken back."""
        queued = [one for one in self._prompts if one.queued]
        if not queued:
            return
        waiting = {message.id for message in await self._engine().queue(self.id)}
        shown = {message.id for message in await self._engine().messages(self.id, limit=_LOOKED_AT)}
        for prompt in queued:
            if prompt.message_id in shown:
                prompt.queued = False
            elif prompt.message_id not in waiting:
                prompt.stop("cancelled")

    async def _catch_up(self) -> None:
        """How it stands now: what was missed is told, what runs is joined, what waits is asked."""
        engine = self._engine()
        # Nothing is being sent from here meanwhile: of each message it is known whose it is.
        async with self._submitting:
            session, status = await engine.get_session(self.id), await engine.get_status(self.id)
            messages = await engine.messages(self.id, limit=_LOOKED_AT) if self._streaming is None else []
        if self._streaming is None:
            for message in messages:
                await self.tell(message)
            if status.state in _AT_WORK:
                self._join(None)
            elif status.waiting:
                self._waiting_turn = messages[-1].turn_id if messages else None
                await self._ask(messages)
            else:
                await self._end_missed(messages)
        await self._tell_usage()
        await self._tell_changes(session)

    async def _end_missed(self, messages: list[Message]) -> None:
        """Prompts whose turn ended while nobody could listen."""
        turns = {message.id: message.turn_id for message in messages}
        for prompt in [*self._prompts]:
            turn_id = prompt.turn_id or turns.get(str(prompt.message_id))
            turn = await self._engine().turn(turn_id) if turn_id is not None else None
            if turn is not None and turn.status not in OPEN:
                ends, left = {"completed": "finish", "aborted": "abort"}, turn.data
                await self._on_finished(turn.id, ends.get(turn.status, "error"), left.get("error") or {})

    async def tell_summary(self, marker: str) -> None:
        """A summary of earlier turns is there, made by somebody or by a run that needed room."""
        if not self.telling.knows(marker):
            for message in await self._engine().messages(self.id, limit=200):
                if message.id == marker:
                    await self.tell(message)
            await self._tell_usage()

    async def _tell_usage(self) -> None:
        engine = self._engine()
        with contextlib.suppress(ClewError):  # a model that is gone has no window to tell of
            report = await engine.context(self.id)
            cost = {"amount": (await engine.get_session(self.id)).spend.cost_usd, "currency": "USD"}
            await self.send({"sessionUpdate": "usage_update", "used": report.used, "size": report.limit, "cost": cost})

    async def _tell_changes(self, session: Session) -> None:
        """A title, a mode or a model that somebody gave it."""
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
    """Why a turn failed, in a person's words; what a provider said is detail."""
    words, said = words_of(error), str(error.get("message") or "the turn failed for a reason that was not told")
    code = str(error.get("code") or "model_failed")
    if words is None:
        return Refused(INTERNAL, said, {"code": code})
    return Refused(INTERNAL, f"{words.happened} {words.next}", {"code": code, "details": said[:1000]})
