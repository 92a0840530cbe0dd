"""Restoring files of a workspace: what a restore would do, and doing it so that it can be undone.

The present state is saved first. The row of the restore is committed, with a move of the head where it belongs to one,
before any file is written; a restore that a killed process left is finished when the store is next opened. Files that
another hand has changed are left alone unless they are named or the restore is forced.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from clew.errors import ClewError, NotSupported, RewindTargetInvalid, SessionBusy, SnapshotFailed
from clew.failpoints import failpoint
from clew.session.cancellable import after, run_until
from clew.session.history.file_values import FileEffect, FilesRequest, FilesRestored, RestorePreview
from clew.session.history.timeline import Comparisons, spans_of
from clew.session.host import Host
from clew.session.runtime import Runtime
from clew.session.snapshots import NOT_FINISHED, point_of
from clew.snapshots.base import (
    MORE_SKIPPED,
    ChangeKind,
    FileChange,
    SnapshotLayer,
    SnapshotPoint,
    SnapshotsOff,
    SnapshotStore,
)
from clew.store.unit import PutSnapshot, Unit, Write
from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Turn
from clew.transcript.workspace_snapshot import Restore, WorkspaceSnapshot

__all__ = [
    "Preparation",
    "Restoring",
    "Target",
    "recover_snapshots",
]

log = logging.getLogger("clew.snapshots")
_INVERSE: dict[ChangeKind, ChangeKind] = {
    "added": "deleted",
    "deleted": "added",
    "modified": "modified",
    "mode": "mode",
}


class Target(msgspec.Struct, frozen=True):
    """The snapshot to restore, and the rows of the timeline from the one before it on."""

    snapshot: WorkspaceSnapshot
    before: WorkspaceSnapshot | None
    later: tuple[WorkspaceSnapshot, ...]

    @property
    def tree(self) -> str:
        return self.snapshot.tree or ""


class Preparation(msgspec.Struct):
    """A restore that is about to be committed: the present state is saved, and it is known what would be written."""

    target: Target
    saved: WorkspaceSnapshot
    restored: WorkspaceSnapshot
    conflicts: tuple[str, ...]
    unsure: tuple[str, ...]
    _finish: Callable[[Preparation], Awaitable[FilesRestored]]

    def plan(self, at: int, head: str | None, *, move: bool) -> tuple[Write, ...]:
        """Return the writes that announce the restore, with the time of the move of the head that it belongs to."""
        restore = self.restored.restore
        assert restore is not None
        restore = replace(restore, move=move)
        self.restored = replace(self.restored, created_at=at, turn_id=head, restore=restore)
        self.saved = replace(self.saved, created_at=min(self.saved.created_at, at))
        return PutSnapshot(self.saved), PutSnapshot(self.restored)

    async def finish(self) -> FilesRestored:
        """Write the files, now that the restore is committed."""
        return await self._finish(self)


class Restoring:
    """The service that restores files of the workspaces of one engine's sessions."""

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._snapshots = runtime.snapshots

    @property
    def layer(self) -> SnapshotLayer:
        if self._host.snapshots is None:
            raise NotSupported(
                "this engine takes no snapshots, so it restores no files (see `snapshots` in the configuration)"
            )
        return self._host.snapshots

    # Targets

    async def load_rows(self, session: Session) -> tuple[WorkspaceSnapshot, ...]:
        """Return the snapshots of the session, once those under way are taken."""
        self._check_workspace(session)
        await self._snapshots.wait(session.id)
        return await self._host.store.load_snapshots(session.id)

    def _check_workspace(self, session: Session) -> None:
        _ = self.layer
        if session.workspace_root is None:
            raise RewindTargetInvalid("this session has no workspace; there are no files to restore")

    async def find_message(self, session: Session, turn: Turn, message_id: str) -> Target:
        """Return the snapshot of a user message; in a branch, that of the message it is a copy of."""

        def is_wanted(row: WorkspaceSnapshot, turn_id: str, first_id: str) -> bool:
            return row.point == "message" and row.message_id == first_id

        why = f"no snapshot exists for message {message_id}; rewind without restoring files"
        return await self._find(session, turn, is_wanted, why, message_id=message_id)

    async def find_end(self, session: Session, turn: Turn) -> Target:
        """Return the snapshot of the end of a turn: after its last calls, else the last one that was taken in it."""

        def is_wanted(row: WorkspaceSnapshot, turn_id: str, first_id: str) -> bool:
            return row.turn_id == turn_id and row.restore is None and row.point != "saved"

        return await self._find(
            session, turn, is_wanted, f"no snapshot exists for the end of turn {turn.id}", turn_id=turn.id
        )

    async def find_point(self, session: Session, turn: Turn, row: MessageRow) -> Target:
        """Return the snapshot of a message at which a branch is made: as it was sent, or of the end of its turn."""
        if row.role == "user":
            return await self.find_message(session, turn, row.id)
        return await self.find_end(session, turn)

    async def find_start(self, session: Session) -> Target:
        """Return the first snapshot of the session."""
        rows = await self.load_rows(session)
        first = next((n for n, row in enumerate(rows) if row.tree is not None), None)
        return self._at(session, rows, first, "no snapshot exists for the start of this session")

    async def find_undo(self, session: Session, undone: HeadMove | None) -> Target:
        """Return the state that was saved before the files of a move were restored, or, without one, of the newest
        restore. Where a move did not restore files, the end of the turn it left."""
        rows = await self.load_rows(session)
        restores = [row for row in rows if row.restore is not None and row.tree is not None]
        if undone is not None:
            restores = [row for row in restores if row.created_at == undone.at and row.restore and row.restore.move]
            left = undone.from_turn_id
            turn = await self._host.store.find_turn(left) if left is not None and not restores else None
            if turn is not None:
                return await self.find_end(session, turn)
        saved = restores[-1].restore.saved if restores and restores[-1].restore else None
        index = next((n for n, row in enumerate(rows) if row.id == saved), None)
        return self._at(session, rows, index, "there is no restore of files to undo")

    async def _find(
        self,
        session: Session,
        turn: Turn,
        is_wanted: Callable[[WorkspaceSnapshot, str, str], bool],
        why: str,
        **ids: str,
    ) -> Target:
        """Return the newest snapshot that is wanted of a turn, or of the turn of an ancestor that it is a copy of."""
        rows = await self.load_rows(session)
        first_id = await self._first_message(turn)
        found = [n for n, row in enumerate(rows) if is_wanted(row, turn.id, first_id)]
        failed = [rows[n].problem for n in found if rows[n].problem is not None]
        found = [n for n in found if rows[n].tree is not None]
        origin = await self._find_origin(session, turn) if not found else None
        if origin is not None:
            # What the ancestor did after the branch was made is another hand's.
            above = await self._host.store.load_snapshots(origin.session_id)
            inherited = tuple(row for row in above if row.created_at <= session.created_at)
            first_id = await self._first_message(origin)
            found = [
                n for n, row in enumerate(inherited) if row.tree is not None and is_wanted(row, origin.id, first_id)
            ]
            rows = (*inherited, *rows)
        if not found and failed:
            why = f"{why} ({failed[-1]})"
        ended = [n for n in found if rows[n].point == "after"]
        return self._at(session, rows, (ended or found)[-1] if found else None, why, **ids)

    async def _first_message(self, turn: Turn) -> str:
        """Return the user message of a turn, which one that answers it again shares."""
        path = await self._host.store.load_path(turn.session_id, turn.id, turns=1)
        return next(iter(path[-1].messages), "")

    async def _find_origin(self, session: Session, turn: Turn) -> Turn | None:
        """Return the turn of an ancestor of the same owner and workspace that this one is a copy of."""
        store, ancestors, child = self._host.store, set[str](), session
        while child.parent_id is not None and child.parent_id not in ancestors:
            ancestors.add(child.parent_id)
            parent = await store.find_session(child.parent_id)
            if parent is None:
                break
            child = parent
        origin: Turn | None = turn
        while origin is not None and origin.origin_turn_id is not None:
            origin = await store.find_turn(origin.origin_turn_id)
            if origin is None or origin.session_id not in ancestors:
                return None
            ancestor = await store.find_session(origin.session_id)
            if ancestor is None or (ancestor.owner, ancestor.workspace_root) != (session.owner, session.workspace_root):
                return None
            if any(row.tree is not None for row in await store.load_snapshots(ancestor.id)):
                return origin
        return None

    def _at(
        self, session: Session, rows: Sequence[WorkspaceSnapshot], index: int | None, why: str, **ids: str
    ) -> Target:
        if index is None or rows[index].workspace != session.workspace_root:
            off = self._snapshots.why_off(session)
            raise RewindTargetInvalid(f"{why}: {off}" if off else why, **ids)
        saved = [row for row in rows[:index] if row.tree is not None]
        return Target(rows[index], saved[-1] if saved else None, tuple(rows[index + 1 :]))

    # Restoring

    async def preview(self, session: Session, target: Target) -> RestorePreview:
        """Return what a restore would do now."""
        compared = self.comparisons(session)
        differing = await self._differing(compared, target, None)
        foreign = await self.foreign(compared, target, None)
        return RestorePreview(
            snapshot_id=target.snapshot.id,
            taken_at=target.snapshot.created_at,
            state=target.snapshot.state,
            files=tuple(_effect(differing[path], path in foreign) for path in sorted(differing)),
            skipped=target.snapshot.skipped,
            unsure=await self._unsure(compared, target, differing),
        )

    @contextlib.asynccontextmanager
    async def prepare(
        self, session: Session, request: FilesRequest, find: Callable[[], Awaitable[Target]]
    ) -> AsyncIterator[Preparation | None]:
        """Yield a restore to that target, ready to be committed; None if files are kept.

        The caller holds the session's lock. The workspace's own is held until the restore has ended.
        """
        if request.mode == "keep":
            yield None
            return
        self._check_workspace(session)
        target = await find()
        async with self.locked(session):
            compared = self.comparisons(session)
            saved = await self.save(session)
            differing = await self._differing(compared, target, saved.tree)
            foreign = set() if request.force else await self.foreign(compared, target, saved.tree)
            conflicts = differing.keys() & (foreign - set(request.paths))
            yield self.plan(
                session,
                target,
                saved,
                sorted(differing.keys() - conflicts),
                sorted(conflicts),
                await self._unsure(compared, target, differing),
            )

    @contextlib.asynccontextmanager
    async def locked(self, session: Session) -> AsyncIterator[None]:
        """Hold the session's workspace. Raise :class:`SessionBusy` while another session's run works in it."""
        await self._snapshots.wait(session.id)
        lock = self._snapshots.lock(session.workspace_root or "")
        acquiring = await run_until(lock.acquire(), after(self._host.clock, self._snapshots.wait_s * 1000))
        if not acquiring.done() or acquiring.cancelled():
            raise SessionBusy("the workspace is still being saved; try again", session_id=session.id)
        try:
            await self._check_others(session)
            yield
        finally:
            lock.release()

    async def save(self, session: Session) -> WorkspaceSnapshot:
        """Save the present state and return its row, which is not stored; raise an error if that fails."""
        saved = await self._snapshots.take(session, "saved", turn_id=session.head_turn_id)
        if saved.tree is None:
            raise SnapshotFailed(f"nothing was restored: {saved.problem}", session_id=session.id)
        return saved

    def plan(
        self,
        session: Session,
        target: Target,
        saved: WorkspaceSnapshot,
        paths: Sequence[str],
        conflicts: Sequence[str] = (),
        unsure: Sequence[str] = (),
    ) -> Preparation:
        """Return the restore of these paths to a target."""
        restored = replace(
            saved,
            id=self._host.mint.snapshot(),
            point="restored",
            state="taking",
            tree=None,
            skipped={},
            restore=Restore(tree=target.tree, expected=saved.tree or "", saved=saved.id, paths=tuple(paths)),
        )
        return Preparation(target, saved, restored, tuple(conflicts), tuple(unsure), self._finish)

    async def apply(self, session: Session, prepared: Preparation) -> FilesRestored:
        """Commit a restore that belongs to no move of the head, and write its files."""
        writes = prepared.plan(self._host.clock.now_ms(), session.head_turn_id, move=False)
        failpoint("restore.before_commit")
        await self._runtime.sessions.commit(Unit(session.id, writes, sync="power"))
        return await prepared.finish()

    async def _finish(self, prepared: Preparation) -> FilesRestored:
        """Write the files of a restore that is committed. If that fails, write those back that were written."""
        row = prepared.restored
        restore = row.restore
        assert restore is not None
        failpoint("restore.before_files")
        try:
            done = await write_files(self.layer, row)
        except Exception as error:
            log.exception("files of session %s could not be restored", row.session_id)
            with contextlib.suppress(Exception):
                await self.layer.restore(point_of(row), restore.expected, restore.tree, restore.paths)
            failed = replace(row, state="failed", problem=f"the files could not be restored: {error}")
            await self._host.store.commit(Unit(row.session_id, (PutSnapshot(failed),), sync="power"))
            raise SnapshotFailed(f"could not restore the files: {error}", session_id=row.session_id) from error
        failpoint("restore.before_done")
        await self._host.store.commit(Unit(row.session_id, (PutSnapshot(done),), sync="power"))
        left = done.restore.left if done.restore is not None else ()
        return FilesRestored(
            snapshot_id=prepared.target.snapshot.id,
            restored=tuple(path for path in restore.paths if path not in left),
            conflicts=tuple(sorted({*prepared.conflicts, *left})),
            skipped=prepared.target.snapshot.skipped,
            unsure=prepared.unsure,
        )

    async def _differing(self, compared: Comparisons, target: Target, present: str | None) -> dict[str, FileChange]:
        """Return the files that a restore changes. One that the target does not cover has no state to go back to: that
        it is covered now, no longer ignored for example, is no reason to delete it."""
        found = await compared.between(target.tree, present)
        unknown = target.snapshot.leaves_out
        return {path: change for path, change in found.items() if change.kind != "added" or not unknown(path)}

    async def foreign(self, compared: Comparisons, target: Target, present: str | None) -> set[str]:
        """Return the files that another hand has changed since the target was taken, or may have made before."""
        rows = (target.snapshot, *target.later)
        found = await compared.paths(span for span in spans_of(rows) if span.by == "other")
        newest = next(row.tree for row in reversed(rows) if row.tree is not None)
        if MORE_SKIPPED in target.snapshot.skipped:
            # Where rules of ignored files have changed, a file may be one of those that are not named.
            changed = await compared.between(target.tree, present)
            if any(path.rpartition("/")[2] == ".gitignore" for path in changed):
                found |= {path for path, change in changed.items() if change.kind == "added"}
        return found | (await compared.between(newest, present)).keys()

    async def _unsure(self, compared: Comparisons, target: Target, differing: Collection[str]) -> tuple[str, ...]:
        """Return the files that a late snapshot does not vouch for: calls ran while it was taken."""
        if target.snapshot.state != "late":
            return ()
        later = next((row.tree for row in target.later if row.tree is not None), None)
        before = target.before.tree if target.before is not None else None
        changed = {*await compared.between(target.tree, later)} if later is not None else {*differing}
        if before is not None:
            changed |= (await compared.between(before, target.tree)).keys()
        return tuple(sorted(changed))

    async def check_out(self, session: Session, turn: Turn, row: MessageRow, folder: str) -> None:
        """Write the files into a new folder as they were at a message."""
        layer = self.layer
        if not isinstance(layer, SnapshotStore):
            raise NotSupported("this snapshot layer cannot make a folder for a branch")
        target = await self.find_point(session, turn, row)
        try:
            await layer.check_out(self.point(session), target.tree, folder)
        except ClewError:
            raise
        except Exception as error:  # the layer's, or its disk's
            raise SnapshotFailed(f"the folder could not be made: {error}", session_id=session.id) from error

    def comparisons(self, session: Session) -> Comparisons:
        """Return comparisons of saved states of the session's workspace."""
        return Comparisons(self.layer, self.point(session))

    def point(self, session: Session) -> SnapshotPoint:
        """Return the session's workspace as a layer is told it."""
        return SnapshotPoint(session_id=session.id, workspace=session.workspace_root or "")

    async def _check_others(self, session: Session) -> None:
        """Raise :class:`SessionBusy` while another session works in the workspace, or around or below it."""
        store, lease = self._host.store, self._host.lease
        active = set(self._runtime.sessions.live_ids())
        if lease.shared:
            for other in await store.unsettled_sessions():
                if await lease.runs_elsewhere(store, await store.load_state(other)):
                    active.add(other)
        folder = Path(session.workspace_root or "")
        for other in sorted(active - {session.id}):
            found = await store.find_session(other)
            if found is None or found.workspace_root is None:
                continue
            others = Path(found.workspace_root)
            if others.is_relative_to(folder) or folder.is_relative_to(others):
                raise SessionBusy(
                    "another session works in this workspace; wait until its run has ended, or abort it",
                    session_id=session.id,
                )


