"""The commands: serve a store, run a turn in it, look at it and look after it.

Everything a command prints goes to stdout; why it failed goes to stderr in one line, and the exit code says which
kind of failure it was: 1 the run failed, 2 usage, 3 not found, 4 conflict or owned elsewhere, 5 denied, 6 context too
large, 7 storage, 130 aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import msgspec

import clew
from clew.config import default_store_url
from clew.errors import (
    ClewError,
    Conflict,
    ContextTooLarge,
    Invalid,
    InvalidInput,
    NotFound,
    PermissionDenied,
    StoreError,
    StoreUnavailable,
)
from clew.fronts.cli.plain import plain
from clew.fronts.cli.run import run_prompt
from clew.history.check import check as judge
from clew.store.location import SqliteFile, parse_url
from clew.store.owner import read_owner

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

_EXIT_CODES: tuple[tuple[type[ClewError], int], ...] = (
    (Invalid, 2),
    (NotFound, 3),
    (Conflict, 4),
    (PermissionDenied, 5),
    (ContextTooLarge, 6),
    (StoreError, 7),
)
_HTTP = "clew.fronts.http.serve"


@app.command
def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 7717,
    store: Store = None,
    open: Annotated[bool, cyclopts.Parameter(name="--open", negative=(), help="Open the page.")] = False,
) -> int:
    """Serve a store over HTTP, on this machine only. Prints where, with the token, in one line.

    Example: clew serve --port 0 --store sqlite:///clew.db
    """
    return _run(_http_front().serve(store, host=host, port=port, open_page=open))


@app.command
def run(
    prompt: str, /, *, session: str | None = None, model: str | None = None, store: Store = None, json: Json = False
) -> int:
    """Run one turn and print what the model says; with --json the chunks, one a line.

    Example: clew run "what is a clew?" --model demo/tour
    """
    return _run(run_prompt(store, prompt, session, model, json))


@app.command
def url(*, store: Store = None) -> int:
    """Print the address of the server that has the store open, with its token.

    Example: clew url
    """

    async def find() -> int:
        location = parse_url(store or default_store_url())
        owner = read_owner(location.path) if isinstance(location, SqliteFile) else None
        print(_http_front().find_url(owner.url if owner else None))
        return 0

    return _run(find())


def _http_front() -> Any:
    """The HTTP front, by name: fronts do not import one another, and this one needs packages that may be absent."""
    try:
        return importlib.import_module(_HTTP)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "httptools"):
            raise
        raise InvalidInput("this needs the server's packages: pip install 'clew[server]'") from error


@app.command
def ls(*, store: Store = None, limit: int = 50, archived: bool = False, json: Json = False) -> int:
    """List sessions, newest first.

    Example: clew ls --limit 10
    """

    async def run() -> int:
        async with _reading(store) as engine:
            page = await engine.list_sessions(limit=limit, archived=archived)
        if json:
            print(msgspec.json.encode(page).decode())
        elif sys.stdout.isatty():
            print(f"{'session':<30}  {'tokens':>8}  title")
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
        async with _reading(store) as engine:
            messages = await engine.messages(session, view=view)  # type: ignore[arg-type]  # the engine checks it
        if json:
            print(msgspec.json.encode({"messages": messages}).decode())
        for message in () if json else messages:
            for part in message.parts:
                if part["type"] != "step-start":
                    print(f"{message.role}: {plain(_shown(part))}")
        return 0

    return _run(run())


@app.command
def check(*, store: Store = None) -> int:
    """Look at every session and say what is not as it must be. Changes nothing.

    Example: clew check --store sqlite:///clew.db
    """

    async def run() -> int:
        async with _reading(store) as engine:
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
        async with _reading(store) as engine:
            await engine.backup(file)
        print(file)
        return 0

    return _run(run())


def _shown(part: Mapping[str, Any]) -> str:
    """A part as a person reads it: its text, or a call with what came of it."""
    if "toolCallId" in part:
        name = part.get("toolName") or part["type"].removeprefix("tool-")
        given = msgspec.json.encode(part.get("input")).decode()
        came = part.get("output", part.get("errorText", f"[{part.get('state')}]"))
        return f"{name} {given} → {came if isinstance(came, str) else msgspec.json.encode(came).decode()}"
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part['type']}]"


@contextlib.asynccontextmanager
async def _reading(store: str | None) -> AsyncIterator[clew.Engine]:
    """The store, for reading; when there is none, what makes one is said."""
    location = parse_url(store or default_store_url())
    if isinstance(location, SqliteFile) and not location.path.exists():
        raise StoreUnavailable(f"there is no store at {location.path}; `clew run` or `clew serve` makes it")
    async with clew.open(store, read_only=True) as engine:
        yield engine


def _run(command: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(command)
    except ClewError as error:
        return _say(error)


def _say(error: ClewError) -> int:
    print(f"clew: {error} ({error.code})", file=sys.stderr)
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)


def main() -> None:
    """Entry point of the ``clew`` command."""
    try:
        sys.exit(app() or 0)
    except ClewError as error:
        sys.exit(_say(error))
    except KeyboardInterrupt:
        sys.exit(130)
