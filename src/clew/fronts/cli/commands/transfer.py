"""``clew search``, ``export`` and ``import``: finding what was said, and carrying sessions out and in as files."""

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
from clew.fronts.cli.commands.moving import move_in
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
    """Find messages by their words, in every session, hidden ones too. The last word may be unfinished.

    Example: clew search "minotaur"
    """
    # The index is brought up to date by the first search, so this writes.
    async with open_store(store, write=True) as engine:
        page = await engine.search(text, limit=limit, session_id=session, wait=True)
    # What was found is marked for programs and files; on a terminal it would be two stars too many.
    marked = not sys.stdout.isatty()
    hits = [
        f"{hit.session_id}  {hit.message_id}  {'hidden  ' if hit.hidden else ''}"
        + " ".join((hit.snippet if marked else hit.snippet.replace("**", "")).split())
        for hit in page.hits
    ]
    show(json, page, hits or (["nothing found"] if sys.stdout.isatty() else []))
    if not page.complete:
        print("clew: not all is indexed yet, there may be more; ask again in a while", file=sys.stderr)
    if page.next_cursor is not None and sys.stdout.isatty():
        more = "or more" if page.at_least else "places"
        print(f"clew: {len(hits)} of {page.total:,} {more}; --limit shows up to 100", file=sys.stderr)


async def export(
    session: str,
    /,
    *,
    format: Literal["json", "jsonl", "md", "html", "ai-sdk", "openai", "claude-code", "pi"] = "json",
    out: Annotated[Path | None, option("A new file; without it the export is printed.")] = None,
    keep_secrets: Annotated[bool, flag("Do not strike out what looks like a key or a password.")] = False,
    hidden: Annotated[bool, flag("Also what left the conversation.")] = False,
    store: Store = None,
) -> None:
    """Write a session as a file: json and jsonl whole, md and html for reading.

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
    """A file of the user's own that was not there before: a transcript is nobody else's business."""
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target:
            target.write(data)
    except OSError as error:
        hint = "; name another --out" if isinstance(error, FileExistsError) else ""
        raise InvalidInput(f"{file} cannot be written: {error.strerror}{hint}") from error


async def import_(
    file: Annotated[
        Path | None, cyclopts.Parameter(help="An export as json or jsonl; - reads stdin.", allow_leading_hyphen=True)
    ] = None,
    /,
    *,
    from_: Annotated[
        Program | None, option("Sessions of another program: all in its usual place, or those of FILE.", "--from")
    ] = None,
    list_: Annotated[bool, flag("Of another program: only say what is there.", "--list")] = False,
    only: Annotated[tuple[str, ...], option("Of another program: the session of this id. May come again.")] = (),
    workspace: Annotated[Path | None, option("The folder it is to work in; without it, it has none.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Take in a session that was exported, or those of another program. Each comes whole or not at all.

    Example: clew import session.json
    Example: clew import --from claude-code --list
    """
    folder = await asyncio.to_thread(workspace.resolve) if workspace is not None else None
    if from_ is not None:
        await move_in(from_, file, list_only=list_, only=only, workspace=folder, store=store, json=json)
        return
    if file is None or list_ or only:
        raise InvalidInput("name a file, or a program with --from; --list and --only are for sessions of a program")
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
