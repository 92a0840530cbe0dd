"""Replicas: leases by the store's clock, one runner for a session, and sessions without a live runner."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from clew.errors import ClewError
from clew.store import unit as u
from clew.store.base import Store
from clew.testing.chunks import text
from clew.testing.scribe import Scribe, user_row
from clew.testing.store_suite.triggers import SCHEDULE
from clew.transcript.session import Model, Session, SessionState
from clew.transcript.turn_state import TurnStatus
from clew.triggers.values.routing import RouteKind

LEASE_MS = 60_000
_RUN: tuple[TurnStatus, ...] = ("retrying", "running", "compacting", "running")


async def shared(store: Store, *writes: u.Write, guards: tuple[u.Guard, ...] = ()) -> u.Outcome:
    return await store.commit(u.Unit(u.STORE_WIDE, writes, guards))


async def join(store: Store, *ids: str) -> None:
    assert await shared(store, *(u.JoinReplica(id_, f"http://{id_}", "1.0", LEASE_MS) for id_ in ids)) == u.Committed()


async def lapse(store: Store, replica_id: str) -> None:
    """Join with a lease of no length, as if it had expired."""
    await shared(store, u.BeatReplica(replica_id, 0))


def take(session_id: str, epoch: int, replica_id: str) -> u.Unit:
    guards = (u.EpochIs(epoch), u.NotRunElsewhere(replica_id))
    return u.Unit(session_id, (u.SetEpoch(epoch + 1), u.SetRunner(replica_id)), guards)


@pytest.mark.rule("RP-1")
async def test_a_replica_joins_beats_drains_and_leaves(store: Store) -> None:
    """Its times are those of the store's clock, and it is listed until it leaves."""
    await join(store, "a", "b")
    joined = await store.find_replica("a")
    assert joined is not None
    assert (joined.url, joined.version, joined.draining, joined.alive) == ("http://a", "1.0", False, True)
    assert joined.lease_until == joined.beat_at + LEASE_MS == joined.started_at + LEASE_MS
    beat = u.BeatReplica("a", 2 * LEASE_MS, draining=True)
    assert await shared(store, beat, guards=(u.LeaseHolds("a"),)) == u.Committed()
    beaten = await store.find_replica("a")
    assert beaten is not None
    assert beaten == msgspec.structs.replace(
        joined, beat_at=beaten.beat_at, lease_until=beaten.beat_at + 2 * LEASE_MS, draining=True
    )
    assert sorted(one.id for one in await store.list_replicas()) == ["a", "b"]
    await shared(store, u.LeaveReplica("a"), u.LeaveReplica("never"))
    assert [one.id for one in await store.list_replicas()] == ["b"]
    assert await store.find_replica("a") is None


@pytest.mark.rule("RP-4")
async def test_a_lease_that_has_lapsed_is_never_prolonged(store: Store) -> None:
    """A replica that was away joins again: others may run its sessions."""
    await join(store, "a")
    await lapse(store, "a")
    for replica_id in ("a", "never"):
        beat = u.BeatReplica(replica_id, LEASE_MS)
        assert await shared(store, beat, guards=(u.LeaseHolds(replica_id),)) == u.Refused("lease_lapsed")
    found = await store.find_replica("a")
    assert found is not None
    assert not found.alive


@pytest.mark.rule("RP-1")
async def test_of_many_who_take_a_session_one_has_it(store: Store, scribe: Scribe) -> None:
    """The epoch decides; while the lease of the runner is valid, no other replica acquires the session."""
    names = [f"r{n}" for n in range(8)]
    await join(store, *names)
    outcomes = await asyncio.gather(*(store.commit(take(scribe.session_id, 0, name)) for name in names))
    assert sorted(map(str, outcomes)) == sorted([str(u.Committed())] + [str(u.Refused("stale_epoch"))] * 7)
    winner = names[outcomes.index(u.Committed())]
    assert await store.load_state(scribe.session_id) == SessionState(None, None, 1, winner)
    other = next(name for name in names if name != winner)
    assert await store.commit(take(scribe.session_id, 1, other)) == u.Refused("runs_elsewhere")
    assert await store.commit(take(scribe.session_id, 1, winner)) == u.Committed()
    await lapse(store, winner)
    assert await store.commit(take(scribe.session_id, 2, other)) == u.Committed()
    assert await store.run_by(other) == (scribe.session_id,)


