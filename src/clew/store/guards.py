"""Guards: the only code that decides whether a unit may be written. Used by every store, inside its transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from clew.store import unit as u
from clew.transcript.session import Session, SessionState
from clew.triggers.values.schedule import Schedule

__all__ = ["Waiting", "holds_epoch", "refusal"]

Waiting: TypeAlias = tuple[bool, int, str | None]
"""A queued message: whether it interrupts, when it was queued, and its seal."""


_STATE_GUARDS: Final[Mapping[type[u.Guard], Callable[[Any, SessionState], u.Refused | None]]] = {
    u.EpochIs: lambda guard, state: None if state.epoch == guard.epoch else u.Refused("stale_epoch"),
    u.HeadIs: lambda guard, state: None if state.head_turn_id == guard.turn_id else u.Refused("head_moved"),
    u.NoOpenTurn: lambda _, state: None if state.open_turn_id is None else u.Refused("turn_open"),
    u.OpenTurnIs: lambda guard, state: None if state.open_turn_id == guard.turn_id else u.Refused("turn_not_open"),
}
"""Guards that depend on the session's state alone, as most do. Lookup by type is faster than pattern matching."""


def holds_epoch(unit: u.Unit, state: SessionState | None) -> bool:
    """Return whether an epoch guard is the unit's only guard and holds, so the unit is not refused. Units of streams
    are all like this; checking it first saves preparing the arguments of :func:`refusal`."""
    if len(unit.guards) != 1 or state is None or not unit.writes or unit.session_id == u.STORE_WIDE:
        return False
    (only,) = unit.guards
    return type(only) is u.EpochIs and state.epoch == only.epoch and type(unit.writes[0]) is not u.InsertSession


def refusal(
    unit: u.Unit,
    state: SessionState | None,
    find_queued: Callable[[str], Waiting | None],
    has_event: Callable[[u.EventIsNew], bool],
    has_digest: Callable[[u.DigestIsNew], bool],
    is_alive: Callable[[str], bool],
    find_schedule: Callable[[str], Schedule | None],
    count_sent: Callable[[str], int],
    find_routed: Callable[[u.RouteIsFree], Sequence[Session]],
    load_rules: Callable[[str | None], Sequence[Mapping[str, Any]]],
    find_named: Callable[[str, str | None], str | None],
) -> u.Refused | None:
    """Return why this unit must not be written, or None. ``state`` is None when the session does not exist."""
    creates = bool(unit.writes) and type(unit.writes[0]) is u.InsertSession
    for guard in () if _STATE_GUARDS.keys() >= set(map(type, unit.guards)) else unit.guards:
        match guard:
            case u.EventIsNew() if has_event(guard):
                return u.Refused("event_exists")
            case u.DigestIsNew() if has_digest(guard):
                return u.Refused("event_exists")
            case u.RouteIsFree(_, _, deleting) if any(one.id != deleting for one in find_routed(guard)):
                return u.Refused("route_taken")
            case u.AliasIsFree(alias, owner) if find_named(alias, owner) is not None:
                return u.Refused("alias_taken")
            case u.LeaseHolds(replica_id) if not is_alive(replica_id):
                return u.Refused("lease_lapsed")
            case u.ScheduleIs(schedule) if find_schedule(schedule.id) != schedule:
                return u.Refused("schedule_changed")
            case u.RulesAre(project, rules) if tuple(load_rules(project)) != rules:
                return u.Refused("rules_changed")
    if unit.session_id == u.STORE_WIDE:
        return None
    if state is None:
        deletes = bool(unit.writes) and type(unit.writes[0]) is u.DeletePortion
        return None if creates or deletes else u.Refused("session_not_found")
    if creates:
        return u.Refused("session_exists")
    for guard in unit.guards:
        of_state = _STATE_GUARDS.get(type(guard))
        if of_state is not None:
            refused = of_state(guard, state)
            if refused is not None:
                return refused
            continue
        match guard:
            case u.NotRunElsewhere(replica_id) if state.runner not in (None, replica_id) and is_alive(state.runner):
                return u.Refused("runs_elsewhere")
            case u.SentCountIs(client_message_id, count) if count_sent(client_message_id) != count:
                return u.Refused("sent_meanwhile")
            case u.StillQueued(message_id, entry, seal):
                waiting = find_queued(message_id)
                if waiting is None:
                    return u.Refused("not_queued")
                # A message queued by another program has no seal, and other programs do not change it.
                if entry not in (None, waiting[:2]) or (seal is not None and waiting[2] not in (None, seal)):
                    return u.Refused("queue_changed")
    return None
