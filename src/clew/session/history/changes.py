"""Changes: what a session's own calls did to the files of its workspace, and taking single changes back."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from clew.errors import Conflict, InvalidInput, NotFound, NotSupported
from clew.session.history.file_values import ChangedFile, ChangesReport, FileDiff, FilesCompared, FilesRestored
from clew.session.history.lookup import locate_message
from clew.session.history.restore import Restoring, Target
from clew.session.history.timeline import Comparisons, Span, spans_of
from clew.session.host import Host
from clew.session.runtime import Runtime
from clew.snapshots.base import ChangeKind, FileChange, SnapshotStore
from clew.store.base import get_session
from clew.transcript.session import Session
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = ["WorkspaceChanges", "revert_hunk"]

_LINE: Final = re.compile(rb"[^\n]*\n|[^\n]+")
"""Lines end at a line feed alone, as git counts them."""
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class _Own(NamedTuple):
    """A file that a session changed: its first state and its last one."""

    start: WorkspaceSnapshot
    end: WorkspaceSnapshot
    shared: bool
    change: FileChange


class _Side(NamedTuple):
    """A session that is compared, and the snapshots of its workspace."""

    session: Session
    rows: Sequence[WorkspaceSnapshot]

    @property
    def newest(self) -> WorkspaceSnapshot | None:
        return next((row for row in reversed(self.rows) if row.tree is not None), None)

    @property
    def tree(self) -> str:
        return (self.newest.tree if self.newest is not None else None) or ""


class WorkspaceChanges:
    """The service that reports and reverts the changes of one engine's sessions."""

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._restoring = Restoring(host, runtime)

    async def report(self, session_id: str, turn_id: str | None, step: int | None) -> ChangesReport:
        """Return the changed files of a session, a turn or a step."""
        session = await get_session(self._host.store, session_id)
        rows = await self._restoring.load_rows(session)
        own = await self._load(session, rows, turn_id, step)
        newest = next((row for row in reversed(rows) if row.tree is not None), None)
        wanted = [row for row in rows if turn_id is None or row.turn_id == turn_id]
        return ChangesReport(
            files=tuple(
                ChangedFile(
                    path=path,
                    kind=one.change.kind,
                    added=one.change.added,
                    removed=one.change.removed,
                    shared=one.shared,
                )
                for path, one in sorted(own.items())
            ),
            skipped=newest.skipped if newest is not None else {},
            failed=next((row.problem for row in reversed(wanted) if row.problem is not None), None),
        )

    async def diff(self, session_id: str, path: str, turn_id: str | None, step: int | None) -> FileDiff:
        """Return the difference that a session, a turn or a step made to one file."""
        session = await get_session(self._host.store, session_id)
        rows = await self._restoring.load_rows(session)
        one = self._get(await self._load(session, rows, turn_id, step), path)
        text = await self._diff_of(session, path, one)
        hunks = tuple(match[0] for match in map(_HUNK.match, text.split("\n")) if match is not None)
        return FileDiff(path=path, kind=one.change.kind, diff=text, hunks=hunks)

    async def compare(self, session_id: str, other_id: str, path: str | None) -> FilesCompared:
        """Return the files that differ between the workspaces of a session and a branch of it, as last saved."""
        store = self._host.store
        one, other = await get_session(store, session_id), await get_session(store, other_id)
        sides = [_Side(session, await self._restoring.load_rows(session)) for session in (one, other)]
        if any(side.newest is None for side in sides):
            raise NotFound("no snapshot exists of one of these workspaces yet")
        if one.workspace_root == other.workspace_root:
            changed = await self._restoring.comparisons(one).between(sides[0].tree, sides[1].tree)
            paths = {*changed}
        else:
            paths = await self._differing(*sides)
        files, diff = [], None
        for name in sorted(paths):
            before, after = [await self._store().read(self._restoring.point(s.session), s.tree, name) for s in sides]
            if before != after:
                lines = _lines_of(name, before, after)
                files.append(_changed(name, before, after, lines))
                diff = _joined(lines) if name == path else diff
        return FilesCompared(files=tuple(files), diff=diff)

    async def _differing(self, one: _Side, other: _Side) -> set[str]:
        """Return the files that may differ between a session and its branch in a folder of its own: those that were
        changed in either since the branch was made."""
        parent, branch = (one, other) if other.session.parent_id == one.session.id else (other, one)
        if branch.session.parent_id != parent.session.id or branch.session.parent_message_id is None:
            raise InvalidInput("only a session and its branch can be compared")
        located = await locate_message(self._host.store, parent.session.id, branch.session.parent_message_id)
        if located.turn is None:
            raise NotFound("the message at which the branch was made is gone")
        start = await self._restoring.find_point(parent.session, located.turn, located.row)
        first = next(row.tree for row in branch.rows if row.tree is not None)
        found = {*await self._restoring.comparisons(parent.session).between(start.tree, parent.tree)}
        return found | {*await self._restoring.comparisons(branch.session).between(first, branch.tree)}

    async def revert(
        self,
        session_id: str,
        path: str,
        *,
        hunk: str | None,
        turn_id: str | None,
        step: int | None,
        force: bool,
    ) -> FilesRestored:
        """Take the changes of one file back, or one hunk of them. The session must be idle; the caller holds its lock.

        The present state is saved first. Refused if the file has been changed since, unless forced.
        """
        session = await get_session(self._host.store, session_id)
        restoring = self._restoring
        rows = await restoring.load_rows(session)
        one = self._get(await self._load(session, rows, turn_id, step), path)
        if one.change.kind == "added" and one.start.leaves_out(path):
            raise Conflict(f"no earlier state of {path} was saved; edit it by hand", path=path)
        async with restoring.locked(session):
            saved = await restoring.save(session)
            compared = restoring.comparisons(session)
            is_changed = path in await compared.between(one.end.tree or "", saved.tree)
            if hunk is not None:
                target = await self._without_hunk(session, path, one, saved, hunk)
            elif (is_changed or one.shared) and not force:
                when = "since" if is_changed else "by another hand, too"
                raise Conflict(f"{path} has been changed {when}; look at it, and force this if it is to go back")
            else:
                target = one.start
            prepared = restoring.plan(session, Target(target, None, ()), saved, [path])
            return await restoring.apply(session, prepared)

    async def _without_hunk(
        self, session: Session, path: str, one: _Own, saved: WorkspaceSnapshot, hunk: str
    ) -> WorkspaceSnapshot:
        """Return the present state without one hunk of a file's changes."""
        layer, point = self._store(), self._restoring.point(session)
        text = await self._diff_of(session, path, one)
        present = await layer.read(point, saved.tree or "", path)
        if present is None:
            raise Conflict(f"{path} is gone; revert the whole file")
        before, after = [await layer.read(point, row.tree or "", path) or b"" for row in (one.start, one.end)]
        content: bytes | None = revert_hunk(path, present, before, after, text, hunk)
        if not content and one.change.kind == "added":
            content = None
        tree = await layer.combine(point, saved.tree or "", {path: content})
        return replace(saved, tree=tree)

    async def _diff_of(self, session: Session, path: str, one: _Own) -> str:
        layer, point = self._store(), self._restoring.point(session)
        found = await layer.diff(point, one.start.tree or "", one.end.tree or "", [path])
        return found.get(path, "")

    def _store(self) -> SnapshotStore:
        layer = self._restoring.layer
        if not isinstance(layer, SnapshotStore):
            raise NotSupported("this snapshot layer does not show or revert single differences; revert the whole file")
        return layer

    @staticmethod
    def _get(own: Mapping[str, _Own], path: str) -> _Own:
        if path not in own:
            raise NotFound(f"no change of {path} by this session is known", path=path)
        return own[path]

    async def _load(
        self, session: Session, rows: Sequence[WorkspaceSnapshot], turn_id: str | None, step: int | None
    ) -> dict[str, _Own]:
        """Return what the session's own calls changed, by path; of a turn or a step if one is named."""
        if step is not None and turn_id is None:
            raise InvalidInput("name the turn of the step")
        compared = self._restoring.comparisons(session)
        spans = spans_of(rows)
        wanted = [n for n, span in enumerate(spans) if _is_wanted(span, turn_id, step)]
        if not wanted:
            return {}
        within = spans[wanted[0] : wanted[-1] + 1]
        others = await compared.paths(span for span in within if span.by == "other")
        others |= await self._changed_elsewhere(session, compared, within)
        touched: dict[str, tuple[WorkspaceSnapshot, WorkspaceSnapshot]] = {}
        for n in wanted:
            for path in await compared.between(*spans[n].trees):
                start = touched[path][0] if path in touched else spans[n].before
                touched[path] = start, spans[n].after
        whole = (within[0].before, within[-1].after)
        own: dict[str, _Own] = {}
        for path, (start, end) in touched.items():
            if path not in others:
                start, end = whole  # the same content, with one comparison for all such files
            change = (await compared.between(start.tree or "", end.tree or "")).get(path)
            if change is not None:
                own[path] = _Own(start, end, path in others, change)
        return own

    async def _changed_elsewhere(self, session: Session, compared: Comparisons, within: Sequence[Span]) -> set[str]:
        """Return the files that calls of other sessions changed in the workspace in that time."""
        since, until = within[0].before.created_at, within[-1].after.created_at
        store, found = self._host.store, set[str]()
        own = {session.id, *(child.id for child in await store.list_children(session.id) if child.kind == "subagent")}
        by_session: dict[str, list[WorkspaceSnapshot]] = {}
        for row in await store.load_workspace_snapshots(session.workspace_root or "", since):
            if row.session_id not in own and row.created_at <= until:
                by_session.setdefault(row.session_id, []).append(row)
        for rows in by_session.values():
            found |= await compared.paths(span for span in spans_of(rows) if span.by != "other")
        return found