@pytest.mark.rule("RP-1")
async def test_who_runs_a_session_is_known_after_a_unit_that_failed(store: Store, scribe: Scribe) -> None:
    """The cached state of a session is dropped then, and read again."""
    await join(store, "a", "b")
    assert await store.commit(take(scribe.session_id, 0, "a")) == u.Committed()
    with pytest.raises(ClewError):
        await scribe.commit(u.LinkMessage("trn_never", "msg_never"))
    assert await store.commit(take(scribe.session_id, 1, "b")) == u.Refused("runs_elsewhere")
    assert await store.commit(u.Unit(scribe.session_id, (u.SetEpoch(2),))) == u.Committed()
    assert await store.load_state(scribe.session_id) == SessionState(None, None, 2, "a")


@pytest.mark.rule("RP-1")
async def test_a_session_is_nobodys_once_its_turn_waits_or_has_settled(store: Store, scribe: Scribe) -> None:
    """The unit that ends the run releases it. During retries and compactions the session is still run."""
    await join(store, "a")
    opened = await scribe.prompt("hello")
    await scribe.commit(u.SetRunner("a"))
    for status in _RUN:
        await scribe.commit(u.SetTurn(opened.id, status))
        assert (await store.load_state(scribe.session_id)).runner == "a"
    await scribe.commit(u.SetTurn(opened.id, None, data={"stopped": "by a user"}))
    assert (await store.load_state(scribe.session_id)).runner == "a"
    await scribe.commit(u.SetTurn(opened.id, "waiting"))
    assert (await store.load_state(scribe.session_id)).runner is None
    await scribe.commit(u.SetTurn(opened.id, "running"), u.SetRunner("a"))
    await scribe.commit(u.SetTurn(opened.id, "completed", settled_at=1), u.MoveHead(opened.id, 1, "turn"))
    assert (await store.load_state(scribe.session_id)).runner is None


@pytest.mark.rule("RP-4")
async def test_what_nobody_alive_sees_to_is_adrift(store: Store, scribe: Scribe, other: Scribe) -> None:
    """Sessions of expired runners, the replica's own, and those with a queue and no open turn; none of live runners."""
    await join(store, "a", "b")
    await scribe.prompt("hello")
    await scribe.commit(u.SetRunner("a"))
    assert await store.orphaned_sessions("b") == ()
    assert await store.orphaned_sessions("a") == (scribe.session_id,)
    row = user_row(scribe.mint, other.session_id, "later", 1)
    await other.commit(u.InsertMessage(row), u.SealMessage(row.id, row.seal), u.Enqueue(row.id, 1))
    assert await store.orphaned_sessions("b") == (other.session_id,)
    await lapse(store, "a")
    assert await store.orphaned_sessions("b") == tuple(sorted((scribe.session_id, other.session_id)))
    await shared(store, u.LeaveReplica("a"))
    assert await store.orphaned_sessions("b") == tuple(sorted((scribe.session_id, other.session_id)))


@pytest.mark.rule("RP-4")
async def test_a_schedule_that_is_not_as_it_was_read_is_not_written(store: Store, scribe: Scribe) -> None:
    """Thus one of several replicas fires it, and none reverts another's change."""
    await scribe.turn("hello", text("hi"))
    await shared(store, u.PutSchedule(SCHEDULE))
    [read] = await store.list_schedules()
    fired = [msgspec.structs.replace(read, last_id=str(n), next_fire_at=9_000_000_000_000) for n in range(8)]
    outcomes = await asyncio.gather(*(shared(store, u.PutSchedule(one), guards=(u.ScheduleIs(read),)) for one in fired))
    assert sorted(map(str, outcomes)) == sorted([str(u.Committed())] + [str(u.Refused("schedule_changed"))] * 7)
    assert await store.list_schedules() == (fired[outcomes.index(u.Committed())],)
    await shared(store, u.DropSchedule(read.id))
    assert await shared(store, u.PutSchedule(read), guards=(u.ScheduleIs(read),)) == u.Refused("schedule_changed")


