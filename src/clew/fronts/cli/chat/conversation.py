"""A conversation: prompts in, answers out, and everything that happens to the session in between.

What is shown follows the session's own events, whoever caused them: a prompt sent from here, from the queue, or from
another client of the same server looks the same. Typing never waits for an answer, and an answer never for typing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.convert import fit
from clew.errors import ClewError, InvalidInput
from clew.fronts.cli.attachment import with_files
from clew.fronts.cli.chat.action import Act
from clew.fronts.cli.chat.approval_prompt import Asking
from clew.fronts.cli.chat.connection import Connection
from clew.fronts.cli.chat.footer import MODE_WORDS, Footer, at_work_words
from clew.fronts.cli.chat.live_reply import LiveReply, find_message
from clew.fronts.cli.chat.messages import ChatMessages
from clew.fronts.cli.chat.shell import OwnShell
from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.chat.versions import list_versions
from clew.fronts.cli.command import AnyEngine, exit_code, new_session, plural
from clew.fronts.cli.commands.sessions import words_of
from clew.fronts.cli.failure import failure_words
from clew.fronts.cli.render import Look, history_lines, pause_reason, stop_reason, summary_line, user_lines
from clew.fronts.cli.safe_text import plain
from clew.fronts.remote.attachment import attach_bytes
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.remote.wire import Gone
from clew.live.base import Event, Status
from clew.transcript.message import Message
from clew.transcript.rule import MODES, Mode
from clew.transcript.session import Session

__all__ = ["AT_WORK", "Conversation"]

AT_WORK: Final = frozenset({"busy", "retrying"})
_SHOWN_BEFORE: Final = 20
_CODES: Final = {"error": 1, "refused": 6, "abort": 130}


class Conversation(ChatMessages):
    """One conversation at a time, between an engine and a terminal."""

    def __init__(
        self,
        engine: AnyEngine,
        terminal: Terminal,
        look: Look,
        slash: Callable[[Conversation, str], Coroutine[Any, Any, None]],
        model: str | None = None,
        reopen: Callable[[], Awaitable[AnyEngine]] | None = None,
    ) -> None:
        """``reopen`` finds the engine again when it was lost; without it, that ends the conversation."""
        super().__init__(terminal, look)
        self._connection = Connection(engine, reopen)
        self.model = model
        self._slash = slash
        self.session: Session | None = None
        self.models: list[str] = []
        self._default = "the default model"
        self.sessions: list[str] = []
        self.running = self._interrupted = self._escaped = False
        self.leaving: int | None = None
        self._code = 0
        self.remember: Callable[[str], None] = lambda _: None
        self._asking = Asking(lambda: self.engine, terminal, look)
        self._status: Status | None = None
        self._queue: list[Message] = []
        self._reply = LiveReply(lambda: self.engine, terminal, look, self._draw)
        self.shell = OwnShell(self.say, self.note)
        self.mode: Mode = "ask"
        self._footer = Footer()
        self._printed_ids: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()

    # What others do with it

    def need(self) -> str:
        if self.session is None:
            raise InvalidInput("nothing was said here yet; there is no session to do that with")
        return self.session.id

    @property
    def engine(self) -> AnyEngine:
        return self._connection.engine

    @property
    def model_name(self) -> str:
        """What answers the next prompt."""
        return str(self.model or (self.session.model if self.session is not None else self._default))

    @property
    def folder(self) -> Path:
        """Where it works, or would."""
        root = self.session.workspace_root if self.session is not None else None
        return Path(root) if root is not None else Path.cwd()

    def forget(self, message_ids: Iterable[str]) -> None:
        """These left the conversation; when one of them comes again, it is said again."""
        self._printed_ids.difference_update(message_ids)

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something while the conversation goes on."""
        task = asyncio.get_running_loop().create_task(self._report_refusal(work, typed=False))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _report_refusal(self, work: Coroutine[Any, Any, None], *, typed: bool = True) -> None:
        """What is refused is said, and the conversation goes on; a server that is gone is waited for."""
        try:
            await work
        except ClewError as error:
            if not isinstance(error, Gone):
                self.complain(f"{error} ({error.code})")
            elif not self._waits_for_server:
                raise
            elif typed:
                self.complain(f"the server does not answer; wait until it is back ({error.code})")

    @property
    def _waits_for_server(self) -> bool:
        return self._connection.comes_back and self.terminal.attended

    # From the keyboard

    async def talk(self, session: Session | None) -> int:
        """Until somebody leaves."""
        watching = asyncio.get_running_loop().create_task(self._watch(await self._connection.listen()))
        try:
            listed = await self.engine.models()
            self.models = [model.id for model in listed if model.usable]
            self._default = next((model.id for model in listed if model.default), self._default)
            self.sessions = [known.id for known in (await self.engine.list_sessions(limit=20)).sessions]
            await self.enter(session)
            while self.leaving is None:
                await self._act(await self._next(watching))
            return self.leaving
        finally:
            self._reply.leave()
            self.shell.stop()
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
        escaped, self._interrupted, self._escaped = self._escaped, False, False
        if act.kind == "stop":
            await self._report_refusal(self._stop(again=escaped))
        elif act.kind == "end":
            self.leaving = 0 if self.terminal.attended else self._code
        elif act.kind == "mode":
            await self._report_refusal(self.set_mode(MODES[(MODES.index(self.mode) + 1) % len(MODES)]))
        elif act.asked:
            await self._report_refusal(self._answer(act.text))
        elif act.kind == "line" and act.text.strip():
            self.remember(act.text)
            await self._report_refusal(self._said(act.text))

    async def _said(self, line: str) -> None:
        # The language of the demo model that calls tools begins with the same mark.
        if line.startswith("!") and self.terminal.attended and not self.model_name.startswith("demo/tools"):
            self.beside(self.shell.run(line[1:].strip(), self.folder))
        elif re.match(r"/[a-z]*(?: |\Z)", line):
            await self._slash(self, line)
        else:
            await self._prompt(line[1:] if line.startswith("//") else line)

    async def _stop(self, *, again: bool) -> None:
        """Esc: stop what runs and keep the queue; with nothing running, twice, one's own words to change."""
        if self.shell.stop() or (self.session is not None and await self.engine.abort(self.session.id)):
            return
        if again and self.session is not None:
            await self._slash(self, "/edit")
        self._escaped = not again

    async def _interrupt(self) -> None:
        """The first one aborts what runs; the second leaves."""
        if self._interrupted:
            # Half a line is not left behind by accident.
            self.leaving = None if self.terminal.clear() else 130
            return
        stopped = self.shell.stop()
        with contextlib.suppress(Gone):  # whoever wants to leave is not kept by a server that is gone
            stopped = stopped or (self.session is not None and await self.engine.abort(self.session.id))
        if stopped:
            self._interrupted = True
        elif not self.terminal.clear():
            self._interrupted = True
            self.note("Ctrl-C again leaves, and so does Ctrl-D")

    async def set_mode(self, mode: Mode) -> None:
        """How freely it works from now on; a session that is still to be made begins so."""
        if self.session is not None:
            self.session = await self.engine.patch_session(self.session.id, mode=mode)
        self.mode = mode
        self.note(f"mode {mode}: {MODE_WORDS[mode]}")
        self._draw()

    async def _prompt(self, text: str) -> None:
        self.terminal.busy(True)
        try:
            parts: Any = text
            if self.terminal.attended:
                parts = await asyncio.to_thread(with_files, text, self.folder)
                if told := self.shell.take():
                    parts.append(attach_bytes("my-shell.txt", told.encode()))
            if self.session is None:
                made = await new_session(self.engine, self.model)
                try:
                    if self.mode != made.mode:
                        made = await self.engine.patch_session(made.id, mode=self.mode)
                    self.session = made
                    await self.engine.submit(made.id, parts, model=self.model, attended=self.terminal.attended)
                except ClewError:
                    # One whose first prompt is refused does not stay.
                    self.session = None
                    with contextlib.suppress(Gone):
                        await self.engine.delete_session(made.id)
                    raise
            else:
                await self.engine.submit(self.session.id, parts, model=self.model, attended=self.terminal.attended)
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
        self._status, self._queue, self.running = None, [], False
        self._asking.close()
        self.mode = session.mode if session is not None else "ask"
        self._footer = Footer()
        if session is None:
            if self.terminal.attended:
                self.note("a new session; /help lists what can be done beside talking")
            self._draw()
            return
        messages = await self.engine.messages(session.id, limit=_SHOWN_BEFORE)
        self._printed_ids = {message.id for message in messages}
        status = await self.engine.get_status(session.id)
        open_ended = status.state in AT_WORK or status.waiting
        live = messages.pop() if open_ended and messages and messages[-1].role == "assistant" else None
        if self.terminal.attended:
            self.note(f"{session.id} · {session.title or '(untitled)'} · {session.model}")
            self.terminal.print("".join(history_lines(messages, self.look, self.terminal.size[0])))
        self._status, self._queue = status, await self.engine.queue(session.id)
        self.terminal.busy(status.state in AT_WORK)
        if status.state in AT_WORK:
            self._begin(live.id if live is not None else None)
        elif status.waiting:
            self._reply.resume(session.id, live)
            await self._ask_next()
        self._draw()
        self.beside(self.refresh())

    async def _watch(self, events: AsyncIterator[Event]) -> None:
        while True:
            with contextlib.suppress(Gone) if self._waits_for_server else contextlib.nullcontext():
                async for event in events:
                    if self._is_here(event.data):
                        await self._report_refusal(self._on_event(event.type, event.data), typed=False)
            if not self._waits_for_server:
                return
            events = await self._come_back()

    def _is_here(self, data: Mapping[str, Any]) -> bool:
        # Asked again after a wait: people go elsewhere meanwhile.
        return self.session is not None and data.get("session_id") == self.session.id

    async def _come_back(self) -> AsyncIterator[Event]:
        """Wait for the server, and go on where it was lost: nothing is missing, and nothing is said twice."""
        self._status = Status("retrying", message="waiting for the server")
        self._asking.close()
        self._draw()
        missed = False

        def stays_lost() -> None:
            nonlocal missed
            missed = True
            self.complain("the server is gone; waiting for it to come back. What was said is stored; Ctrl-D leaves")

        async def catch_up() -> None:
            if not isinstance(self.engine, RemoteEngine):
                self.note("the chat that had the store has left; it is open here now")
            elif missed:
                self.note("the server is back")
            await self._catch_up()

        return await self._connection.find_again(catch_up, stays_lost)

    async def _catch_up(self) -> None:
        session = self.session
        self._status, self.running = None, False
        if session is None:
            self.terminal.busy(False)
            return
        status = await self.engine.get_status(session.id)
        at_work = status.state in AT_WORK
        cut_short = await self._reply.settle(final=not at_work)
        messages = await self.engine.messages(session.id, limit=_SHOWN_BEFORE)
        live = messages.pop().id if at_work and messages and messages[-1].role == "assistant" else None
        missed = [message for message in messages if message.id not in self._printed_ids]
        self._printed_ids.update(message.id for message in messages)
        self.terminal.print("".join(history_lines(missed, self.look, self.terminal.size[0])))
        self._status, self._queue = status, await self.engine.queue(session.id)
        self.terminal.busy(at_work)
        if at_work:
            self._begin(live)
        elif status.waiting:
            await self._ask_next()
        elif cut_short:
            self.note("the turn was interrupted; what was written is kept; /continue goes on")
        self._draw()
        self.beside(self.refresh())

    async def refresh(self) -> None:
        """What the footer says, anew."""
        session_id = self.need()
        session = await self.engine.get_session(session_id)
        report = await self.engine.context(session_id, model=self.model)
        if self.session is None or self.session.id != session_id:
            return
        self.session, self.mode = session, session.mode
        share = report.used / report.limit if report.limit else None
        self._footer = Footer(share=share, cost_usd=session.spend.cost_usd)
        self._draw()

    async def _on_event(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "turn_started":
            await self._on_turn_started(str(data["message_id"]), str(data["user_message_id"]))
        elif kind == "turn_finished":
            await self._on_turn_finished(data)
        elif kind == "status":
            self._status = fit(data["status"], Status)
            if self._status.waiting:
                await self._ask_next()
        elif kind == "queue_changed":
            queue = await self.engine.queue(self.need())
            self._queue = queue if self._is_here(data) else self._queue
        elif kind == "context_compacted":
            self.note(summary_line(data))
        elif kind == "approval_answered":
            # Perhaps elsewhere. What else waits is in the status that follows.
            self._asking.close(str(data.get("tool_call_id")))
        elif kind == "session_updated":
            session = await self.engine.get_session(self.need())
            if self._is_here(data):
                self.session, self.mode = session, session.mode
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
        new = user_message_id not in self._printed_ids
        if new and (found := await find_message(self.engine, self.need(), user_message_id)):
            self._printed_ids.add(user_message_id)
            self.terminal.print(user_lines(found, self.look) if self.terminal.attended else "")
        self._begin(message_id)

    def _begin(self, message_id: str | None) -> None:
        self.running = True
        self._printed_ids.update([message_id] if message_id else ())
        self.terminal.busy(True)
        self._reply.begin(self.need(), message_id)
        if self.terminal.attended:
            self.beside(self._tick())

    async def _on_turn_finished(self, data: Mapping[str, Any]) -> None:
        reason, error = data.get("reason"), data.get("error") or {}
        await self._reply.settle(final=reason != "waiting")
        self._asking.close()  # denied with the turn
        self.running = False
        self._code = _CODES.get(str(reason), 0)
        self._status = await self.engine.get_status(self.need())
        if reason == "abort":
            count = len(self._queue)
            going_on = f"; going on with the {'message' if count == 1 else f'first of {count} messages'} in the queue"
            paused = f"; {plural(count, 'message')} in the queue, paused" if self._status.paused else going_on
            self.note(f"stopped; what was written is kept, and /continue goes on{paused if count else ''}")
        elif reason in ("error", "refused"):
            self.complain(failure_words(error, None if self.terminal.attended else self.need()))
            self._hand_back(str(error.get("text") or ""))
        elif reason == "finish":
            turn = (await self.engine.turn(str(data["turn_id"]))).data
            if words := stop_reason(turn, "/continue"):
                self.note(words)
        await self._ask_next()
        self._queue = await self.engine.queue(self.need())
        firing = bool(self._queue) and not self._status.paused
        self.terminal.busy((bool(self._asking) or firing) and reason in ("finish", "abort"))
        if self.terminal.attended and reason != "waiting":
            self.beside(self.refresh())
            self.beside(self._mark_version(str(data.get("turn_id"))))

    async def _mark_version(self, turn_id: str) -> None:
        """Where an answer is one of several, which it is."""
        versions = await list_versions(self.engine, self.need(), turn_id)
        if len(versions) > 1:
            place = next((n for n, turn in enumerate(versions, start=1) if turn.id == turn_id), 0)
            self.note(f"‹ {place}/{len(versions)} ›  /versions goes to another, /compare shows what differs")

    async def _ask_next(self) -> None:
        if not self.running:
            await self._asking.ask_next(self.need())

    async def _answer(self, words: str) -> None:
        try:
            await self._asking.answer(words)
        finally:
            if self.session is not None:
                await self._ask_next()

    # What is shown for now

    def _draw(self) -> None:
        above, lines = self._reply.lines()
        waiting = [self.look.style(f"⋯ {plain(words_of(message))}", "dim") for message in self._queue[:3]]
        if len(self._queue) > 3:
            waiting.append(self.look.style(f"⋯ and {len(self._queue) - 3} more; /queue lists them", "dim"))
        self.terminal.show([*lines, *waiting], self.look.style(self._status_line(), "dim"), above)

    def footer(self, width: int) -> str:
        """What is always in sight, in so many cells."""
        named = {"folder": str(self.folder), "model": self.model_name, "mode": self.mode}
        return msgspec.structs.replace(self._footer, **named).line(width)

    def _status_line(self) -> str:
        if (status := self._status) is None or status.state not in AT_WORK:
            paused = None if status is None else pause_reason(status, "/queue go on ends it")
            return f"{len(self._queue)} queued, {paused}" if self._queue and paused else ""
        return f"{at_work_words(status, time.time())} … Esc stops"

    async def _tick(self) -> None:
        """The seconds go on while nothing else happens."""
        while self.running:
            await asyncio.sleep(1)
            self._draw()
