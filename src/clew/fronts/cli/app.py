"""Commands that look after a store: list, show, check, back up. Running agents comes with the run.

Everything a command prints goes to stdout; why it failed goes to stderr in one line, and the exit code says which
kind of failure it was: 2 usage, 3 not found, 4 conflict or owned elsewhere, 7 storage, 1 anything else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import msgspec

import clew
from clew.errors import ClewError, Conflict, Invalid, NotFound, StoreError
from clew.fronts.cli.plain import plain
from clew.history.check import check as judge

__all__ = ["main"]

app = cyclopts.App(
    name="clew",
    help="The durable session engine for AI agents.",
    version=clew.__version__,
    result_action="return_value",
)
Store = Annotated[
    str | None, cyclopts.Parameter(name="--store", help="Store URL; default CLEW_STORE, then your data folder.")
]
Json = Annotated[bool, cyclopts.Parameter(name="--json", negative=(), help="Print JSON.")]

_EXIT_CODES: tuple[tuple[type[ClewError], int], ...] = ((Invalid, 2), (NotFound, 3), (Conflict, 4), (StoreError, 7))


@app.command
def ls(*, store: Store = None, limit: int = 50, archived: bool = False, json: Json = False) -> int:
    """List sessions, newest first.

    Example: clew ls --limit 10
    """

    async def run() -> int:
        async with clew.open(store, read_only=True) as engine:
            page = await engine.list_sessions(limit=limit, archived=archived)
        if json:
            print(msgspec.json.encode(page).decode())
        for session in () if json else page.sessions:
            print(f"{session.id}  {session.total_tokens:>8}  {plain(session.title or '(untitled)')}")
        return 0

    return _run(run())


@app.command
def show(session: str, /, *, store: Store = None, view: str = "visible", json: Json = False) -> int:
    """Print the messages of a session.

    Example: clew show ses_… --view all
    """

    async def run() -> int:
        async with clew.open(store, read_only=True) as engine:
            messages = await engine.messages(session, view=view)  # type: ignore[arg-type]  # the engine checks it
        if json:
            print(msgspec.json.encode({"messages": messages}).decode())
        for message in () if json else messages:
            for part in message.parts:
                text = part.get("text")
                body = text if isinstance(text, str) else f"[{part.get('type')}]"
                print(f"{message.role}: {plain(body)}")
        return 0

    return _run(run())


@app.command
def check(*, store: Store = None) -> int:
    """Look at every session and say what is not as it must be. Changes nothing.

    Example: clew check --store sqlite:///clew.db
    """

    async def run() -> int:
        async with clew.open(store, read_only=True) as engine:
            problems = await judge(engine.store)
            count = len(await engine.store.session_ids())
        for problem in problems:
            print(plain(str(problem)))
        print(f"{count} sessions, {len(problems)} problems")
        return 7 if problems else 0

    return _run(run())


@app.command
def backup(file: Path, /, *, store: Store = None) -> int:
    """Copy the store to a new file while it is in use.

    Example: clew backup ~/clew-backup.db
    """

    async def run() -> int:
        async with clew.open(store, read_only=True) as engine:
            await engine.backup(file)
        print(file)
        return 0

    return _run(run())


def _run(command: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(command)
    except ClewError as error:
        print(f"clew: {error} ({error.code})", file=sys.stderr)
        return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)


def main() -> None:
    """Entry point of the ``clew`` command."""
    try:
        sys.exit(app() or 0)
    except KeyboardInterrupt:
        sys.exit(130)
