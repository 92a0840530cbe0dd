"""The progress of a run: what its status says between its start and its end, and its turn with it."""

from __future__ import annotations

import msgspec

from clew.live.base import Event, Status
from clew.runtime.host import Host
from clew.store.unit import EpochIs, SetTurn, Unit
from clew.transcript.turn_state import TurnStatus

__all__ = ["Progress"]


class Progress:
    """Told by whoever makes a run wait."""

    def __init__(self, host: Host, session_id: str, turn_id: str, epoch: int) -> None:
        self._host = host
        self._session_id = session_id
        self._turn_id = turn_id
        self._epoch = epoch
        self._started_at = host.clock.now_ms()

    def begin(self) -> None:
        self._show(Status("busy", started_at=self._started_at))

    async def retrying(self, attempt: int, message: str, at: int) -> None:
        self._show(Status("retrying", attempt=attempt, message=message, started_at=self._started_at, retry_at=at))
        await self._move("retrying")

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
