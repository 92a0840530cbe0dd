"""A conversation with a past, under random hands: whatever is done to it, nothing of it is lost.

Prompts of all sizes on a small window, tools with long outputs, answers that fail, break off or wait for a human,
rewinds and their undoing, jumps through the reflog, branches and forks from anywhere, summaries of every kind, prunes,
a queue, restarts. After every step: each part of the line is summarised or sent; every call has its one
result; reading changes nothing; the judge finds nothing; requests can be proven.

``CLEW_ROUNDS`` scales how many histories are played.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.store.files import folder
from tests.acceptance.history_machine import ACTIONS, GOING_BACK, SETTINGS, Machine
from tests.rounds import ON_POSTGRESQL, rounds

HISTORIES: Final = rounds(48)


async def _play(
    seed: int,
    actions: Sequence[str],
    *,
    kind: str,
    settings: Mapping[str, Any] = SETTINGS[0],
    url: str | None = None,
) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), seed, kind=kind, settings=settings, url=url)
        await machine.open()
        try:
            for action in actions:
                await machine.act(action)
                await machine.judge()
            return machine.happened + await machine.summaries()
        finally:
            await machine.close()


@pytest.mark.slow
@pytest.mark.rule("CP-3", "CP-4", "CP-10", "RW-1", "RW-3", "RW-4", "BR-1", "BR-4", "BR-6", "PR-4")
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=40))
async def test_nothing_of_a_history_is_lost_whatever_is_done_to_it(seed: int, actions: list[str]) -> None:
    """In memory, where it is quickest."""
    await _play(seed, actions, kind="memory")


@pytest.mark.slow
@pytest.mark.rule("CP-3", "RW-3", "BR-1", "SR-4")
@settings(max_examples=max(HISTORIES // 8, 1))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=30))
async def test_nothing_of_a_stored_history_is_lost_over_restarts(seed: int, actions: list[str]) -> None:
    """On SQLite, reopened in between."""
    await _play(seed, actions, kind="sqlite")


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.rule("RP-6", "ST-12", "CP-3", "RW-3", "BR-1", "SR-4")
@pytest.mark.parametrize("seed", range(rounds(6 if ON_POSTGRESQL else 1)))
async def test_nothing_of_a_history_on_postgresql_is_lost_over_restarts(postgres_store_url: str, seed: int) -> None:
    """On PostgreSQL, reopened in between."""
    await _play(seed, Random(seed).choices(ACTIONS, k=20), kind="postgresql", url=postgres_store_url)


@pytest.mark.slow
@pytest.mark.rule("FS-4", "CP-3", "RW-3", "BR-1", "SR-4")
@pytest.mark.parametrize("kind", ["jsonl", "json"])
@settings(max_examples=max(HISTORIES // 24, 1), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=30))
async def test_nothing_of_a_history_in_files_is_lost_over_restarts(
    monkeypatch: pytest.MonkeyPatch, kind: str, seed: int, actions: list[str]
) -> None:
    """On the file stores, reopened in between."""
    monkeypatch.setattr(folder, "_sync", lambda fd: None)
    await _play(seed, actions, kind=kind)


@pytest.mark.slow
@pytest.mark.rule("CP-13", "CP-3", "RW-4", "BR-4")
@settings(max_examples=max(HISTORIES // 6, 1))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(GOING_BACK), min_size=8, max_size=25))
async def test_a_summary_is_in_force_on_exactly_the_lines_that_hold_what_it_tells_of(
    seed: int, actions: list[str]
) -> None:
    """Summaries cut anywhere, over rewinds, edits, answers asked for anew, branches, forks, and more summaries."""
    await _play(seed, ["prompt", "prompt", *actions], kind="memory")


@pytest.mark.slow
async def test_the_histories_have_everything_in_them(record_property: Any) -> None:
    """The control: over a few long histories, one for each way to make room, every kind of step did what it is for."""
    happened: Counter[str] = Counter()
    for seed, own in enumerate(SETTINGS):
        actions = [*["prompt"] * 5, "answer", "prune"] * 3 + Random(seed).choices(ACTIONS, k=30)
        happened += await _play(seed, actions, kind="memory", settings=own)
    for seed in range(3):
        happened += await _play(seed, Random(seed).choices(GOING_BACK, k=30), kind="memory")
    record_property("figure", f"{len(SETTINGS)} long histories: {dict(sorted(happened.items()))}")
    for what in (
        *("rewound", "unrewound", "restored", "edited", "went", "answered", "proven"),
        *("branched", "branched at the end", "sliced", "pruned", "pruned outputs"),
        *("carried", "carried into a branch", "asked again", "condensed"),
        *("compacted by hand", "summary by itself", "summary by hand", "split", "pair"),
    ):
        assert happened[what] > 0, what
