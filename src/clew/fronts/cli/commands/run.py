"""``clew run`` and ``clew continue``: one turn, its text or its chunks on stdout.

It runs in this process, or in the server that has the store, which is then watched as by any other viewer. On a
terminal what needs a permission is asked for, in the words and with the keys of ``clew chat``; without one it is
denied. Ctrl-C aborts the turn, which settles before the command ends; a second one ends the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import cyclopts
import msgspec

from clew.errors import AlreadyAnswered, ClewError
from clew.fronts.cli.command import AnyEngine, Json, Store, flag, new_session, open_store, plural
from clew.fronts.cli.commands.printer import Printer
from clew.fronts.cli.failure import failure_words
from clew.fronts.cli.question import Question
from clew.fronts.cli.render import Look, fallback_note, queue_pause, stop_reason, summary_of
from clew.fronts.cli.safe_text import plain
from clew.fronts.remote.attachment import attach_file
from clew.fronts.remote.engine import RemoteEngine
from clew.live.base import Waiting
from clew.session.api.engine import Engine
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.part import text_part, texts_of
from clew.transcript.replay import replay
from clew.transcript.turn import finish_of

__all__ = ["COMMANDS", "follow_turn", "see_through"]

TextsSoFar = Callable[..., Awaitable[list[str]]]
Files = Annotated[
    tuple[Path, ...],
    cyclopts.Parameter(
        name="--file", help="A file to send along; may be given again.", negative=(), show_default=False
    ),
]
_POLL_S: Final = 0.02
_IDLE_S: Final = 1.0
_FAILURES: Final = {"permission_denied": 5, "context_too_large": 6, "storage_full": 7}


async def run(
    prompt: str,
    /,
    *,
    file: Files = (),
    session: str | None = None,
    model: str | None = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Run one turn and print what the model says; with --json the chunks, one a line.

    Example: clew run "what is a clew?" --model demo/tour
    """
    options: Any = {"model": model, "on_busy": "reject", "attended": _is_attended(json)}
    parts = [
        *([text_part(prompt)] if prompt or not file else []),
        *[await asyncio.to_thread(attach_file, one) for one in file],
    ]
    async with open_store(store, write=True, make=True) as engine:
        if session is not None:
            submission = await engine.submit(session, parts, **options)
        else:
            session = (await new_session(engine, options["model"])).id
            try:
                submission = await engine.submit(session, parts, **options)
            except ClewError:
                # One whose first prompt is refused does not stay.
                await engine.delete_session(session)
                raise
        if sys.stderr.isatty():
            print(f"clew: session {session}", file=sys.stderr)
        return await follow_turn(engine, session, submission, json)


async def continue_(
    session: str,
    /,
    *,
    again: Annotated[bool, flag("Ask the same prompt anew, beside what came of it.")] = False,
    queue: Annotated[bool, flag("Start a paused queue, and nothing else.")] = False,
    store: Store = None,
    json: Json = False,
) -> int:
    """Go on after the last complete step of a turn that failed, was stopped or cut off; answer one; start a queue.

    Example: clew continue ses_… --queue
    """
    async with open_store(store, write=True) as engine:
        # A turn that goes on after its step limit has answers already; they are not said again.
        known = frozenset(message.id for message in await engine.messages(session))
        submission = await engine.continue_turn(session, mode="again" if again else "on", queue=queue)
        return await follow_turn(engine, session, submission, json, known)


COMMANDS: Final[tuple[Callable[..., Any], ...]] = (run, continue_)


