"""``clew run``: one turn in this process, its text or its chunks on stdout.

On a terminal what needs a permission is asked for; without one it is denied. Ctrl-C aborts the turn, which settles
before the command ends; a second one ends the command.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import clew
from clew.engine import Engine
from clew.errors import ClewError
from clew.fronts.cli.plain import plain
from clew.live.base import Waiting
from clew.runtime.answers import Decision
from clew.runtime.desk import Submission
from clew.runtime.run import TurnOutcome
from clew.transcript import chunk as c

__all__ = ["run_prompt"]

_POLL_S: Final = 0.02
_DECISIONS: Final[dict[str, Decision]] = {
    **dict.fromkeys(("y", "yes", "once"), "once"),
    **dict.fromkeys(("s", "session"), "session"),
    **dict.fromkeys(("n", "no", "deny", ""), "deny"),
}
_FAILURES: Final = {"permission_denied": 5, "context_too_large": 6, "storage_full": 7}


async def run_prompt(store: str | None, prompt: str, session: str | None, model: str | None, json: bool) -> int:
    """Run one turn and return the exit code."""
    attended = sys.stdin.isatty() and sys.stdout.isatty() and not json
    async with clew.open(store) as engine:
        submission, session = await _submit(engine, prompt, session, model, attended)
        if sys.stderr.isatty():
            print(f"clew: session {session}", file=sys.stderr)
        _abort_on_signal(engine, session)
        ending = asyncio.ensure_future(submission.wait())
        printer = _Printer(json)
        await _follow(engine, session, submission.message_id, ending, printer)
        outcome = await ending
        if outcome.status == "failed" and outcome.error is not None:
            printer.show_error(str(outcome.error.get("message")))
    if outcome.status == "aborted":
        print(
            f'clew: aborted; what was written is kept in {session}; go on with `clew run --session {session} "…"`',
            file=sys.stderr,
        )
    return _exit_code(outcome)


async def _submit(
    engine: Engine, prompt: str, session: str | None, model: str | None, attended: bool
) -> tuple[Submission, str]:
    """Hand in the prompt, in a new session when none is named. One whose first prompt is refused does not stay."""
    if session is not None:
        return await engine.submit(session, prompt, model=model, on_busy="reject", attended=attended), session
    made = await engine.create_session(model=model, workspace_root=Path.cwd())
    try:
        return await engine.submit(made.id, prompt, on_busy="reject", attended=attended), made.id
    except ClewError:
        await engine.delete_session(made.id)
        raise


async def _follow(
    engine: Engine, session_id: str, prompt_id: str, ending: asyncio.Future[TurnOutcome], printer: _Printer
) -> None:
    """Print stream after stream until the turn has ended, and ask when it waits.

    A run may begin and end between two looks. What it said is in the store, and is printed from there.
    """
    while not ending.done():
        stream = engine.host.live.find_stream(session_id)
        waiting = () if stream is not None else (await engine.get_status(session_id)).waiting
        if stream is not None:
            async for batch in stream.follow(replay=False):
                printer.show(batch)
        elif waiting:
            printer.catch_up(await _texts_after(engine, session_id, prompt_id))
            printer.end()
            await _ask(engine, session_id, waiting[0], ending)
        # Looked at before the next stream is: that may be one of the queue's, which is not ours to print.
        await asyncio.wait({ending}, timeout=_POLL_S)
    printer.catch_up(await _texts_after(engine, session_id, prompt_id))
    printer.end()


async def _texts_after(engine: Engine, session_id: str, prompt_id: str) -> list[str]:
    """What the model said to a prompt, as it is stored."""
    texts: list[str] = []
    ours = False
    for message in await engine.messages(session_id):
        if message.role == "user":
            ours = message.id == prompt_id
        elif ours:
            texts += [part["text"] for part in message.parts if part["type"] == "text" and part["text"]]
    return texts


async def _ask(engine: Engine, session_id: str, wait: Waiting, ending: asyncio.Future[TurnOutcome]) -> None:
    """Put one thing that waits to whoever sits at the terminal."""
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


async def _input_of(engine: Engine, session_id: str, tool_call_id: str) -> str:
    """The exact arguments of a call, as a terminal can show them; never the model's words about it."""
    for message in reversed(await engine.messages(session_id, limit=20)):
        for part in message.parts:
            if part.get("toolCallId") == tool_call_id:
                return plain(msgspec.json.encode(part.get("input")).decode())
    return ""


def _abort_on_signal(engine: Engine, session_id: str) -> None:
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
    if outcome.status == "failed":
        return _FAILURES.get(str((outcome.error or {}).get("code")), 1)
    return 0


class _Printer:
    """Chunks to stdout. Whoever reads it may leave; the turn goes on without."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._at_start = True
        self._said: list[str] = []
        self._places: dict[str, int] = {}
        self._error_shown = False

    def show(self, chunks: Sequence[c.Chunk]) -> None:
        if self._json:
            self._print("".join(c.encode_chunk(chunk).decode() + "\n" for chunk in chunks))
            return
        for chunk in chunks:
            if isinstance(chunk, c.TextStart):
                self.end()
                self._places.pop(chunk.id, None)
            elif isinstance(chunk, c.TextDelta) and chunk.delta:
                self._say(self._places.setdefault(chunk.id, len(self._said)), chunk.delta)
            elif isinstance(chunk, c.Error):
                self.show_error(chunk.error_text)

    def show_error(self, text: str) -> None:
        """Why the turn failed, once; among chunks it is one of them."""
        if not self._json and not self._error_shown:
            self._error_shown = True
            self.end()
            print(f"clew: {plain(text)}", file=sys.stderr)

    def catch_up(self, texts: Sequence[str]) -> None:
        """Print what of these, all the texts so far, was not printed yet."""
        for place, text in enumerate(() if self._json else texts):
            if place == len(self._said):
                self.end()
            said = self._said[place] if place < len(self._said) else ""
            if text.startswith(said) and text != said:
                self._say(place, text[len(said) :])

    def _say(self, place: int, text: str) -> None:
        if place == len(self._said):
            self._said.append("")
        self._said[place] += text
        self._print(plain(text))

    def end(self) -> None:
        """Begin a new line, unless one was just begun."""
        if not self._json and not self._at_start:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            self._at_start = text.endswith("\n")
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts
