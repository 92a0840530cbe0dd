"""The turn ledger: what a store holds, asked for in plain SQL, and what the broker's rules make of many at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.testing.scripted import Gate, ScriptedModel, call, say, wait
from tests.acceptance.conversations import talk
from tests.acceptance.errands import allow
from tests.acceptance.history_machine import ACTIONS, SETTINGS, Machine
from tests.rounds import rounds

from .compacting import Compacting, bulk, opened
from .conftest import Open
from .ledgers import ask, chain, disagreements, lines_differ

TURNS: Final = "SELECT session_id, turn_type, status FROM ledger_turns ORDER BY created_at, id"


def path_of(s: Any) -> Path:
    found = s.engine.store.path
    assert isinstance(found, Path)
    return found


def current(path: Path, session_id: str) -> str | None:
    [(turn_id,)] = ask(path, "SELECT current_turn_id FROM ledger_sessions WHERE id = ?", session_id)
    assert turn_id is None or isinstance(turn_id, str)
    return turn_id


def said(path: Path, session_id: str) -> list[str]:
    """The conversation of a session by the ledger alone."""
    turns = chain(path, current(path, session_id))
    asked = "SELECT role || ': ' || text FROM ledger_messages WHERE turn_id = ? ORDER BY position"
    return [line for turn_id in turns for (line,) in ask(path, asked, turn_id)]


def echo(number: int = 0) -> ScriptedModel:
    return ScriptedModel(otherwise=lambda request: say(f"re {request.messages[-1].parts[0]['text']}"))


@pytest.mark.rule("BR-8")
async def test_a_session_shows_its_label_its_key_and_the_turn_it_points_at(open_scenario: Open) -> None:
    """From the metadata where they are kept; before the first turn it points at nothing."""
    async with open_scenario(echo()) as s:
        empty = await s.engine.create_session(title="empty")
        await s.engine.create_session(title="main", metadata={"label": "main", "routing_key": "mail:ann"})
        path = path_of(s)
        asked = "SELECT title, label, routing_key, kind, current_turn_id, parent_session_id, agent FROM ledger_sessions"
        assert sorted(ask(path, asked)) == [
            ("empty", None, None, "chat", None, None, "assistant"),
            ("main", "main", "mail:ann", "chat", None, None, "assistant"),
        ]
        s.session = empty
        await talk(s, "one", "two")
        tree = await s.engine.tree(s.id)
        assert current(path, s.id) == tree.head_turn_id
        assert chain(path, current(path, s.id)) == [turn.id for turn in tree.turns]
        assert said(path, s.id) == ["user: one", "assistant: re one", "user: two", "assistant: re two"]
        assert await disagreements(path, s.engine.store) == []


@pytest.mark.rule("BR-8", "BR-7")
async def test_a_fork_and_its_origin_are_one_tree(open_scenario: Open) -> None:
    """A turn that was copied is there once; the forks' own turns hang below it, those of a fork of a fork too."""
    async with open_scenario(echo()) as s:
        await s.begin(metadata={"label": "main"})
        await talk(s, "a", "b", "x", "y")
        path, main = path_of(s), s.id
        a, b, x, y = (turn.id for turn in (await s.engine.tree(main)).turns)
        fork = await s.engine.fork(x, label="fork-abc")
        assert current(path, fork.id) == x
        assert len(ask(path, TURNS)) == 4
        s.session = fork
        await talk(s, "z")
        z = (await s.engine.tree(fork.id)).head_turn_id
        assert chain(path, current(path, fork.id)) == [a, b, x, z]
        assert chain(path, current(path, main)) == [a, b, x, y]
        again = await s.engine.fork(str(z), label="fork-of-a-fork")
        s.session = again
        await talk(s, "w")
        w = (await s.engine.tree(again.id)).head_turn_id
        assert chain(path, current(path, again.id)) == [a, b, x, z, w]
        assert said(path, again.id)[-4:] == ["user: z", "assistant: re z", "user: w", "assistant: re w"]
        assert ask(path, TURNS) == [
            *[(main, "normal", "completed")] * 4,
            (fork.id, "normal", "completed"),
            (again.id, "normal", "completed"),
        ]
        assert await disagreements(path, s.engine.store) == []


