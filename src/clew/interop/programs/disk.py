"""Finding sessions of other programs on disk, in their default folders and those of their environment variables.

Only the command line calls this, for its own user. A server receives the bytes of a session instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import ClewError, InvalidInput
from clew.interop.programs.foreign import FILE_END, count, read_json, text
from clew.interop.programs.import_report import Program
from clew.interop.programs.opencode_disk import find_opencode, read_opencode_session
from clew.interop.programs.readers import read_foreign

__all__ = ["DiscoveredSession", "SessionPreview", "default_location", "find_sessions", "preview", "read_discovered"]

_END: Final = b"\n" + FILE_END + b"\n"
_ASIDE: Final = frozenset({"subagents", "tool-results", "workflows"})
"""Folders of Claude Code without sessions of their own."""

_MAX_LINE: Final = 32 * 1024 * 1024
_MAX_BASES: Final = 50
"""How long a chain of Codex forks may be to be followed."""
_THREAD: Final = re.compile(r"[0-9A-Za-z-]{1,100}", re.ASCII)
_ROLLOUTS: Final = ("sessions", "archived_sessions")


class DiscoveredSession(msgspec.Struct, frozen=True):
    """A session on disk: its file, its id if the file holds several sessions, and other files of the session."""

    program: Program
    path: Path
    id: str | None = None
    related: tuple[Path, ...] = ()


class SessionPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a session before its import; ``problem`` says why it cannot be imported."""

    id: str
    path: str
    title: str | None = None
    folder: str | None = None
    updated_at: int = 0
    turns: int = 0
    subagents: int = 0
    problem: str | None = None


