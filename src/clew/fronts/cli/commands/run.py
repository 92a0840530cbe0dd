"""``clew run`` and ``clew continue``: run one turn, and print its text or its chunks.

The turn runs in this process, or in the server that owns the store, which is then followed like any other stream. On a
terminal approvals are asked for as in ``clew chat``; otherwise they are denied. Ctrl-C aborts the turn and waits until
it is settled; a second one exits immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import cyclopts

from clew.errors import AlreadyAnswered, ClewError
from clew.fronts.cli.command import AnyEngine, Json, Store, flag, new_session, open_store, plural
from clew.fronts.cli.commands.printer import Printer
from clew.fronts.cli.failure import failure_text
from clew.fronts.cli.question import Question
from clew.fronts.cli.render import Theme, fallback_note, queue_pause, stop_reason, summary_of
from clew.fronts.cli.safe_text import plain
from clew.fronts.remote.attachment import attach_file
from clew.fronts.remote.engine import RemoteEngine
from clew.live.base import Waiting
from clew.platform import WINDOWS
from clew.platform.processes import add_signal_handler
from clew.session.api.engine import Engine
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.transcript import chunk as c
from clew.transcript.message import Message
from clew.transcript.part import text_part
from clew.transcript.shown_messages import ShownMessages

if sys.platform != "win32":
    import termios

__all__ = ["continue_", "follow_turn", "run", "see_through"]

Files = Annotated[
    tuple[Path, ...],
    cyclopts.Parameter(name="--file", help="A file to attach; repeatable.", negative=(), show_default=False),
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
    """Run one turn and print the model's text; with --json the chunks, one per line.

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
                # A session whose first prompt is refused is deleted.
                await engine.delete_session(session)
                raise
        if sys.stderr.isatty():
            print(f"clew: session {session}", file=sys.stderr)
        return await follow_turn(engine, session, submission, json)


async def continue_(
    session: str,
    /,
    *,
    again: Annotated[bool, flag("Run the same prompt again, as another version.")] = False,
    queue: Annotated[bool, flag("Only resume a paused queue.")] = False,
    store: Store = None,
    json: Json = False,
) -> int:
    """Resume a turn that failed, was stopped or was cut off, after its last complete step; or resume the queue.

    Example: clew continue ses_… --queue
    """
    async with open_store(store, write=True) as engine:
        # A resumed turn already has answers, which must not be printed again.
        known = frozenset(message.id for message in await engine.messages(session))
        submission = await engine.continue_turn(session, mode="again" if again else "on", queue=queue)
        return await follow_turn(engine, session, submission, json, known)


async def follow_turn(
    engine: AnyEngine, session: str, submission: Submission, json: bool, known: frozenset[str] = frozenset()
) -> int:
    """Print a turn until it ends; return the exit code. Messages in ``known`` are not printed."""
    _abort_on_signal(engine, session)
    printer, stream = Printer(json), TurnChunks(engine, session, submission.message_id, known)
    ending = asyncio.ensure_future(submission.wait())
    try:
        while True:
            is_over = ending.done()
            async for chunks in stream.rest():
                printer.show(chunks)
            if is_over:
                break
            if waiting := (await engine.get_status(session)).waiting:
                printer.end()
                await _ask(engine, session, waiting[0], ending, attended=_is_attended(json))
            await asyncio.wait({ending}, timeout=_POLL_S)
        printer.end()
        outcome = await ending
    finally:
        # If the server is lost, report it only once.
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    completed = outcome.status == "completed"
    messages = await engine.messages(session)
    _print_summaries(messages, submission.message_id, known)
    for message in _answers(messages, submission.message_id, known):
        if note := fallback_note(message):
            print(f"clew: {note}", file=sys.stderr)
    if completed and outcome.stopped is not None:
        turn = await engine.turn(outcome.turn_id)
        if words := stop_reason(turn.data, f"`clew continue {session}`"):
            print(f"clew: {plain(words)}", file=sys.stderr)
    if outcome.status == "aborted":
        printer.show_abort()
        again = f'`clew continue {session}`, or send another prompt: `clew run --session {session} "…"`'
        print(f"clew: aborted; partial output is saved; to resume: {again}", file=sys.stderr)
        return 130
    if outcome.status not in ("failed", "refused"):
        await see_through(engine, session)
        return 0
    if outcome.error is not None:
        # With JSON it is the error chunk that every client gets.
        printer.show_error(str(outcome.error.get("message")) if json else failure_text(outcome.error, session))
    if outcome.status == "failed" and sys.stderr.isatty():
        print(f"clew: `clew continue {session}` to resume after the last complete step", file=sys.stderr)
    return _FAILURES.get(str((outcome.error or {}).get("code")), 1)


