"""Snapshots of workspaces: when they are taken, and how long a call waits for one.

The snapshot of a user message is a row of the unit that stores the message, and is taken alongside the model's first
call. A step's calls that may change files wait until it is ready, for a limited time, and have snapshots of their own
before and after them: what changed between these was changed by the session, all else by another hand. A failure is
stored, logged and published; it never fails a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterable
from typing import Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from clew.clock import Timer
from clew.errors import ClewError
from clew.live.base import Event
from clew.session.cancellable import after, run_until
from clew.session.host import Host
from clew.snapshots.base import SavedTree, SnapshotLayer, SnapshotPoint, SnapshotsOff, SnapshotStore
from clew.store.unit import PutSnapshot, Refused, Unit, Write
from clew.tools.base import Tool, declared_capabilities
from clew.transcript.message import MessageRow
from clew.transcript.metadata import SNAPSHOT_KEY
from clew.transcript.session import Session
from clew.transcript.workspace_snapshot import SnapshotAt, WorkspaceSnapshot

__all__ = ["SWITCH_KEY", "Snapshots", "may_change_files", "point_of"]

log = logging.getLogger("clew.snapshots")

SWITCH_KEY: Final = "snapshots"
"""The metadata key by which a session is left out: ``off``."""
NOT_FINISHED: Final = "the process ended while it was being taken"
_CHANGES_FILES: Final = frozenset({"fs.write", "shell.run", "mcp.call", "agent.spawn"})
COLLECT_EVERY_MS: Final = 3_600_000
_CLOSE_WAIT_S: Final = 5.0
"""Seconds to let snapshots finish when the engine closes."""


def may_change_files(tool: Tool) -> bool:
    """Return whether a call of the tool may change files; one that declares no capabilities may."""
    declared = declared_capabilities(tool)
    return declared is None or not _CHANGES_FILES.isdisjoint(declared)


def point_of(snapshot: WorkspaceSnapshot) -> SnapshotPoint:
    """Return whose workspace a snapshot is of, as a layer is told it."""
    return SnapshotPoint(
        session_id=snapshot.session_id,
        workspace=snapshot.workspace,
        turn_id=snapshot.turn_id,
        step=snapshot.step,
        message_id=snapshot.message_id,
    )


class Snapshots:
    """The service that takes the snapshots of one engine's sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._in_flight: dict[str, dict[str, tuple[WorkspaceSnapshot, asyncio.Task[WorkspaceSnapshot]]]] = {}
        self._late: set[str] = set()
        self._off: dict[str, str] = {}
        self._timer: Timer | None = None
        self._collecting: asyncio.Task[int] | None = None
        # A lock exists only while a task holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def layer(self) -> SnapshotLayer | None:
        return self._host.snapshots

    @property
    def wait_s(self) -> float:
        return self._host.config.snapshot_settings.wait_s

    def is_on(self, session: Session) -> bool:
        """Return whether snapshots are taken of the session's workspace."""
        folder = session.workspace_root
        if self.layer is None or folder is None or session.metadata.get(SWITCH_KEY) == "off":
            return False
        return folder not in self._off and os.path.isdir(folder)

    def why_off(self, session: Session) -> str | None:
        """Return why the layer takes no snapshots of the session's workspace, if it has said so."""
        return self._off.get(session.workspace_root or "")

    def lock(self, workspace: str) -> asyncio.Lock:
        """Return the lock that one snapshot or restore of a workspace holds at a time."""
        return self._locks.setdefault(workspace, asyncio.Lock())

    # Taking

    def plan(self, session: Session, row: MessageRow, turn_id: str) -> tuple[MessageRow, tuple[Write, ...]]:
        """Return the user message with the name of its snapshot, and the write of that snapshot's row.

        A host's ``message.user`` hook may have named a finished snapshot of its own layer.
        """
        if not self.is_on(session):
            return row, ()
        tree = row.snapshot_id
        snapshot = self._row(session, "message", message_id=row.id, turn_id=turn_id)
        if tree is not None:
            return row, (PutSnapshot(replace(snapshot, state="ready", tree=tree)),)
        return replace(row, metadata={**row.metadata, SNAPSHOT_KEY: snapshot.id}), (PutSnapshot(snapshot),)

    def start(self, writes: Iterable[Write]) -> None:
        """Begin to take the snapshots among these writes, now that they are stored."""
        for write in writes:
            if isinstance(write, PutSnapshot) and write.snapshot.is_open:
                self._begin(write.snapshot)

    @contextlib.asynccontextmanager
    async def around_calls(
        self, session: Session, turn_id: str, step: int, tools: Iterable[Tool]
    ) -> AsyncIterator[None]:
        """Save the workspace before and after the calls of these tools, if any may change files."""
        if not (any(map(may_change_files, tools)) and self.is_on(session)):
            yield
            return
        in_time = await self._before_calls(self._row(session, "before", turn_id=turn_id, step=step))

        def begin() -> None:
            if in_time or not self._in_flight.get(session.id):
                self._begin(self._row(session, "after", turn_id=turn_id, step=step))

        try:
            yield
        except BaseException:
            begin()
            raise
        begin()
        # What a person changes from now on is not taken for a change of these calls.
        if in_time:
            await self.wait(session.id)

    async def _before_calls(self, snapshot: WorkspaceSnapshot) -> bool:
        """Save the workspace before a step's calls; return whether that was done in time."""
        own = self._in_flight.get(snapshot.session_id, {})
        if any(id_ in self._late for id_ in own):
            return False  # an earlier call has waited for that one
        self._begin(snapshot)
        if await self.wait(snapshot.session_id):
            return True
        for late, task in list(self._in_flight.get(snapshot.session_id, {}).values()):
            if not task.done():
                self._late.add(late.id)
                await self._store(replace(late, state="late"))
        log.warning("the workspace %s was not saved within %g s; its calls run", snapshot.workspace, self.wait_s)
        return False

    def end_turn(self, session: Session, turn_id: str) -> None:
        """Begin to save the workspace at the end of a turn."""
        if self.is_on(session) and not any(id_ in self._late for id_ in self._in_flight.get(session.id, {})):
            self._begin(self._row(session, "end", turn_id=turn_id))

    async def take(self, session: Session, point: SnapshotAt, *, turn_id: str | None = None) -> WorkspaceSnapshot:
        """Take a snapshot now and return its row, which is not stored. The caller holds the workspace's lock."""
        return await self._saved(self._row(session, point, turn_id=turn_id))

    async def wait(self, session_id: str) -> bool:
        """Wait for the snapshots of the session that are being taken, for a limited time; return whether all are."""
        tasks = [task for _, task in self._in_flight.get(session_id, {}).values()]
        if not tasks:
            return True

        async def finish() -> None:
            await asyncio.wait(tasks)

        waiting = await run_until(finish(), after(self._host.clock, self.wait_s * 1000))
        return waiting.done() and not waiting.cancelled()

    async def close(self) -> None:
        """Let snapshots finish; the rows of others are completed by recovery."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = {task for own in self._in_flight.values() for _, task in own.values()}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_CLOSE_WAIT_S)
            for task in left:
                task.cancel()

    def _row(
        self,
        session: Session,
        point: SnapshotAt,
        *,
        message_id: str | None = None,
        turn_id: str | None = None,
        step: int | None = None,
    ) -> WorkspaceSnapshot:
        return WorkspaceSnapshot(
            id=self._host.mint.snapshot(),
            session_id=session.id,
            workspace=session.workspace_root or "",
            point=point,
            state="taking",
            created_at=self._host.clock.now_ms(),
            message_id=message_id,
            turn_id=turn_id,
            step=step,
            replica=self._host.lease.replica_id,
        )

    def _begin(self, snapshot: WorkspaceSnapshot) -> None:
        task = asyncio.get_running_loop().create_task(self._take(snapshot))
        own = self._in_flight.setdefault(snapshot.session_id, {})
        own[snapshot.id] = snapshot, task

        def forget(done: asyncio.Task[WorkspaceSnapshot]) -> None:
            self._late.discard(snapshot.id)
            own.pop(snapshot.id, None)
            if not own and self._in_flight.get(snapshot.session_id) is own:
                del self._in_flight[snapshot.session_id]
            if not done.cancelled() and (error := done.exception()) is not None:
                log.error("snapshot %s could not be stored: %s", snapshot.id, error)

        task.add_done_callback(forget)

    async def _take(self, snapshot: WorkspaceSnapshot) -> WorkspaceSnapshot:
        async with self.lock(snapshot.workspace):
            saved = await self._saved(snapshot)
        if saved.state == "ready" and saved.id in self._late:
            saved = replace(saved, state="late")
        await self._store(saved)
        return saved

    async def _saved(self, snapshot: WorkspaceSnapshot) -> WorkspaceSnapshot:
        """Take the snapshot; return its finished row."""
        assert self.layer is not None
        saved: SavedTree | None = None
        problem = "there was nothing to save"
        try:
            saved = await self.layer.take(point_of(snapshot))
        except SnapshotsOff as off:
            self._off[snapshot.workspace] = problem = str(off)
        except Exception as error:  # the host's layer, or its disk
            log.exception("the workspace %s could not be saved", snapshot.workspace)
            problem = f"the workspace could not be saved: {error}"
        if saved is None:
            return replace(snapshot, state="failed", problem=problem)
        return replace(snapshot, state="ready", tree=saved.tree, skipped=saved.skipped)

    async def _store(self, snapshot: WorkspaceSnapshot) -> None:
        """Store a row. Its session may be gone by now."""
        try:
            outcome = await self._host.store.commit(Unit(snapshot.session_id, (PutSnapshot(snapshot),)))
        except ClewError as error:
            log.warning("snapshot %s could not be stored: %s", snapshot.id, error)
            return
        if snapshot.state != "ready" and snapshot.tree is None and not isinstance(outcome, Refused):
            self._publish(snapshot)

    def _publish(self, snapshot: WorkspaceSnapshot) -> None:
        """Publish that a snapshot failed or is late."""
        if snapshot.state == "failed":
            level = logging.INFO if snapshot.workspace in self._off else logging.WARNING
            log.log(level, "session %s has no snapshot: %s", snapshot.session_id, snapshot.problem)
        data: dict[str, str | None] = {"session_id": snapshot.session_id, "snapshot_id": snapshot.id}
        data |= {
            "point": snapshot.point,
            "turn_id": snapshot.turn_id,
            "state": snapshot.state,
            "problem": snapshot.problem,
        }
        self._host.live.publish(Event("snapshot_failed", data))

    # The disk

    async def collect(self) -> int:
        """Free the saved states that no row names; return the bytes. A layer keeps those that were saved just now."""
        layer = self.layer
        if not isinstance(layer, SnapshotStore):
            return 0
        keep = await self._host.store.load_snapshot_trees()
        for one in await self._host.store.open_snapshots():
            if one.restore is not None:
                keep.setdefault(one.workspace, set()).update((one.restore.tree, one.restore.expected))
        return await layer.collect(keep)

    def collect_later(self, delay_ms: int = COLLECT_EVERY_MS) -> None:
        """Free unnamed states after this time, and every hour from then on, until the engine closes."""

        def tick() -> None:
            self._collecting = asyncio.get_running_loop().create_task(self._collect_safely())
            self._timer = self._host.clock.call_later(COLLECT_EVERY_MS, tick)

        if isinstance(self.layer, SnapshotStore):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._host.clock.call_later(delay_ms, tick)

    async def _collect_safely(self) -> int:
        try:
            return await self.collect()
        except Exception:  # the layer's, or its disk's
            log.exception("saved workspaces that no session names could not be freed")
            return 0
