"""``clew import --from``: list or import the sessions of another program, from its default location."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from clew.errors import ClewError, InvalidInput, StoreError
from clew.fronts.cli.command import moment, open_store, plural, show
from clew.fronts.cli.safe_text import plain
from clew.interop.programs.import_report import Arrival, Fate, Moved, Program, Remark

if TYPE_CHECKING:
    from clew.interop.programs.disk import DiscoveredSession, SessionPreview

__all__ = ["import_sessions"]

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


class _Unread(msgspec.Struct, frozen=True):
    path: str
    why: str


class _Report(msgspec.Struct, frozen=True):
    sessions: tuple[Arrival, ...]
    unread: tuple[_Unread, ...]


async def import_sessions(
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
    looked = [one async for one in _look(found, only)]
    if missing := [id_ for id_ in only if id_ not in {one.id for _, one in looked}]:
        raise InvalidInput(f"{program} has no session {missing[0]}; --list lists its sessions")
    if list_only:
        there = sorted((one for _, one in looked), key=lambda one: (-one.updated_at, one.id))
        show(json, there, _each_one_line(_line(one) for one in there))
        return
    arrivals: list[Arrival] = []
    unread: list[_Unread] = []
    async with open_store(store, write=True, make=True) as engine:
        for number, (one, about) in enumerate(looked, start=1):
            _show_progress("imported", number, len(looked))
            if about.problem is not None:
                unread.append(_Unread(about.path, about.problem))
                continue
            # Files in the program's default location are this user's own, so their folder is trusted.
            folder = workspace or (Path(about.folder) if path is None and about.folder else None)
            if folder is not workspace and folder is not None and not await asyncio.to_thread(folder.is_dir):
                folder = None
            try:
                arrivals.append(await engine.import_from(program, await _bytes_of(one), workspace_root=folder))
            except StoreError:
                raise
            except ClewError as error:
                unread.append(_Unread(about.path, str(error)))
    show(json, _Report(tuple(arrivals), tuple(unread)), _each_one_line(_report(program, arrivals, unread)))
    if unread and not arrivals:
        raise InvalidInput(f"none of {plural(len(unread), 'session')} of {program} could be imported")


async def _look(found: list[DiscoveredSession], only: Sequence[str]) -> Any:
    """Yield the sessions with their content; only those of ``only``, if given."""
    from clew.interop.programs.disk import preview

    for number, one in enumerate(found, start=1):
        _show_progress("read", number, len(found))
        about: SessionPreview = await asyncio.to_thread(preview, one)
        if not only or about.id in only:
            yield one, about


async def _bytes_of(found: DiscoveredSession) -> bytes:
    from clew.interop.programs.disk import read_discovered

    return await asyncio.to_thread(read_discovered, found)


def _show_progress(what: str, number: int, of: int) -> None:
    """Show progress on a terminal, in one line that is overwritten."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what} {number} of {of}", end="\r\x1b[K" if number == of else "", file=sys.stderr, flush=True)


def _each_one_line(lines: Iterable[str]) -> Iterator[str]:
    """Remove line breaks: ids, folders and file names are untrusted, and must not look like a line of clew."""
    return (" ".join(line.splitlines()) for line in lines)


def _line(one: SessionPreview) -> str:
    if one.problem is not None:
        return f"{one.id}  cannot be imported: {one.problem}"
    below = f"  {plural(one.subagents, 'subagent')}" if one.subagents else ""
    when = moment(one.updated_at) if one.updated_at else "-"
    about = f"{plural(one.turns, 'turn')}{below}  {one.folder or '-'}  {' '.join((one.title or '').split())}"
    return f"{one.id}  {when}  {about}"


def _report(program: Program, arrivals: list[Arrival], unread: list[_Unread]) -> Iterator[str]:
    for one in arrivals:
        turns = f"{plural(one.turns, 'turn')}  " if one.outcome in ("new", "grown") else ""
        why = f": {one.why}" if one.why else ""
        yield f"{one.session_id}  {_OUTCOMES[one.outcome]}{why}  {turns}{' '.join((one.title or '').split())}"
    yield from (f"{one.path}  not read: {one.why}" for one in unread)
    counts = {outcome: sum(one.outcome == outcome for one in arrivals) for outcome in _OUTCOMES}
    sums = [f"{number} {_OUTCOMES[outcome]}" for outcome, number in counts.items() if number]
    sums += [f"{len(unread)} not read"] if unread else []
    yield f"{plural(len(arrivals) + len(unread), 'session')} of {program}: {', '.join(sums) or 'none'}"
    yield from _remarks(remark for one in arrivals if one.outcome != "same" for remark in one.remarks)


def _remarks(remarks: Iterable[Remark]) -> Iterator[str]:
    """Yield data that is not part of conversations, by how it was handled."""
    counts: dict[tuple[Fate, str], int] = {}
    for one in remarks:
        counts[one.fate, one.what] = counts.get((one.fate, one.what), 0) + one.count
    for fate, words in _FATES.items():
        for (of, what), number in counts.items():
            if of == fate:
                yield f"  {words}: {number} × {plain(what)}"
