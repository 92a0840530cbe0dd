"""A conversation: prompts in, answers out, and everything that happens to the session in between.

What is shown follows the session's own events, whoever caused them: a prompt sent from here, from the queue, or from
another client of the same server looks the same. Typing never waits for an answer, and an answer never for typing.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import msgspec

from clew.errors import ClewError, InvalidInput
from clew.fronts.cli.chat.keyboard import Act
from clew.fronts.cli.chat.live_reply import LiveReply, find_message
from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.command import AnyEngine, exit_code, new_session
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.question import Question
from clew.fronts.cli.remote import RemoteEngine
from clew.fronts.cli.render import Look, history_lines, pause_reason, stop_reason, summary_line, user_lines
from clew.fronts.cli.safe_text import plain
from clew.fronts.cli.wire import Gone
from clew.live.base import Event, Status
from clew.transcript.message import Message
from clew.transcript.session import Session

__all__ = ["AT_WORK", "Conversation"]

AT_WORK: Final = frozenset({"busy", "retrying"})
_SHOWN_BEFORE: Final = 20
_CODES: Final = {"error": 1, "refused": 6, "abort": 130}


class Conversation:
    """One conversation at a time, between an engine and a terminal."""

    def __init__(
        self,
        engine: AnyEngine,
        terminal: Terminal,
        look: Look,
        slash: Callable[[Conversation, str], Coroutine[Any, Any, None]],
        model: str | None = None,
    ) -> None:
        self.engine = engine
        self.terminal = terminal
        self.look = look
        self.model = model
        self._slash = slash
        self.session: Session | None = None
        self.models: list[str] = []
        self.sessions: list[str] = []
        self.running = False
        self.leaving: int | None = None
        self._code = 0
        self.remember: Callable[[str], None] = lambda _: None
        self._question: Question | None = None
        self._interrupted = False
        self._status: Status | None = None
        self._queue: list[Message] = []
        self._reply = LiveReply(engine, terminal, look, self._draw)
        self._printed_ids: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()

    # What others say through it

    def say(self, text: str) -> None:
        """Something for good, without anything that could steer the terminal."""
        self.terminal.print(plain(text) + "\n")

    def note(self, text: str) -> None:
        """Something about the conversation that is not part of it; to whoever reads a pipe, not in it."""
        if self.terminal.attended:
            self.terminal.print(self.look.style(plain(text), "dim") + "\n")
        else:
            self._complain(text)

    def _complain(self, text: str) -> None:
        line = f"clew: {plain(text)}"
        if self.terminal.attended:
            self.terminal.print(self.look.style(line, "red") + "\n")
        else:
            print(line, file=sys.stderr, flush=True)

    def need(self) -> str:
        if self.session is None:
            raise InvalidInput("nothing was said here yet; there is no session to do that with")
        return self.session.id

    @property
    def model_name(self) -> str:
        """What answers the next prompt."""
        return str(self.model or (self.session.model if self.session is not None else "the default model"))

    def forget(self, message_ids: Iterable[str]) -> None:
        """These left the conversation; when one of them comes again, it is said again."""
        self._printed_ids.difference_update(message_ids)

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something while the conversation goes on."""
        task = asyncio.get_running_loop().create_task(self._report_refusal(work))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _report_refusal(self, work: Coroutine[Any, Any, None]) -> None:
        """What is refused is said, and the conversation goes on; a server that is gone ends it."""
        try:
            await work
        except Gone:
            raise
        except ClewError as error:
            self._complain(f"{error} ({error.code})")

    # From the keyboard

    async def talk(self, session: Session | None) -> int:
        """Until somebody leaves."""
        events = self.engine.subscribe()
        if isinstance(self.engine, RemoteEngine):
            # It greets once nothing can be missed any more.
            await anext(events)
        watching = asyncio.get_running_loop().create_task(self._watch(events))
        try:
            self.models = [model.id for model in await self.engine.models() if model.usable]
            self.sessions = [known.id for known in (await self.engine.list_sessions(limit=20)).sessions]
            await self.enter(session)
            while self.leaving is None:
                await self._act(await self._next(watching))
            return self.leaving
        finally:
            self._reply.leave()
            for task in (watching, *self._jobs):
                task.cancel()
            await asyncio.gather(watching, *self._jobs, return_exceptions=True)

    async def _next(self, watching: asyncio.Task[None]) -> Act:
        coming = asyncio.ensure_future(self.terminal.next())
        await asyncio.wait({coming, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            coming.cancel()
            await watching
            raise Gone("the server has ended; what was said is stored")
        return coming.result()

    async def _act(self, act: Act) -> None:
        if act.kind == "interrupt":
            await self._report_refusal(self._interrupt())
            return
        self._interrupted = False
        if act.kind == "end":
            self.leaving = 0 if self.terminal.attended else self._code
        elif act.asked:
            if self._question is not None:
                await self._report_refusal(self._answer(self._question, act.text))
        elif act.kind == "line" and act.text.strip():
            self.remember(act.text)
            is_command = re.match(r"/[a-z]*(?: |\Z)", act.text)
            await self._report_refusal(self._slash(self, act.text) if is_command else self._prompt(act.text))

    async def _interrupt(self) -> None:
        """The first one aborts what runs; the second leaves."""
        if self._interrupted:
            # Half a line is not left behind by accident.
            self.leaving = None if self.terminal.clear() else 130
            return
        if self.session is not None and await self.engine.abort(self.session.id):
            self._interrupted = True
        elif not self.terminal.clear():
            self._interrupted = True
            self.note("Ctrl-C again leaves, and so does Ctrl-D")

    async def _prompt(self, text: str) -> None:
        self.terminal.busy(True)
        try:
            if self.session is None:
                made = await new_session(self.engine, self.model)
                try:
                    self.session = made
                    await self.engine.submit(made.id, text, model=self.model, attended=self.terminal.attended)
                except ClewError:
                    # One whose first prompt is refused does not stay.
                    self.session = None
                    await self.engine.delete_session(made.id)
                    raise
            else:
                await self.engine.submit(self.session.id, text, model=self.model, attended=self.terminal.attended)
        except ClewError as error:
            self.terminal.busy(self.running)
            self._code = exit_code(error)
            self._hand_back(text)
            raise

    def _hand_back(self, text: str) -> None:
        """What was not taken, to whoever can change it; whoever piped it in has it."""
        if self.terminal.attended:
            self.terminal.draft(text)

    # The session

    async def enter(self, session: Session | None) -> None:
        """Go to a session and show where it is; None is a new one, made with its first prompt."""
        self._reply.leave()
        self.session = session
        self._question, self._status, self._queue, self.running = None, None, [], False
        self.terminal.ask(None)
        if session is None:
            if self.terminal.attended:
                self.note("a new session; /help lists what can be done beside talking")
            self._draw()
            return
        messages = await self.engine.messages(session.id, limit=_SHOWN_BEFORE)
        self._printed_ids = {message.id for message in messages}
        status = await self.engine.get_status(session.id)
        live = messages.pop().id if status.state in AT_WORK and messages and messages[-1].role == "assistant" else None
        if self.terminal.attended:
            self.note(f"{session.id} · {session.title or '(untitled)'} · {session.model}")
            self.terminal.print("".join(history_lines(messages, self.look, self.terminal.size[0])))
        self._status, self._queue = status, await self.engine.queue(session.id)
        if status.state in AT_WORK:
            self._begin(live)
        elif status.waiting:
            await self._ask_next()
        self._draw()

    async def _watch(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            if self.session is not None and event.data.get("session_id") == self.session.id:
                await self._report_refusal(self._on_event(event.type, event.data))

    async def _on_event(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "turn_started":
            await self._on_turn_started(str(data["message_id"]), str(data["user_message_id"]))
        elif kind == "turn_finished":
            await self._on_turn_finished(data)
        elif kind == "status":
            self._status = msgspec.convert(data["status"], Status)
            if self._status.waiting:
                await self._ask_next()
        elif kind == "queue_changed":
            self._queue = await self.engine.queue(self.need())
        elif kind == "context_compacted":
            self.note(summary_line(data))
        elif kind == "approval_answered" and self._question is not None:
            if data.get("tool_call_id") == self._question.wait.tool_call_id:
                # Perhaps elsewhere. What else waits is in the status that follows.
                self._close_question(self._question)
        elif kind == "session_deleted":
            self.note("this session was removed")
            await self.enter(None)
        self._draw()

    # A turn

    async def _on_turn_started(self, message_id: str, user_message_id: str) -> None:
        if self.running:
            await self._reply.settle(final=True)
        self._interrupted = False
        self._queue = await self.engine.queue(self.need())
        if user_message_id not in self._printed_ids:
            found = await find_message(self.engine, self.need(), user_message_id)
            if found is not None:
                self._printed_ids.add(user_message_id)
                self.terminal.print(user_lines(found, self.look) if self.terminal.attended else "")
        self._begin(message_id)

    def _begin(self, message_id: str | None) -> None:
        self.running = True
        self.terminal.busy(True)
        self._reply.begin(self.need(), message_id)

    async def _on_turn_finished(self, data: Mapping[str, Any]) -> None:
        reason, error = data.get("reason"), data.get("error") or {}
        await self._reply.settle(final=reason != "waiting")
        if self._question is not None:
            self._close_question(self._question)  # denied with the turn
        self.running = False
        self._code = _CODES.get(str(reason), 0)
        self._status = await self.engine.get_status(self.need())
        if reason == "abort":
            count = len(self._queue)
            going_on = f"; going on with the {'message' if count == 1 else f'first of {count} messages'} in the queue"
            self.note(f"aborted{going_on if count and not self._status.paused else ''}")
        elif reason in ("error", "refused"):
            self._complain(str(error.get("message")))
            self._hand_back(str(error.get("text") or ""))
        elif reason == "finish":
            turn = (await self.engine.turn(str(data["turn_id"]))).data
            if words := stop_reason(turn, "/continue"):
                self.note(words)
        await self._ask_next()
        self._queue = await self.engine.queue(self.need())
        firing = bool(self._queue) and not self._status.paused
        self.terminal.busy((self._question is not None or firing) and reason in ("finish", "abort"))

    async def _ask_next(self) -> None:
        """Ask for the next thing that waits, if there is one and nothing is being asked."""
        session_id = self.need()
        waiting = (await self.engine.get_status(session_id)).waiting
        if self._question is None and waiting and not self.running:
            self._question = Question(self.engine, session_id, waiting[0])
            if not await self._question.begin(self.terminal, self.look):
                self._question = None
                await self._ask_next()

    async def _answer(self, question: Question, words: str) -> None:
        try:
            answered = await question.take(words, self.terminal)
        except ClewError:
            # It may have been answered elsewhere; if it was not, it is asked again.
            self._close_question(question)
            await self._ask_next()
            raise
        if answered:
            self._close_question(question)
            await self._ask_next()

    def _close_question(self, question: Question) -> None:
        if self._question is question:
            self._question = None
            self.terminal.ask(None)

    # What is shown for now

    def _draw(self) -> None:
        above, lines = self._reply.lines()
        waiting = [self.look.style(f"⋯ {plain(words_of(message))}", "dim") for message in self._queue[:3]]
        self.terminal.show([*lines, *waiting], self.look.style(self._status_line(), "dim"), above)

    def _status_line(self) -> str:
        status = self._status
        if status is None or status.state not in AT_WORK:
            paused = None if status is None else pause_reason(status, "/continue queue goes on")
            return f"{len(self._queue)} queued, {paused}" if self._queue and paused else ""
        doing = status.message or ("working" if status.state == "busy" else "waiting to try again")
        again = f"attempt {status.attempt}: " if status.state == "retrying" and status.attempt else ""
        return f"{again}{plain(doing)} … Ctrl-C aborts"
