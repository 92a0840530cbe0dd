"""Replicas that do the same thing at the same moment: what one decides, the other finds out before it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import clew
from clew.errors import AlreadyAnswered, SessionBusy, SessionNotFound
from clew.session.api import Engine
from clew.store.unit import PatchSession, PutProjectRules, SetTurn, Unit
from clew.testing.scripted import Gate, call, say, wait
from tests.acceptance.replicas import Cluster, open_cluster
from tests.acceptance.test_replicas import over, said, until

pytestmark = pytest.mark.rule("RP-1", "RP-3")


@pytest.fixture(params=["memory", "sqlite"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(request.param, tmp_path) as opened:
        yield opened


def once(engine: Engine, name: str, meanwhile: Callable[[], Awaitable[Any]], *, before: bool, when: Any = None) -> None:
    """Do something else right before, or after, this engine's next call of a method of its store."""
    store: Any = engine.host.store
    real = getattr(store, name)
    done: list[bool] = []

    async def called(*args: Any, **options: Any) -> Any:
        is_meant = not done and (when is None or when(*args))
        if is_meant:
            done.append(True)
        if is_meant and before:
            await meanwhile()
        answer = await real(*args, **options)
        if is_meant and not before:
            await meanwhile()
        return answer

    setattr(store, name, called)


@clew.tool
async def fetch(name: str) -> str:
    """Fetch something."""
    return f"here is {name}"


async def test_who_comes_too_late_to_a_queue_cancels_nothing_in_it(cluster: Cluster) -> None:
    """Two replicas find the same queue idle. The one that loses the session leaves alone what waits in it."""
    gate, late = Gate(), Gate()
    one = await cluster.join([[say("a "), wait(gate)]])
    two, three = await cluster.join(), await cluster.join([[say("b "), wait(late)], say("c")])
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    await two.submit(session.id, "second")
    await two.submit(session.id, "third")
    one.host.lease.draining = True
    gate.set()
    await until(lambda: one.is_idle(session.id))
    await cluster.beat(two, three)
    once(two, "load_queue", lambda: cluster.beat(three), before=False)
    await cluster.beat(two)
    await late.reached.wait()
    assert [" ".join(queued.message.texts) for queued in await cluster.store.load_queue(session.id)] == ["third"]
    late.set()
    await over(cluster, session)
    assert await said(cluster, session) == [
        "user: go",
        "assistant: a ",
        "user: second",
        "assistant: b ",
        "user: third",
        "assistant: c",
    ]


async def test_two_answers_that_two_replicas_take_at_one_moment_both_count(cluster: Cluster) -> None:
    """Each has read that the other one is missing. Whoever writes last finds the other's word and goes on."""
    both = [call("fetch", {"name": "a"}), call("fetch", {"name": "b"})]
    one = await cluster.join([both], tools=[fetch])
    two, three = [await cluster.join([say("got both")], tools=[fetch]) for _ in range(2)]
    session = await one.create_session(title="t")
    async for _ in one.run(session.id, "go"):
        pass
    first, second = [waiting.approval_id or "" for waiting in (await two.get_status(session.id)).waiting]

    def answers(unit: Unit) -> bool:
        return any(isinstance(write, SetTurn) for write in unit.writes)

    once(two, "commit", lambda: three.answer(session.id, second, "once"), before=True, when=answers)
    assert await two.answer(session.id, first, "once") == 0
    await over(cluster, session)
    [turn] = (await cluster.store.load_line(session.id)).turns
    assert turn.turn.status == "completed"
    assert [part.data.get("output") for part in turn.messages[-1].parts if part.tool_call_id] == [
        "here is a",
        "here is b",
    ]


async def test_one_answer_that_two_replicas_take_at_one_moment_counts_once(cluster: Cluster) -> None:
    """Allowed here and denied there: the first word stands, and the second is told so."""
    one = await cluster.join([call("fetch", {"name": "a"})], tools=[fetch])
    two, three = [await cluster.join([say("got it")], tools=[fetch]) for _ in range(2)]
    session = await one.create_session(title="t")
    async for _ in one.run(session.id, "go"):
        pass
    [waiting] = (await two.get_status(session.id)).waiting
    asked = waiting.approval_id or ""
    once(two, "commit", lambda: three.answer(session.id, asked, "once"), before=True)
    with pytest.raises(AlreadyAnswered):
        await two.answer(session.id, asked, "deny")
    await over(cluster, session)
    assert (await said(cluster, session))[-1] == "assistant: got it"


