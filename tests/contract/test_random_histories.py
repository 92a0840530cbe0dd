"""Two stores, one truth: random histories give the same answers on both, and those of the pure rules."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.ids import Mint
from clew.session.history.check import check
from clew.store.base import SessionQuery, Store
from clew.store.copied_line import CopiedMessage, CopiedTurn
from clew.store.files import folder
from clew.store.files.opening import open_files
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import (
    AddPruned,
    CopyLine,
    Dequeue,
    Enqueue,
    FinishStep,
    InsertSession,
    LinkMessage,
    MoveHead,
    OpenTurn,
    PatchSession,
    PutCall,
    RecordStep,
    RecordUsage,
    SetHidden,
    SetTurn,
    Unit,
    Write,
)
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL, Scribe, settled, user_row
from clew.testing.store_suite.pages import contents_of
from clew.transcript.line import line_messages, line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import Turn
from clew.transcript.usage import Usage
from clew.transcript.view import model_view, visible_view
from tests.contract.looked_at import check_looks
from tests.rig.streams import random_stream
from tests.rounds import ON_POSTGRESQL, rounds

replace = msgspec.structs.replace

ACTIONS = ["turn", "turn", "turn", "rewind", "resend", "goto", "compact", "refuse", "queue", "fire", "cancel", "rename"]
ACTIONS += ["prune", "branch"]


class History:
    """The same random operations, written into any store; seeds make the ids equal too."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.clock = FakeClock()
        numbers = random.Random(seed)
        self.mint = Mint(self.clock, random=numbers.randrange)
        self.rng = random.Random(seed + 1)
        self.scribe: Scribe
        self.branches: list[str] = []

    async def start(self) -> None:
        self.scribe = await Scribe.create(self.store, clock=self.clock, mint=self.mint, metadata={"title": "history"})

    async def run(self, action: str) -> None:
        self.clock.advance(self.rng.randint(1, 50))
        await getattr(self, f"do_{action}")()

    async def do_turn(self) -> None:
        opened = await self.scribe.prompt(f"prompt {self.rng.random()}")
        used, now = Usage(self.rng.randint(0, 99), 3, 1, 2, 4), self.clock.now_ms()
        about: dict[str, Any] = {"session_id": self.scribe.session_id, "turn_id": opened.id, "step": 0}
        call = ModelCall(id=self.mint.call(), purpose="answer", model=MODEL, asked_at=now, **about)
        await self.scribe.commit(PutCall(call))
        recorder = opened.recorder(message_id=self.mint.message())
        for chunk in random_stream(self.rng.randrange(10**6), message_id=recorder.message.id, size=12):
            await recorder.send(chunk)
        if self.rng.random() < 0.8:
            ended = PutCall(replace(call, usage=used, ended="completed", ended_at=now))
            await recorder.end_step(RecordStep(opened.step(recorder.message.id, used)), ended)
            await self.scribe.commit(FinishStep(opened.id, 0, now + 7), PutCall(replace(call, tools_ms=7)))
        else:
            cut = PutCall(replace(call, usage=used, ended="cut", estimated=True))
            await recorder.flush()
            await self.scribe.commit(RecordUsage(recorder.message.id, used, 0.5, now), cut)
        await recorder.close(*opened.settling(self.rng.choice(["completed", "aborted", "failed"])))

    async def move(self, to: str | None, why: Any, *more: Write) -> None:
        """Move the head and write the projections that follow, as one unit."""
        await self.scribe.commit(*more, MoveHead(to, self.clock.now_ms(), why))
        await self.project()

    async def project(self, session_id: str | None = None) -> None:
        session_id = session_id or self.scribe.session_id
        tree = await self.store.load_tree(session_id)
        rows = {row.id: row for row in await self.store.load_messages(session_id)}
        truth = hidden_messages(tree, compaction_tails(tree, rows))
        changes: dict[str, Hidden | None] = {id_: truth.get(id_) for id_ in sorted(rows)}
        await self.store.commit(Unit(session_id, (SetHidden(changes),)))

    async def do_rewind(self) -> None:
        tree = await self.store.load_tree(self.scribe.session_id)
        turns = line_turns(tree)
        await self.move(self.rng.choice(turns).parent_turn_id if turns else None, "rewind")

    async def do_resend(self) -> None:
        tree = await self.store.load_tree(self.scribe.session_id)
        turns = [turn for turn in line_turns(tree) if turn.kind == "normal"]
        if turns:
            turn = self.rng.choice(turns)
            now = self.clock.now_ms()
            sibling = Turn(
                id=self.mint.turn(),
                session_id=turn.session_id,
                parent_turn_id=turn.parent_turn_id,
                created_at=now,
                status="unanswered",
                settled_at=now,
            )
            link = LinkMessage(sibling.id, tree.links[turn.id][0])
            await self.move(sibling.id, "rewind", OpenTurn(sibling), link)

    async def do_goto(self) -> None:
        tree = await self.store.load_tree(self.scribe.session_id)
        settled = sorted(turn.id for turn in tree.turns.values() if turn.status != "refused")
        if settled:
            await self.move(self.rng.choice(settled), "goto")

    async def do_compact(self) -> None:
        tree = await self.store.load_tree(self.scribe.session_id)
        users = [id_ for turn, id_ in line_messages(tree) if turn.kind == "normal"]
        if users:
            now = self.clock.now_ms()
            turn = Turn(
                id=self.mint.turn(),
                session_id=self.scribe.session_id,
                parent_turn_id=tree.head_turn_id,
                created_at=now,
                kind="compaction",
                status="completed",
                settled_at=now,
            )
            marker = self.mint.message()
            tail = self.rng.choice([*users, *users, marker, "msg_gone"])
            body = {"summary": "so far", "tail_start_id": tail, "auto": True, "summary_tokens": 2}
            part = PartRow(self.mint.part(), 0, {"type": "data-compaction", "data": body}, now, now)
            row = MessageRow(marker, turn.session_id, "assistant", now, now, {"synthetic": True}, (part,))
            link = LinkMessage(turn.id, row.id)
            await self.move(turn.id, "compaction", OpenTurn(turn), *settled(row), link)

    async def do_refuse(self) -> None:
        opened = await self.scribe.prompt("too large")
        await self.scribe.commit(SetTurn(opened.id, "refused", settled_at=self.clock.now_ms()))
        await self.project()

    async def do_queue(self) -> None:
        row = user_row(self.mint, self.scribe.session_id, "later", self.clock.now_ms())
        await self.scribe.commit(*settled(row), Enqueue(row.id, self.clock.now_ms(), self.rng.random() < 0.3))

    async def do_fire(self) -> None:
        queue = await self.store.load_queue(self.scribe.session_id)
        if queue:
            state = await self.store.load_state(self.scribe.session_id)
            now = self.clock.now_ms()
            turn = Turn(
                id=self.mint.turn(),
                session_id=self.scribe.session_id,
                parent_turn_id=state.head_turn_id,
                created_at=now,
                status="completed",
                settled_at=now,
            )
            fired = queue[0].message.id
            await self.move(turn.id, "turn", OpenTurn(turn), Dequeue(fired), LinkMessage(turn.id, fired))

    async def do_cancel(self) -> None:
        from clew.store.unit import PatchMessage

        queue = await self.store.load_queue(self.scribe.session_id)
        if queue:
            last = queue[-1].message.id
            now = self.clock.now_ms()
            await self.scribe.commit(Dequeue(last), PatchMessage(last, now, {"cancelled_at": now}))

    async def do_rename(self) -> None:
        await self.scribe.commit(PatchSession(metadata={"title": str(self.rng.random())}))

    async def do_prune(self) -> None:
        rows = await self.store.load_messages(self.scribe.session_id)
        outputs = [(row.id, part.index) for row in rows for part in row.parts if part.tool_state == "output-available"]
        taken = self.rng.sample(outputs, min(len(outputs), 3))
        await self.scribe.commit(AddPruned(tuple(Pruned(0, id_, part, 7, 2, 1) for id_, part in sorted(taken))))

    async def do_branch(self) -> None:
        line = (await self.store.load_line(self.scribe.session_id)).turns
        line = line[: self.rng.randint(0, len(line))]
        if line:
            now = self.clock.now_ms()
            id_ = self.mint.session(self.store.capabilities.session_ids)
            copies = tuple(
                CopiedTurn(
                    replace(entry.turn, id=self.mint.turn(), session_id=id_, origin_turn_id=entry.turn.id),
                    tuple(CopiedMessage(row.id, self.mint.message()) for row in entry.messages),
                )
                for entry in line
            )
            session = Session(id=id_, agent="assistant", model=MODEL, created_at=now, updated_at=now)
            head = MoveHead(copies[-1].turn.id, now, "branch")
            await self.store.commit(Unit(id_, (InsertSession(session), CopyLine(self.scribe.session_id, copies), head)))
            await self.project(id_)
            self.branches.append(id_)

    async def branch(self, id_: str) -> dict[str, Any]:
        """A copy without the ids of its parts, which each store makes up for itself."""
        whole = await self.store.find_full_session(id_)
        view = await self.store.find_view(id_)
        assert whole is not None
        assert view is not None
        rows = [replace(row, parts=tuple(replace(part, id="") for part in row.parts)) for row in whole.messages]
        return {
            "whole": replace(whole, messages=tuple(rows)),
            "steps": {turn_id: await self.store.load_steps(turn_id) for turn_id in sorted(whole.tree.turns)},
            "visible": visible_view(view.turns),
            "model": model_view(view.turns, view.pruned),
        }

    async def everything(self) -> dict[str, Any]:
        """All a reader can learn, for comparing."""
        id_ = self.scribe.session_id
        tree = await self.store.load_tree(id_)
        line = await self.store.load_line(id_)
        view = await self.store.find_view(id_)
        pruned = await self.store.load_pruned(id_)
        assert view is not None
        assert visible_view(view.turns) == visible_view(line.turns)
        assert model_view(view.turns, view.pruned) == model_view(line.turns, pruned)
        await check_looks(self.store, id_, random.Random(len(tree.turns)))
        return {
            "session": await self.store.find_session(id_),
            "listed": await self.store.list_sessions(SessionQuery()),
            "messages": await self.store.load_messages(id_),
            "tree": tree,
            "line": line,
            "end": await self.store.load_line(id_, turns=2),
            "queue": await self.store.load_queue(id_),
            "steps": {turn_id: await self.store.load_steps(turn_id) for turn_id in sorted(tree.turns)},
            "seals": await self.store.seals(id_),
            "view": contents_of(view),
            "pruned": pruned,
            "turns": [await self.store.find_turn(turn_id) for turn_id in sorted(tree.turns)],
            "branches": [await self.branch(branch) for branch in self.branches],
            "visible": visible_view(line.turns),
            "model": model_view(line.turns, pruned),
        }


