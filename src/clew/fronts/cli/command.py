"""Common parts of all commands: options, opening the store, output and errors.

A command prints JSON or plain lines to stdout. A failure is one line on stderr, and the exit code is its kind.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import cyclopts
import msgspec

import clew
from clew import errors as e
from clew.config import default_store_url
from clew.fronts.cli.safe_text import plain, plain_json
from clew.store.location import Location, Memory, PostgresDatabase, SqliteFile, lock_of, parse_url
from clew.store.owner import read_owner, refuse_lost
from clew.transcript.metadata import local_place
from clew.transcript.session import Session

# Imports inside functions: reading a store in this process takes neither the runtime nor the client of a server.
if TYPE_CHECKING:
    from clew.fronts.operations.results import SessionShape
    from clew.fronts.remote.engine import RemoteEngine

__all__ = [
    "EXIT_CODES",
    "AnyEngine",
    "Json",
    "Store",
    "exit_code",
    "find_server",
    "flag",
    "moment",
    "new_session",
    "open_file",
    "open_store",
    "option",
    "plural",
    "print_error",
    "print_json",
    "session_shapes",
    "show",
    "show_progress",
]

AnyEngine: TypeAlias = "clew.Engine | RemoteEngine"
"""An engine in this process, or the engine of the server that owns the store."""


def option(help: str, name: str | None = None) -> cyclopts.Parameter:
    """Return an option with a value, named after its parameter by default."""
    # Without ``negative=()`` a repeatable option would also have an ``--empty-…`` form.
    return cyclopts.Parameter(name=name, negative=(), help=help)


def flag(help: str, name: str | None = None) -> cyclopts.Parameter:
    """Return an option without a value, and without a ``--no-…`` form."""
    return cyclopts.Parameter(name=name, negative=(), help=help)


Store = Annotated[str | None, option("Store URL; default CLEW_STORE, then your data folder.", "--store")]
Json = Annotated[bool, flag("Print JSON.", "--json")]

EXIT_CODES: Final[tuple[tuple[type[e.ClewError], int], ...]] = (
    (e.Invalid, 2),
    (e.NotFound, 3),
    (e.Conflict, 4),
    (e.PermissionDenied, 5),
    (e.ContextTooLarge, 6),
    (e.RunAborted, 130),
    (e.StoreError, 7),
)


@contextlib.asynccontextmanager
async def open_store(
    store: str | None,
    *,
    write: bool = False,
    make: bool = False,
    may_lack: bool = False,
    tools: Iterable[clew.Tool] = (),
) -> AsyncIterator[AnyEngine]:
    """Open the store, read-only unless ``write``; through its server if one owns it.

    Without ``make`` the store must exist; with ``may_lack`` a missing default store is replaced by an empty one.
    ``tools`` take precedence over clew's own, in an engine of this process.
    A read-only engine is not an owner. To rebuild a damaged index or to import changes of another program, the store
    is opened for writing.
    """
    location = parse_url(store or default_store_url())
    if may_lack and store is None and isinstance(location, SqliteFile) and not location.path.exists():
        store, write = "memory:", True
        location = parse_url(store)
    if not make:
        _require_store(location)
    async with contextlib.AsyncExitStack() as stack:
        try:
            # No triggers: the command ends soon and would abort their turns.
            read_only = not write and not _needs_writing(location)
            own = clew.open(store, config="user", read_only=read_only, tools=tools, triggers=False)
            engine: AnyEngine = await stack.enter_async_context(own)
        except e.OwnedByAnotherProcess as error:
            engine = await _remote_engine(error.ids.get("url"), error.ids.get("pid"), error)
        except e.StoreError as error:
            owned = lock_of(location)
            owner = read_owner(owned) if owned is not None and not write else None
            engine = await _remote_engine(owner.url if owner else None, owner.pid if owner else None, error)
        yield engine


@contextlib.asynccontextmanager
async def open_file(store: str | None) -> AsyncIterator[clew.Engine]:
    """Open the store's file read-only, even if a server owns it; without an owner it is repaired and updated first."""
    location = parse_url(store or default_store_url())
    _require_store(location)
    async with clew.open(store, config="user", read_only=not _needs_writing(location), triggers=False) as engine:
        yield engine


