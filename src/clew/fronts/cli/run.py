"""One turn, its text or its chunks on stdout: a prompt, or one that is answered again.

It runs in this process, or in the server that has the store, which is then watched as by any other viewer. On a
terminal what needs a permission is asked for; without one it is denied. Ctrl-C aborts the turn, which settles before
the command ends; a second one ends the command.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import ClewError
from clew.fronts.cli.command import AnyEngine, named_model, opened
from clew.fronts.cli.plain import plain
from clew.fronts.cli.printer import Printer
from clew.fronts.cli.remote import RemoteEngine
from clew.live.base import Waiting
from clew.runtime.answers import Decision
from clew.runtime.desk import Submission
from clew.runtime.run import TurnOutcome
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.replay import replay

__all__ = ["follow_turn", "run_again", "run_prompt"]

Said = Callable[..., Awaitable[list[str]]]
_POLL_S: Final = 0.02
_DECISIONS: Final[dict[str, Decision]] = {
    **dict.fromkeys(("y", "yes", "once"), "once"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("n", "no", "deny", ""), "deny"),
}
_NOBODY: Final = "there is nobody at this terminal to ask"
_FAILURES: Final = {"permission_denied": 5, "context_too_large": 6, "storage_full": 7}


async def run_prompt(store: str | None, prompt: str, session: str | None, model: str | None, json: bool) -> int:
    """Run one turn and return the exit code."""
    attended = sys.stdin.isatty() and sys.stdout.isatty() and not json
    async with opened(store, write=True, make=True) as engine:
        submission, session = await _submit(engine, prompt, session, model, attended)
        if sys.stderr.isatty():
            print(f"clew: session {session}", file=sys.stderr)
        return await follow_turn(engine, session, submission, json)


async def run_again(store: str | None, session: str, json: bool) -> int:
    """Go on with a session and return the exit code."""
    async with opened(store, write=True) as engine:
        # A turn that goes on after its step limit has answers already; they are not said again.
        known = frozenset(message.id for message in await engine.messages(session))
        return await follow_turn(engine, session, await engine.continue_turn(session), json, known)


async def follow_turn(
    engine: AnyEngine, session: str, submission: Submission, json: bool, known: frozenset[str] = frozenset()
) -> int:
    """Print a turn until it has ended, in this process, and return the exit code. ``known`` is not printed."""
    _abort_on_signal(engine, session)
    ending = asyncio.ensure_future(submission.wait())
    printer = Printer(json)

    async def said(without: str | None = None) -> list[str]:
        later = await _answers(engine, session, submission.message_id, known)
        return [text for message in later if message.id != without for text in _texts(message.parts)]

    try:
        await _follow(engine, session, said, ending, printer)
        outcome = await ending
    finally:
        # When the server is gone, both notice; one says it.
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    if json and not printer.said_anything:
        # It was over before it could be watched.
        for message in await _answers(engine, session, submission.message_id, known):
            printer.show(list(replay(msgspec.to_builtins(message), finish=True)))
    if outcome.status in ("failed", "refused") and outcome.error is not None:
        printer.show_error(str(outcome.error.get("message")))
    if outcome.status == "aborted":
        print(
            f'clew: aborted; what was written is kept in {session}; go on with `clew run --session {session} "…"`',
            file=sys.stderr,
        )
    return _exit_code(outcome)


async def _submit(
    engine: AnyEngine, prompt: str, session: str | None, model: str | None, attended: bool
) -> tuple[Submission, str]:
    """Hand in the prompt, in a new session when none is named. One whose first prompt is refused does not stay."""
    if session is not None:
        return await engine.submit(
            session, prompt, model=named_model(model), on_busy="reject", attended=attended
        ), session
    named = named_model(model)
    made = await engine.create_session(model=named, workspace_root=Path.cwd())
    try:
        return await engine.submit(made.id, prompt, model=named, on_busy="reject", attended=attended), made.id
    except ClewError:
        await engine.delete_session(made.id)
        raise


async def _follow(
    engine: AnyEngine,
    session_id: str,
    said: Said,
    ending: asyncio.Future[TurnOutcome],
    printer: Printer,
) -> None:
    """Print stream after stream until the turn has ended, and ask when it waits.

    A run may begin and end between two looks. What it said is in the store, and is printed from there.
    """
    while not ending.done():
        if await _show_stream(engine, session_id, said, printer):
            waiting: tuple[Waiting, ...] = ()
        else:
            waiting = (await engine.get_status(session_id)).waiting
        if waiting:
            printer.catch_up(await said())
            printer.end()
            await _ask(engine, session_id, waiting[0], ending)
        # Looked at before the next stream is: that may be one of the queue's, which is not ours to print.
        await asyncio.wait({ending}, timeout=_POLL_S)
    printer.catch_up(await said())
    printer.end()


async def _show_stream(engine: AnyEngine, session_id: str, said: Said, printer: Printer) -> bool:
    """Print what runs now until it ends; False when nothing does."""
    if not isinstance(engine, RemoteEngine):
        stream = engine.host.live.find_stream(session_id)
        if stream is not None:
            async for batch in stream.follow(replay=False):
                printer.show(batch)
        return stream is not None
    return await _show_served(engine, session_id, said, printer)


async def _show_served(engine: RemoteEngine, session_id: str, said: Said, printer: Printer) -> bool:
    """A server shows a message from its first part on: what was printed of it before is not printed again."""
    fold: Fold | None = None
    before: list[str] = []
    loop = asyncio.get_running_loop()
    shown_at = 0.0
    async for given in engine.attach(session_id):
        chunk = c.parse_chunk(given)
        if fold is None:
            fold = Fold(str(given.get("messageId")))
            before = [] if printer.json else await said(fold.message_id)
        fold.apply(chunk)
        if printer.json:
            printer.show([chunk])
        elif loop.time() - shown_at > _POLL_S:
            shown_at = loop.time()
            printer.catch_up([*before, *_texts(fold.parts)])
    if fold is not None:
        printer.catch_up([*before, *_texts(fold.parts)])
    return fold is not None


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [part["text"] for part in parts if part["type"] == "text" and part["text"]]


async def _answers(engine: AnyEngine, session_id: str, prompt_id: str, known: frozenset[str]) -> list[Message]:
    """What the model said to a prompt, as it is stored."""
    answers: list[Message] = []
    ours = False
    for message in await engine.messages(session_id):
        if message.role == "user":
            ours = message.id == prompt_id
        elif ours and message.id not in known:
            answers.append(message)
    return answers


async def _ask(engine: AnyEngine, session_id: str, wait: Waiting, ending: asyncio.Future[TurnOutcome]) -> None:
    """Put one thing that waits to whoever sits at the terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        await _deny(engine, session_id, wait)
        return
    shown = await _input_of(engine, session_id, wait.tool_call_id)
    if wait.approval_id is None:
        line = await _line(f"{wait.tool} {shown}\nyour answer: ", ending)
        if line is not None:
            await engine.answer_question(session_id, wait.tool_call_id, line.strip())
        return
    print(f"{wait.tool} {shown}")
    decision: Decision | None = None
    while decision is None:
        line = await _line("allow? [y]es once, for this [s]ession, [N]o: ", ending)
        if line is None:
            return
        decision = _DECISIONS.get(line.strip().lower())
    if decision == "deny":
        print("denied")
    await engine.answer(session_id, wait.approval_id, decision)


