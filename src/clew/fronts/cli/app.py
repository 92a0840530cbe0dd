"""The commands: serve a store, run a turn in it, look at it, go back in it and look after it.

Everything a command prints goes to stdout; why it failed goes to stderr in one line, and the exit code says which
kind of failure it was: 1 the run failed, 2 usage, 3 not found, 4 conflict or owned elsewhere, 5 denied, 6 context too
large, 7 storage, 130 aborted.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import cyclopts
import msgspec

import clew
from clew.config import default_store_url
from clew.errors import ClewError, InvalidInput
from clew.fronts.cli import convert, demo, diff, history, hook, keeping, ledger, room, schedule, settings, transfer
from clew.fronts.cli.command import Json, Store, end, opened, print_json, read_file, say, shapes
from clew.fronts.cli.damage import accept as let_stand
from clew.fronts.cli.damage import damage_of
from clew.fronts.cli.plain import plain
from clew.fronts.cli.run import run_again, run_prompt
from clew.history.check import Problem
from clew.history.check import check as judge
from clew.history.repair import repair as mend
from clew.store.location import Memory, lock_of, parse_url
from clew.store.owner import read_owner
from clew.transcript.part import (
    COMPACTION_PART,
    DAMAGED_PART,
    STEP_START,
    data_of,
    error_text,
    input_of,
    is_call,
    kind_of,
    output_text,
    state_of,
    text_of,
    tool_name,
)

__all__ = ["main"]


def _usage(error: cyclopts.CycloptsError) -> Any:
    """What is wrong with how a command was written, in one line like every other failure."""
    from rich.text import Text

    if error.console is not None:
        error.console.soft_wrap = True  # one line, however wide the terminal is
    words = " ".join(str(error).split())
    if isinstance(error, cyclopts.UnknownOptionError):
        words += " What is no option but begins with - goes behind --."
    return Text(f"clew: {plain(words)} (usage)")


app = cyclopts.App(
    name="clew",
    help="The durable session engine for AI agents.",
    version=clew.__version__,
    result_action="return_value",
    error_formatter=_usage,
)
_HTTP = "clew.fronts.http.serve"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
for _commands in (m.COMMANDS for m in (history, room, keeping, diff, settings, demo, transfer, convert, ledger)):
    for _name, _command in _commands.items():
        app.command(_command, name=_name)
app.command(schedule.app)
app.command(hook.app)


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
    return end(_http_front().serve(store, host=host, port=port, open_page=open))


@app.command
def run(
    prompt: str, /, *, session: str | None = None, model: str | None = None, store: Store = None, json: Json = False
) -> int:
    """Run one turn and print what the model says; with --json the chunks, one a line.

    Example: clew run "what is a clew?" --model demo/tour
    """
    return end(run_prompt(store, prompt, session, model, json))


@app.command
def chat(
    session: str | None = None,
    /,
    *,
    model: Annotated[str | None, cyclopts.Parameter(help="provider/model, with :variant behind it or without.")] = None,
    new: Annotated[bool, cyclopts.Parameter(negative=(), help="Begin a new session.")] = False,
    store: Store = None,
) -> int:
    """Talk in the terminal; goes on with the newest session of this folder. /help in it lists what can be done.

    Example: clew chat --new --model demo/tour
    """
    from clew.fronts.cli.chat import chat as talk  # what draws is loaded when something is drawn

    return end(talk(store, session, model, new))


@app.command(name="continue")
def continue_(session: str, /, *, store: Store = None, json: Json = False) -> int:
    """Go on: answer what is unanswered, try again what failed, have the rest of a cut answer, or start a queue.

    Example: clew continue ses_…
    """
    return end(run_again(store, session, json))


@app.command
def url(*, store: Store = None) -> int:
    """Print the address of the server that has the store open, with its token.

    Example: clew url
    """

    async def find() -> int:
        owned = lock_of(parse_url(store or default_store_url()))
        owner = read_owner(owned) if owned is not None else None
        print(_http_front().find_url(owner.url if owner else None))
        return 0

    return end(find())


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
        async with opened(store) as engine:
            page = await engine.list_sessions(limit=limit, archived=archived)
            if json:
                print_json({"sessions": await shapes(engine, page.sessions), "next_cursor": page.next_cursor})
        if json:
            return 0
        if sys.stdout.isatty():
            print(f"{'session':<30}  {'tokens':>8}  title")
        for session in page.sessions:
            print(f"{session.id}  {session.total_tokens:>8}  {plain(session.title or '(untitled)')}")
        return 0

    return end(run())


@app.command
def show(
    session: str,
    /,
    *,
    store: Store = None,
    view: str | None = None,
    model_view: Annotated[
        bool, cyclopts.Parameter(negative=(), help="What the next call would send; short for --view model.")
    ] = False,
    ids: Annotated[bool, cyclopts.Parameter(negative=(), help="Each message's id above what it says.")] = False,
    json: Json = False,
) -> int:
    """Print the messages of a session.

    Example: clew show ses_… --ids
    """

    async def run() -> int:
        if model_view and view not in (None, "model"):
            raise InvalidInput("--model-view is --view model; leave one of them out")
        async with opened(store) as engine:
            chosen = "model" if model_view else view or "visible"
            messages = await engine.messages(session, view=chosen)  # type: ignore[arg-type]  # the engine checks it
        if json:
            print_json({"messages": messages})
        for message in () if json else messages:
            if ids:
                print(message.id)
            if damage := damage_of(message):
                print(f"{message.role}: {damage}")
            for part in message.parts:
                # What is said of a whole damaged message was said above.
                whole = "message_id" in (data_of(part, DAMAGED_PART) or {})
                if kind_of(part) != STEP_START and not whole:
                    print(f"{message.role}: {plain(_shown(part))}")
        return 0

    return end(run())


@app.command
def check(
    *,
    repair: Annotated[
        bool, cyclopts.Parameter(negative=(), help="Mend what can be worked out anew, after a backup beside the store.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        cyclopts.Parameter(
            negative=(), help="Let a damaged message stand as it is, or a loss be: the id that check names."
        ),
    ] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Look at every session and say what is not as it must be. Changes nothing unless it is told to.

    Example: clew check --repair
    """

    async def run() -> int:
        mended: list[Problem] = []
        if repair:
            # The file itself is needed: beside a server this ends with whose it is.
            async with clew.open(store, triggers=False) as writer:
                location = parse_url(store or default_store_url())
                if not isinstance(location, Memory):
                    kept = location.path.with_name(f"{location.path.name}.before-repair-{time.time_ns() // 1_000_000}")
                    await writer.backup(kept)
                    print(f"the store as it was is in {kept}", file=sys.stderr)
                mended = await mend(writer.store)
        for id_ in accept or ():
            await let_stand(store, id_)
        async with read_file(store) as engine:
            problems = await judge(engine.store)
            count = len(await engine.store.session_ids())
        if json:
            print_json({"sessions": count, "problems": problems, **({"mended": mended} if repair else {})})
            return 7 if problems else 0
        for done in mended:
            print(plain(f"mended {done}"))
        for problem in problems:
            print(plain(str(problem)))
        print(f"{count} sessions, {len(problems)} problems")
        if problems:
            print(_AFTER_CHECK, file=sys.stderr)
        return 7 if problems else 0

    return end(run())


