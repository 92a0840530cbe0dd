"""``clew search``, ``export`` and ``import``: search messages, and transfer sessions as files."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import cyclopts

from clew.errors import InvalidInput
from clew.fronts.cli.command import Json, Store, flag, open_store, option, session_shapes, show
from clew.fronts.cli.commands.import_from import import_sessions
from clew.fronts.cli.safe_text import plain, plain_json
from clew.interop.programs.import_report import Program

__all__ = ["COMMANDS"]


async def search(
    text: str,
    /,
    *,
    session: Annotated[str | None, option("Only in this session.")] = None,
    limit: int = 20,
    store: Store = None,
    json: Json = False,
) -> None:
    """Search messages in all sessions, including hidden ones. The last word may be incomplete.

    Example: clew search "minotaur"
    """
    # The first search updates the index, so this writes.
    async with open_store(store, write=True) as engine:
        page = await engine.search(text, limit=limit, session_id=session, wait=True)
    # Matches are marked with ** for programs and files, but not on a terminal.
    marked = not sys.stdout.isatty()
    hits = [
        f"{hit.session_id}  {hit.message_id}  {'hidden  ' if hit.hidden else ''}"
        + " ".join((hit.snippet if marked else hit.snippet.replace("**", "")).split())
        for hit in page.hits
    ]
    show(json, page, hits or (["no results"] if sys.stdout.isatty() else []))
    if not page.complete:
        print("clew: the index is not complete yet; search again later for more results", file=sys.stderr)
    if page.next_cursor is not None and sys.stdout.isatty():
        more = "or more " if page.at_least else ""
        print(f"clew: {len(hits)} of {page.total:,} {more}results; --limit shows up to 100", file=sys.stderr)


async def export(
    session: str,
    /,
    *,
    format: Literal["json", "jsonl", "md", "html", "ai-sdk", "openai", "claude-code", "pi"] = "json",
    out: Annotated[Path | None, option("The file to create; by default the export is printed.")] = None,
    keep_secrets: Annotated[bool, flag("Do not redact likely keys and passwords.")] = False,
    hidden: Annotated[bool, flag("Include messages that left the conversation.")] = False,
    store: Store = None,
) -> None:
    """Export a session: json and jsonl are complete, md and html are for reading.

    Example: clew export ses_… --format html --out session.html
    """
    async with open_store(store) as engine:
        data = await engine.export(session, format, redact=not keep_secrets, hidden=hidden)
    if out is None and sys.stdout.isatty():
        print((plain_json if format in ("json", "jsonl") else plain)(data.decode()))
    elif out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    else:
        _write_new(out, data)
        print(out)


def _write_new(file: Path, data: bytes) -> None:
    """Create a new file that only the user can read."""
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target:
            target.write(data)
    except OSError as error:
        hint = "; choose another --out" if isinstance(error, FileExistsError) else ""
        raise InvalidInput(f"{file} cannot be written: {error.strerror}{hint}") from error


async def import_(
    file: Annotated[
        Path | None, cyclopts.Parameter(help="A json or jsonl export; - reads stdin.", allow_leading_hyphen=True)
    ] = None,
    /,
    *,
    from_: Annotated[
        Program | None, option("Import sessions of another program: from its default location, or from FILE.", "--from")
    ] = None,
    list_: Annotated[bool, flag("With --from: only list the sessions.", "--list")] = False,
    only: Annotated[tuple[str, ...], option("With --from: only the session with this id; repeatable.")] = (),
    workspace: Annotated[Path | None, option("The workspace of the sessions; by default none.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Import an exported session, or sessions of another program. Each is imported completely or not at all.

    Example: clew import session.json
    Example: clew import --from claude-code --list
    """
    folder = await asyncio.to_thread(workspace.resolve) if workspace is not None else None
    if from_ is not None:
        await import_sessions(from_, file, list_only=list_, only=only, workspace=folder, store=store, json=json)
        return
    if file is None or list_ or only:
        raise InvalidInput("give a file, or a program with --from; --list and --only need --from")
    if str(file) == "-":
        data = sys.stdin.buffer.read()
    else:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    async with open_store(store, write=True, make=True) as engine:
        session = await engine.import_session(data, workspace_root=folder)
        [shape] = await session_shapes(engine, [session])
    show(json, shape, [session.id])


COMMANDS: Final[tuple[Callable[..., Any], ...]] = (search, export, import_)
