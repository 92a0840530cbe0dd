"""Jobs: units on their way to disk, written down one by one, each by itself."""

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
    """The units of the next round, the first of each session, and those that wait on.

    Each is planned as if it were alone. So one of a round may go by what sessions share: of two, the second would not
    know of the first.
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
    """Write down each of these units by itself; what kept each from it."""
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
        # Only what was done is taken back: what was never come to lies there as it was.
        for action in reversed(undo):
            with contextlib.suppress(OSError):
                action()
        raise
    # Only what nobody names any more is left to be done; what a failure leaves of it goes when the store is opened.
    for action in plan.shared.after:
        with contextlib.suppress(OSError):
            action()


def fail(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(
            error if isinstance(error, Exception) else InternalError(f"the store ended: {error!r}")
        )
