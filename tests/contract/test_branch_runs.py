"""Runs of turns that a branch copies without looking at them: it holds what one holds whose turns are all seen."""

from __future__ import annotations

import contextlib
import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.errors import ClewError
from clew.ids import Mint
from clew.session.history import branch_line, branch_plan
from clew.session.history.branch_line import BranchLine, load_branch_line, with_rows
from clew.session.history.branch_plan import cut_line, plan_branch
from clew.session.history.check import check
from clew.store.base import Store
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import Committed, Unit
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL
from clew.transcript.line import line_turns
from clew.transcript.portable import PortableSession
from clew.transcript.session import Session
from clew.transcript.turn import Turn
from tests.contract.test_random_histories import History

ACTIONS = [*["turn"] * 8, "resend", "rewind", "goto", "refuse", "prune", "queue"]


async def grown(store: Store, seed: int, count: int = 14) -> History:
    history = History(store, seed)
    await history.start()
    for action in ["turn", "turn", *random.Random(seed).choices(ACTIONS, k=count), "turn"]:
        await history.run(action)
    return history


async def branched(store: Store, seen: BranchLine, turn: Turn, point_id: str) -> str:
    """Make the branch that a line comes to; its id."""
    mint = Mint(FakeClock())
    child = Session(
        id=mint.session(store.capabilities.session_ids), agent="assistant", model=MODEL, created_at=5, updated_at=5
    )
    whole = seen.line.links[turn.id][-1] == point_id
    for writes in plan_branch(cut_line(seen.line, turn.id, point_id), child, mint, 5, whole=whole, runs=seen.runs):
        assert await store.find_session(child.id) is None
        assert await store.commit(Unit(child.id, writes)) == Committed()
    return child.id


async def told(store: Store, session_id: str) -> str:
    """All of a session, each id by its place in it."""
    whole = await store.find_full_session(session_id)
    assert whole is not None
    path = line_turns(whole.tree)
    steps = [await store.load_steps(turn.id) for turn in path]
    messages = {row.id: row for row in whole.messages}
    held = [
        [(row.role, row.metadata, [part.data for part in row.parts], row.id in whole.seals) for row in rows]
        for rows in ([messages[id_] for id_ in whole.tree.links[turn.id]] for turn in path)
    ]
    pruned = sorted((one.seq, one.message_id, one.part) for one in whole.pruned)
    known: Any = [
        path,
        held,
        steps,
        pruned,
        [whole.tree.links[turn.id] for turn in path],
        whole.session,
        len(whole.messages),
        whole.damaged,
    ]
    names: dict[str, str] = {session_id: "the session"}
    names |= {turn.id: f"turn {n}" for n, turn in enumerate(path)}
    names |= {id_: f"{turn.id}, {n}" for turn in path for n, id_ in enumerate(whole.tree.links[turn.id])}
    # A request that nobody answers any more is denied under a name of its own.
    text = re.sub("apr_[0-9A-Za-z]{26}", "a request", repr(msgspec.to_builtins(known, str_keys=True)))
    for _ in range(2):
        text = re.sub("|".join(map(re.escape, names)), lambda found: names[found.group()], text)
    return text


@pytest.mark.rule("BR-1", "BR-2", "BR-6")
@pytest.mark.parametrize(("seed", "portion"), [(0, 200), (1, 3)])
async def test_a_branch_with_runs_is_the_branch_of_a_line_that_is_seen_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int, portion: int
) -> None:
    """Turns, messages, steps, seals, prunes and sums; only turns that a plan has to change were looked at. In one unit,
    and in portions of three turns."""
    monkeypatch.setattr(branch_line, "MAX_TURNS_PER_UNIT", portion)
    monkeypatch.setattr(branch_plan, "MAX_TURNS_PER_UNIT", portion)
    history = await grown(store, seed)
    id_ = history.scribe.session_id
    source = await store.find_session(id_)
    assert source is not None
    path = await store.load_path(id_, (await store.load_state(id_)).head_turn_id)
    runs = 0
    for turn, messages in path[:: max(1, len(path) // 4)]:
        point = messages[0]
        part = await load_branch_line(store, source, turn, point, on_line=True, start_message_id=None)
        copied = sum(count for run in part.runs.values() for _, count in run)
        runs += copied
        upto = path[: turn.depth + 1]
        line = PortableSession(
            session=source, turns=tuple(one.turn for one in upto), links={one.turn.id: one.messages for one in upto}
        )
        seen = BranchLine(await with_rows(store, line, point))
        assert len(part.line.turns) + copied == len(upto)
        with_runs, whole = await branched(store, part, turn, point), await branched(store, seen, turn, point)
        assert await told(store, with_runs) == await told(store, whole)
    assert runs
    assert await check(store) == []


@pytest.mark.rule("BR-2", "ST-14")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE chat_turns SET parent_turn_id = (SELECT id FROM chat_turns WHERE depth = 3) WHERE depth = 1",
        "DELETE FROM chat_turns WHERE depth = 1",
        "UPDATE chat_turns SET depth = 5 WHERE depth = 1",
        "UPDATE chat_turns SET messages = messages + 1 WHERE depth = 1",
    ],
)
async def test_a_branch_of_a_line_that_is_damaged_ends_with_an_error(tmp_path: Path, damage: str) -> None:
    """A ring of parents, one that is missing, one that is elsewhere, a turn that lost its messages: nothing is made."""
    file = tmp_path / "store.db"
    store = await open_sqlite(file)
    try:
        history = History(store, 1)
        await history.start()
        for _ in range(6):
            await history.do_turn()
        id_ = history.scribe.session_id
        source = await store.find_session(id_)
        assert source is not None
        turn, messages = (await store.load_path(id_, (await store.load_state(id_)).head_turn_id))[-1]
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db, db:
            db.execute(damage)
        before = await store.session_ids()

        async def branch() -> None:
            seen = await load_branch_line(store, source, turn, messages[-1], on_line=True, start_message_id=None)
            await branched(store, seen, turn, messages[-1])

        with pytest.raises(ClewError):
            await branch()
        assert await store.session_ids() == before
    finally:
        await store.close()
