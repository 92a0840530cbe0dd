"""Where one can go back to, what it does to files, who is told, and that any history stays sound."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import InvalidId, InvalidInput, MessageNotFound, RewindTargetInvalid
from clew.session.history.check import check
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, Gate, say, wait
from clew.transcript.metadata import projection_of
from clew.transcript.projection import compaction_tails, hidden_messages
from tests.acceptance.conversations import (
    ACTIONS,
    act,
    echo,
    is_sound,
    rows_of,
    summarise,
    talk,
    tree_of,
    turn_of,
)
from tests.rounds import rounds

from .conftest import Open

# Naming messages


async def test_a_target_that_cannot_be_rewound_to_says_what_to_do(open_both: Open) -> None:
    """Assistant, summary, queued, cancelled, refused, off the line, unknown, malformed."""
    gate = Gate()
    async with open_both([say("one"), say("two"), [wait(gate), say("three")]]) as s:
        await s.begin()
        one, two = await talk(s, "1", "2")
        answer = (await tree_of(s)).links[(await turn_of(s, one)).id][1]
        await s.engine.rewind(s.id, two, mode="edit")
        _, marker = await summarise(s, one)
        await s.send("3")
        cancelled = await s.send("never", message_id="mine")
        await gate.reached.wait()
        await s.engine.cancel_queued(s.id, cancelled.message_id)
        gate.set()
        await s.settled()
        for named, sentence in (
            (answer, one),
            (marker, "summary"),
            (two, "go to turn"),
            (cancelled.message_id, "cancelled"),
            ("mine", "cancelled"),
        ):
            with pytest.raises(RewindTargetInvalid, match=sentence):
                await s.engine.rewind(s.id, named)
        with pytest.raises(MessageNotFound):
            await s.engine.rewind(s.id, s.engine.mint.message())
        for bad in ("", "x" * 129, "ünïcode", "a\nb"):
            with pytest.raises(InvalidId):
                await s.engine.rewind(s.id, bad)
        await is_sound(s)


async def test_an_id_is_looked_up_on_the_line_first_and_the_clients_before_ours(open_both: Open) -> None:
    """An edit may use an id again: the row on the line is meant, and off it the newest."""
    async with open_both(echo()) as s:
        await s.begin()
        first = await s.send("one", message_id="m")
        await first.wait()
        await s.settled()
        edited = await s.engine.rewind(s.id, "m", mode="edit", text="uno", run=True, client_message_id="m")
        assert edited.submission is not None
        await edited.submission.wait()
        await s.settled()
        assert (await s.engine.rewind(s.id, "m", mode="edit")).draft == "uno"
        with pytest.raises(RewindTargetInvalid, match=str((await tree_of(s)).moves[-1].from_turn_id)):
            await s.engine.rewind(s.id, "m")
        await s.engine.set_head(s.id, (await tree_of(s)).moves[0].to_turn_id)
        assert (await s.engine.rewind(s.id, "m", mode="edit")).draft == "one"


async def test_requests_that_make_no_sense_are_refused(open_both: Open) -> None:
    """Before anything is looked at."""
    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        bad: list[dict[str, Any]] = [
            {"mode": "sideways"},
            {"mode": None},
            {"text": "x"},
            {"mode": "edit", "text": 5},
            {"mode": "edit", "text": "\ud800"},
            {"mode": "edit", "parts": [{"type": "text", "text": "x"}]},
            {"mode": "edit", "run": True, "client_message_id": "\x00"},
            {"run": True, "model": "test/x"},
        ]
        for options in bad:
            with pytest.raises(clew.Invalid):
                await s.engine.rewind(s.id, one, **options)
        with pytest.raises(clew.SessionNotFound):
            await s.engine.rewind(s.engine.mint.session(), one)
        with pytest.raises(InvalidId):
            await s.engine.unrewind("no.where")
        with pytest.raises(InvalidInput):
            await s.engine.rewind(s.id, one, mode="edit", model="test/x")
        assert len((await tree_of(s)).moves) == 1


async def test_everybody_is_told_that_the_session_changed(open_both: Open) -> None:
    """One event and one hook for each operation that did something."""
    saved: list[Any] = []

    async def save(session_id: str) -> None:
        saved.append(session_id)

    async with open_both(echo()) as s:
        await s.begin()
        one, _ = await talk(s, "one", "two")
        await asyncio.gather(*s.engine._runtime.sessions._tasks)  # titles are made beside, and told of
        await asyncio.sleep(0)
        s.engine.hook("session_save", save)
        events = s.engine.subscribe()
        await s.engine.rewind(s.id, one, mode="edit")
        await s.engine.unrewind(s.id)
        await s.engine.set_head(s.id, None)
        await s.engine.set_head(s.id, None)
        seen = [await anext(events) for _ in range(3)]
        assert [(event.type, event.data) for event in seen] == [("session_updated", {"session_id": s.id})] * 3
        await s.engine.host.hooks.drain()
        assert saved == [s.id] * 3


# Any history


@pytest.mark.rule("RW-1", "RW-3", "RW-4")
@settings(max_examples=rounds(25))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=12))
async def test_whatever_is_done_the_projections_are_those_of_the_tree(
    seed: int, actions: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And no row is lost, the judge finds nothing, an un-rewind right after a rewind changes no row."""
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("history")
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(echo())) as engine:
        s = await Scenario(engine, echo(), folder).begin()
        for action in actions:
            before = await rows_of(s)
            try:
                await act(s, action, rng)
            except (clew.Conflict, clew.Invalid):
                assert await rows_of(s) == before
            tree, rows = await tree_of(s), await rows_of(s)
            assert set(before) <= set(rows)
            truth = hidden_messages(tree, compaction_tails(tree, rows))
            expected = {id_: (hidden.at, hidden.by) for id_, hidden in truth.items()}
            assert {
                id_: projection_of(row.metadata) for id_, row in rows.items() if "hidden_at" in row.metadata
            } == expected
            assert await check(engine.store) == []