async def play(store: Store, seed: int, actions: list[str]) -> dict[str, Any]:
    history = History(store, seed)
    await history.start()
    for action in actions:
        await history.run(action)
    seen = await history.everything()
    assert seen == await history.everything(), "reading changed something"
    assert await check(store) == []
    tree = seen["tree"]
    assert [entry.turn for entry in seen["line"].turns] == list(line_turns(tree))
    held = [(entry.turn.id, row.id) for entry in seen["line"].turns for row in entry.messages]
    assert held == [(turn.id, id_) for turn, id_ in line_messages(tree)]
    return seen


@pytest.mark.slow
@pytest.mark.rule("BR-6", "BR-9")
@settings(max_examples=rounds(40))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=14))
async def test_a_random_history_is_the_same_on_every_store(seed: int, actions: list[str]) -> None:
    """Sessions, messages, tree, line, views, queue and seals; the judge finds nothing in either."""
    memory = await play(MemoryStore(), seed, actions)
    with tempfile.TemporaryDirectory() as folder:
        store = await open_sqlite(Path(folder) / "store.db")
        try:
            assert await play(store, seed, actions) == memory
        finally:
            await store.close()


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.rule("RP-6", "ST-12")
@pytest.mark.parametrize("seed", range(rounds(8 if ON_POSTGRESQL else 1)))
async def test_a_random_history_is_the_same_on_postgresql(postgres_store_url: str, seed: int) -> None:
    """And the server finds nothing wrong with its own tables."""
    from clew.store.sql.postgres.opening import open_postgres

    actions = random.Random(seed).choices(ACTIONS, k=14)
    store = await open_postgres(postgres_store_url)
    try:
        assert await play(store, seed, actions) == await play(MemoryStore(), seed, actions)
        assert await store.verify() == ()
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.rule("FS-4")
@pytest.mark.parametrize("kind", ["jsonl", "json"])
@settings(max_examples=rounds(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=14))
async def test_a_random_history_comes_back_from_files(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["jsonl", "json"], seed: int, actions: list[str]
) -> None:
    """Everything of it, when the folder is opened again; and the judge finds nothing."""
    monkeypatch.setattr(folder, "_sync", lambda fd: None)
    with tempfile.TemporaryDirectory() as place:
        store = await open_files(kind, Path(place) / "store")
        try:
            history = History(store, seed)
            await history.start()
            for action in actions:
                await history.run(action)
            before = await history.everything()
        finally:
            await store.close()
        history.store = history.scribe.store = store = await open_files(kind, Path(place) / "store")
        try:
            assert await history.everything() == before
            assert await check(store) == []
        finally:
            await store.close()


async def test_the_judge_sees_a_projection_that_lies(tmp_path: Path) -> None:
    """A rewind whose projections were not written is found."""
    store = await open_sqlite(tmp_path / "store.db")
    try:
        history = History(store, 1)
        await history.start()
        await history.do_turn()
        await history.scribe.commit(MoveHead(None, 5, "rewind"))
        assert len(await check(store)) == 2
        await history.project()
        assert await check(store) == []
    finally:
        await store.close()