@pytest.mark.rule("RP-1")
async def test_rules_that_are_not_as_they_were_read_are_not_written(store: Store, scribe: Scribe) -> None:
    """Rules of a project, even without any yet, and of a session: of concurrent additions one succeeds."""

    def rule(pattern: object) -> dict[str, object]:
        return {"permission": "bash", "pattern": str(pattern), "action": "allow"}

    async def put(project: str | None, rules: tuple[dict[str, object], ...], n: int, *guards: u.Guard) -> u.Outcome:
        if project is None:
            return await scribe.try_commit(u.PatchSession(permissions=rules), guards=guards)
        # Rules of a project are written with a session's answer, or by themselves.
        of = scribe.session_id if n % 2 else u.STORE_WIDE
        return await store.commit(u.Unit(of, (u.PutProjectRules(project, rules, 1),), guards))

    async def load(project: str | None) -> tuple[dict[str, object], ...]:
        if project is not None:
            return await store.load_project_rules(project)
        found = await store.find_session(scribe.session_id)
        return tuple(found.permissions) if found is not None else ()

    assert await put("/other", (rule("other"),), 0) == await put("/other", (rule("other"),), 1) == u.Committed()
    for project in (None, "/a", "/b", "/c"):
        for known in ((), (rule("known"),)):
            await put(project, known, 0) if known else None
            assert await load(project) == known
            rule_sets = [(*known, rule(n)) for n in range(6)]
            guard = u.RulesAre(project, known)
            outcomes = await asyncio.gather(*(put(project, one, n, guard) for n, one in enumerate(rule_sets)))
            assert sorted(map(str, outcomes)) == sorted([str(u.Committed())] + [str(u.Refused("rules_changed"))] * 5)
            assert await load(project) == rule_sets[outcomes.index(u.Committed())]
            assert await put(project, (), 0, guard) == u.Refused("rules_changed")


@pytest.mark.rule("RP-1", "EV-1")
async def test_of_those_who_make_a_session_of_one_name_at_once_one_does(store: Store) -> None:
    """Sessions are matched by label or routing key, unless they are archived or deleted."""
    scribe = await Scribe.create(store, metadata={"label": "known", "routing_key": "k"})

    async def make(kind: RouteKind, name: str, deleting: str | None = None) -> u.Outcome:
        model = Model("test", "scripted")
        session = Session(
            id=scribe.mint.session(store.capabilities.session_ids),
            agent="main",
            model=model,
            created_at=1,
            updated_at=1,
            metadata={kind: name},
        )
        guard = u.RouteIsFree(kind, name, deleting)
        return await store.commit(u.Unit(session.id, (u.InsertSession(session),), (guard,)))

    names: tuple[tuple[RouteKind, str], ...] = (("label", "new"), ("routing_key", "new"), ("label", "k"))
    for kind, name in names:
        outcomes = await asyncio.gather(*(make(kind, name) for _ in range(6)))
        assert sorted(map(str, outcomes)) == sorted([str(u.Committed())] + [str(u.Refused("route_taken"))] * 5)
        assert len(await store.load_routed(kind, name)) == 1
    assert await make("label", "known") == u.Refused("route_taken")
    assert await make("label", "known", scribe.session_id) == u.Committed()
    await scribe.commit(u.PatchSession(archived_at=9))
    assert await make("routing_key", "k") == u.Committed()


@pytest.mark.rule("RP-1")
async def test_a_session_that_something_has_which_is_no_run_is_taken_until_it_is_given_back(
    store: Store, scribe: Scribe
) -> None:
    """Without an open turn, no other replica may acquire it while that lease is valid, and it is listed as
    unsettled."""
    await join(store, "a", "b")
    await scribe.turn("hello", text("hi"))
    state = await store.load_state(scribe.session_id)
    assert await store.commit(take(scribe.session_id, state.epoch, "a")) == u.Committed()
    assert await store.commit(take(scribe.session_id, state.epoch + 1, "b")) == u.Refused("runs_elsewhere")
    assert await store.unsettled_sessions([scribe.session_id]) == (scribe.session_id,)
    assert await store.unsettled_sessions() == (scribe.session_id,)
    await scribe.commit(u.SetRunner(None))
    assert (await store.load_state(scribe.session_id)).runner is None
    assert await store.unsettled_sessions([scribe.session_id]) == await store.unsettled_sessions() == ()
    assert await store.run_by("a") == ()
