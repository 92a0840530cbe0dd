"""What a move of the head reads is a part of the tree: it comes to the same as the plans over the whole tree do."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ClewError, CompactionError, RowUndecodable
from clew.session.affected_tree import load_affected, load_affected_above
from clew.session.context.compact import load_covered, plan_marker
from clew.session.head_move import load_move, plan_move, plan_restart
from clew.session.history.rewind import load_since_rewind
from clew.session.history.rewind_plan import left_line, plan_undo, tree_after_withdrawal
from clew.store.base import Store
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.trees import PathTurn, join_runs
from clew.store.unit import LinkMessage, OpenTurn, SetHidden, SetTurn, Write
from clew.transcript.head import Added, restart_turn
from clew.transcript.line import LineTurn, line_messages, line_turns, path_to
from clew.transcript.message import MessageRow
from clew.transcript.projection import compaction_tails
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.view import compactions_of
from tests.contract.test_random_histories import ACTIONS, History
from tests.rounds import ON_POSTGRESQL, rounds

MOVING = [*ACTIONS, "undo", "again", "goto", "rewind", "compact", "open", "reopen", "reopen"]
REASONS = ("rewind", "unrewind", "goto")


class Moving(History):
    """Moves the head as clew does: from what it has to read for it."""

    async def move(self, to: str | None, why: Any, *more: Write) -> None:
        await self.compare(to, why, more)
        await super().move(to, why, *more)

    async def compare(self, to: str | None, why: Any, more: tuple[Write, ...] = ()) -> None:
        """Hold a move planned from its affected tree against the same move planned over the whole tree."""
        if why not in REASONS:
            return
        id_, now = self.scribe.session_id, self.clock.now_ms()
        whole = await self.store.load_tree(id_)
        tails = compaction_tails(whole, {row.id: row for row in await self.store.load_messages(id_)})
        new = tuple(
            Added(one.turn, tuple(link.message_id for link in more if isinstance(link, LinkMessage)))
            for one in more
            if isinstance(one, OpenTurn)
        )
        expected = plan_move(whole, tails, id_, to, now, why, new=new)
        affected = await load_affected(self.store, id_, new[0].turn.parent_turn_id if new else to, now)
        found = await load_move(self.store, affected, to, now, why, new=new)
        assert told(found[1]) == told(expected[1])
        assert left_line(affected.tree, found[0]) == left_line(whole, expected[0])
        assert len(affected.tree.turns) <= len(whole.turns)

    async def do_undo(self) -> None:
        """Undo the newest rewind, or be refused as over the whole tree."""
        id_, now = self.scribe.session_id, self.clock.now_ms()
        asked = await asked_to_undo(await self.store.load_tree(id_), id_, now)
        part = await self.store.at_once(id_, lambda held: load_since_rewind(held, id_, now))
        try:
            undone: HeadMove | str = plan_undo(part)
        except ClewError as error:
            undone = f"{error.code} {error.ids}"
        assert undone == asked
        if isinstance(undone, HeadMove):
            await self.move(undone.from_turn_id, "unrewind")

    async def compare_marker(self, open_turn: Turn | None = None) -> None:
        """Hold a compaction planned from what it covers against the same over the whole tree."""
        id_, now = self.scribe.session_id, self.clock.now_ms()
        whole = await self.store.load_tree(id_)
        said = [message_id for turn, message_id in line_messages(whole) if turn.kind == "normal"]
        marker = MessageRow(self.mint.message(), id_, "assistant", now, now, {}, ())
        for tail in (*self.rng.sample(said, min(3, len(said))), marker.id, "msg_gone"):
            affected = await load_covered(self.store, id_, open_turn, tail, now)
            turn = Turn(
                id=self.mint.turn(),
                session_id=id_,
                parent_turn_id=affected.to,
                created_at=now,
                kind="compaction",
                status="completed",
                settled_at=now,
            )
            tails = compaction_tails(whole, {row.id: row for row in await self.store.load_messages(id_)})
            expected = plan_marker(whole, tails, turn, marker, tail, epoch=1, open_turn=open_turn)
            found = plan_marker(affected.tree, affected.tails, turn, marker, tail, epoch=1, open_turn=open_turn)
            assert (told(found.writes), found.guards) == (told(expected.writes), expected.guards)

    async def do_open(self) -> None:
        """Make room for an open turn, or not, and refuse it."""
        opened = await self.scribe.prompt("too large")
        await self.compare_marker((await self.store.load_tree(self.scribe.session_id)).turns[opened.id])
        await self.scribe.commit(SetTurn(opened.id, "refused", settled_at=self.clock.now_ms()))
        await self.project()

    async def do_reopen(self) -> None:
        """Make room for a turn that is the head while it runs; never above one with turns below it."""
        tree = await self.store.load_tree(self.scribe.session_id)
        head = tree.turns.get(tree.head_turn_id or "")
        if head is None or head.status != "unanswered":
            return
        await self.scribe.commit(SetTurn(head.id, "running"))
        if any(turn.parent_turn_id == head.id for turn in tree.turns.values()):
            with pytest.raises(CompactionError):
                await load_covered(self.store, head.session_id, head, "msg_gone", self.clock.now_ms())
        else:
            await self.compare_marker(head)
        await self.scribe.commit(SetTurn(head.id, "aborted", settled_at=self.clock.now_ms()))

    async def do_again(self) -> None:
        """Begin a turn of the line anew."""
        id_, now = self.scribe.session_id, self.clock.now_ms()
        whole = await self.store.load_tree(id_)
        turns = [turn for turn in line_turns(whole) if turn.kind == "normal"]
        if not turns:
            return
        turn, carried_id, sibling_id = self.rng.choice(turns), self.mint.turn(), self.mint.turn()
        rows = {row.id: row for row in await self.store.load_messages(id_)}
        every = [LineTurn(one, tuple(rows[held] for held in whole.links[one.id])) for one in whole.turns.values()]
        affected = await load_affected_above(self.store, turn, now)
        parent, carried = restart_turn(whole, list(compactions_of(every)), turn, carried_id)
        assert plan_restart(affected, turn, carried_id) == (parent, carried)
        sibling = Turn(
            id=sibling_id, session_id=id_, parent_turn_id=parent, created_at=now, status="unanswered", settled_at=now
        )
        new = (*carried, Added(sibling, whole.links[turn.id][:1]))
        tails = compaction_tails(whole, rows)
        expected = plan_move(whole, tails, id_, sibling_id, now, "rewind", new=new)
        found = await load_move(self.store, affected, sibling_id, now, "rewind", new=new)
        assert told(found[1]) == told(expected[1])
        assert left_line(affected.tree, found[0]) == left_line(whole, expected[0])
        await self.scribe.commit(*found[1])


async def asked_to_undo(whole: Tree, session_id: str, now: int) -> HeadMove | str:
    try:
        return plan_undo(tree_after_withdrawal(whole, session_id, now))
    except ClewError as error:
        return f"{error.code} {error.ids}"


def told(writes: Sequence[Write]) -> list[object]:
    """The writes, what is hidden without its order."""
    return [sorted(one.hidden.items()) if isinstance(one, SetHidden) else one for one in writes]


async def play(store: Store, seed: int, actions: list[str]) -> None:
    history = Moving(store, seed)
    await history.start()
    for action in actions:
        await history.run(action)
        tree = await store.load_tree(history.scribe.session_id)
        goal = random.Random(seed).choice([None, *sorted(tree.turns)])
        await history.compare(goal, "goto")
        await history.compare_marker()
        await ask_of_the_tree(store, history.scribe.session_id, tree, goal)


async def ask_of_the_tree(store: Store, id_: str, tree: Tree, goal: str | None) -> None:
    """The questions about a part of a tree, held against the whole of it."""
    path = path_to(tree.turns, goal)
    assert [one.turn for one in await store.load_path(id_, goal)] == list(path)
    assert [one.messages for one in await store.load_path(id_, goal, turns=2)] == [
        tree.links.get(turn.id, ()) for turn in path[-2:]
    ]
    assert [one.turn for one in await store.load_path(id_, goal, depth=1)] == list(path[1:] or path)
    held = [PathTurn(turn, tree.links.get(turn.id, ())) for turn in path]
    for depth in (0, 2):
        for apart in (None, path[len(path) // 2].id if path else None):
            assert await store.load_runs(id_, goal, depth=depth, apart=apart) == join_runs(held[depth:], apart)
    for other in (tree.head_turn_id, *sorted(tree.turns)[::4]):
        both = [turn for turn in path_to(tree.turns, other) if turn in path]
        assert await store.find_meeting(id_, goal, other) == await store.find_meeting(id_, other, goal)
        assert await store.find_meeting(id_, goal, other) == next(reversed(both), None)
    for message_id in sorted({one for ids in tree.links.values() for one in ids})[:6]:
        on_path = next((turn for turn in path if message_id in tree.links.get(turn.id, ())), None)
        assert await store.find_on_path(id_, message_id, goal) == on_path
    if goal is not None:
        below = [turn for turn in tree.turns.values() if turn.parent_turn_id == goal]
        assert await store.has_child(id_, goal) == any(turn.status != "refused" for turn in below)
        assert await store.has_child(id_, goal, refused=True) == bool(below)
        ends = {move.to_turn_id for move in tree.moves}
        was_head = goal in ends or any(turn.id in ends for turn in below)
        assert await store.was_head(id_, goal, 2**31) == was_head
    assert await store.moves_after(id_, 1, 3) == tree.moves[1:4]
    assert await store.newest_move(id_) == next(reversed(tree.moves), None)


@pytest.mark.slow
@pytest.mark.rule("RW-1", "RW-3")
async def test_a_move_from_its_affected_tree_is_the_move_over_the_whole_tree() -> None:
    """What is hidden, what leaves the line, where a turn is begun anew, and which rewind is undone or refused."""
    for seed in range(rounds(40)):
        await play(MemoryStore(), seed, random.Random(seed).choices(MOVING, k=16))


@pytest.mark.rule("RW-1", "RW-3")
@pytest.mark.parametrize("seed", range(3))
async def test_a_move_from_its_affected_tree_is_the_same_in_sql(tmp_path: Path, seed: int) -> None:
    """The recursive queries find what the whole tree says."""
    rng = random.Random(seed)
    store = await open_sqlite(tmp_path / "store.db")
    try:
        await play(store, seed, ["turn", "turn", "compact", *rng.choices(MOVING, k=rounds(24))])
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.rule("RP-6", "ST-12")
async def test_a_move_from_its_affected_tree_is_the_same_on_postgresql(postgres_store_url: str) -> None:
    """Its recursive queries too."""
    from clew.store.sql.postgres.opening import open_postgres

    store = await open_postgres(postgres_store_url)
    try:
        await play(
            store,
            1,
            ["turn", "turn", "compact", *random.Random(1).choices(MOVING, k=rounds(24 if ON_POSTGRESQL else 6))],
        )
    finally:
        await store.close()


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize("side", [0, 1], ids=["where it is", "where it goes"])
async def test_a_move_between_lines_that_lead_in_a_ring_ends_with_an_error(tmp_path: Path, side: int) -> None:
    """Turns that are damaged name one another as parents: whoever moves the head is told, and nobody waits for ever."""
    file = tmp_path / "store.db"
    store = await open_sqlite(file)
    try:
        history = History(store, 1)
        await history.start()
        for _ in range(4):
            await history.do_turn()
        id_ = history.scribe.session_id
        path = [turn.id for turn, _ in await store.load_path(id_, (await store.load_state(id_)).head_turn_id)]
        await history.move(path[0], "goto")
        for _ in range(3):
            await history.do_turn()
        other_end = (await store.load_state(id_)).head_turn_id
        await history.move([path[3], other_end][side], "goto")
        with closing(sqlite3.connect(file)) as other, other:
            other.execute("UPDATE chat_turns SET parent_turn_id = ? WHERE id = ?", (path[3], path[1]))
        with pytest.raises(RowUndecodable):
            await load_affected(store, id_, [other_end, path[3]][side], history.clock.now_ms())
    finally:
        await store.close()


@pytest.mark.rule("ST-14")
async def test_a_move_between_lines_that_part_at_a_turn_with_a_wrong_depth_ends_with_an_error(tmp_path: Path) -> None:
    """It is said to lie deeper than what hangs below it: then it is damaged, and nothing is wrong inside clew."""
    file = tmp_path / "store.db"
    store = await open_sqlite(file)
    try:
        history = History(store, 1)
        await history.start()
        for _ in range(4):
            await history.do_turn()
        id_ = history.scribe.session_id
        path = [turn.id for turn, _ in await store.load_path(id_, (await store.load_state(id_)).head_turn_id)]
        await history.move(path[1], "goto")
        await history.do_turn()
        with closing(sqlite3.connect(file)) as other, other:
            other.execute("UPDATE chat_turns SET depth = 50 WHERE id = ?", (path[1],))
        with pytest.raises(RowUndecodable, match="misplaced in the tree"):
            await load_affected(store, id_, path[3], history.clock.now_ms())
    finally:
        await store.close()


@pytest.mark.rule("ST-15")
async def test_a_move_over_many_turns_is_planned_over_as_few_as_one_over_some(tmp_path: Path) -> None:
    """Turns that are nothing but their messages are one to it, and so is what lies beside."""
    store = await open_sqlite(tmp_path / "store.db")
    try:
        history = History(store, 1)
        await history.start()
        for _ in range(40):
            await history.do_turn()
        id_, now = history.scribe.session_id, history.clock.now_ms()
        path = [turn.id for turn, _ in await store.load_path(id_, (await store.load_state(id_)).head_turn_id)]
        planned = [len((await load_affected(store, id_, turn_id, now)).tree.turns) for turn_id in (path[3], path[30])]
        assert planned == [3, 3]
        await history.move(path[3], "goto")
        for _ in range(20):
            await history.do_turn()
        assert len((await load_affected(store, id_, path[39], now)).tree.turns) == 4
    finally:
        await store.close()


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize(
    "found_elsewhere", [False, True], ids=["it is nowhere", "another holds one that was never counted"]
)
async def test_a_move_over_a_turn_that_has_lost_a_message_ends_with_an_error(
    tmp_path: Path, found_elsewhere: bool
) -> None:
    """However many turns are taken as one, each has to hold what it held."""
    file = tmp_path / "store.db"
    store = await open_sqlite(file)
    try:
        history = History(store, 1)
        await history.start()
        for _ in range(6):
            await history.do_turn()
        id_ = history.scribe.session_id
        path = await store.load_path(id_, (await store.load_state(id_)).head_turn_id)
        robbed, other = path[3], path[4].turn.id
        with closing(sqlite3.connect(file)) as connection, connection:
            place = {"turn": robbed.turn.id, "last": len(robbed.messages) - 1, "other": other}
            connection.execute("DELETE FROM turn_messages WHERE turn_id = :turn AND position = :last", place)
            if found_elsewhere:
                place["message"] = robbed.messages[-1]
                connection.execute("INSERT INTO turn_messages VALUES (:other, 9, :message)", place)
                connection.execute("UPDATE chat_turns SET messages = messages - 1 WHERE id = :other", place)
            connection.execute("UPDATE chat_turns SET messages = messages + 1 WHERE id = :turn", place)
        with pytest.raises(RowUndecodable, match="missing or out of order"):
            await load_affected(store, id_, path[0].turn.id, history.clock.now_ms())
    finally:
        await store.close()
