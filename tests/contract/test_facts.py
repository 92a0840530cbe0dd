"""The event log: one fact for each thing that settled, none for a chunk, the same on every store."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clew.errors import InternalError
from clew.ids import Mint
from clew.store.base import Store
from clew.store.facts import Fact
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.unit import (
    STORE_WIDE,
    DeleteSession,
    Dequeue,
    Enqueue,
    InsertMessage,
    LinkBlob,
    LinkMessage,
    MoveHead,
    MoveTurn,
    OpenTurn,
    PatchMessage,
    PatchSession,
    PutBlob,
    PutCall,
    PutParts,
    PutProjectRules,
    PutPrompt,
    SealMessage,
    SetTurn,
    Unit,
)
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL, Scribe, user_row
from clew.transcript import chunk as c
from clew.transcript.message import PartRow
from clew.transcript.model_call import ModelCall, without_session
from clew.transcript.part import is_growing
from clew.transcript.turn import Turn
from clew.transcript.usage import Usage
from tests.rounds import rounds

from .test_random_histories import ACTIONS, History


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, mint: Mint) -> AsyncIterator[Store]:
    """With a log, where those of the other suites have none."""
    store: Store
    if request.param == "memory":
        store = MemoryStore(event_log=True, clock=clock)
    else:
        store = await open_sqlite(tmp_path / "store.db", SqliteOptions(event_log=True), clock=clock, mint=mint)
    yield store
    await store.close()


async def told(store: Store, stream_id: str, after: int = 0) -> list[str]:
    """The facts of a stream by their types, each with what it is about."""
    return [_short(fact) for fact in await store.load_facts(stream_id) if fact.seq > after]


def _short(fact: Fact) -> str:
    data = fact.data
    match fact.type:
        case "part.settled":
            return f"part.settled {data['index']} {data['data'].get('text') or data['data']['type']}"
        case "turn.opened" | "turn.changed":
            return f"{fact.type} {data['status']} of {len(data['messages'])}"
        case "message.added" | "message.changed":
            return f"{fact.type} {data['role']}{' sealed' if data['seal'] else ''}"
        case _:
            return fact.type


@pytest.mark.rule("ST-10")
async def test_a_turn_is_told_by_what_settled_in_it(store: Store, scribe: Scribe) -> None:
    """However many chunks a text came in, it is one fact, and it is told with the unit that completed it."""
    words = " ".join(str(number) for number in range(500))
    await scribe.turn("hello", [*text(words), *tool_call("look", {"at": 1}), *tool_output("seen")], usage=Usage(7, 3))
    said = [line for line in await told(store, scribe.session_id) if not line.startswith("message.changed")]
    assert [line for line in said if line.startswith("part")] == [
        "part.settled 0 hello",
        "part.settled 0 step-start",
        f"part.settled 1 {words}",
        "part.settled 2 tool-look",
    ]
    assert [line for line in said if not line.startswith("part")] == [
        "session.created",
        "session.changed",
        "message.added user sealed",
        "turn.opened running of 1",
        "session.changed",
        "message.added assistant",
        "turn.changed running of 2",
        "step.ended",
        "turn.changed completed of 2",
        "head.moved",
    ]
    facts = await store.load_facts(scribe.session_id)
    assert [fact.seq for fact in facts] == list(range(1, len(facts) + 1))
    [step] = [fact.data for fact in facts if fact.type == "step.ended"]
    assert step["usage"] == {"input": 7, "output": 3, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    newest = [fact.data for fact in facts if fact.type == "session.changed"][-1]
    assert (newest["prompt_tokens"], newest["completion_tokens"]) == (7, 3)


@pytest.mark.rule("ST-10")
async def test_what_grows_is_told_when_it_ends_however_it_ends(store: Store, scribe: Scribe) -> None:
    """A text cut off, a call without a result: nothing while they flow, all of it with the turn that settles."""
    opened = await scribe.prompt("go")
    recorder = opened.recorder()
    for chunk in (c.Start(message_id=recorder.message.id), c.StartStep(), *text("one two three")[:-1]):
        await recorder.send(chunk)
    for chunk in tool_call("look", {"at": 1}):
        await recorder.send(chunk)
    await recorder.flush()
    seq = (await store.load_facts(scribe.session_id))[-1].seq
    assert await told(store, scribe.session_id, seq) == []
    recorder.abandon()
    await scribe.commit(*opened.settling("failed"))
    assert await told(store, scribe.session_id, seq) == [
        "part.settled 1 one two three",
        "part.settled 2 tool-look",
        "turn.changed failed of 2",
        "head.moved",
    ]


@pytest.mark.rule("ST-10")
async def test_a_request_that_waits_for_a_human_is_told_and_so_is_its_answer(store: Store, scribe: Scribe) -> None:
    """The session may rest like this for days, so the log must have it."""
    opened = await scribe.prompt("go")
    row = msgspec.structs.replace(
        user_row(scribe.mint, scribe.session_id, "", 1),
        role="assistant",
        parts=(PartRow("prt_1", 0, {"type": "tool-x", "toolCallId": "c", "state": "approval-requested"}, 1, 1),),
    )
    seq = (await store.load_facts(scribe.session_id))[-1].seq
    await scribe.commit(InsertMessage(row), LinkMessage(opened.id, row.id))
    assert await told(store, scribe.session_id, seq) == ["message.added assistant", "turn.changed running of 2"]
    await scribe.commit(SetTurn(opened.id, "waiting"))
    assert await told(store, scribe.session_id, seq + 2) == [
        "part.settled 0 tool-x",
        "turn.changed waiting of 2",
    ]
    answered = PartRow("", 0, {"type": "tool-x", "toolCallId": "c", "state": "approval-responded"}, 2, 2)
    await scribe.commit(PutParts(row.id, (answered,)))
    newest = (await store.load_facts(scribe.session_id))[-1]
    assert newest.type == "part.settled"
    assert newest.data == {
        "message_id": row.id,
        "id": "prt_1",
        "index": 0,
        "data": answered.data,
        "created_at": 1,
        "updated_at": 2,
    }


@pytest.mark.rule("ST-10", "ST-11")
async def test_of_a_deleted_session_one_fact_is_left(store: Store, scribe: Scribe) -> None:
    """That it was deleted; its number goes on, other streams stay, and rules have streams of their own. A prompt that
    nobody names any more went with it."""
    await scribe.turn("secret", text("very"))
    other = await Scribe.create(store, clock=scribe.clock, mint=scribe.mint)
    await scribe.commit(PutPrompt("d1", "Be kind.", 5), PutProjectRules("/p", ({"permission": "bash"},), 6))
    await scribe.commit(PutPrompt("d1", "Be kind.", 9))
    now = scribe.clock.now_ms()
    assert await store.load_facts("prompt d1") == (
        Fact("prompt d1", 1, now, "prompt.kept", {"digest": "d1", "body": "Be kind.", "created_at": 5}),
    )
    before = await store.load_facts(scribe.session_id)
    await scribe.commit(DeleteSession())
    [fact] = await store.load_facts(scribe.session_id)
    assert (fact.seq, fact.type, fact.data) == (before[-1].seq + 1, "session.deleted", {})
    assert await told(store, other.session_id) == ["session.created"]
    assert await store.load_facts("prompt d1") == ()
    rules = {"project": "/p", "rules": [{"permission": "bash"}], "updated_at": 6}
    assert await store.load_facts("project /p") == (Fact("project /p", 1, now, "rules.replaced", rules),)


@pytest.mark.rule("US-5", "ST-10")
async def test_a_model_call_is_told_as_it_stands_and_outlives_its_session_in_the_log(
    store: Store, scribe: Scribe
) -> None:
    """The stream of the calls whose session is gone names none, and says what became of each."""
    about: dict[str, Any] = {"session_id": scribe.session_id, "turn_id": "trn_1", "message_id": "msg_1"}
    call = ModelCall(id="cal_1", purpose="answer", model=MODEL, asked_at=5, **about)
    ended = replace(call, usage=Usage(7), ended="completed", ended_at=9)
    title = ModelCall(id="cal_2", purpose="title", model=MODEL, asked_at=6, session_id=scribe.session_id)
    for one in (call, title, ended):
        await scribe.commit(PutCall(one))
    facts = await store.load_facts(scribe.session_id)
    assert [(fact.type, fact.data) for fact in facts[1:]] == [
        ("call.noted", msgspec.to_builtins(one)) for one in (call, title, ended)
    ]
    await scribe.commit(DeleteSession())
    closed = without_session(replace(title, ended="interrupted"))
    await store.commit(Unit(STORE_WIDE, (PutCall(closed),)))
    left = [without_session(ended), without_session(title), closed]
    told = await store.load_facts("calls")
    assert [(fact.seq, fact.type, fact.data) for fact in told] == [
        (seq, "call.noted", msgspec.to_builtins(one)) for seq, one in enumerate(left, 1)
    ]
    assert [fact.type for fact in await store.load_facts(scribe.session_id)] == ["session.deleted"]


@pytest.mark.rule("ST-10")
async def test_changes_of_a_session_its_queue_and_its_blobs_are_told(store: Store, scribe: Scribe) -> None:
    """Each with what it has come to, a blob without its bytes."""
    row = user_row(scribe.mint, scribe.session_id, "later", 3)
    await scribe.commit(PatchSession(metadata={"title": "a"}))
    await scribe.commit(InsertMessage(row), SealMessage(row.id, "x"), Enqueue(row.id, 4, interrupt=True))
    await scribe.commit(Dequeue(row.id), PatchMessage(row.id, 5, {"cancelled_at": 5}))
    await scribe.commit(PutBlob("sha", "image/png", b"12345", 6), LinkBlob("sha"))
    facts = await store.load_facts(scribe.session_id)
    assert [fact.type for fact in facts] == [
        "session.created",
        "session.changed",
        *("message.added", "part.settled", "message.queued"),
        *("message.changed", "message.dequeued"),
        "blob.linked",
    ]
    assert facts[1].data["metadata"] == {"title": "a"}
    assert facts[2].data["metadata"] == {"queued_at": 4}
    assert facts[4].data == {"message_id": row.id, "queued_at": 4, "interrupt": True}
    assert facts[5].data["metadata"] == {"cancelled_at": 5}
    assert facts[7].data == {"sha256": "sha", "media_type": "image/png", "size": 5}


@pytest.mark.rule("ST-10")
async def test_an_open_turn_that_moves_below_a_summary_is_told(store: Store, scribe: Scribe) -> None:
    """Right then, not only when it settles: a kill may come in between."""
    opened = await scribe.prompt("go")
    above = Turn(id=scribe.mint.turn(), session_id=scribe.session_id, parent_turn_id=None, created_at=1, settled_at=1)
    above = msgspec.structs.replace(above, kind="compaction", status="completed")
    await scribe.commit(OpenTurn(above), MoveHead(above.id, 1, "compaction"))
    await scribe.commit(MoveTurn(opened.id, above.id))
    newest = (await store.load_facts(scribe.session_id))[-1]
    assert newest.type == "turn.changed"
    assert (newest.data["id"], newest.data["parent_turn_id"], newest.data["depth"]) == (opened.id, above.id, 1)
    assert newest.data["compaction_turn_id"] == above.id


@pytest.mark.rule("ST-10")
async def test_a_unit_that_fails_or_is_refused_is_not_told(store: Store, scribe: Scribe) -> None:
    """What was not written did not happen, whatever of it was looked at before."""
    before = await store.load_facts(scribe.session_id)
    with pytest.raises(InternalError):
        await scribe.commit(PatchSession(metadata={"title": "b"}), PatchMessage("msg_none", 1))
    assert await store.load_facts(scribe.session_id) == before
    await scribe.commit(PatchSession(metadata={"title": "c"}))
    assert [fact.seq for fact in await store.load_facts(scribe.session_id)] == [1, 2]


@pytest.mark.parametrize(
    ("data", "growing"),
    [
        ({"type": "text", "text": "a"}, False),
        ({"type": "text", "text": "a", "state": "streaming"}, True),
        ({"type": "reasoning", "text": "a", "state": "done"}, False),
        ({"type": "step-start"}, False),
        ({"type": "tool-x", "toolCallId": "c", "state": "input-available"}, True),
        ({"type": "tool-x", "toolCallId": "c", "state": "output-available", "preliminary": True}, True),
        ({"type": "tool-x", "toolCallId": "c", "state": "output-error"}, False),
        ({"type": "data-progress", "data": 1}, False),
        ({"type": "data-progress", "id": "p", "data": 1}, True),
    ],
)
async def test_a_part_that_may_grow_is_told_with_its_turn(
    store: Store, scribe: Scribe, data: dict[str, Any], growing: bool
) -> None:
    """The store finds the same parts as the rule does."""
    assert is_growing(data) is growing
    opened = await scribe.prompt("go")
    row = msgspec.structs.replace(
        user_row(scribe.mint, scribe.session_id, "", 1), role="assistant", parts=(PartRow("prt_1", 0, data, 1, 1),)
    )
    seq = (await store.load_facts(scribe.session_id))[-1].seq
    await scribe.commit(InsertMessage(row), LinkMessage(opened.id, row.id))
    parts = [line for line in await told(store, scribe.session_id, seq) if line.startswith("part")]
    assert len(parts) == (not growing)
    await scribe.commit(*opened.settling())
    parts = [line for line in await told(store, scribe.session_id, seq) if line.startswith("part")]
    assert len(parts) == 1


async def logs(store: Store, seed: int, actions: list[str]) -> dict[str, list[Any]]:
    """A random history's log, copied parts without their ids, which each store makes up for itself."""
    history = History(store, seed)
    await history.start()
    for action in actions:
        await history.run(action)
    found: dict[str, list[Any]] = {}
    for session_id in await store.session_ids():
        copied = session_id in history.branches
        found[session_id] = [
            (fact.seq, fact.type, {**fact.data, "id": ""} if copied and fact.type == "part.settled" else fact.data)
            for fact in await store.load_facts(session_id)
        ]
    return found


@pytest.mark.rule("ST-10")
@settings(max_examples=rounds(8))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=14))
async def test_both_stores_tell_the_same(seed: int, actions: list[str]) -> None:
    """Fact for fact, in the same order: what is told is decided in one place."""
    memory = await logs(MemoryStore(event_log=True), seed, actions)
    with tempfile.TemporaryDirectory() as folder:
        store = await open_sqlite(Path(folder) / "store.db", SqliteOptions(event_log=True))
        try:
            assert await logs(store, seed, actions) == memory
        finally:
            await store.close()
    assert Counter(kind for facts in memory.values() for _, kind, _ in facts)["session.created"] == len(memory)
