"""Jobs: units on their way to disk, written down one by one, each by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from clew.errors import InternalError
from clew.store import unit as u
from clew.store.files import folder
from clew.store.files.codec import Saving
from clew.store.files.shared import SharedPlan
from clew.store.session_value import Change

__all__ = ["Job", "Planned", "fail", "persist", "run", "sessions_of"]


class Job(NamedTuple):
    unit: u.Unit
    future: asyncio.Future[u.Outcome]


class Planned(NamedTuple):
    job: Job
    change: Change
    shared: SharedPlan
    saving: Saving | None


def sessions_of(unit: u.Unit) -> set[str]:
    return {unit.session_id, *(write.source_session_id for write in unit.writes if isinstance(write, u.CopyLine))}


def persist(planned: list[Planned], path: Path) -> list[BaseException | None]:
    """Write down each of these units by itself; what kept each from it."""
    errors: list[BaseException | None] = []
    for plan in planned:
        try:
            with folder.translated(path):
                _persist_one(plan)
            errors.append(None)
        except Exception as error:
            errors.append(error)
    return errors


def _persist_one(plan: Planned) -> None:
    try:
        for action in plan.shared.before:
            action()
        if plan.saving is not None:
            plan.saving.persist()
    except BaseException:
        for action in plan.shared.undo:
            with contextlib.suppress(OSError):
                action()
        raise
    # Only what nobody names any more is left to be done; what a failure leaves of it goes when the store is opened.
    for action in plan.shared.after:
        with contextlib.suppress(OSError):
            action()


def run(persist: Callable[[], None], path: Path) -> None:
    with folder.translated(path):
        persist()


def fail(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(
            error if isinstance(error, Exception) else InternalError(f"the store ended: {error!r}")
        )
