"""The progress of a run: its published status between start and end, and the stored status of its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from clew.errors import ClewError, ContextTooLarge, InternalError
from clew.live.base import Event, RunningCall, Status
from clew.session.host import Host
from clew.store.unit import EpochIs, SetTurn, Unit
from clew.transcript.turn import SHOWN_ERROR_KEYS
from clew.transcript.turn_state import TurnStatus

__all__ = ["Progress", "problem_of", "ways_out"]


class Progress:
    """The status publisher of one run, used by everything that makes it wait."""

    def __init__(self, host: Host, session_id: str, turn_id: str, epoch: int) -> None:
        self._host = host
        self._session_id = session_id
        self._turn_id = turn_id
        self._epoch = epoch
        self._started_at = host.clock.now_ms()

    def begin(self, running: tuple[RunningCall, ...] = ()) -> None:
        self._show(Status("busy", started_at=self._started_at, running=running))

    async def retrying(self, attempt: int, failure: ClewError, says: str, wait_ms: float) -> None:
        """Publish why and until when the run waits, wait, and publish that it runs again."""
        message = f"{failure}; {says} in {max(1, round(wait_ms / 1000))} s"
        at, problem = self._host.clock.now_ms() + round(wait_ms), problem_of(failure)
        self._show(
            Status(
                "retrying",
                attempt=attempt,
                message=message,
                started_at=self._started_at,
                retry_at=at,
                problem=problem,
            )
        )
        await self._store_status("retrying")
        await self._host.clock.sleep(wait_ms)
        await self.running()

    async def compacting(self, message: str) -> None:
        self._show(Status("busy", message=message, started_at=self._started_at))
        await self._store_status("compacting")

    def finishing(self, message: str) -> None:
        """Publish why an aborted run has not ended yet."""
        self._show(Status("busy", message=message, started_at=self._started_at))

    async def running(self) -> None:
        self.begin()
        await self._store_status("running")

    async def _store_status(self, status: TurnStatus) -> None:
        unit = Unit(self._session_id, (SetTurn(self._turn_id, status),), (EpochIs(self._epoch),))
        await self._host.store.commit(unit)

    def _show(self, status: Status) -> None:
        self._host.live.set_status(self._session_id, status)
        data = {"session_id": self._session_id, "status": msgspec.to_builtins(status)}
        self._host.live.publish(Event("status", data))


def ways_out(session_id: str, branch: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return what a person can do about a session that no summary makes fit: operations, with their commands.

    ``branch`` are the arguments of a branch with the newest turns that fit; without one the person picks a message.
    """
    picked = branch or {"from_message_id": "MESSAGE", "start_message_id": "MESSAGE"}
    copy = f"clew branch {session_id} {picked['from_message_id']} --start {picked['start_message_id']}"
    commands = {"prune": f"clew prune {session_id}", "branch": copy, "create_session": "clew chat"}
    return [{"operation": operation, "command": command} for operation, command in commands.items()]


def problem_of(error: BaseException) -> dict[str, Any]:
    """Return a failure as it is stored and published."""
    if isinstance(error, ContextTooLarge):
        ways = {"ways": error.ids["ways"]} if "ways" in error.ids else {}
        return {"code": error.code, "message": str(error), "branch": error.ids.get("branch"), **ways}
    if isinstance(error, ClewError):
        ids: dict[str, Any] = {name: error.ids[name] for name in SHOWN_ERROR_KEYS if name in error.ids}
        return {"code": error.code, "message": str(error), **ids}
    return {"code": InternalError.code, "message": f"internal error in clew: {type(error).__name__}: {error}"}