@pytest.mark.rule("BR-8", "BR-4")
async def test_a_branch_shares_only_what_it_holds_whole(open_scenario: Open) -> None:
    """Cut inside a turn it has a turn of its own there; a slice begins a tree; without its parent it stands alone."""
    async with open_scenario(echo()) as s:
        await s.begin()
        one, two, three = await talk(s, "1", "2", "3")
        path = path_of(s)
        first, *_ = (turn.id for turn in (await s.engine.tree(s.id)).turns)
        cut = await s.engine.branch(s.id, two)
        own = (await s.engine.tree(cut.id)).head_turn_id
        assert chain(path, current(path, cut.id)) == [first, own]
        assert said(path, cut.id) == ["user: 1", "assistant: re 1", "user: 2"]
        piece = await s.engine.branch(s.id, three, start_message_id=two)
        assert said(path, piece.id) == ["user: 2", "assistant: re 2", "user: 3"]
        assert await disagreements(path, s.engine.store) == []
        await s.engine.delete_session(s.id)
        assert said(path, cut.id) == ["user: 1", "assistant: re 1", "user: 2"]
        assert chain(path, current(path, cut.id)) == [turn.id for turn in (await s.engine.tree(cut.id)).turns]
        assert await disagreements(path, s.engine.store) == []
        assert one != two


@pytest.mark.rule("BR-8", "RW-1")
async def test_after_a_rewind_both_ways_are_in_the_tree_and_the_pointer_is_on_one(open_scenario: Open) -> None:
    """What was taken back is still a turn of its parent; a resent message is held by both."""
    async with open_scenario(echo()) as s:
        await s.begin()
        _, two = await talk(s, "1", "2")
        path = path_of(s)
        first, second = (turn.id for turn in (await s.engine.tree(s.id)).turns)
        await s.engine.rewind(s.id, two)
        third = current(path, s.id)
        assert third not in (first, second)
        assert sorted(ask(path, "SELECT id FROM ledger_turns WHERE parent_turn_id = ?", first)) == sorted(
            [(second,), (third,)]
        )
        assert ask(path, "SELECT turn_id FROM ledger_messages WHERE id = ? ORDER BY turn_id", two) == [
            (second,),
            (third,),
        ]
        await s.engine.rewind(s.id, two, mode="edit")
        assert said(path, s.id) == ["user: 1", "assistant: re 1"]
        await s.engine.unrewind(s.id)
        await s.engine.unrewind(s.id)
        assert said(path, s.id) == ["user: 1", "assistant: re 1", "user: 2", "assistant: re 2"]
        assert await disagreements(path, s.engine.store) == []


async def compacted(s: Compacting) -> list[str]:
    """Five turns and two summaries; all turns on the line."""
    for word in ("one", "two", "three"):
        await s.say(bulk(word, 400))
    await s.engine.compact(s.id)
    for word in ("four", "five"):
        await s.say(bulk(word, 400))
    await s.engine.compact(s.id)
    await s.is_sound()
    return [turn.id for turn in await s.turns()]


@pytest.mark.rule("BR-8", "CP-1")
async def test_a_compaction_is_a_turn_with_its_summary_and_what_it_stands_for(tmp_path: Path) -> None:
    """Several on one line: each names the last turn it tells of, the first it kept, and the sizes before and after."""
    url = f"sqlite:///{tmp_path}/store.db"
    config = clew.Config(compaction=clew.config.CompactionConfig(tail_turns=1, keep_recent_tokens=100))
    async with opened(tmp_path, url=url, config=config) as s:
        await s.begin()
        line = await compacted(s)
        path = path_of(s)
        turns = await s.turns()
        assert [turn.kind for turn in turns] == ["normal"] * 3 + ["compaction"] + ["normal"] * 2 + ["compaction"]
        first, second = await s.parts()
        asked = (
            "SELECT id, parent_turn_id, summary, summarized_through_turn_id, first_kept_turn_id, tokens_before,"
            " tokens_after FROM ledger_turns WHERE turn_type = 'compaction' ORDER BY depth"
        )
        assert ask(path, asked) == [
            (line[3], line[2], first["summary"], line[1], line[2], first["tokens_before"], first["tokens_after"]),
            (line[6], line[5], second["summary"], line[4], line[5], second["tokens_before"], second["tokens_after"]),
        ]
        normal = "SELECT count(*) FROM ledger_turns WHERE turn_type = 'normal' AND summary IS NULL"
        assert ask(path, normal) == [(5,)]
        # A fork behind the summaries shares them, one before the second does not see it.
        late, early = await s.engine.fork(line[6]), await s.engine.fork(line[4])
        assert chain(path, current(path, late.id)) == line
        assert chain(path, current(path, early.id)) == line[:5]
        assert ask(path, "SELECT count(*) FROM ledger_turns") == [(7,)]
        assert await disagreements(path, s.engine.store) == []


