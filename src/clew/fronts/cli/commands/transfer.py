"""``clew search``, ``export`` and ``import``: search messages, and transfer sessions as files.

``clew import --from`` lists or imports the sessions of another program, from its default location.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import cyclopts
import msgspec

from clew.errors import ClewError, InvalidInput, NotSupported, StoreError, StoreUnavailable
from clew.fronts.cli.command import (
    Json,
    Store,
    flag,
    moment,
    open_store,
    option,
    plural,
    session_shapes,
    show,
    show_progress,
)
from clew.fronts.cli.new_files import new_file, refuse_existing
from clew.fronts.cli.safe_text import plain, plain_json
from clew.interop import ExportFormat
from clew.interop.programs.import_report import Arrival, Fate, Moved, Program, Remark
from clew.store.base import SearchPage
from clew.transcript.spend import parse_bound

if TYPE_CHECKING:
    from clew.interop.programs.disk import DiscoveredSession, SessionPreview

__all__ = ["export", "import_", "search"]

_OUTCOMES: Final[dict[Moved, str]] = {
    "new": "new",
    "grown": "updated",
    "same": "already imported",
    "apart": "already imported, not updated",
}
_FATES: Final[dict[Fate, str]] = {
    "kept": "stored as metadata",
    "changed": "converted",
    "lost": "not imported",
}


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
    page = await _search(store, text, limit, session)
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


async def _search(store: str | None, text: str, limit: int, session: str | None) -> SearchPage:
    """Return the hits; the store is opened for writing only if its index is missing, damaged or behind."""
    with contextlib.suppress(NotSupported, StoreUnavailable):
        async with open_store(store) as engine:
            page = await engine.search(text, limit=limit, session_id=session, wait=True)
            if page.complete:
                return page
    async with open_store(store, write=True) as engine:
        return await engine.search(text, limit=limit, session_id=session, wait=True)


async def export(
    session: Annotated[str | None, option("The session's id; with --to, leave it out to write all.")] = None,
    file: Annotated[Path | None, option("With --to: the file to create.")] = None,
    /,
    *,
    format: Annotated[
        ExportFormat | Literal["parquet"] | None,
        option("Default json; for many sessions canonical-jsonl, csv or parquet."),
    ] = None,
    to: Annotated[
        Literal["002"] | None,
        option("Write a SQLite file with only the three shared tables."),
    ] = None,
    out: Annotated[Path | None, option("The file to create; by default the export is printed.")] = None,
    keep_secrets: Annotated[bool, flag("Do not redact likely keys and passwords.")] = False,
    hidden: Annotated[bool, flag("Include messages that left the conversation.")] = False,
    all_: Annotated[bool, flag("Export every session of the store.", "--all")] = False,
    owner: Annotated[str | None, option("Export the sessions of this owner.")] = None,
    workspace: Annotated[Path | None, option("Export the sessions of this folder.")] = None,
    agent: Annotated[str | None, option("Export the sessions of this agent.")] = None,
    since: Annotated[str | None, option("Export the sessions changed at or after this day or time (UTC).")] = None,
    until: Annotated[str | None, option("Export the sessions changed up to this day or time (UTC).")] = None,
    store: Store = None,
) -> None:
    """Export a session. With --all or a filter: the rows of many, as JSON lines, CSV, or a folder of Parquet files.

    json, jsonl, canonical-json and canonical-jsonl can be imported; md and html are for reading.

    Example: clew export ses_… --format html --out session.html
    Example: clew export --all --since 2026-01-01 --format parquet --out sessions
    Example: clew export --to 002 sessions.db
    """
    redact = not keep_secrets
    is_many = all_ or any(given is not None for given in (owner, workspace, agent, since, until))
    if to is not None:
        from clew.fronts.cli.commands.bulk_export import export_tables

        if session is None:
            raise InvalidInput("name the file to create: clew export [SESSION] --to 002 FILE")
        only, target = (None, Path(session)) if file is None else (session, file)
        await export_tables(only, target, redact=redact, store=store)
    elif file is not None:
        raise InvalidInput("a second argument is only allowed with --to; name the file to create with --out")
    elif is_many and session is not None:
        raise InvalidInput("give a session, or --all and filters, not both")
    elif is_many:
        from clew.fronts.cli.commands.bulk_export import export_many
        from clew.session.history.bulk import BulkQuery

        folder = None if workspace is None else str(await asyncio.to_thread(workspace.resolve))
        begin, end = parse_bound(since) or 0, parse_bound(until, is_end=True)
        query = BulkQuery(owner=owner, workspace=folder, agent=agent, since=begin, until=end)
        await export_many(store, query, format or "canonical-jsonl", out, redact=redact)
    elif session is None or format == "parquet":
        raise InvalidInput("give a session; --all or a filter such as --since exports many, also as parquet")
    else:
        await _export_one(store, session, format or "json", out, redact=redact, hidden=hidden)


async def _export_one(
    store: str | None, session: str, format: ExportFormat, out: Path | None, *, redact: bool, hidden: bool
) -> None:
    """Write a session to a new file, or print it."""
    if out is not None:
        refuse_existing(out)
    async with open_store(store) as engine:
        data = await engine.export(session, format, redact=redact, hidden=hidden)
    if out is not None:
        with new_file(out) as created:
            created.write(data)
        print(out)
    elif sys.stdout.isatty():
        print((plain_json if format.endswith(("json", "jsonl")) else plain)(data.decode()))
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


async def import_(
    file: Annotated[
        Path | None,
        cyclopts.Parameter(
            help="An export as json, jsonl, canonical-json or canonical-jsonl; - reads stdin.",
            allow_leading_hyphen=True,
        ),
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
        await _import_sessions(from_, file, list_only=list_, only=only, workspace=folder, store=store, json=json)
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


class _Unread(msgspec.Struct, frozen=True):
    path: str
    why: str


class _Report(msgspec.Struct, frozen=True):
    sessions: tuple[Arrival, ...]
    unread: tuple[_Unread, ...]


async def _import_sessions(
    program: Program,
    path: Path | None,
    *,
    list_only: bool,
    only: Sequence[str],
    workspace: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """List sessions of a program, or import them one by one and print the result of each."""
    from clew.interop.programs.disk import find_sessions

    found = await asyncio.to_thread(find_sessions, program, path)
    previews = [pair async for pair in _preview(found, only)]
    if missing := [id_ for id_ in only if id_ not in {about.id for _, about in previews}]:
        raise InvalidInput(f"{program} has no session {missing[0]}; --list lists its sessions")
    if list_only:
        listed = sorted((about for _, about in previews), key=lambda about: (-about.updated_at, about.id))
        show(json, listed, _each_one_line(_line(about) for about in listed))
        return
    arrivals: list[Arrival] = []
    unread: list[_Unread] = []
    async with open_store(store, write=True, make=True) as engine:
        for number, (session, about) in enumerate(previews, start=1):
            show_progress("imported", number, len(previews))
            if about.problem is not None:
                unread.append(_Unread(about.path, about.problem))
                continue
            # Files in the program's default location are this user's own, so their folder is trusted.
            folder = workspace or (Path(about.folder) if path is None and about.folder else None)
            if folder is not workspace and folder is not None and not await asyncio.to_thread(folder.is_dir):
                folder = None
            try:
                arrivals.append(await engine.import_from(program, await _bytes_of(session), workspace_root=folder))
            except StoreError:
                raise
            except ClewError as error:
                unread.append(_Unread(about.path, str(error)))
    show(json, _Report(tuple(arrivals), tuple(unread)), _each_one_line(_report(program, arrivals, unread)))
    if unread and not arrivals:
        raise InvalidInput(f"none of {plural(len(unread), 'session')} of {program} could be imported")


async def _preview(found: list[DiscoveredSession], only: Sequence[str]) -> Any:
    """Yield the sessions with their content; only those of ``only``, if given."""
    from clew.interop.programs.disk import preview

    for number, session in enumerate(found, start=1):
        show_progress("read", number, len(found))
        about: SessionPreview = await asyncio.to_thread(preview, session)
        if not only or about.id in only:
            yield session, about


async def _bytes_of(found: DiscoveredSession) -> bytes:
    from clew.interop.programs.disk import read_discovered

    return await asyncio.to_thread(read_discovered, found)


def _each_one_line(lines: Iterable[str]) -> Iterator[str]:
    """Remove line breaks: ids, folders and file names are untrusted, and must not look like a line of clew."""
    return (" ".join(line.splitlines()) for line in lines)


def _line(session: SessionPreview) -> str:
    if session.problem is not None:
        return f"{session.id}  cannot be imported: {session.problem}"
    below = f"  {plural(session.subagents, 'subagent')}" if session.subagents else ""
    when = moment(session.updated_at) if session.updated_at else "-"
    about = f"{plural(session.turns, 'turn')}{below}  {session.folder or '-'}  {_title(session.title)}"
    return f"{session.id}  {when}  {about}"


def _title(title: str | None) -> str:
    return " ".join((title or "").split())


def _report(program: Program, arrivals: list[Arrival], unread: list[_Unread]) -> Iterator[str]:
    for arrival in arrivals:
        turns = f"{plural(arrival.turns, 'turn')}  " if arrival.outcome in ("new", "grown") else ""
        why = f": {arrival.why}" if arrival.why else ""
        yield f"{arrival.session_id}  {_OUTCOMES[arrival.outcome]}{why}  {turns}{_title(arrival.title)}"
    yield from (f"{failed.path}  not read: {failed.why}" for failed in unread)
    counts = {outcome: sum(arrival.outcome == outcome for arrival in arrivals) for outcome in _OUTCOMES}
    sums = [f"{number} {_OUTCOMES[outcome]}" for outcome, number in counts.items() if number]
    sums += [f"{len(unread)} not read"] if unread else []
    yield f"{plural(len(arrivals) + len(unread), 'session')} of {program}: {', '.join(sums) or 'none'}"
    yield from _remarks(remark for arrival in arrivals if arrival.outcome != "same" for remark in arrival.remarks)


def _remarks(remarks: Iterable[Remark]) -> Iterator[str]:
    """Yield data that is not part of conversations, by how it was handled."""
    counts: dict[tuple[Fate, str], int] = {}
    for remark in remarks:
        counts[remark.fate, remark.what] = counts.get((remark.fate, remark.what), 0) + remark.count
    for fate, words in _FATES.items():
        for (of, what), number in counts.items():
            if of == fate:
                yield f"  {words}: {number} × {plain(what)}"