async def follow_turn(
    engine: AnyEngine, session: str, submission: Submission, json: bool, known: frozenset[str] = frozenset()
) -> int:
    """Print a turn until it has ended, in this process, and return the exit code. ``known`` is not printed."""
    _abort_on_signal(engine, session)
    printer = Printer(json)

    async def answers() -> list[Message]:
        return _answers(await engine.messages(session), submission.message_id, known)

    async def texts_so_far(without: str | None = None) -> list[str]:
        return [text for message in await answers() if message.id != without for text in _texts(message.parts)]

    ending = asyncio.ensure_future(submission.wait())
    try:
        while not ending.done():
            shown = await _show_stream(engine, session, texts_so_far, printer)
            waiting = () if shown else (await engine.get_status(session)).waiting
            if waiting:
                # A run may begin and end between two looks. What it said is in the store, and printed from there.
                printer.catch_up(await texts_so_far())
                printer.end()
                if json:
                    # Now: a request that was answered is not played any more.
                    for message in await answers():
                        stored = replay(msgspec.to_builtins(message), finish="tool-calls")
                        printer.show(list(stored), replayed=True)
                await _ask(engine, session, waiting[0], ending, attended=_is_attended(json))
            # Looked at before the next stream is: that may be one of the queue's, which is not ours to print.
            await asyncio.wait({ending}, timeout=_POLL_S)
        printer.catch_up(await texts_so_far())
        printer.end()
        outcome = await ending
    finally:
        # When the server is gone, both notice; one says it.
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    completed = outcome.status == "completed"
    messages = await engine.messages(session)
    if json:
        # What was over before it could be watched.
        for message in _answers(messages, submission.message_id, known):
            whole = replay(msgspec.to_builtins(message), finish=completed and finish_of(outcome.stopped))
            printer.show(list(whole), replayed=True)
    _tell_summaries(messages, submission.message_id, known)
    for message in _answers(messages, submission.message_id, known):
        if note := fallback_note(message):
            print(f"clew: {note}", file=sys.stderr)
    if completed and outcome.stopped is not None:
        turn = await engine.turn(outcome.turn_id)
        if words := stop_reason(turn.data, f"`clew continue {session}`"):
            print(f"clew: {plain(words)}", file=sys.stderr)
    if outcome.status == "aborted":
        printer.show_abort()
        again = f'`clew continue {session}`, or say something else with `clew run --session {session} "…"`'
        print(f"clew: aborted; what was written is kept in {session}; go on with {again}", file=sys.stderr)
        return 130
    if outcome.status not in ("failed", "refused"):
        await see_through(engine, session)
        return 0
    if outcome.error is not None:
        # Among chunks it is the one that every client gets.
        printer.show_error(str(outcome.error.get("message")) if json else failure_words(outcome.error, session))
    if outcome.status == "failed" and sys.stderr.isatty():
        print(f"clew: `clew continue {session}` goes on after its last complete step", file=sys.stderr)
    return _FAILURES.get(str((outcome.error or {}).get("code")), 1)


async def see_through(engine: AnyEngine, session_id: str) -> None:
    """Stay until what was queued behind the turn has run, too: in this process nobody else would run it."""
    if isinstance(engine, RemoteEngine) or await _is_through(engine, session_id):
        return
    told = f"`clew show {session_id}` tells what comes of it"
    print(f"clew: the queue goes on; {told}, Ctrl-C stops it", file=sys.stderr)
    idle = 0.0
    # A message that cannot be fired, such as a damaged one, is not waited for.
    while not await _is_through(engine, session_id) and idle < _IDLE_S:
        idle = idle + _POLL_S if engine.is_idle(session_id) else 0.0
        await asyncio.sleep(_POLL_S)
    if why := queue_pause(await engine.get_status(session_id), session_id):
        print(f"clew: the queue is {why}", file=sys.stderr)


async def _is_through(engine: Engine, session_id: str) -> bool:
    """Nothing runs, and nothing will by itself."""
    # In this order: a message leaves the queue and opens its turn in one unit.
    queue = await engine.queue(session_id)
    open_turn = (await engine.store.load_state(session_id)).open_turn_id
    status = await engine.get_status(session_id)
    return bool(status.waiting) or (open_turn is None and (status.paused or not queue))


async def _show_stream(engine: AnyEngine, session_id: str, texts_so_far: TextsSoFar, printer: Printer) -> bool:
    """Print what runs now until it ends; False when nothing does."""
    if not isinstance(engine, RemoteEngine):
        stream = await engine.find_stream(session_id)
        if stream is not None:
            async for batch in stream.follow(replay=False):
                printer.show(batch)
        return stream is not None
    # A server shows a message from its first part on: what was printed of it before is not printed again.
    fold: Fold | None = None
    before: list[str] = []
    loop = asyncio.get_running_loop()
    shown_at = 0.0
    async for given in engine.attach(session_id):
        chunk = c.parse_chunk(given)
        if fold is None:
            fold = Fold(str(given.get("messageId")))
            before = [] if printer.json else await texts_so_far(fold.message_id)
        fold.apply(chunk)
        if printer.json:
            printer.show([chunk], replayed=True)
        elif loop.time() - shown_at > _POLL_S:
            shown_at = loop.time()
            printer.catch_up([*before, *_texts(fold.parts)])
    if fold is not None:
        printer.catch_up([*before, *_texts(fold.parts)])
    return fold is not None


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [text for text in texts_of(parts) if text]