@pytest.mark.rule("BR-8", "SR-3")
async def test_tool_calls_and_subagents_are_in_the_ledger(open_scenario: Open) -> None:
    """Each call with its turn, what it was given and what came of it; a subagent's session names its parent."""
    script = [
        [call("task", {"prompt": "look around"}), call("nothing", {"a": [1]})],
        [call("ls", {"path": "."}), say("hm")],
        say("nothing here"),
        say("The helper found nothing."),
    ]
    async with open_scenario(script) as s:
        await s.begin()
        await allow(s, "task")
        await s.prompt("delegate")
        path = path_of(s)
        [(child, parent)] = ask(path, "SELECT id, parent_session_id FROM ledger_sessions WHERE kind = 'subagent'")
        assert parent == s.id
        calls = ask(
            path,
            "SELECT c.session_id, c.turn_id, c.tool, c.state, c.input_json, c.error IS NULL, t.turn_type"
            " FROM ledger_tool_calls c JOIN ledger_turns t ON t.id = c.turn_id ORDER BY c.created_at, c.id",
        )
        own, childs = current(path, s.id), current(path, child)
        assert sorted(calls) == sorted(
            [
                (s.id, own, "task", "output-available", '{"prompt":"look around"}', 1, "normal"),
                (s.id, own, "nothing", "output-error", '{"a":[1]}', 0, "normal"),
                (child, childs, "ls", "output-available", '{"path":"."}', 1, "normal"),
            ]
        )
        assert await disagreements(path, s.engine.store) == []


@pytest.mark.slow
@pytest.mark.rule("BR-8")
async def test_many_tasks_that_fire_at_one_session_make_one_chain(open_scenario: Open) -> None:
    """Forty at once: each turn hangs below the one before, nobody is routed to a turn that has moved on."""
    async with open_scenario(echo()) as s:
        await s.begin()
        prompts = [f"prompt {number}" for number in range(40)]
        submissions = await asyncio.gather(*(s.send(text) for text in prompts))
        await asyncio.gather(*(submission.wait() for submission in submissions))
        await s.settled()
        path = path_of(s)
        turns = chain(path, current(path, s.id))
        assert ask(path, "SELECT count(*), count(DISTINCT parent_turn_id) FROM ledger_turns") == [(40, 39)]
        assert len(turns) == 40
        lines = said(path, s.id)
        assert sorted(lines[::2]) == sorted(f"user: {text}" for text in prompts)
        assert lines[1::2] == [f"assistant: re {line.removeprefix('user: ')}" for line in lines[::2]]
        moves = (await s.engine.store.load_tree(s.id)).moves
        assert [(move.from_turn_id, move.to_turn_id) for move in moves] == list(
            zip([None, *turns], turns, strict=False)
        )
        assert await disagreements(path, s.engine.store) == []


@pytest.mark.rule("BR-8")
async def test_the_pointer_moves_when_a_turn_settles_and_is_read_anew_for_the_next(open_scenario: Open) -> None:
    """While one runs it stays; what waits hangs below where it is by then."""
    gates = [Gate(), Gate(), Gate()]
    script = [[say("a"), wait(gates[0])], [say("b"), wait(gates[1])], [say("c"), wait(gates[2])]]
    async with open_scenario(script) as s:
        await s.begin()
        path = path_of(s)
        seen: list[tuple[str | None, str | None]] = []
        submissions = [await s.send(text) for text in ("1", "2", "3")]
        asked = "SELECT current_turn_id, open_turn_id FROM ledger_sessions"
        for gate, submission in zip(gates, submissions, strict=True):
            await gate.reached.wait()
            seen += ask(path, asked)
            gate.set()
            await submission.wait()
        await s.settled()
        one, two, three = chain(path, current(path, s.id))
        assert seen == [(None, one), (one, two), (two, three)]
        assert ask(path, asked) == [(three, None)]
        status = "SELECT status FROM ledger_turns ORDER BY depth"
        assert ask(path, status) == [("completed",)] * 3


async def _play(seed: int, actions: Sequence[str], own: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), seed, kind="sqlite", settings=own)
        await machine.open()
        try:
            for action in actions:
                await machine.act(action)
            assert machine.path is not None
            assert await disagreements(machine.path, machine.engine.store) == []
            assert await lines_differ(machine.path, machine.engine) == []
        finally:
            await machine.close()


@pytest.mark.slow
@pytest.mark.rule("BR-8")
@settings(max_examples=rounds(8))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=40))
async def test_after_any_history_the_views_say_what_the_store_says(seed: int, actions: list[str]) -> None:
    """Sessions, turns with their summaries, messages and calls, each copy led to its origin or standing alone."""
    await _play(seed, actions, SETTINGS[seed % len(SETTINGS)])


@pytest.mark.slow
@pytest.mark.rule("BR-8")
async def test_after_a_long_history_the_views_say_what_the_store_says() -> None:
    """One that has every kind of step in it."""
    await _play(3, [*["prompt"] * 5, "answer", "fork", "branch", *Random(3).choices(ACTIONS, k=50)], SETTINGS[3])
