"""The queue in the hands of two replicas: neither undoes what the other has just done; who is too late is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from clew.errors import Conflict
from clew.session.history.check import check
from clew.store.unit import Dequeue, Enqueue, OpenTurn, PutParts, Unit, Write
from clew.testing.scripted import Gate, call, hang, say, wait
from clew.transcript.message import MessageRow
from clew.transcript.part import text_part
from tests.acceptance.replicas import Cluster, open_cluster
from tests.acceptance.test_replicas import over, said, until
from tests.acceptance.test_replicas_at_once import fetch, once

pytestmark = pytest.mark.rule("SR-7", "RP-1")


@pytest.fixture(params=["memory", "sqlite"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(request.param, tmp_path) as opened:
        yield opened


def writes(kind: type[Write]) -> Callable[[Unit], bool]:
    return lambda unit: any(isinstance(write, kind) for write in unit.writes)


def noted(seen: list[bool]) -> Callable[[], Awaitable[None]]:
    async def note() -> None:
        seen[0] = True

    return note


async def order(cluster: Cluster, session_id: str) -> list[tuple[str, bool]]:
    return [(" ".join(one.message.texts), one.interrupt) for one in await cluster.store.load_queue(session_id)]


async def test_words_changed_while_a_hook_reads_the_old_ones_are_what_is_fired(cluster: Cluster) -> None:
    """The hook is asked again, about those; what was answered as changed is not lost."""
    gate, read = Gate(), []

    async def shout(row: MessageRow) -> MessageRow:
        read.append(" ".join(row.texts))
        if read == ["go", "second"]:
            await two.edit_queued(session.id, waiting.message_id, "other words")
        parts = tuple(replace(part, data=text_part(part.data["text"].upper())) for part in row.parts)
        return replace(row, parts=parts)

    one, two = await cluster.join([[say("a"), wait(gate)], say("b")]), await cluster.join()
    one.hook("message.user", shout)
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    waiting = await two.submit(session.id, "second")
    gate.set()
    await over(cluster, session)
    assert read == ["go", "second", "other words"]
    assert await said(cluster, session) == ["user: GO", "assistant: a", "user: OTHER WORDS", "assistant: b"]
    assert await check(cluster.store) == []


async def test_a_move_from_an_old_look_takes_nothing_back_that_was_sent_now_meanwhile(cluster: Cluster) -> None:
    """It is told to look again; the message that was sent now is the next one, before all others."""
    gate = Gate()
    one, two = await cluster.join([[say("a"), wait(gate)], hang()]), await cluster.join()
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    ids = [(await two.submit(session.id, text)).message_id for text in ("second", "third", "fourth")]

    async def ahead() -> None:
        # As send_queued begins: put ahead, before what runs is stopped.
        await one._runtime.queue.put_ahead(await one.get_session(session.id), ids[2])

    once(two, "commit", ahead, before=True, when=writes(Enqueue))
    with pytest.raises(Conflict, match="reload it"):
        await two.move_queued(session.id, ids[1], before=ids[0])
    assert await order(cluster, session.id) == [("fourth", True), ("second", False), ("third", False)]

    # The other way round nobody has to look again: in whatever order the others are, it goes before them, and both
    # that were sent now before the rest.
    async def moved() -> None:
        await one.move_queued(session.id, ids[1], before=ids[0])

    once(two, "commit", moved, before=True, when=writes(Dequeue))
    await two._runtime.queue.put_ahead(await two.get_session(session.id), ids[0])
    assert await order(cluster, session.id) == [("second", True), ("fourth", True), ("third", False)]


async def test_of_two_who_change_the_same_words_one_is_told(cluster: Cluster) -> None:
    """The words that were there when the second one looked are not there any more."""
    one, two = await cluster.join([hang()]), await cluster.join()
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    waiting = (await one.submit(session.id, "second")).message_id

    async def edited() -> None:
        await one.edit_queued(session.id, waiting, "mine")

    once(two, "commit", edited, before=True, when=writes(PutParts))
    with pytest.raises(Conflict, match="reload it"):
        await two.edit_queued(session.id, waiting, "yours")
    assert await order(cluster, session.id) == [("mine", False)]


@pytest.mark.rule("SR-6")
@pytest.mark.parametrize("asks", [False, True], ids=["runs", "asks"])
async def test_a_prompt_that_begins_elsewhere_as_it_interrupts_is_not_stopped_by_itself(
    cluster: Cluster, asks: bool
) -> None:
    """What it is to interrupt ends at that moment, on the replica that runs it, which goes on with the queue."""
    gate, begun = Gate(), Gate()
    own = [call("fetch", {"name": "a"})] if asks else [say("b"), wait(begun)]
    one = await cluster.join([[say("a"), wait(gate)], own], tools=[fetch])
    two = await cluster.join(tools=[fetch])
    session = await one.create_session(title="t")
    await one.submit(session.id, "go")
    await gate.reached.wait()
    opened, stored = [False], [False]

    async def end() -> None:
        gate.set()
        if asks:
            await until(lambda: opened[0] and one.is_idle(session.id))
        else:
            await begun.reached.wait()

    # It is stored, and who is to stop is looked for.
    once(two, "load_state", end, before=True, when=lambda *_: stored[0])
    for engine, kind, seen in ((one, OpenTurn, opened), (two, Enqueue, stored)):
        once(engine, "commit", noted(seen), before=False, when=writes(kind))
    await two.submit(session.id, "second", on_busy="interrupt")
    begun.set()
    if not asks:
        await over(cluster, session)
    [first, turn] = (await cluster.store.load_line(session.id)).turns
    assert (first.turn.status, turn.turn.status) == ("completed", "waiting" if asks else "completed")
    assert turn.turn.stopped is None