def _is_wanted(span: Span, turn_id: str | None, step: int | None) -> bool:
    if turn_id is None:
        # What a person took back is no longer a change of the session.
        return span.by != "other"
    made = span.before if span.before.point == "before" else span.after
    return span.by == "calls" and made.turn_id == turn_id and step in (None, made.step)


def revert_hunk(path: str, present: bytes, before: bytes, after: bytes, diff: str, header: str) -> bytes:
    """Return a file's content without one hunk of a unified diff. Raise :class:`Conflict` if it is not there any more,
    exactly as it was made. Its lines are those of the contents: a diff may be short of some, or of bytes."""
    match = _HUNK.match(header)
    if match is None or not any(line.startswith(header) for line in diff.split("\n")):
        raise Conflict(f"{path} has no such hunk any more; load its differences again", path=path)
    old, new = _lines_at(before, match[1], match[2]), _lines_at(after, match[3], match[4])
    content = _LINE.findall(present)
    count, begin = len(new), int(match[3])
    places = [begin - 1 if count else begin, *range(len(content) - count + 1)]
    found = [place for place in places if place >= 0 and content[place : place + count] == new]
    # Lines that others added above it have moved it; where it is found twice, only its own place counts.
    if not found or (found[0] != places[0] and (not new or len(set(found)) > 1)):
        raise Conflict(f"{path} has been changed there since; edit it by hand", path=path)
    place = found[0]
    return b"".join([*content[:place], *old, *content[place + count :]])


def _lines_at(content: bytes, start: str, count: str | None) -> list[bytes]:
    first = int(start) - 1
    return _LINE.findall(content)[max(first, 0) : first + int(count or 1)]


def _lines_of(path: str, before: bytes | None, after: bytes | None) -> list[str] | None:
    """Return the lines of a unified diff; None if one side is not text."""
    try:
        old, new = ([line.decode() for line in _LINE.findall(content or b"")] for content in (before, after))
    except UnicodeDecodeError:
        return None
    return list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))


def _joined(lines: list[str] | None) -> str:
    if lines is None:
        return "Binary files differ\n"
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _changed(path: str, before: bytes | None, after: bytes | None, lines: list[str] | None) -> ChangedFile:
    kind: ChangeKind = "added" if before is None else "deleted" if after is None else "modified"
    if lines is None:
        return ChangedFile(path=path, kind=kind)
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return ChangedFile(path=path, kind=kind, added=added, removed=removed)