async def see_through(engine: AnyEngine, session_id: str) -> None:
    """Wait until the queue has run too: no other process would run it."""
    if isinstance(engine, RemoteEngine) or await _is_through(engine, session_id):
        return
    print(f"clew: running the queue; Ctrl-C stops it; see `clew show {session_id}` afterwards", file=sys.stderr)
    idle = 0.0
    # Do not wait for a message that cannot be sent, such as a damaged one.
    while not await _is_through(engine, session_id) and idle < _IDLE_S:
        idle = idle + _POLL_S if engine.is_idle(session_id) else 0.0
        await asyncio.sleep(_POLL_S)
    if why := queue_pause(await engine.get_status(session_id), session_id):
        print(f"clew: the queue is {why}", file=sys.stderr)


async def _is_through(engine: Engine, session_id: str) -> bool:
    """Return whether nothing runs, and nothing will start by itself."""
    # In this order: a message leaves the queue and opens its turn in one unit.
    queue = await engine.queue(session_id)
    open_turn = (await engine.store.load_state(session_id)).open_turn_id
    status = await engine.get_status(session_id)
    return bool(status.waiting) or (open_turn is None and (status.paused or not queue))


class TurnChunks:
    """The chunks of one turn, each once, however often it waits for an answer. Messages in ``known`` are left out."""

    def __init__(self, engine: AnyEngine, session_id: str, message_id: str, known: frozenset[str]) -> None:
        self._engine = engine
        self._session_id = session_id
        self._message_id = message_id
        self._known = known
        self._cursor: str | None = None
        self._shown = ShownMessages()

    async def rest(self) -> AsyncIterator[list[c.Chunk]]:
        """Yield what was not yielded before, until the turn ends or waits."""
        skips = False
        async for given in self._engine.attach(self._session_id, message_id=self._message_id, after=self._cursor):
            chunk, self._cursor = c.parse_chunk(given), given.cursor or self._cursor
            skips = chunk.message_id in self._known if isinstance(chunk, c.Start) else skips
            if not skips:
                yield [new for _, new in self._shown.take(chunk, given.cursor)]
        yield [new for _, new in self._shown.end()]


def _answers(messages: Sequence[Message], prompt_id: str, known: frozenset[str]) -> list[Message]:
    """Return the stored answers to a prompt."""
    answers: list[Message] = []
    ours = False
    for message in messages:
        if message.role == "user":
            ours = message.id == prompt_id
        elif ours and message.id not in known and summary_of(message) is None:
            answers.append(message)
    return answers


def _print_summaries(messages: Sequence[Message], prompt_id: str, known: frozenset[str]) -> None:
    """Report compactions: the model no longer sees the whole conversation."""
    # A prompt that is not in the list was itself summarised.
    asked_at = next((message.shown_at for message in messages if message.id == prompt_id), 0)
    for message in messages:
        summary = summary_of(message)
        if summary is not None and message.id not in known and message.shown_at >= asked_at:
            turns = summary.get("turns")
            what = plural(turns, "earlier turn") if turns else "earlier turns"
            print(f"clew: compacted {what}; they stay stored", file=sys.stderr)


def _is_attended(json: bool) -> bool:
    """Return whether a person can answer questions; never with JSON output, nor on Windows, where an event loop cannot
    watch a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not json and not WINDOWS


class _LineTerminal:
    """A terminal for questions, with one line per answer."""

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
    """Ask one pending request on the terminal; without a person it is denied."""
    if WINDOWS:
        print("clew: on Windows this command cannot ask; use the page (`clew serve`) to approve calls", file=sys.stderr)
    terminal, asking = _LineTerminal(attended=attended), Question(engine, session_id, wait)
    if not await asking.begin(terminal, Theme(colour=False)):
        return
    # Input typed before the request was printed does not answer it.
    if sys.platform != "win32":
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
    """Wait until the request is no longer pending; other clients of a server may answer it."""
    with contextlib.suppress(ClewError):
        async for status in engine.watch_status(session_id):
            if all(other.tool_call_id != wait.tool_call_id for other in status.waiting):
                return
    # The server is lost; the waiter for the turn reports it.
    await asyncio.get_running_loop().create_future()


async def _line(question: str, *over: asyncio.Future[Any]) -> str | None:
    """Return a typed line, empty at the end of input; None if one of ``over`` is done first.

    Not read in a thread, which could not be cancelled.
    """
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()
    fd = sys.stdin.fileno()

    def read() -> None:
        if not typed.done():
            try:
                # A terminal returns one line per read; the rest stays in its buffer and can be flushed.
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
        add_signal_handler(number, on_signal)