async def write_files(layer: SnapshotLayer, row: WorkspaceSnapshot) -> WorkspaceSnapshot:
    """Write the files of a restore, as far as that was not done yet; return its finished row."""
    restore, point = row.restore, point_of(row)
    assert restore is not None
    left = await layer.restore(point, restore.tree, restore.expected, restore.paths)
    failpoint("restore.after_files")
    saved = await layer.take(point)
    tree = restore.tree if saved is None else saved.tree
    return replace(row, state="ready", tree=tree, restore=replace(restore, left=tuple(sorted(left))))


async def recover_snapshots(host: Host) -> None:
    """Finish the restores that a killed process left, and close the snapshots it was taking."""
    store, lease, layer = host.store, host.lease, host.snapshots
    alive = {one.id for one in await store.list_replicas() if one.alive} if lease.shared else set()
    for row in await store.open_snapshots():
        if row.replica is not None and row.replica in alive:
            continue
        if row.restore is not None and layer is None:
            log.warning("files of session %s wait to be restored; open the store with snapshots on", row.session_id)
            continue
        done = replace(row, state="failed", problem=NOT_FINISHED)
        if row.restore is not None and layer is not None:
            failpoint("restore.before_recovery")
            try:
                done = await write_files(layer, row)
            except Exception as error:  # the layer's, or its disk's: the other sessions must open
                log.exception("files of session %s could not be restored", row.session_id)
                if isinstance(error, SnapshotsOff) or isinstance(error.__cause__ or error, OSError):
                    continue  # without git, or with a full disk: it is finished by a later opening
                done = replace(row, state="failed", problem=f"the files could not be restored: {error}")
        await store.commit(Unit(row.session_id, (PutSnapshot(done),), sync="power"))


def _effect(change: FileChange, conflict: bool) -> FileEffect:
    """Return what a restore does to a file that has changed in this way since."""
    return FileEffect(
        path=change.path, kind=_INVERSE[change.kind], added=change.removed, removed=change.added, conflict=conflict
    )