def keeps_rules(unit: Unit) -> bool:
    return any(isinstance(write, PatchSession | PutProjectRules) for write in unit.writes)


@pytest.mark.parametrize("scope", ["session", "project"])
async def test_rules_that_two_replicas_keep_at_one_moment_are_all_kept(
    cluster: Cluster, tmp_path: Path, scope: Literal["session", "project"]
) -> None:
    """Added and revoked: whoever writes last finds what the other has written, and changes that."""
    one, two = await cluster.join(), await cluster.join()
    session = await one.create_session(workspace_root=tmp_path, title="t")
    old = await one.add_rule(scope, "bash", "old", "allow", session_id=session.id)
    once(one, "commit", lambda: two.add_rule(scope, "bash", "b", "deny", session_id=session.id), before=True)
    await one.add_rule(scope, "bash", "a", "allow", session_id=session.id)
    once(two, "commit", lambda: one.add_rule(scope, "bash", "c", "allow", session_id=session.id), before=True)
    await two.revoke_rule(old.id, session_id=session.id)
    kept = await one.rules(scope=scope, session_id=session.id)
    assert [(rule.pattern, rule.action) for rule in kept] == [("b", "deny"), ("a", "allow"), ("c", "allow")]


@pytest.mark.parametrize("scope", ["session", "project"])
async def test_a_rule_of_an_answer_and_one_that_another_replica_keeps_meanwhile_both_count(
    cluster: Cluster, tmp_path: Path, scope: Literal["session", "project"]
) -> None:
    """ "Always" is written with its answer; a rule that came in between stays."""
    one = await cluster.join([call("fetch", {"name": "a"})], tools=[fetch])
    two, three = await cluster.join([say("got it")], tools=[fetch]), await cluster.join()
    session = await one.create_session(workspace_root=tmp_path, title="t")
    async for _ in one.run(session.id, "go"):
        pass
    [waiting] = (await two.get_status(session.id)).waiting
    add = three.add_rule
    once(two, "commit", lambda: add(scope, "bash", "b", "deny", session_id=session.id), before=True, when=keeps_rules)
    assert await two.answer(session.id, waiting.approval_id or "", scope) == 0
    await over(cluster, session)
    kept = await one.rules(scope=scope, session_id=session.id)
    assert [(rule.permission, rule.action) for rule in kept] == [("bash", "deny"), ("fetch", "allow")]
    assert (await said(cluster, session))[-1] == "assistant: got it"


async def test_a_session_that_runs_elsewhere_is_deleted_only_by_force(cluster: Cluster) -> None:
    """Its run is stopped there, whatever it was at, and tells nobody of an end."""
    gate = Gate()
    one, two = await cluster.join([[say("half "), wait(gate)]]), await cluster.join()
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await two.delete_session(session.id)
    await two.delete_session(session.id, force=True)
    await until(lambda: one.is_idle(session.id))
    with pytest.raises(SessionNotFound):
        await one.get_session(session.id)


async def test_a_turn_that_has_ended_is_forked_while_the_next_one_runs_elsewhere(cluster: Cluster) -> None:
    """As in the process that runs it."""
    gate = Gate()
    one, two = await cluster.join([say("first"), [say("half "), wait(gate)]]), await cluster.join()
    session = await one.create_session(title="t")
    ended = await (await one.submit(session.id, "go")).wait()
    await one.submit(session.id, "and then")
    await gate.reached.wait()
    assert await said(cluster, await two.fork(ended.turn_id)) == ["user: go", "assistant: first"]


@pytest.mark.rule("RP-4")
async def test_a_replica_that_learns_twice_that_its_lease_is_lost_leaves_nothing_behind(cluster: Cluster) -> None:
    """The store says it at a beat, and then its own clock: the row it had goes as it joins anew."""
    one = await cluster.join()
    await cluster.lapse(str(one.host.lease.replica_id))
    heartbeat = one._runtime.heartbeat
    await heartbeat.beat()
    heartbeat._lapse()
    await heartbeat.beat()
    assert [replica.id for replica in await cluster.store.list_replicas()] == [one.host.lease.replica_id]
