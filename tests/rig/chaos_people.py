"""Who uses the world of the chaos campaign: people that send prompts, stop and answer at any replica, and viewers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final

from clew.providers.base import ModelRequest
from clew.providers.demo import DemoProvider
from clew.transcript.message import Message
from clew.transcript.session import Model
from tests.integration.http_client import Answer
from tests.rig.chaos_history import History, Prompt, View, said_in
from tests.rig.chaos_world import World

__all__ = ["People", "expected_answer"]

_LONG: Final = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
_TOOLS: Final = {"provider_id": "demo", "model_id": "tools", "variant": "slow"}
_ECHO: Final = {"provider_id": "demo", "model_id": "echo"}
_TRY_S: Final = 3.0
"""How long a client waits for an answer, and a viewer for the next sign of life, before it turns to another replica."""
_PATIENCE_S: Final = 20.0
_LONGEST_QUEUE: Final = 20
_LOST: Final = (OSError, EOFError, ValueError, TimeoutError)
"""A connection that broke, or broke off in the middle of an answer."""


async def expected_answer(words: str) -> str:
    """What ``demo/long`` says to this, asked without a server around it."""
    request = ModelRequest(
        model=Model("demo", "long"), system="", messages=[Message("m", "user", [{"type": "text", "text": words}], {})]
    )
    return "".join([getattr(chunk, "delta", "") async for chunk in DemoProvider().stream(request)])


class People:
    """One person and one viewer a session, as long as ``acting``; each turns to a replica by chance."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.history = History()
        self.sessions: list[str] = []
        self._random = Random(seed)
        self._numbers = itertools.count()
        self._acting = asyncio.Event()
        self._parked = asyncio.Condition()
        self._at_rest = 0
        self._something: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Sessions are made, and people act and watch until this is left."""
        for _ in range(self.world.shape.sessions):
            answer = await self.ask("create", "POST", "/api/sessions", {"workspace_root": str(self.world.folder)})
            assert answer is not None, self.world.logs()
            session_id = str(answer.json()["id"])
            self.sessions.append(session_id)
            self._something[session_id] = asyncio.Event()
        self._acting.set()
        loop = asyncio.get_running_loop()
        for number, session_id in enumerate(self.sessions):
            self._tasks.append(loop.create_task(self._act(session_id, Random(self._random.random()))))
            self._tasks.append(loop.create_task(self._watch(session_id, number)))
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def rest(self) -> None:
        """Everybody finishes what they are about, and does no more."""
        self._acting.clear()
        async with self._parked:
            await self._parked.wait_for(lambda: self._at_rest == len(self.sessions))

    def go_on(self) -> None:
        self._acting.set()

    # ---------------------------------------------------------------- what a client does

    async def ask(self, what: str, method: str, path: str, body: Any = None) -> Answer | None:
        """An answer of whichever replica has one, as a client behind a proxy gets it; None: nobody in time."""
        self.history.operations[what] += 1
        why = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    client = self._random.choice(self.world.clients)
                    try:
                        async with asyncio.timeout(_TRY_S):
                            answer = await client.request(method, path, body)
                        if answer.status < 500:
                            return answer
                        why = f"{answer.status} {answer.code}"
                    except _LOST as error:
                        why = type(error).__name__
                    await asyncio.sleep(0.1)
        self.history.failures[f"{what}: {why}"] += 1
        return None

    async def prompt(self, session_id: str, text: str, model: Any, answer: str | None) -> bool:
        sent = Prompt(session_id, text, answer)
        self.history.prompts.append(sent)
        body = {"text": text, "model": model, "message_id": f"m{next(self._numbers)}"}
        told = await self.ask("prompt", "POST", f"/api/sessions/{session_id}/prompt", body)
        sent.acknowledged = told is not None and told.status == 202
        self._something[session_id].set()
        return sent.acknowledged

    async def _act(self, session_id: str, random: Random) -> None:
        path = f"/api/sessions/{session_id}"
        words = self.world.shape.words
        while True:
            async with self._parked:
                self._at_rest += 1
                self._parked.notify_all()
            await self._acting.wait()
            self._at_rest -= 1
            number = next(self._numbers)
            match random.choices(("prompt", "tool", "abort", "go on", "look"), (10, 2, 2, 1, 2))[0]:
                case "prompt":
                    text = f"{random.randint(1, 2 * words)} words for prompt {number}"
                    await self.prompt(session_id, text, _LONG, await expected_answer(text))
                case "tool":
                    await self.prompt(session_id, f"!write {session_id}-{number}.txt word", _TOOLS, None)
                    await self._answer(session_id, random)
                case "abort":
                    queue = random.choice(("stay", "go_on"))
                    await self.ask("abort", "POST", f"{path}/abort", {"queue": queue})
                case "go on":
                    await self.ask("go on", "POST", f"{path}/continue", {"queue": True})
                case "look":
                    await self.ask("look", "GET", f"{path}/messages?limit=20")
            await asyncio.sleep(random.uniform(0.1, self.world.shape.think_s))

    async def _answer(self, session_id: str, random: Random) -> None:
        """Say yes or no to what waits, at another replica than the one that runs it, like as not."""
        for _ in range(10):
            status = await self.ask("status", "GET", f"/api/sessions/{session_id}/status")
            if status is not None and status.status == 200 and status.json().get("waiting"):
                decision = random.choice(("once", "once", "deny"))
                await self.ask("answer", "POST", f"/api/sessions/{session_id}/approvals", {"decision": decision})
                self._something[session_id].set()
                return
            await asyncio.sleep(random.uniform(0.1, 0.4))

    # ---------------------------------------------------------------- what a viewer sees

    async def _watch(self, session_id: str, number: int) -> None:
        """Comes back, to another replica, whenever a stream breaks; what each showed is kept by itself."""
        for at in itertools.count(number):
            replica = at % len(self.world.clients)
            view = View(session_id, replica)
            try:
                await self._view(view)
            except _LOST:
                await asyncio.sleep(0.05)
            if view.chunks:
                self.history.views.append(view)
            else:
                something = self._something[session_id]
                something.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await something.wait()

    async def _view(self, view: View) -> None:
        async with contextlib.AsyncExitStack() as leaving:
            async with asyncio.timeout(_TRY_S):
                path = f"/api/chat/{view.session_id}/stream"
                reply = await leaving.enter_async_context(self.world.clients[view.replica].open("GET", path))
            if reply.status != 200:
                return
            frames = reply.frames()
            waits = False
            while True:
                async with asyncio.timeout(_TRY_S):
                    frame = await anext(frames, None)
                if frame is None:
                    return
                if frame == "[DONE]":
                    view.done = not waits
                    return
                view.chunks += 1
                view.last = f"{view.last} {frame}"[-300:]
                # A stream ends where a human is asked; the message goes on with the answer.
                waits = frame["type"] == "tool-approval-request" or (waits and not frame["type"].startswith("tool-"))
                if frame["type"] == "start":
                    view.message_id = frame.get("messageId")  # a turn without an answer names none
                elif frame["type"] in ("text-delta", "reasoning-delta"):
                    view.said += frame["delta"]

    # ---------------------------------------------------------------- at rest

    async def until_quiet(self, patience_s: float) -> list[str]:
        """Nobody acts any more: every session comes to rest, and what it has said is noted. Those that did not."""
        give_up = asyncio.get_running_loop().time() + patience_s
        left = list(self.sessions)
        while left:
            states = await asyncio.gather(*(self.ask("status", "GET", f"/api/sessions/{one}/status") for one in left))
            left = [
                one
                for one, answer in zip(left, states, strict=True)
                if answer is None or answer.status != 200 or answer.json()["state"] not in ("idle", "error")
            ]
            if left and asyncio.get_running_loop().time() > give_up:
                break
            await asyncio.sleep(0.2)
        return left

    async def stored(self) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]:
        """All messages of every session, and those that wait in its queue."""
        found: dict[str, list[dict[str, Any]]] = {}
        waiting: dict[str, list[dict[str, Any]]] = {}
        for one in self.sessions:
            answer = await self.ask("messages", "GET", f"/api/sessions/{one}/messages?view=all")
            queue = await self.ask("queue", "GET", f"/api/sessions/{one}/queue")
            assert answer is not None, self.world.logs()
            assert queue is not None, self.world.logs()
            found[one] = answer.json()["messages"]
            waiting[one] = queue.json()["messages"]
        return found, waiting

    async def note_settled(self) -> None:
        """While everybody rests: what reads the same twice, and nobody is at work on or asked about in between."""
        before, _ = await self.stored()
        states = [await self.ask("status", "GET", f"/api/sessions/{one}/status") for one in self.sessions]
        after, _ = await self.stored()
        for session_id, status in zip(self.sessions, states, strict=True):
            if status is None or status.json()["state"] != "idle" or status.json().get("waiting"):
                continue
            said = {message["id"]: said_in(message) for message in before[session_id]}
            for message in after[session_id]:
                if message["role"] == "assistant" and said.get(message["id"]) == said_in(message):
                    self.history.settled.setdefault(message["id"], said_in(message))

    async def use_each(self) -> list[str]:
        """A prompt to every session, answered word for word; the sessions where that did not happen."""
        words = {session_id: f"still there, {session_id}?" for session_id in self.sessions}
        for session_id, text in words.items():
            await self.prompt(session_id, text, _ECHO, text)
        left = list(self.sessions)
        for _ in range(_LONGEST_QUEUE):
            await self.until_quiet(_PATIENCE_S)
            found, _ = await self.stored()
            answered = {one: [said_in(m) for m in found[one] if m["role"] == "assistant"] for one in left}
            left = [one for one in left if words[one] not in answered[one]]
            if not left:
                break
            # Something that waits for a human was before it in the queue: nobody is there to say yes.
            for session_id in left:
                await self.ask("abort", "POST", f"/api/sessions/{session_id}/abort", {"queue": "go_on"})
        return left
