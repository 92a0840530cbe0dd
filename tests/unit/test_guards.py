"""What is told of a unit's guards at once, because nearly every unit has no other than that."""

from __future__ import annotations

import pytest

from clew.store import unit as u
from clew.store.guards import holds_epoch
from clew.transcript.session import Model, Session, SessionState

APPEND = u.AppendChunks("msg", ())
EPOCH = u.EpochIs(3)
NEW = u.InsertSession(Session(id="ses", agent="a", model=Model("p", "m"), created_at=1, updated_at=1))


@pytest.mark.parametrize(
    ("unit", "state", "holds"),
    [
        (u.Unit("ses", (APPEND,), (EPOCH,)), SessionState(epoch=3), True),
        (u.Unit("ses", (APPEND,), (EPOCH,)), SessionState(epoch=4), False),
        (u.Unit("ses", (APPEND,), (EPOCH,)), None, False),
        (u.Unit("ses", (APPEND,), (EPOCH, u.NoOpenTurn())), SessionState(epoch=3), False),
        (u.Unit("ses", (APPEND,), (u.NoOpenTurn(),)), SessionState(epoch=3), False),
        (u.Unit("ses", (APPEND,)), SessionState(epoch=3), False),
        (u.Unit(u.STORE_WIDE, (APPEND,), (EPOCH,)), SessionState(epoch=3), False),
        (u.Unit("ses", (NEW,), (EPOCH,)), SessionState(epoch=3), False),
    ],
)
def test_only_a_unit_that_nothing_but_its_epoch_guards_is_let_pass_at_once(
    unit: u.Unit, state: SessionState | None, holds: bool
) -> None:
    """Whatever else it has, or is not sure of, is looked at as a whole."""
    assert holds_epoch(unit, state) is holds
