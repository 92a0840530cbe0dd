"""A conversation on a terminal: prompts, answers, and events of the session.

The display follows the session's events, so a prompt sent from here, from the queue or from another client looks the
same. Typing and answering do not wait for each other.
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

from clew.convert import convert
from clew.errors import ClewError, InvalidInput
from clew.fronts.cli.attachment import with_files
from clew.fronts.cli.chat.action import Action
from clew.fronts.cli.chat.connection import Connection
from clew.fronts.cli.chat.footer import MODE_WORDS, Footer, work_status
from clew.fronts.cli.chat.live_reply import LiveReply, find_message
from clew.fronts.cli.chat.messages import ChatMessages
from clew.fronts.cli.chat.shell import UserShell
from clew.fronts.cli.chat.terminal import Terminal
from clew.fronts.cli.chat.versions import list_versions
from clew.fronts.cli.command import AnyEngine, exit_code, new_session, plural
from clew.fronts.cli.commands.sessions import excerpt
from clew.fronts.cli.failure import failure_text
from clew.fronts.cli.question import ApprovalPrompt
from clew.fronts.cli.render import Theme, history_lines, pause_reason, stop_reason, summary_line, user_lines
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
_SHOWN_MESSAGES: Final = 20
_END_GRACE_S: Final = 1.0
"""Time for a command to finish after a signal to end; then it is cancelled."""
_CODES: Final = {"error": 1, "refused": 6, "abort": 130}


class Conversation(ChatMessages):
    """One conversation at a time, between an engine and a terminal."""

    def __init__(
        self,
        engine: AnyEngine,
        terminal: Terminal,
        theme: Theme,
        slash: Callable[[Conversation, str], Coroutine[Any, Any, None]],
        model: str | None = None,
        reopen: Callable[[], Awaitable[AnyEngine]] | None = None,
    ) -> None:
        """``reopen`` reconnects to a lost engine; without it, a loss ends the conversation."""
        super().__init__(terminal, theme)
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
        self._approvals = ApprovalPrompt(lambda: self.engine, terminal, theme)
        self._status: Status | None = None
        self._queue: list[Message] = []
        self._reply = LiveReply(lambda: self.engine, terminal, theme, self._draw)
        self.shell = UserShell(self.say, self.note)
        self.mode: Mode = "ask"
        self._footer = Footer()
        self._printed_ids: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()

    # Used by commands

    def require_session(self) -> str:
        if self.session is None:
            raise InvalidInput("no session yet; send a message first")
        return self.session.id

    @property
    def engine(self) -> AnyEngine:
        return self._connection.engine

    @property
    def model_name(self) -> str:
        """The model of the next prompt."""
        return str(self.model or (self.session.model if self.session is not None else self._default))

    @property
    def folder(self) -> Path:
        """The folder of the session, or of the session to be created."""
        root = self.session.workspace_root if self.session is not None else None
        return Path(root) if root is not None else Path.cwd()

    def forget(self, message_ids: Iterable[str]) -> None:
        """Mark messages that left the conversation as not printed, so that they are printed if they return."""
        self._printed_ids.difference_update(message_ids)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; errors are printed."""
        task = asyncio.get_running_loop().create_task(self._report(work, typed=False))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _report(self, work: Coroutine[Any, Any, None], *, typed: bool = True) -> None:
        """Print refusals instead of raising them. Errors of a lost server pass, unless it can be waited for."""
        try:
            await work
        except ClewError as error:
            if not isinstance(error, Gone):
                self.error(f"{error} ({error.code})")
            elif not self._can_reconnect:
                raise
            elif typed:
                self.error(f"the server is not responding; wait until it is back ({error.code})")

    @property
    def _can_reconnect(self) -> bool:
        return self._connection.can_reconnect and self.terminal.attended

    # Input

    async def talk(self, session: Session | None) -> int:
        """Run the conversation until the person leaves or a signal ends it; return the exit code."""
        loop = asyncio.get_running_loop()
        watching = loop.create_task(self._watch(await self._connection.listen()))
        talking = loop.create_task(self._talk(session, watching))
        ended = loop.create_task(self.terminal.ended.wait())
        try:
            await asyncio.wait({talking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if (await asyncio.wait({talking}, timeout=_END_GRACE_S))[0]:
                return await talking
            return self._end_code
        finally:
            self._reply.leave()
            self.shell.stop()
            tasks = (talking, ended, watching, *self._jobs)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _talk(self, session: Session | None, watching: asyncio.Task[None]) -> int:
        listed = await self.engine.models()
        self.models = [model.id for model in listed if model.usable]
        self._default = next((model.id for model in listed if model.default), self._default)
        self.sessions = [known.id for known in (await self.engine.list_sessions(limit=20)).sessions]
        await self.enter(session)
        while self.leaving is None:
            await self._act(await self._next(watching))
        return self.leaving

    @property
    def _end_code(self) -> int:
        return 0 if self.terminal.attended else self._code

    async def _next(self, watching: asyncio.Task[None]) -> Action:
        coming = asyncio.ensure_future(self.terminal.next())
        await asyncio.wait({coming, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            coming.cancel()
            await watching
            raise Gone("the server has stopped; the conversation is saved")
        return coming.result()

    async def _act(self, act: Action) -> None:
        if act.kind == "interrupt":
            await self._report(self._interrupt())
            return
        escaped, self._interrupted, self._escaped = self._escaped, False, False
        if act.kind == "stop":
            await self._report(self._stop(again=escaped))
        elif act.kind == "end":
            self.leaving = self._end_code
        elif act.kind == "mode":
            await self._report(self.set_mode(MODES[(MODES.index(self.mode) + 1) % len(MODES)]))
        elif act.asked:
            await self._report(self._answer(act.text))
        elif act.kind == "line" and act.text.strip():
            self.remember(act.text)
            await self._report(self._on_line(act.text))

    async def _on_line(self, line: str) -> None:
        # Prompts for the demo model that calls tools begin with ! too.
        if line.startswith("!") and self.terminal.attended and not self.model_name.startswith("demo/tools"):
            self.run_in_background(self.shell.run(line[1:].strip(), self.folder))
        elif re.match(r"/[a-z]*(?: |\Z)", line):
            await self._slash(self, line)
        else:
            await self._prompt(line[1:] if line.startswith("//") else line)

    async def _stop(self, *, again: bool) -> None:
        """Handle Esc: stop the shell command or the turn, which pauses the queue; pressed twice when idle, edit a
        message."""
        if self.shell.stop() or (self.session is not None and await self.engine.abort(self.session.id)):
            return
        if again and self.session is not None:
            await self._slash(self, "/edit")
        self._escaped = not again

    async def _interrupt(self) -> None:
        """Handle Ctrl-C: the first one stops the turn, the second one leaves."""
        if self._interrupted:
            # An unfinished line is not lost by accident: it is cleared first.
            self.leaving = None if self.terminal.clear() else 130
            return
        stopped = self.shell.stop()
        with contextlib.suppress(Gone):  # a lost server must not block leaving
            stopped = stopped or (self.session is not None and await self.engine.abort(self.session.id))
        if stopped:
            self._interrupted = True
        elif not self.terminal.clear():
            self._interrupted = True
            self.note("Ctrl-C again or Ctrl-D to leave")

    async def set_mode(self, mode: Mode) -> None:
        """Set the permission mode of the session, or of the session to be created."""
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
                if output := self.shell.take():
                    parts.append(attach_bytes("my-shell.txt", output.encode()))
            if self.session is None:
                made = await new_session(self.engine, self.model)
                try:
                    if self.mode != made.mode:
                        made = await self.engine.patch_session(made.id, mode=self.mode)
                    self.session = made
                    await self.engine.submit(made.id, parts, model=self.model, attended=self.terminal.attended)
                except ClewError:
                    # A session whose first prompt is refused is deleted.
                    self.session = None
                    with contextlib.suppress(Gone):
                        await self.engine.delete_session(made.id)
                    raise
            else:
                await self.engine.submit(self.session.id, parts, model=self.model, attended=self.terminal.attended)
        except ClewError as error:
            self.terminal.busy(self.running)
            self._code = exit_code(error)
            self._restore_draft(text)
            raise

    def _restore_draft(self, text: str) -> None:
        """Put a refused prompt back into the line; with a pipe there is no line."""
        if self.terminal.attended:
            self.terminal.draft(text)

    # The session

    async def enter(self, session: Session | None) -> None:
        """Switch to a session and show its newest messages; None is a new one, created with its first prompt."""
        self._reply.leave()
        self.session = session
        self._status, self._queue, self.running = None, [], False
        self._approvals.close()
        self.mode = session.mode if session is not None else "ask"
        self._footer = Footer()
        if session is None:
            if self.terminal.attended:
                self.note("new session; type /help for commands")
            self._draw()
            return
        messages = await self.engine.messages(session.id, limit=_SHOWN_MESSAGES)
        self._printed_ids = {message.id for message in messages}
        status = await self.engine.get_status(session.id)
        open_ended = status.state in AT_WORK or status.waiting
        live = messages.pop() if open_ended and messages and messages[-1].role == "assistant" else None
        if self.terminal.attended:
            self.note(f"{session.id} · {session.title or '(untitled)'} · {session.model}")
            self.terminal.print("".join(history_lines(messages, self.theme, self.terminal.size[0])))
        self._status, self._queue = status, await self.engine.queue(session.id)
        self.terminal.busy(status.state in AT_WORK)
        if status.state in AT_WORK:
            self._begin(live.id if live is not None else None)
        elif status.waiting:
            self._reply.resume(session.id, live)
            await self._ask_next()
        self._draw()
        self.run_in_background(self.refresh())

    async def _watch(self, events: AsyncIterator[Event]) -> None:
        while True:
            with contextlib.suppress(Gone) if self._can_reconnect else contextlib.nullcontext():
                async for event in events:
                    if self._is_here(event.data):
                        await self._report(self._on_event(event.type, event.data), typed=False)
            if not self._can_reconnect:
                return
            events = await self._reconnect()

    def _is_here(self, data: Mapping[str, Any]) -> bool:
        # Check again after each await: the person may have switched sessions.
        return self.session is not None and data.get("session_id") == self.session.id

    async def _reconnect(self) -> AsyncIterator[Event]:
        """Wait for the server, then continue without gaps or repetitions."""
        self._status = Status("retrying", message="reconnecting to the server")
        self._approvals.close()
        self._draw()
        missed = False

        def report_lost() -> None:
            nonlocal missed
            missed = True
            self.error("connection to the server lost; reconnecting. The conversation is saved; Ctrl-D leaves")

        async def catch_up() -> None:
            if not isinstance(self.engine, RemoteEngine):
                self.note("the chat that owned the store has ended; the store is open here now")
            elif missed:
                self.note("reconnected")
            await self._catch_up()

        return await self._connection.reconnect(catch_up, report_lost)

    async def _catch_up(self) -> None:
        session = self.session
        self._status, self.running = None, False
        if session is None:
            self.terminal.busy(False)
            return
        status = await self.engine.get_status(session.id)
        at_work = status.state in AT_WORK
        cut_short = await self._reply.settle(final=not at_work)
        messages = await self.engine.messages(session.id, limit=_SHOWN_MESSAGES)
        live = messages.pop().id if at_work and messages and messages[-1].role == "assistant" else None
        missed = [message for message in messages if message.id not in self._printed_ids]
        self._printed_ids.update(message.id for message in messages)
        self.terminal.print("".join(history_lines(missed, self.theme, self.terminal.size[0])))
        self._status, self._queue = status, await self.engine.queue(session.id)
        self.terminal.busy(at_work)
        if at_work:
            self._begin(live)
        elif status.waiting:
            await self._ask_next()
        elif cut_short:
            self.note("turn interrupted; partial output is saved; /continue to resume")
        self._draw()
        self.run_in_background(self.refresh())

    async def refresh(self) -> None:
        """Update the footer."""
        session_id = self.require_session()
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
            self._status = convert(data["status"], Status)
            if self._status.waiting:
                await self._ask_next()
        elif kind == "queue_changed":
            queue = await self.engine.queue(self.require_session())
            self._queue = queue if self._is_here(data) else self._queue
        elif kind == "context_compacted":
            self.note(summary_line(data))
        elif kind == "approval_answered":
            # By any client. The status that follows has the other pending requests.
            self._approvals.close(str(data.get("tool_call_id")))
        elif kind == "session_updated":
            session = await self.engine.get_session(self.require_session())
            if self._is_here(data):
                self.session, self.mode = session, session.mode
        elif kind == "session_deleted":
            self.note("this session was deleted")
            await self.enter(None)
        self._draw()

    # A turn

    async def _on_turn_started(self, message_id: str, user_message_id: str) -> None:
        if self.running:
            await self._reply.settle(final=True)
        self._interrupted = False
        self._queue = await self.engine.queue(self.require_session())
        new = user_message_id not in self._printed_ids
        if new and (found := await find_message(self.engine, self.require_session(), user_message_id)):
            self._printed_ids.add(user_message_id)
            self.terminal.print(user_lines(found, self.theme) if self.terminal.attended else "")
        self._begin(message_id)

    def _begin(self, message_id: str | None) -> None:
        self.running = True
        self._printed_ids.update([message_id] if message_id else ())
        self.terminal.busy(True)
        self._reply.begin(self.require_session(), message_id)
        if self.terminal.attended:
            self.run_in_background(self._tick())

    async def _on_turn_finished(self, data: Mapping[str, Any]) -> None:
        reason, error = data.get("reason"), data.get("error") or {}
        await self._reply.settle(final=reason != "waiting")
        self._approvals.close()  # denied with the turn
        self.running = False
        self._code = _CODES.get(str(reason), 0)
        self._status = await self.engine.get_status(self.require_session())
        if reason == "abort":
            count = len(self._queue)
            queued = f"; {plural(count, 'queued message')}, {'paused' if self._status.paused else 'sending next'}"
            self.note(f"stopped; partial output is saved; /continue to resume{queued if count else ''}")
        elif reason in ("error", "refused"):
            self.error(failure_text(error, None if self.terminal.attended else self.require_session()))
            self._restore_draft(str(error.get("text") or ""))
        elif reason == "finish":
            turn = (await self.engine.turn(str(data["turn_id"]))).data
            if words := stop_reason(turn, "/continue"):
                self.note(words)
        await self._ask_next()
        self._queue = await self.engine.queue(self.require_session())
        firing = bool(self._queue) and not self._status.paused
        self.terminal.busy((bool(self._approvals) or firing) and reason in ("finish", "abort"))
        if self.terminal.attended and reason != "waiting":
            self.run_in_background(self.refresh())
            self.run_in_background(self._mark_version(str(data.get("turn_id"))))

    async def _mark_version(self, turn_id: str) -> None:
        """Print which version an answer is, if there are several."""
        versions = await list_versions(self.engine, self.require_session(), turn_id)
        if len(versions) > 1:
            number = next((n for n, turn in enumerate(versions, start=1) if turn.id == turn_id), 0)
            self.note(f"‹ {number}/{len(versions)} ›  /versions to switch, /compare to compare")

    async def _ask_next(self) -> None:
        if not self.running:
            await self._approvals.ask_next(self.require_session())

    async def _answer(self, words: str) -> None:
        try:
            await self._approvals.answer(words)
        finally:
            if self.session is not None:
                await self._ask_next()

    # Live display

    def _draw(self) -> None:
        above, lines = self._reply.lines()
        waiting = [self.theme.style(f"⋯ {plain(excerpt(message))}", "dim") for message in self._queue[:3]]
        if len(self._queue) > 3:
            waiting.append(self.theme.style(f"⋯ and {len(self._queue) - 3} more; /queue to list them", "dim"))
        self.terminal.show([*lines, *waiting], self.theme.style(self._status_line(), "dim"), above)

    def footer(self, width: int) -> str:
        """Return the footer, at most ``width`` cells wide."""
        named = {"folder": str(self.folder), "model": self.model_name, "mode": self.mode}
        return msgspec.structs.replace(self._footer, **named).line(width)

    def _status_line(self) -> str:
        if (status := self._status) is None or status.state not in AT_WORK:
            paused = None if status is None else pause_reason(status, "/queue go on to resume")
            return f"{len(self._queue)} queued, {paused}" if self._queue and paused else ""
        return f"{work_status(status, time.time())} … Esc stops"

    async def _tick(self) -> None:
        """Redraw every second, for the elapsed time."""
        while self.running:
            await asyncio.sleep(1)
            self._draw()
