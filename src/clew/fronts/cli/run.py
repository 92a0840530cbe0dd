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
from clew.fronts.cli.plain import plain
from clew.live.base import Waiting
from clew.runtime.answers import Decision
from clew.runtime.run import TurnOutcome
from clew.transcript import chunk as c

__all__ = ["run_prompt"]

_POLL_S: Final = 0.02
_DECISIONS: Final[dict[str, Decision]] = {"y": "once", "s": "session"}
_FAILURES: Final = {"permission_denied": 5, "context_too_large": 6, "storage_full": 7}


async def run_prompt(store: str | None, prompt: str, session: str | None, model: str | None, json: bool) -> int:
    """Run one turn and return the exit code."""
    attended = sys.stdin.isatty() and sys.stdout.isatty() and not json
    async with clew.open(store) as engine:
        if session is None:
            made = await engine.create_session(model=model, workspace_root=Path.cwd())
            session, model = made.id, None
        submission = await engine.submit(session, prompt, model=model, on_busy="reject", attended=attended)
        _abort_on_signal(engine, session)
        ending = asyncio.ensure_future(submission.wait())
        await _follow(engine, session, ending, _Printer(json))
        outcome = await ending
    return _exit_code(outcome)


async def _follow(engine: Engine, session_id: str, ending: asyncio.Future[TurnOutcome], printer: _Printer) -> None:
    """Print stream after stream until the turn has ended, and ask when it waits."""
    while not ending.done():
        stream = engine.host.live.find_stream(session_id)
        waiting = () if stream is not None else (await engine.get_status(session_id)).waiting
        if stream is not None:
            async for batch in stream.follow(replay=False):
                printer.show(batch)
        elif waiting:
            printer.end()
            await _ask(engine, session_id, waiting[0], ending)
        # Looked at before the next stream is: that may be one of the queue's, which is not ours to print.
        await asyncio.wait({ending}, timeout=_POLL_S)
    printer.end()


async def _ask(engine: Engine, session_id: str, wait: Waiting, ending: asyncio.Future[TurnOutcome]) -> None:
    """Put one thing that waits to whoever sits at the terminal."""
    shown = await _input_of(engine, session_id, wait.tool_call_id)
    if wait.approval_id is None:
        line = await _line(f"{wait.tool} {shown}\nyour answer: ", ending)
        if line is not None:
            await engine.answer_question(session_id, wait.tool_call_id, line.strip())
        return
    line = await _line(f"{wait.tool} {shown}\nallow? [y]es, for this [s]ession, [N]o: ", ending)
    if line is not None:
        await engine.answer(session_id, wait.approval_id, _DECISIONS.get(line.strip().lower()[:1], "deny"))


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

    def show(self, chunks: Sequence[c.Chunk]) -> None:
        if self._json:
            self._print("".join(c.encode_chunk(chunk).decode() + "\n" for chunk in chunks))
            return
        for chunk in chunks:
            if isinstance(chunk, c.TextStart):
                self.end()
            elif isinstance(chunk, c.TextDelta):
                self._print(plain(chunk.delta))
            elif isinstance(chunk, c.Error):
                self.end()
                print(f"clew: {plain(chunk.error_text)}", file=sys.stderr)

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