@app.command
def backup(file: Path, /, *, store: Store = None) -> int:
    """Copy the store to a new file while it is in use.

    Example: clew backup ~/clew-backup.db
    """

    async def run() -> int:
        async with read_file(store) as engine:
            await engine.backup(file)
        print(file)
        return 0

    return end(run())


@app.command
def rebuild(target: Path, /, *, store: Store = None, json: Json = False) -> int:
    """Make a new store from the event log alone, and say whether it equals this one. Needs the setting event_log.

    Example: clew rebuild ~/clew-rebuilt.db
    """

    async def run() -> int:
        async with read_file(store) as engine:
            made = await engine.rebuild(target)
        if json:
            print_json(made)
            return 7 if made.differences else 0
        for damage in made.differences:
            print(plain(str(Problem(damage.what, damage.session_id, damage.id))))
        verdict = f"{len(made.differences)} differences" if made.differences else "equal to the store"
        print(f"{made.facts} facts, {made.sessions} sessions, {verdict}: {plain(str(target))}")
        return 7 if made.differences else 0

    return end(run())


_AFTER_CHECK: Final = (
    "clew: `clew check --repair` mends what can be worked out anew, `clew check --accept ID` lets a damaged message or "
    "a loss stand as it is; the rest only a backup brings back"
)


def _shown(part: Mapping[str, Any]) -> str:
    """A part as a person reads it: its text, or a call with what came of it."""
    if (summary := data_of(part, COMPACTION_PART)) is not None:
        return f"[summary] {summary.get('summary', '')}"
    if (damage := data_of(part, DAMAGED_PART)) is not None:
        return f"[damaged: {damage.get('reason', 'a part cannot be read')}]"
    if is_call(part):
        given = msgspec.json.encode(input_of(part)).decode()
        came = output_text(part) or error_text(part) or f"[{state_of(part)}]"
        return f"{tool_name(part)} {given} → {came}"
    text = text_of(part, "text", "reasoning")
    return f"[{kind_of(part)}]" if text is None else text


def _fill_standard_files() -> None:
    """Whoever closed one of the three gets nothing from it; a file that is opened later must not take its place."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115 - as long as the process


def _say_system(error: OSError) -> int:
    """What the system refused, in one line."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        said = f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason
    elif isinstance(error, FileNotFoundError) and not _has_folder():
        said = "the folder this was started in is not there any more; start it in another"
    elif error.errno in _NO_ROOM:
        said = f"the output could not be written: {reason}"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is tried again on the way out
    else:
        said = reason
    print(f"clew: {plain(said)} (system)", file=sys.stderr)
    return 1


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def main() -> None:
    """Entry point of the ``clew`` command."""
    _fill_standard_files()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character is no reason to show nothing.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(sys.argv[1:]) or 0
        print(end="", flush=True)
        sys.exit(code)
    except ClewError as error:
        sys.exit(say(error))
    except BrokenPipeError:
        # Whoever read this has seen enough. What is left to be written goes nowhere, and says nothing about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        sys.exit(_say_system(error))
    except KeyboardInterrupt:
        sys.exit(130)
