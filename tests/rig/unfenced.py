"""``clew`` without its fence: what is written is not held against lease and epoch. For the control only."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.fronts.cli import main
from clew.store import unit as u
from clew.store.guards import refusal
from clew.store.sql import apply


def unfenced(unit: u.Unit, *rest: Any) -> u.Refused | None:
    kept = tuple(guard for guard in unit.guards if not isinstance(guard, u.EpochIs | u.LeaseHolds))
    return refusal(msgspec.structs.replace(unit, guards=kept), *rest)


if __name__ == "__main__":
    apply.refusal = unfenced  # type: ignore[assignment, attr-defined]
    main()
