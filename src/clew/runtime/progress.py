"""The progress of a run: what its status says between its start and its end, and its turn with it."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.errors import ClewError, ContextTooLarge, InternalError
from clew.live.base import Event, RunningCall, Status
from clew.runtime.host import Host
from clew.store.unit import EpochIs, SetTurn, Unit
from clew.transcript.turn import TOLD_OF_ERRORS
from clew.transcript.turn_state import TurnStatus

__all__ = ["Progress", "problem_of"]


class Progress:
    """Told by whoever makes a run wait."""

    def __init__(self, host: Host, session_id: str, turn_id: str, epoch: int) -> None:
        self._host = host
        self._session_id = session_id
        self._turn_id = turn_id
        self._epoch = epoch
        self._started_at = host.clock.now_ms()

    def begin(self, running: tuple[RunningCall, ...] = ()) -> None:
        self._show(Status("busy", started_at=self._started_at, running=running))

    async def retrying(self, attempt: int, failure: ClewError, says: str, wait_ms: float) -> None:
        """Wait, and tell until when and why; then it runs again."""
        said = f"{failure}; {says} in {max(1, round(wait_ms / 1000))} s"
        at, problem = self._host.clock.now_ms() + round(wait_ms), problem_of(failure)
        self._show(
            Status(
                "retrying",
                attempt=attempt,
                message=said,
                started_at=self._started_at,
                retry_at=at,
                problem=problem,
            )
        )
        await self._move("retrying")
        await self._host.clock.sleep(wait_ms)
        await self.running()

    async def compacting(self, message: str) -> None:
        self._show(Status("busy", message=message, started_at=self._started_at))
        await self._move("compacting")

    async def running(self) -> None:
        self.begin()
        await self._move("running")

    async def _move(self, status: TurnStatus) -> None:
        unit = Unit(self._session_id, (SetTurn(self._turn_id, status),), (EpochIs(self._epoch),))
        await self._host.store.commit(unit)

    def _show(self, status: Status) -> None:
        self._host.live.set_status(self._session_id, status)
        data = {"session_id": self._session_id, "status": msgspec.to_builtins(status)}
        self._host.live.publish(Event("status", data))


def problem_of(error: BaseException) -> dict[str, Any]:
    """What is kept and told of a failure."""
    if isinstance(error, ContextTooLarge):
        return {"code": error.code, "message": str(error), "branch": error.ids.get("branch")}
    if isinstance(error, ClewError):
        told: dict[str, Any] = {name: error.ids[name] for name in TOLD_OF_ERRORS if name in error.ids}
        return {"code": error.code, "message": str(error), **told}
    return {"code": InternalError.code, "message": f"something went wrong inside clew: {type(error).__name__}: {error}"}
