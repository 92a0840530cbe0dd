"""Jobs: units to be written, one after the other, each independently."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from clew.errors import InternalError
from clew.store import unit as u
from clew.store.disk import translated
from clew.store.files.codec import Saving
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.shared import SharedPlan
from clew.store.memory.change import Change

__all__ = ["Job", "Planned", "fail", "next_round", "persist", "sessions_of"]


class Job(NamedTuple):
    unit: u.Unit
    future: asyncio.Future[u.Outcome]


class Planned(NamedTuple):
    job: Job
    change: Change
    shared: SharedPlan
    saving: Saving | None

    @property
    def deletes(self) -> bool:
        return any(isinstance(write, u.DeleteSession) for write in self.job.unit.writes)


def sessions_of(unit: u.Unit) -> set[str]:
    return {unit.session_id, *(write.source_session_id for write in unit.writes if isinstance(write, u.CopyLine))}


def next_round(waiting: Iterable[Job]) -> tuple[list[Job], deque[Job]]:
    """Return the jobs of the next round, the first of each session, and the remaining ones.

    Each is planned as if it were alone. So only one of a round may depend on shared tables, since a second one would
    not see the changes of the first.
    """
    taken: list[Job] = []
    left: deque[Job] = deque()
    seen: set[str] = set()
    shares = False
    for job in waiting:
        sharing = any(isinstance(one, u.SharedWrite | u.RouteIsFree) for one in (*job.unit.writes, *job.unit.guards))
        if job.unit.session_id in seen or (sharing and shares):
            left.append(job)
        else:
            taken.append(job)
            shares = shares or sharing
        seen.add(job.unit.session_id)
    return taken, left


def persist(planned: list[Planned], path: Path, watch: FolderWatch) -> list[BaseException | None]:
    """Write each of these units independently; return the error of each, or None."""
    errors: list[BaseException | None] = []
    for plan in planned:
        try:
            unit = plan.job.unit
            with translated(path), watch.writing(unit.session_id, removing=plan.deletes):
                _persist_one(plan)
            errors.append(None)
        except Exception as error:
            errors.append(error)
    return errors


def _persist_one(plan: Planned) -> None:
    undo: list[Callable[[], None]] = []
    try:
        for action, way_back in plan.shared.before:
            action()
            undo += [way_back] if way_back is not None else []
        if plan.saving is not None:
            plan.saving.persist()
    except BaseException:
        # Only completed actions are undone: the others have changed nothing.
        for action in reversed(undo):
            with contextlib.suppress(OSError):
                action()
        raise
    # The rest only removes unreferenced files; after a failure, opening the store removes them.
    for action in plan.shared.after:
        with contextlib.suppress(OSError):
            action()


def fail(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(
            error if isinstance(error, Exception) else InternalError(f"the store ended: {error!r}")
        )