def default_location(program: Program) -> Path:
    """Return the folder where a program stores its sessions."""
    home = Path(os.environ.get("HOME") or Path.home())
    match program:
        case "claude-code":
            return Path(os.environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
        case "codex":
            return Path(os.environ.get("CODEX_HOME") or home / ".codex")
        case "pi":
            return Path(os.environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent").expanduser() / "sessions"
        case "opencode":
            return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"


def find_sessions(program: Program, path: Path | None = None) -> list[DiscoveredSession]:
    """Return the sessions below a folder or in a file; without a path, those in the program's default folder."""
    location = path if path is not None else default_location(program)
    if not location.exists():
        where = "; name a file or a folder" if path is None else ""
        raise InvalidInput(f"{location} does not exist: no sessions of {program} found{where}")
    found = _find(program, location, is_default=path is None)
    if not found:
        raise InvalidInput(f"there are no sessions of {program} in {location}")
    return found


def _find(program: Program, location: Path, *, is_default: bool) -> list[DiscoveredSession]:
    if program == "opencode":
        return [DiscoveredSession(program, file, id_) for file, id_ in find_opencode(location, is_default=is_default)]
    names = {"claude-code": "*.jsonl", "codex": "rollout-*.jsonl*", "pi": "*.jsonl"}[program]
    files = [location] if location.is_file() else sorted(file for file in location.rglob(names) if file.is_file())
    if program == "claude-code":
        return list(_with_subagents(files, location))
    if program == "codex":
        return [DiscoveredSession(program, file, None, _index_of(file)) for file in files]
    return [DiscoveredSession(program, file) for file in files]


def _index_of(file: Path) -> tuple[Path, ...]:
    """Return the file with the titles of sessions, in the home folder of Codex above them."""
    above = (folder / "session_index.jsonl" for folder in list(file.absolute().parents)[:5])
    return tuple(index for index in above if index.is_file())[:1]


def _with_subagents(files: Iterable[Path], location: Path) -> Iterator[DiscoveredSession]:
    """Yield sessions with the files of their subagents, which are in a folder named after the session or next to it."""
    main = [
        file
        for file in files
        if file == location or not (file.name.startswith("agent-") or _ASIDE & {*file.relative_to(location).parts})
    ]
    strays: dict[Path, list[tuple[str | None, Path]]] = {}
    for folder in {file.parent for file in main}:
        strays[folder] = [(_session_of(file), file) for file in sorted(folder.glob("agent-*.jsonl")) if file.is_file()]
    for file in main:
        below = (file.parent / file.stem / "subagents").rglob("agent-*.jsonl")
        own = sorted(agent for agent in below if agent.is_file())
        loose = [stray for id_, stray in strays[file.parent] if id_ == file.stem and stray != file]
        yield DiscoveredSession("claude-code", file, file.stem, (*own, *loose))
    known = {(file.parent, file.stem) for file in main}
    # Without their session they cannot be imported; the preview of each says so.
    for folder, agents in strays.items():
        yield from (
            DiscoveredSession("claude-code", stray, stray.stem) for id_, stray in agents if (folder, id_) not in known
        )


def _session_of(file: Path) -> str | None:
    try:
        with file.open("rb") as lines:
            return text(read_json(lines.readline(_MAX_LINE)), "sessionId")
    except OSError:
        return None


def read_discovered(found: DiscoveredSession) -> bytes:
    """Return the bytes of a session, as :func:`read_foreign` accepts them."""
    try:
        if found.program == "opencode":
            return read_opencode_session(found.path, found.id)
        if found.program != "codex":
            return _END.join(file.read_bytes() for file in (found.path, *found.related))
        return _END.join([_with_base(found.path), *_names_in(found)])
    except OSError as error:
        raise InvalidInput(f"{found.path} cannot be read: {error.strerror}") from error


def _with_base(file: Path, seen: frozenset[Path] = frozenset()) -> bytes:
    """Return a rollout of Codex; a fork that only names its base gets the history, as older forks had copied it.

    After the first line, which describes the file, follow the lines of the base up to the fork.
    """
    data = _unpacked(file.read_bytes())
    first, _, rest = data.partition(b"\n")
    meta = read_json(first)
    payload = meta.get("payload") if isinstance(meta, dict) else None
    base = payload.get("history_base") if isinstance(payload, dict) else None
    thread, end = text(base, "thread_id"), count(base, "end_ordinal_exclusive")
    above = _rollout_of(thread, file) if thread is not None and end else None
    if above is None or above in seen or len(seen) >= _MAX_BASES:
        return data
    lines = _with_base(above, seen | {file}).splitlines(keepends=True)
    return b"".join([first, b"\n", *(line for line in lines if _is_before(line, end)), rest])


def _is_before(line: bytes, end: int) -> bool:
    record = read_json(line)
    ordinal = record.get("ordinal") if isinstance(record, dict) else None
    return isinstance(ordinal, int) and ordinal < end


def _rollout_of(thread: str, file: Path) -> Path | None:
    """Return the rollout of a session: next to this one, or in another folder of the same Codex home."""
    if _THREAD.fullmatch(thread) is None:
        return None
    name = f"rollout-*-{thread}.jsonl*"
    folder = file.absolute().parent
    home = next((above for above in folder.parents if above.name in _ROLLOUTS), None)
    places = [folder.glob(name), *((home.parent / one).rglob(name) for one in _ROLLOUTS if home is not None)]
    return next((one for place in places for one in sorted(place) if one.is_file()), None)


def _unpacked(data: bytes) -> bytes:
    """Unpack an old rollout, which Codex compresses. If Python cannot, the reader reports how to unpack it."""
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return data
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # from Python 3.14 on
    except ImportError:
        return data
    return bytes(zstd.decompress(data))


def _names_in(found: DiscoveredSession) -> Iterator[bytes]:
    """Yield the lines of Codex' index about the session of this file."""
    for index in found.related:
        for line in index.read_bytes().splitlines():
            named = text(read_json(line), "id")
            if named is not None and named in found.path.name:
                yield line


def preview(found: DiscoveredSession) -> SessionPreview:
    """Describe a session. It is read in full, so that a session that cannot be imported is reported here."""
    path = str(found.path)
    try:
        first, *others = read_foreign(found.program, read_discovered(found))
    except ClewError as error:
        return SessionPreview(id=found.id or found.path.stem, path=path, problem=str(error))
    return SessionPreview(
        id=first.id,
        path=path,
        title=first.title or first.first_words,
        folder=first.folder,
        updated_at=first.updated_at,
        turns=first.turns,
        subagents=len(others),
    )
