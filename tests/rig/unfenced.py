"""``clew`` without fencing, only for the control: it does not notice a lost lease, and its writes are not checked
against the lease and the epoch."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.fronts.cli import main
from clew.session.cluster.heartbeat import Heartbeat
from clew.store import unit as u
from clew.store.guards import refusal
from clew.store.sql import apply


def unfenced(unit: u.Unit, *rest: Any) -> u.Refused | None:
    guards = tuple(guard for guard in unit.guards if not isinstance(guard, u.EpochIs | u.LeaseHolds))
    return refusal(msgspec.structs.replace(unit, guards=guards), *rest)


if __name__ == "__main__":
    Heartbeat._lapse = lambda _: None  # type: ignore[assignment, method-assign]
    apply.refusal = unfenced  # type: ignore[assignment, attr-defined]
    main()