def _needs_writing(location: Location) -> bool:
    """Return whether an index must be rebuilt or changes imported, and no owner is there to do it."""
    lock = lock_of(location)
    if not isinstance(location, SqliteFile) or (lock is not None and read_owner(lock) is not None):
        return False
    from clew.store.sql.sqlite.opening import needs_writing

    return os.access(location.path, os.W_OK) and needs_writing(location.path)


def _require_store(location: Location) -> None:
    """Raise unless the store exists; say how to create it, or that it was lost."""
    if isinstance(location, Memory | PostgresDatabase) or location.path.exists():
        return
    if isinstance(location, SqliteFile):
        refuse_lost(location.path)
    raise e.StoreUnavailable(f"there is no store at {location.path}; `clew chat` or `clew serve` creates it")


async def find_server(store: str | None) -> RemoteEngine:
    """Return the engine of the server that owns the store; raise if there is none. The store is not opened here."""
    owned = lock_of(parse_url(store or default_store_url()))
    owner = read_owner(owned) if owned is not None else None
    error = e.StoreUnavailable("no server has the store open")
    return await _remote_engine(owner.url if owner else None, owner.pid if owner else None, error)


async def _remote_engine(url: object, pid: object, error: e.ClewError) -> RemoteEngine:
    """Return the engine of the server at ``url``, after probing it; without an address raise ``error``."""
    from clew.fronts.remote.engine import RemoteEngine
    from clew.fronts.remote.wire import Wire
    from clew.fronts.token import load_token

    if not isinstance(url, str):
        raise error
    token = load_token()
    if token is None:
        raise e.OwnedByAnotherProcess(f"{error}; no token for it, neither in CLEW_TOKEN nor stored", url=url) from error
    engine = RemoteEngine(Wire(url, token.value, pid if isinstance(pid, int) else None))
    await engine.probe()
    return engine


async def new_session(engine: AnyEngine, model: str | None, folder: Path | None = None) -> Session:
    """Create a session in a folder, by default the current one."""
    folder = folder or Path.cwd()
    kind = engine.store.url.partition(":")[0] if isinstance(engine, clew.Engine) else await engine.store_kind()
    # Metadata that such a store requires.
    metadata = local_place(str(folder)) if kind == "json" else None
    return await engine.create_session(model=model, workspace_root=folder, metadata=metadata)


async def session_shapes(engine: AnyEngine, sessions: Iterable[Session]) -> list[SessionShape]:
    """Return sessions as HTTP returns them."""
    from clew.fronts.operations.results import show_session

    sessions = tuple(sessions)
    if isinstance(engine, clew.Engine):
        # All at once: a file store would read each session for its status.
        statuses = await engine.statuses(session.id for session in sessions)
    else:
        statuses = {session.id: await engine.get_status(session.id) for session in sessions}
    return [show_session(session, statuses[session.id]) for session in sessions]


def print_error(error: e.ClewError) -> int:
    """Print why a command failed; return the exit code."""
    there = "; `clew ls` lists all sessions" if isinstance(error, e.SessionNotFound) else ""
    print(f"clew: {plain(str(error))}{there} ({error.code})", file=sys.stderr)
    return exit_code(error)


def exit_code(error: e.ClewError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


def show(json: bool, value: Any, lines: Iterable[str]) -> None:
    """Print a result: the value as JSON, or the lines."""
    if json:
        print_json(value)
    else:
        for line in lines:
            print(plain(line))


def moment(at: int) -> str:
    """Return a time in UTC as text."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def plural(count: int | None, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def show_progress(what: str, number: int, of: int) -> None:
    """Show progress on a terminal, in one line that is overwritten."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what} {number} of {of}", end="\r\x1b[K" if number == of else "", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a value as HTTP would return it, on one line."""
    print(plain_json(msgspec.json.encode(value).decode()))
