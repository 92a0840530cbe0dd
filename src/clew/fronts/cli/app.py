"""The ``clew`` command: every command in one app, and how the process ends.

Output goes to stdout. A failure is one line on stderr, and the exit code is its kind: 1 the run failed, 2 usage, 3 not
found, 4 conflict or owned elsewhere, 5 denied, 6 context too large, 7 storage, 130 aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, cast

import cyclopts

import clew
from clew.actor import acting_as, local_user
from clew.address_space import save_address_space
from clew.config import default_store_url, load_config
from clew.errors import ClewError, InvalidInput, NotFound
from clew.fronts.cli.command import (
    Store,
    find_server,
    flag,
    new_session,
    open_store,
    option,
    print_error,
)
from clew.fronts.cli.commands import COMMANDS
from clew.fronts.cli.safe_text import plain
from clew.platform.processes import add_signal_handler, server_loop
from clew.store.location import PostgresDatabase, lock_of, parse_url
from clew.store.owner import read_owner

# Imports inside functions: the drawing libraries load slowly, so they are loaded when something is drawn.

__all__ = ["app", "main", "run_command"]

_ACP: Final = "clew.fronts.acp"
_MCP: Final = "clew.fronts.mcp"
_HTTP: Final = "clew.fronts.http.serve"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _usage(error: cyclopts.CycloptsError) -> Any:
    """Format a usage error as one line, like every other failure."""
    from rich.text import Text

    if error.console is not None:
        error.console.soft_wrap = True  # one line, however wide the terminal is
    words = " ".join(str(error).split())
    if isinstance(error, cyclopts.UnknownOptionError):
        words += " Put arguments that begin with - after --."
    return Text(f"clew: {plain(words)} (usage)")


def _version() -> str:
    """Return the version of the package, and that of the tables it writes."""
    from clew.store.sql.sqlite.migrate import SCHEMA_VERSION

    return f"{clew.__version__} (store format {SCHEMA_VERSION})"


app = cyclopts.App(
    name="clew",
    help="The durable session engine for AI agents.",
    version=_version,
    result_action="return_value",
    error_formatter=_usage,
)
for _name, _target in COMMANDS.items():
    app.command(f"clew.fronts.cli.commands.{_target}", name=_name)


@app.command
def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 7717,
    store: Store = None,
    live: Annotated[
        str | None, option("local, postgres or redis://…: how the servers of a shared store exchange events.")
    ] = None,
    drain: Annotated[float | None, option("Seconds to let active runs finish on shutdown.")] = None,
    app: Annotated[
        str | None, option("module:attr of your own function that opens the store, called like clew.open.")
    ] = None,
    open: Annotated[bool, flag("Open the page in a browser.", "--open")] = False,
) -> int:
    """Serve a store over HTTP, by default for this machine only. Prints the address with the token.

    Example: clew serve --port 0 --store sqlite:///clew.db
    """
    front = _http_front()
    with asyncio.Runner(loop_factory=_find_quicker_loop()) as runner:
        served = front.serve(store, host=host, port=port, open_page=open, live=live, drain_s=drain, app=app)
        code: int = runner.run(served)
    return code


@app.command
async def mcp(*, store: Store = None) -> None:
    """Run an MCP server on stdin and stdout, so that other agents can search and read sessions. Read-only.

    Example: clew mcp --store sqlite:///clew.db
    """
    try:
        front = importlib.import_module(_MCP)
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "pydantic"):
            raise
        raise InvalidInput("this needs the MCP package: pip install 'clew-sessions[mcp]'") from error
    await front.make_server(lambda write: open_store(store, write=write)).run_stdio_async()


@app.command
async def acp(
    *,
    store: Store = None,
    terminals: Annotated[bool, flag("Run commands in terminals of the editor, if it has them.")] = False,
) -> None:
    """Run as an editor's agent: the Agent Client Protocol on stdin and stdout, with or without a server.

    Example: clew acp --store sqlite:///clew.db
    """
    front = importlib.import_module(_ACP)
    if sys.stdin.isatty():
        print("clew: this command is started by an editor (Agent Client Protocol); see docs/acp.md", file=sys.stderr)
    ended = asyncio.current_task()
    assert ended is not None
    # After SIGTERM an editor gives its agent a moment, in which the turn is settled.
    add_signal_handler(signal.SIGTERM, ended.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        editor = front.Editor()
        if terminals and load_config().tools.sandbox != "off":
            raise InvalidInput(
                "--terminals cannot be combined with tools.sandbox: the editor's terminals have no sandbox"
            )
        tools = front.editor_tools(editor, terminals=terminals)
        read, write = front.own_stdio()
        async with open_store(store, write=True, make=True, tools=tools) as engine:
            remote = not isinstance(engine, clew.Engine)
            await front.serve(
                engine,
                read,
                write,
                new_session=lambda engine, folder: new_session(engine, None, folder),
                find_again=(lambda: find_server(store)) if remote else None,
                editor=editor,
            )


@app.command
async def chat(
    session: str | None = None,
    /,
    *,
    model: Annotated[str | None, option("provider/model, optionally with :variant.")] = None,
    new: Annotated[bool, flag("Create a new session.")] = False,
    store: Store = None,
) -> int:
    """Chat in the terminal, in the newest session of this folder. Type /help for commands.

    Example: clew chat --new --model demo/tour
    """
    from clew.fronts.cli.chat.chat import chat as talk

    return await talk(store, session, model, new)


class WrongUsage(InvalidInput):
    """An unknown command."""

    code = "usage"


@app.default
async def start(*words: Annotated[str, cyclopts.Parameter(show=False)]) -> int:
    """Start a chat in this folder; without a terminal, print the help."""
    if words:
        near = difflib.get_close_matches(words[0], [name for name in app if not name.startswith("-")], n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise WrongUsage(f"unknown command {words[0]!r}; {meant}`clew --help` lists all commands")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        app.help_print([])
        return 0
    return await chat()


@app.command
async def url(*, store: Store = None) -> None:
    """Print the address of the server that has the store open, with its token.

    Example: clew url
    """
    location = parse_url(store or default_store_url())
    if isinstance(location, PostgresDatabase):
        raise NotFound("several servers may serve this store: `clew replicas` lists them; their token is CLEW_TOKEN")
    owned = lock_of(location)
    owner = read_owner(owned) if owned is not None else None
    print(_http_front().find_url(owner.url if owner else None))


@app.command
def completion(shell: Literal["bash", "zsh", "fish"] | None = None, /) -> None:
    """Print a completion script for bash, zsh or fish; by default for $SHELL.

    Example: clew completion bash > ~/.local/share/bash-completion/completions/clew
    """
    known = ("bash", "zsh", "fish")
    named = shell or os.path.basename(os.environ.get("SHELL", ""))
    if named not in known:
        raise InvalidInput(f"completion is available for {', '.join(known)}; give one of them")
    print(app.generate_completion(shell=cast(Any, named)), end="")
    if named == "zsh":
        # The generated script works only as an autoloaded `_clew`; this makes it work with `eval` too.
        print('if [[ "${funcstack[1]}" == _clew ]]; then _cyclopts_clew "$@"; else compdef _cyclopts_clew clew; fi')


def _find_quicker_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop factory if it is installed (the extra ``fast``), else that of Python's own loop."""
    try:
        return cast(Callable[[], asyncio.AbstractEventLoop], importlib.import_module("uvloop").new_event_loop)
    except ImportError:
        return server_loop


