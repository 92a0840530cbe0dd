"""A long conversation is sized and summarised beside the event loop: nobody else waits for that."""

from __future__ import annotations

import asyncio
import gc
import threading
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew import long_work
from clew.compaction import budget
from clew.compaction import plan as plans
from clew.long_work import AT_ONCE, FEW, go_through, run_for_prompt, run_long
from clew.providers.base import ModelRequest
from clew.session.context import compact, context, context_fit, summarise
from clew.session.turn import run
from clew.testing.scripted import fail, say

from .compacting import Compacting, Playing, answer, bulk, opened, summary


def call_short(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    """So many messages are a short conversation."""
    for module in (long_work, context):
        monkeypatch.setattr(module, "FEW", messages)


def note_threads(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, told: list[tuple[str, bool]]) -> None:
    """Note of each call by that name whether it was made on the event loop."""
    call: Callable[..., Any] = getattr(where, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        told.append((name, threading.current_thread() is threading.main_thread()))
        return call(*args, **kwargs)

    monkeypatch.setattr(where, name, noted)


async def talk(s: Compacting, turns: int) -> None:
    for n in range(turns):
        assert isinstance(s.model, Playing)
        s.model.add(answer(bulk(f"reply{n}", 400)))
        assert (await s.say(f"prompt {n}")).status == "completed"


async def test_a_long_line_is_sized_beside_the_loop_once_and_then_on_the_spot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes first after it was read waits for it; what is noted in its messages then serves every prompt."""
    async with opened(tmp_path, url=f"sqlite:///{tmp_path}/clew.db") as s:
        await s.begin()
        await talk(s, 6)
    call_short(monkeypatch, 4)
    told: list[tuple[str, bool]] = []
    note_threads(monkeypatch, context_fit, "measured_context", told)
    async with opened(tmp_path, url=f"sqlite:///{tmp_path}/clew.db") as s:
        await s.begin()
        sized: list[set[tuple[str, bool]]] = []
        for _ in range(2):
            await talk(s, 1)
            sized.append({*told})
            told.clear()
        assert sized == [{("measured_context", False)}, {("measured_context", True)}]


async def test_a_summary_of_a_long_conversation_is_worked_out_beside_the_loop_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that goes through every message: where to cut, what is told and its text, what is noted, who is hidden."""
    told: list[tuple[str, bool]] = []
    names = {
        "plan_compaction": plans,
        "plan_summary": plans,
        "compaction_data_of": plans,
        "plan_marker": compact,
        "history_text": summarise,
    }
    for name, where in names.items():
        note_threads(monkeypatch, where, name, told)
    outcomes: list[Any] = []
    for messages in (4, FEW):
        call_short(monkeypatch, messages)
        (tmp_path / str(messages)).mkdir()
        async with opened(tmp_path / str(messages)) as s:
            await s.begin()
            await talk(s, 8)
            told.clear()
            done = await s.engine.compact(s.id)
            assert {*told} == {(name, messages == FEW) for name in names}
            asked = s.summariser.requests[0].messages[0].parts
            outcomes.append((msgspec.structs.replace(done, message_id=None), asked, await s.view()))
            await s.is_sound()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0].compacted


async def test_what_a_prompt_needs_waits_behind_no_export() -> None:
    """As much long work as there may be at once is held; for prompts there are places of their own."""
    inside, go_on = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        inside.release()
        assert go_on.wait(60)

    held = [asyncio.create_task(run_long(hold)) for _ in range(AT_ONCE + 1)]
    for _ in range(AT_ONCE):
        assert await asyncio.to_thread(inside.acquire, timeout=60)
    assert await run_for_prompt(lambda: "done") == "done"
    assert not any(task.done() for task in held)
    go_on.set()
    await asyncio.gather(*held)


async def test_whoever_is_aborted_leaves_no_place_free_that_is_not() -> None:
    """Threads cannot be stopped: as long as they work on, nobody else takes one more of them."""
    inside, go_on = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        inside.release()
        assert go_on.wait(60)

    held = [asyncio.create_task(run_for_prompt(hold)) for _ in range(AT_ONCE)]
    for _ in held:
        assert await asyncio.to_thread(inside.acquire, timeout=60)
    for task in held:
        task.cancel()
    assert [type(one) for one in await asyncio.gather(*held, return_exceptions=True)] == [CancelledError] * AT_ONCE
    waits = asyncio.create_task(run_for_prompt(lambda: "done"))
    place = long_work._prompts_places[asyncio.get_running_loop()]
    assert place.locked()
    go_on.set()
    assert await waits == "done"
    assert not place.locked()


async def test_a_summary_that_takes_long_keeps_nothing_from_being_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held is gone through for garbage as ever while a model is asked, however much it is."""
    usual, told = gc.get_threshold(), list[tuple[int, int, int]]()
    call_short(monkeypatch, 4)

    def summarised(request: ModelRequest) -> Any:
        told.append(gc.get_threshold())
        return say(summary("the goal"))

    async with opened(tmp_path, summaries=Playing(otherwise=summarised)) as s:
        await s.begin()
        await talk(s, 8)
        assert (await s.engine.compact(s.id)).compacted
    assert (told, gc.get_threshold()) == ([usual], usual)


async def test_a_run_that_is_over_holds_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it ended. What a run is made of is freed when somebody collects, and a long line is much to wait with."""
    rooms: list[context_fit.ContextFitter] = []

    class Noted(context_fit.ContextFitter):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            rooms.append(self)

    monkeypatch.setattr(run, "ContextFitter", Noted)
    async with opened(tmp_path, [answer("one"), fail(400), answer("three")]) as s:
        await s.begin()
        ended = [(await s.say(text)).status for text in ("go", "go wrong", "go on")]
        assert ended == ["completed", "failed", "completed"]
        assert [(one._line, one._counted, one._fitted) for one in rooms] == [(None, None, None)] * 3


async def test_few_messages_are_gone_through_on_the_spot() -> None:
    """A hand-over would take longer."""
    there = [await go_through(range(n), threading.current_thread) for n in (FEW, FEW + 1)]
    assert [thread is threading.main_thread() for thread in there] == [True, False]


async def test_a_short_conversation_is_sized_while_a_long_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for the other: the one in its thread, the other on the loop."""
    url = f"sqlite:///{tmp_path}/clew.db"
    async with opened(tmp_path, url=url) as s:
        await s.begin()
        await talk(s, 6)
    call_short(monkeypatch, 4)
    inside, go_on, size_request = threading.Semaphore(0), threading.Event(), budget.size_request
    let_go: list[bool] = []

    def held(**told: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            inside.release()
            let_go.append(go_on.wait(20))
        return size_request(**told)

    monkeypatch.setattr(budget, "size_request", held)
    async with opened(tmp_path, url=url) as s:
        await s.begin()
        long = asyncio.create_task(s.say("go on"))
        assert await asyncio.to_thread(inside.acquire, timeout=60)
        short = await s.engine.create_session(model="test/model")
        assert (await (await s.engine.submit(short.id, "hello")).wait()).status == "completed"
        assert not long.done()
        go_on.set()
        assert (await long).status == "completed"
    assert {*let_go} == {True}


async def test_what_fails_after_its_caller_left_is_nobodys_news() -> None:
    """It is neither told to the loop nor kept, and the place is free."""
    inside, go_on = threading.Semaphore(0), threading.Event()
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: told.append(about))

    def fail_late() -> None:
        inside.release()
        assert go_on.wait(60)
        raise ValueError("too late")

    held = asyncio.create_task(run_for_prompt(fail_late))
    assert await asyncio.to_thread(inside.acquire, timeout=60)
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    del held  # it is told of when nobody can ask for it any more
    go_on.set()
    assert [await run_for_prompt(str, n) for n in range(3)] == ["0", "1", "2"]
    gc.collect()
    assert told == []


def test_there_is_nothing_to_free_beside_a_loop_that_is_over() -> None:
    """As of a run whose loop was closed under it."""
    long_work.let_go(range(2_000))
