"""A session under random hands: prompts, aborts, answers, viewers, cancels and crashes, in any order.

Whatever happens, the judge finds nothing, there is never a second run, every viewer that stayed saw the message that
is stored, messages keep their order, and when the dust settles the session takes a prompt and answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import ClewError
from clew.session.history.check import check
from clew.testing.scenario import reduced
from clew.testing.scripted import FakeProviders, ScriptedModel, call, fail, say, wait
from tests.rounds import ON_POSTGRESQL, rounds

ACTIONS = [
    "queue",
    "queue",
    "reject",
    "interrupt",
    "abort",
    "allow",
    "deny",
    "join",
    "cancel",
    "crash",
    "let go",
    "let go",
]


class Machine:
    """One session, one store, and an engine that is reopened when it crashes."""

    def __init__(self, folder: Path, seed: int, url: str | None = None) -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/store.db"
        self.rng = random.Random(seed)
        self.gates: list[asyncio.Event] = []
        self.viewers: list[asyncio.Task[list[dict[str, Any]]]] = []
        self.sent = 0
        self.session_id = ""
        self.engine: clew.Engine
        self._context: Any

    async def open(self) -> None:
        providers = FakeProviders(ScriptedModel(otherwise=self.reply))
        self._context = clew.open(self.url, config=clew.Config(), providers=providers)
        self.engine = await self._context.__aenter__()
        if not self.session_id:
            self.session_id = (await self.engine.create_session(workspace_root=str(self.folder), title="m")).id

    def reply(self, request: Any) -> Any:
        """A model that dawdles, asks for things, or fails, by chance."""
        gate = asyncio.Event()
        self.gates.append(gate)
        choice = self.rng.random()
        if choice < 0.25 and len(request.messages) < 30:
            return [say("I will write. "), wait(gate), call("write", {"path": "out.txt", "content": str(self.sent)})]
        if choice < 0.35:
            return [say("oh "), wait(gate), fail(400)]
        return [say("some words "), wait(gate), say("and some more")]

    async def act(self, action: str) -> None:
        with contextlib.suppress(ClewError):  # a refusal is an answer; what matters is the state it leaves
            await getattr(self, "do_" + action.replace(" ", "_"))()
        for _ in range(5):
            await asyncio.sleep(0)

    async def submit(self, on_busy: Any) -> None:
        self.sent += 1
        await self.engine.submit(self.session_id, f"p{self.sent}", on_busy=on_busy)

    async def do_queue(self) -> None:
        await self.submit("queue")

    async def do_reject(self) -> None:
        await self.submit("reject")

    async def do_interrupt(self) -> None:
        await self.submit("interrupt")

    async def do_abort(self) -> None:
        await self.engine.abort(self.session_id)

    async def answer(self, decision: Any) -> None:
        waiting = (await self.engine.get_status(self.session_id)).waiting
        if waiting:
            await self.engine.answer(self.session_id, str(waiting[0].approval_id), decision)

    async def do_allow(self) -> None:
        await self.answer("once")

    async def do_deny(self) -> None:
        await self.answer("deny")

    async def do_join(self) -> None:
        async def follow() -> list[dict[str, Any]]:
            return [chunk async for chunk in self.engine.attach(self.session_id)]

        self.viewers.append(asyncio.create_task(follow()))

    async def do_cancel(self) -> None:
        queue = await self.engine.queue(self.session_id)
        if queue:
            await self.engine.cancel_queued(self.session_id, self.rng.choice(queue).id)

    async def do_let_go(self) -> None:
        for gate in self.gates:
            gate.set()
        self.gates.clear()

    async def do_crash(self) -> None:
        """Die without settling anything: the run's task is cancelled, the store closed under it."""
        at_work: Any = self.engine._runtime.sessions
        run = at_work.find_run(self.session_id)
        if run is not None and run.task is not None:
            run.task.cancel()
            await asyncio.gather(run.task, return_exceptions=True)
            at_work._runs.pop(self.session_id, None)
        for viewer in self.viewers:
            viewer.cancel()
        self.viewers.clear()
        with contextlib.suppress(ClewError):
            await self._context.__aexit__(None, None, None)
        await self.open()

    async def settle(self) -> None:
        """Let everything that can end, end."""
        while True:
            await self.do_let_go()
            await asyncio.sleep(0.001)
            if not self.engine.is_idle(self.session_id):
                continue
            status = await self.engine.get_status(self.session_id)
            if status.waiting:
                await self.answer("deny")
            elif self.engine.is_idle(self.session_id):
                return

    async def judge(self) -> None:
        assert await check(self.engine.store) == []
        every = await self.engine.messages(self.session_id, view="all")
        on_line = [message for message in await self.engine.messages(self.session_id) if message.role == "user"]
        stamps = [message.metadata["created_at"] for message in on_line]
        assert stamps == sorted(stamps)
        by_id = {message.id: message for message in every}
        for viewer in self.viewers:
            if viewer.done() and viewer.result():
                message = reduced(viewer.result())
                stored = by_id[message["id"]]
                assert [_answerless(part) for part in message["parts"]] == [
                    _answerless(part) for part in stored.parts[: len(message["parts"])]
                ]


def _answerless(part: dict[str, Any]) -> dict[str, Any]:
    """A part without what v6 cannot replay, and calls without how they ended later."""
    if "toolCallId" in part:
        return {"toolCallId": part["toolCallId"], "input": part.get("input")}
    return part


@pytest.mark.slow
@pytest.mark.rule("SR-6", "SR-7", "SR-4")
@settings(max_examples=rounds(30))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=25))
async def test_a_session_survives_whatever_is_done_to_it(seed: int, actions: list[str]) -> None:
    """And answers the next prompt."""
    with tempfile.TemporaryDirectory() as folder:
        await survive(Machine(Path(folder), seed), actions)


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.rule("RP-6", "ST-12")
@pytest.mark.parametrize("seed", range(rounds(8 if ON_POSTGRESQL else 1)))
async def test_a_session_survives_it_on_postgresql(tmp_path: Path, postgres_store_url: str, seed: int) -> None:
    """The same machine."""
    machine = Machine(tmp_path, seed, postgres_store_url)
    await survive(machine, random.Random(seed).choices(ACTIONS, k=20))


async def survive(machine: Machine, actions: list[str]) -> None:
    await machine.open()
    try:
        for action in actions:
            await machine.act(action)
            run = machine.engine._runtime.sessions.find_run(machine.session_id)
            assert (run is None) == machine.engine.is_idle(machine.session_id)
        await machine.settle()
        await machine.judge()
        done = asyncio.create_task(_ask(machine))
        while not done.done():
            await machine.do_let_go()
            await asyncio.sleep(0.001)
        done.result()
        await machine.settle()
        await machine.judge()
    finally:
        await machine._context.__aexit__(None, None, None)


async def _ask(machine: Machine) -> None:
    submission = await machine.engine.submit(machine.session_id, "are you there?")
    assert submission.message_id
    async for status in machine.engine.watch_status(machine.session_id):
        if status.state != "busy" and machine.engine.is_idle(machine.session_id):
            return