def _http_front() -> Any:
    """Import the HTTP front by name: fronts do not import one another, and its packages may be absent."""
    try:
        return importlib.import_module(_HTTP)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "httptools"):
            raise
        raise InvalidInput("this needs the server's packages: pip install 'clew-sessions[server]'") from error


def run_command(words: Sequence[str]) -> int:
    """Run a command line; return the exit code."""
    if not words or words[0].startswith("-"):
        for name in COMMANDS:
            app[name]  # imports the command: the help has a sentence of each
    try:
        with acting_as(local_user(), "cli"):
            return app(words) or 0
    except ClewError as error:
        return print_error(error)


def main() -> None:
    """Entry point of the ``clew`` command."""
    _fill_standard_files()
    save_address_space()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Escape characters that the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run_command(sys.argv[1:])
        print(end="", flush=True)
        sys.exit(code)
    except BrokenPipeError:
        # The reader closed the pipe: discard the rest without an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        sys.exit(_say_system(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _fill_standard_files() -> None:
    """Open closed standard files as null devices, so that no file opened later gets their descriptor."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115 - as long as the process


def _say_system(error: OSError) -> int:
    """Print an error of the operating system in one line; return the exit code."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        message = f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason
    elif isinstance(error, FileNotFoundError) and not _has_folder():
        message = "the current folder no longer exists; start clew in another one"
    elif error.errno in _NO_ROOM:
        message = f"the output could not be written: {reason}"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # do not write again at exit
    else:
        message = reason
    print(f"clew: {plain(message)} (system)", file=sys.stderr)
    return 1


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True
