"""The clients of the chaos campaign: users that send prompts, stop turns and answer at any replica, and viewers."""

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
from tests.rig.chaos_history import History, Prompt, View, text_of
from tests.rig.chaos_world import World

__all__ = ["People", "expected_answer"]

_LONG: Final = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
_TOOLS: Final = {"provider_id": "demo", "model_id": "tools", "variant": "slow"}
_ECHO: Final = {"provider_id": "demo", "model_id": "echo"}
_TRY_S: Final = 3.0
"""Time that a client waits for a response, and a viewer for the next frame, before using another replica."""
_PATIENCE_S: Final = 20.0
_MAX_QUEUE: Final = 20
_CONNECTION_ERRORS: Final = (OSError, EOFError, ValueError, TimeoutError)
"""Errors of a connection that broke, possibly in the middle of a response."""


async def expected_answer(words: str) -> str:
    """Return the answer of ``demo/long``, called without a server."""
    request = ModelRequest(
        model=Model("demo", "long"), system="", messages=[Message("m", "user", [{"type": "text", "text": words}], {})]
    )
    return "".join([getattr(chunk, "delta", "") async for chunk in DemoProvider().stream(request)])


class People:
    """One user and one viewer per session; each request goes to a random replica."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.history = History()
        self.sessions: list[str] = []
        self._random = Random(seed)
        self._numbers = itertools.count()
        self._acting = asyncio.Event()
        self._parked = asyncio.Condition()
        self._paused = 0
        self._activity: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Create the sessions, and let users act and viewers watch until the block is left."""
        for _ in range(self.world.shape.sessions):
            answer = await self.ask("create", "POST", "/api/sessions", {"workspace_root": str(self.world.folder)})
            assert answer is not None, self.world.logs()
            session_id = str(answer.json()["id"])
            self.sessions.append(session_id)
            self._activity[session_id] = asyncio.Event()
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
        """Let every user finish the current action, and wait until all have."""
        self._acting.clear()
        async with self._parked:
            await self._parked.wait_for(lambda: self._paused == len(self.sessions))

    def go_on(self) -> None:
        self._acting.set()

    # ---------------------------------------------------------------- requests

    async def ask(self, what: str, method: str, path: str, body: Any = None) -> Answer | None:
        """Return the response of any replica, as through a proxy, or None if none responds in time."""
        self.history.operations[what] += 1
        reason = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    client = self._random.choice(self.world.clients)
                    try:
                        async with asyncio.timeout(_TRY_S):
                            answer = await client.request(method, path, body)
                        if answer.status < 500:
                            return answer
                        reason = f"{answer.status} {answer.code}"
                    except _CONNECTION_ERRORS as error:
                        reason = type(error).__name__
                    await asyncio.sleep(0.1)
        self.history.failures[f"{what}: {reason}"] += 1
        return None

    async def prompt(self, session_id: str, text: str, model: Any, answer: str | None) -> bool:
        sent = Prompt(session_id, text, answer)
        self.history.prompts.append(sent)
        body = {"text": text, "model": model, "message_id": f"m{next(self._numbers)}"}
        response = await self.ask("prompt", "POST", f"/api/sessions/{session_id}/prompt", body)
        sent.acknowledged = response is not None and response.status == 202
        self._activity[session_id].set()
        return sent.acknowledged

    async def _act(self, session_id: str, random: Random) -> None:
        path = f"/api/sessions/{session_id}"
        words = self.world.shape.words
        while True:
            async with self._parked:
                self._paused += 1
                self._parked.notify_all()
            await self._acting.wait()
            self._paused -= 1
            number = next(self._numbers)
            match random.choices(("prompt", "tool", "abort", "go on", "read"), (10, 2, 2, 1, 2))[0]:
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
                case "read":
                    await self.ask("read", "GET", f"{path}/messages?limit=20")
            await asyncio.sleep(random.uniform(0.1, self.world.shape.think_s))

    async def _answer(self, session_id: str, random: Random) -> None:
        """Answer a pending approval, probably at another replica than the one that runs the turn."""
        for _ in range(10):
            status = await self.ask("status", "GET", f"/api/sessions/{session_id}/status")
            if status is not None and status.status == 200 and status.json().get("waiting"):
                decision = random.choice(("once", "once", "deny"))
                await self.ask("answer", "POST", f"/api/sessions/{session_id}/approvals", {"decision": decision})
                self._activity[session_id].set()
                return
            await asyncio.sleep(random.uniform(0.1, 0.4))

    # ---------------------------------------------------------------- viewers

    async def _watch(self, session_id: str, number: int) -> None:
        """Reconnect to another replica whenever a stream breaks; record each connection separately."""
        for at in itertools.count(number):
            replica = at % len(self.world.clients)
            view = View(session_id, replica)
            try:
                await self._view(view)
            except _CONNECTION_ERRORS:
                await asyncio.sleep(0.05)
            if view.chunks:
                self.history.views.append(view)
            else:
                activity = self._activity[session_id]
                activity.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await activity.wait()

    async def _view(self, view: View) -> None:
        async with contextlib.AsyncExitStack() as leaving:
            async with asyncio.timeout(_TRY_S):
                path = f"/api/chat/{view.session_id}/stream"
                reply = await leaving.enter_async_context(self.world.clients[view.replica].open("GET", path))
            if reply.status != 200:
                return
            frames = reply.frames()
            pending = False
            while True:
                async with asyncio.timeout(_TRY_S):
                    frame = await anext(frames, None)
                if frame is None:
                    return
                if frame == "[DONE]":
                    view.done = not pending
                    return
                view.chunks += 1
                view.last = f"{view.last} {frame}"[-300:]
                # A stream ends at an approval request; the message continues after the answer.
                pending = frame["type"] == "tool-approval-request" or (
                    pending and not frame["type"].startswith("tool-")
                )
                if frame["type"] == "start":
                    view.message_id = frame.get("messageId")  # a turn without an answer names none
                elif frame["type"] in ("text-delta", "reasoning-delta"):
                    view.text += frame["delta"]

    # ---------------------------------------------------------------- idle

    async def until_quiet(self, patience_s: float) -> list[str]:
        """Wait until every session is idle and return those that are not in time."""
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
        """Return all messages of every session, and its queue."""
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
        """Record messages that read the same twice while their session is idle and has no pending request."""
        before, _ = await self.stored()
        states = [await self.ask("status", "GET", f"/api/sessions/{one}/status") for one in self.sessions]
        after, _ = await self.stored()
        for session_id, status in zip(self.sessions, states, strict=True):
            if status is None or status.json()["state"] != "idle" or status.json().get("waiting"):
                continue
            texts = {message["id"]: text_of(message) for message in before[session_id]}
            for message in after[session_id]:
                if message["role"] == "assistant" and texts.get(message["id"]) == text_of(message):
                    self.history.settled.setdefault(message["id"], text_of(message))

    async def use_each(self) -> list[str]:
        """Send a prompt to every session, to be echoed; return the sessions where that failed."""
        prompts = {session_id: f"still there, {session_id}?" for session_id in self.sessions}
        for session_id, text in prompts.items():
            await self.prompt(session_id, text, _ECHO, text)
        left = list(self.sessions)
        for _ in range(_MAX_QUEUE):
            await self.until_quiet(_PATIENCE_S)
            found, _ = await self.stored()
            answered = {one: [text_of(m) for m in found[one] if m["role"] == "assistant"] for one in left}
            left = [one for one in left if prompts[one] not in answered[one]]
            if not left:
                break
            # An approval request was before it in the queue, and no user answers it.
            for session_id in left:
                await self.ask("abort", "POST", f"/api/sessions/{session_id}/abort", {"queue": "go_on"})
        return left
