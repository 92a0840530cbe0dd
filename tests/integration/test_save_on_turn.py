"""``save_on = "turn"``: chunks and steps of an answer are stored when its turn ends, and not before (002)."""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import clew
from clew.session.api import Engine
from clew.session.history.check import check
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from clew.transcript.message import Message

pytestmark = pytest.mark.rule("SV-3")

T = TypeVar("T")
_LOOK = call("read", {"path": "notes.txt"})


@pytest.fixture(params=["sqlite", "jsonl", "json", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_store_url"))
    (tmp_path / "kept").mkdir()
    return f"sqlite:///{tmp_path}/kept/store.db" if request.param == "sqlite" else f"{request.param}:{tmp_path}/kept"


@asynccontextmanager
async def opened(store: str, model: ScriptedModel, save_on: Any = "turn", **limits: int) -> AsyncIterator[Engine]:
    live: Any = {"live": "local"} if store.startswith("postgres") else {}
    save = clew.SavePolicy(save_on=save_on, **({"save_buffer_ms": 0, "save_buffer_size": 0} | limits))
    async with clew.open(store, providers=FakeProviders(model), config=clew.Config(save=save), **live) as engine:
        yield engine


async def stored(engine: Engine, session_id: str) -> list[tuple[str, list[str]]]:
    """What the store itself holds of a session, whatever the engine knows."""
    view = await engine.store.load_line(session_id, turns=9)
    return [(row.role, [str(part.type) for part in row.parts]) for entry in view.turns for row in entry.messages]


async def begin(engine: Engine, tmp_path: Path) -> tuple[str, Any]:
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "notes.txt").write_text("a thimble")
    metadata = {"workerId": "w", "workspaceId": "w"}
    session = await engine.create_session(workspace_root=tmp_path / "work", metadata=metadata)
    return session.id, await engine.submit(session.id, "look twice")


async def until(look: Callable[[], Awaitable[T]], is_there: Callable[[T], bool]) -> T:
    async with asyncio.timeout(10):
        while True:
            if is_there(found := await look()):
                return found
            await asyncio.sleep(0)


def texts(message: Message) -> list[str]:
    return [part["text"] for part in message.parts if part["type"] == "text"]


async def test_nothing_of_an_answer_is_stored_before_its_turn_ends(store: str, tmp_path: Path) -> None:
    """The prompt is; so is what each call cost. Viewers and the model see all of it meanwhile."""
    gate = Gate()
    model = ScriptedModel([[say("first"), _LOOK], [say("second"), _LOOK], [wait(gate), say("third")]])
    async with opened(store, model) as engine:
        session_id, submission = await begin(engine, tmp_path)
        await gate.reached.wait()
        assert await stored(engine, session_id) == [("user", ["text"])]
        calls = await engine.store.load_calls(session_id)
        assert [one.ended for one in calls if one.purpose == "answer"] == ["completed", "completed", "asked"]
        assert await engine.store.load_steps((await engine.store.load_state(session_id)).open_turn_id or "") == ()
        # The model has seen the results of both steps, and viewers see them too.
        outputs = [part for message in model.requests[-1].messages for part in message.parts if "toolCallId" in part]
        assert ["thimble" in str(part.get("output")) for part in outputs] == [True, True]
        stream = await engine.find_stream(session_id)
        assert stream is not None
        gate.set()
        assert (await submission.wait()).status == "completed"
        [_, answer] = await engine.messages(session_id)
        assert texts(answer) == ["first", "second", "third"]
        turn = answer.metadata["turn_id"]
        assert [step.index for step in await engine.store.load_steps(turn)] == [0, 1, 2]
        session = await engine.get_session(session_id)
        assert session.total_tokens == sum(one.usage.total for one in await engine.store.load_calls(session_id)) > 0
        assert await check(engine.store) == []


@pytest.mark.parametrize("save_on", ["step", None])
async def test_the_other_policies_store_each_step(store: str, tmp_path: Path, save_on: str | None) -> None:
    """The difference that the setting makes."""
    gate = Gate()
    model = ScriptedModel([[say("first"), _LOOK], [wait(gate), say("second")]])
    async with opened(store, model, save_on) as engine:
        session_id, submission = await begin(engine, tmp_path)
        await gate.reached.wait()
        assert [kinds[:3] for _, kinds in await stored(engine, session_id)] == [
            ["text"],
            ["step-start", "text", "tool-read"],
        ]
        gate.set()
        await submission.wait()


async def test_a_full_buffer_and_a_long_wait_store_it_earlier(store: str, tmp_path: Path) -> None:
    """Each limit by itself."""
    for n, limits in enumerate(({"save_buffer_size": 64}, {"save_buffer_ms": 1})):
        gate = Gate()
        model = ScriptedModel([[say("word " * 50), _LOOK], [wait(gate), say("second")]])
        async with opened(store, model, **limits) as engine:
            session_id, submission = await begin(engine, tmp_path)
            await gate.reached.wait()
            look = functools.partial(stored, engine, session_id)
            await until(look, lambda rows: len(rows) == 2)
            gate.set()
            assert (await submission.wait()).status == "completed", n
            assert await check(engine.store) == []


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "json"], indirect=True)
async def test_a_crash_takes_the_answer_under_way_and_nothing_else(store: str, tmp_path: Path) -> None:
    """The files as a kill leaves them: the prompt is there, what was spent is, and the turn can be continued."""
    gate = Gate()
    model = ScriptedModel([[say("first"), _LOOK], [wait(gate), say("second")]])
    async with opened(store, model) as engine:
        session_id, submission = await begin(engine, tmp_path)
        await gate.reached.wait()
        shutil.copytree(tmp_path / "kept", tmp_path / "killed")
        gate.set()
        await submission.wait()
    async with opened(store.replace("/kept", "/killed"), ScriptedModel([[say("again")]])) as engine:
        shown = await engine.messages(session_id)
        assert [(one.role, texts(one)) for one in shown] == [("user", ["look twice"])]
        assert shown[0].metadata["turn"]["status"] == "failed"
        spent = [one.ended for one in await engine.store.load_calls(session_id) if one.purpose == "answer"]
        assert spent == ["completed", "interrupted"]
        await (await engine.continue_turn(session_id)).wait()
        assert texts((await engine.messages(session_id))[-1]) == ["again"]
        assert await check(engine.store) == []


async def test_a_request_for_approval_an_abort_and_a_failure_are_ends(store: str, tmp_path: Path) -> None:
    """What was shown by then is stored: nobody has to answer a request that a restart would not know."""
    gate = Gate()
    model = ScriptedModel(
        [[say("first"), _LOOK], [call("bash", {"command": "touch x"})], [say("third"), wait(gate), say("never")]]
    )
    async with opened(store, model) as engine:
        session_id, submission = await begin(engine, tmp_path)
        waiting = (await until(lambda: engine.get_status(session_id), lambda status: bool(status.waiting))).waiting
        assert [kinds for _, kinds in await stored(engine, session_id)][1][:3] == ["step-start", "text", "tool-read"]
        await engine.answer(session_id, str(waiting[0].approval_id), "deny")
        await gate.reached.wait()
        assert await engine.abort(session_id)
        assert (await submission.wait()).status == "aborted"
        assert texts((await engine.messages(session_id))[-1]) == ["first", "third"]
        assert await check(engine.store) == []
