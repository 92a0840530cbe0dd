"""``clew`` without its fence, for the control only: it does not find out that its lease has lapsed, and nothing that it
writes is held against its lease and its epoch."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.fronts.cli import main
from clew.session.cluster.heartbeat import Heartbeat
from clew.store import unit as u
from clew.store.guards import refusal
from clew.store.sql import apply


def unfenced(unit: u.Unit, *rest: Any) -> u.Refused | None:
    kept = tuple(guard for guard in unit.guards if not isinstance(guard, u.EpochIs | u.LeaseHolds))
    return refusal(msgspec.structs.replace(unit, guards=kept), *rest)


if __name__ == "__main__":
    Heartbeat._lapse = lambda _: None  # type: ignore[assignment, method-assign]
    apply.refusal = unfenced  # type: ignore[assignment, attr-defined]
    main()