async def _deny(engine: AnyEngine, session_id: str, wait: Waiting) -> None:
    """Nobody can be asked. The message was sent by somebody who could; whoever goes on with it here cannot."""
    if wait.approval_id is None:
        await engine.answer_question(session_id, wait.tool_call_id, _NOBODY)
    else:
        await engine.answer(session_id, wait.approval_id, "deny", _NOBODY)


async def _line(question: str, ending: asyncio.Future[TurnOutcome]) -> str | None:
    """What is typed; None when the turn ended meanwhile. Not in a thread: that could not be left."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(sys.stdin.readline())

    print(question, end="", flush=True)
    loop.add_reader(sys.stdin.fileno(), read)
    try:
        both: set[asyncio.Future[Any]] = {typed, ending}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return typed.result() if typed.done() else None


async def _input_of(engine: AnyEngine, session_id: str, tool_call_id: str) -> str:
    """The exact arguments of a call, as a terminal can show them; never the model's words about it."""
    for message in reversed(await engine.messages(session_id, limit=20)):
        for part in message.parts:
            if part.get("toolCallId") == tool_call_id:
                return plain(msgspec.json.encode(part.get("input")).decode())
    return ""


def _abort_on_signal(engine: AnyEngine, session_id: str) -> None:
    aborting: list[asyncio.Task[Any]] = []

    def on_signal() -> None:
        if aborting:
            os._exit(130)
        aborting.append(asyncio.get_running_loop().create_task(engine.abort(session_id)))

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)


def _exit_code(outcome: TurnOutcome) -> int:
    if outcome.status == "aborted":
        return 130
    if outcome.status in ("failed", "refused"):
        return _FAILURES.get(str((outcome.error or {}).get("code")), 1)
    return 0