def _answers(messages: Sequence[Message], prompt_id: str, known: frozenset[str]) -> list[Message]:
    """What the model said to a prompt, as it is stored."""
    answers: list[Message] = []
    ours = False
    for message in messages:
        if message.role == "user":
            ours = message.id == prompt_id
        elif ours and message.id not in known and summary_of(message) is None:
            answers.append(message)
    return answers


def _tell_summaries(messages: Sequence[Message], prompt_id: str, known: frozenset[str]) -> None:
    """Say that room was made on the way: the model does not see all of the conversation any more."""
    # A prompt that is out of sight itself was summarised since.
    asked_at = next((message.shown_at for message in messages if message.id == prompt_id), 0)
    for message in messages:
        summary = summary_of(message)
        if summary is not None and message.id not in known and message.shown_at >= asked_at:
            turns = summary.get("turns")
            what = plural(turns, "earlier turn") if turns else "earlier turns"
            print(f"clew: made room: summarised {what}; they stay stored", file=sys.stderr)


def _is_attended(json: bool) -> bool:
    """Somebody sees what is asked and can answer; among chunks there is no place for a question."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not json


class _LineTerminal:
    """Where a run asks: a line of the terminal for each answer."""

    def __init__(self, *, attended: bool) -> None:
        self.attended = attended
        self.question = ""

    @property
    def size(self) -> tuple[int, int]:
        return shutil.get_terminal_size()

    def print(self, text: str) -> None:
        print(text, end="", flush=True)

    def ask(self, question: str | None, words: Sequence[str] = ()) -> None:
        self.question = question or ""


async def _ask(
    engine: AnyEngine, session_id: str, wait: Waiting, ending: asyncio.Future[TurnOutcome], *, attended: bool
) -> None:
    """Put one thing that waits to whoever sits at the terminal; without anybody there it is denied."""
    terminal, asking = _LineTerminal(attended=attended), Question(engine, session_id, wait)
    if not await asking.begin(terminal, Look(colour=False)):
        return
    # Input typed before the request was printed does not answer it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    elsewhere = asyncio.ensure_future(_answered(engine, session_id, wait))
    try:
        while True:
            line = await _line(terminal.question, ending, elsewhere)
            if line is None:
                terminal.print("\n" if ending.done() else "\n(answered elsewhere)\n")
                return
            if not line:
                terminal.print("\n")
                await asking.refuse()
                return
            if await asking.take(line, terminal):
                return
    except AlreadyAnswered:
        terminal.print("(answered elsewhere)\n")
    finally:
        elsewhere.cancel()
        await asyncio.gather(elsewhere, return_exceptions=True)


async def _answered(engine: AnyEngine, session_id: str, wait: Waiting) -> None:
    """Until it does not wait any more; beside a server others may answer, too."""
    with contextlib.suppress(ClewError):
        async for status in engine.watch_status(session_id):
            if all(other.tool_call_id != wait.tool_call_id for other in status.waiting):
                return
    # The server is gone, and nobody answered; whoever waits for the turn says so.
    await asyncio.get_running_loop().create_future()


async def _line(question: str, *over: asyncio.Future[Any]) -> str | None:
    """What is typed, empty at its end; None when one of these came first. Not in a thread: that could not be left."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()
    fd = sys.stdin.fileno()

    def read() -> None:
        if not typed.done():
            try:
                # A terminal gives a line at a time; what is behind it stays there and can be dropped.
                typed.set_result(os.read(fd, 65536).decode(errors="replace"))
            except OSError:
                typed.set_result("")

    print(question, end="", flush=True)
    loop.add_reader(fd, read)
    try:
        await asyncio.wait({typed, *over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(fd)
    return typed.result() if typed.done() else None


def _abort_on_signal(engine: AnyEngine, session_id: str) -> None:
    aborting: list[asyncio.Task[Any]] = []

    def on_signal() -> None:
        if aborting:
            os._exit(130)
        aborting.append(asyncio.get_running_loop().create_task(engine.abort(session_id)))

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
