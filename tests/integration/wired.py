"""A clew behind HTTP whose model is reached over a scripted wire, and what a user finds after each of its turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

import clew
from clew.clock import SystemClock, Timer
from clew.providers.catalog import ModelFacts, Prices
from clew.providers.pydantic_ai import IDLE_LIMIT_MS
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.transcript.usage import Usage
from tests.integration.http_client import AsgiClient, reduced, served, texts
from tests.integration.wire_cases import Wire
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, Arrived, Step, WireServer, ok

__all__ = ["PRICES", "SHORT", "Found", "Wired", "wired"]

PRICES = Prices(input=1.0, output=10.0, cache_read=0.1, cache_write=1.25)
SHORT: dict[Wire, list[bytes]] = {
    "anthropic": ANTHROPIC.text("fine"),
    "openai": OPENAI.text("fine"),
    "openai-responses": RESPONSES.text("fine"),
}
"""An answer that used 10 tokens of input and 5 of output."""
SHORT_USAGE = Usage(input=10, output=5)


class Patience(SystemClock):
    """The clock of a provider: how long it may be silent is up to the test."""

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[], None]] = {}
        self._count = 0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        if delay_ms != IDLE_LIMIT_MS:
            return super().call_later(delay_ms, callback)
        self._count += 1
        return _Waiting(self._waiting, self._count, callback)

    def end(self) -> None:
        """It has been silent for too long."""
        for callback in list(self._waiting.values()):
            callback()


class _Waiting:
    def __init__(self, waiting: dict[int, Callable[[], None]], number: int, callback: Callable[[], None]) -> None:
        self._waiting, self._number = waiting, number
        waiting[number] = callback

    def cancel(self) -> None:
        self._waiting.pop(self._number, None)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a user finds after a turn: what was kept of it, how it ended, what it cost, how often its tool ran."""

    reasoning: str
    text: str
    stream: str
    turn: tuple[str, str | None]
    usage: Usage
    estimated: bool
    cost: float
    ran: int


class Wired:
    """One server and one wire for many cases, each in a session of its own."""

    def __init__(self, wire: WireServer, client: AsgiClient, patience: Patience, ran: list[int]) -> None:
        self.wire = wire
        self.client = client
        self._patience = patience
        self.ran = ran
        self._prompts = 0

    async def begin(self, *replies: Sequence[Step]) -> str:
        """A session whose next model calls are answered so; after these, with a short answer."""
        self.wire.forget()
        for reply in replies:
            self.wire.reply(*reply)
        self.ran.clear()
        session_id = await self.client.session(title="wired")
        rules = [{"permission": "note", "pattern": "*", "action": "allow"}]
        assert (
            await self.client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": rules})
        ).status < 300
        return session_id

    async def prompt(self, session_id: str, text: str, *, patient_until: int | None = None) -> list[Any]:
        """Send a prompt and follow it to its end. ``patient_until``: so many characters come before a silence."""
        self._prompts += 1
        body: dict[str, Any] = {"id": session_id, "trigger": "submit-message"}
        body["messages"] = [{"id": f"u{self._prompts}", "role": "user", "parts": [{"type": "text", "text": text}]}]
        frames: list[Any] = []
        silence = asyncio.create_task(self._lose_patience(frames, patient_until))
        async with self.client.open("POST", "/api/chat", body) as reply:
            assert reply.status == 200, await reply.read()
            async for frame in reply.frames():
                frames.append(frame)  # noqa: PERF401  looked at while it grows
        silence.cancel()
        return frames[:-1]

    async def go_on(self, session_id: str) -> list[Any]:
        """Continue the turn and follow it to its end."""
        answer = await self.client.post(f"/api/sessions/{session_id}/continue")
        assert answer.status == 202, answer
        async with self.client.open("GET", f"/api/chat/{session_id}/stream") as reply:
            frames = [frame async for frame in reply.frames()] if reply.status == 200 else []
        await self.client.idle(session_id)
        return frames[:-1]

    async def _lose_patience(self, frames: list[Any], words: int | None) -> None:
        if words is None:
            return
        await self.wire.pausing.wait()
        while sum(len(frame.get("delta", frame.get("inputTextDelta", ""))) for frame in frames) < words:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(100):  # what came after the last word is read by then
            await asyncio.sleep(0)
        self._patience.end()

    async def found(self, session_id: str, frames: list[Any]) -> Found:
        """As the last turn stands, with what its stream said."""
        messages = await self.client.messages(session_id)
        turn_id = messages[-1]["metadata"]["turn_id"]
        answers = [m for m in messages if m["role"] == "assistant" and m["metadata"]["turn_id"] == turn_id]
        assert reduced(frames)["parts"] == answers[-1]["parts"], "what was shown is not what was kept"
        used = [dict(m["metadata"].get("usage", {})) for m in answers]
        turn = (await self.client.get(f"/api/turns/{turn_id}")).json()
        said = answers[-1]["metadata"].get("turn", {"status": "completed"})
        assert turn["status"] == said["status"]
        (end,) = [frame for frame in frames if frame["type"] in ("finish", "abort")]
        assert any(frame["type"] == "error" for frame in frames) == (turn["status"] == "failed")
        return Found(
            reasoning="".join(p["text"] for m in answers for p in m["parts"] if p["type"] == "reasoning"),
            text="".join(texts(m) for m in answers),
            stream=end.get("finishReason", end["type"]),
            turn=(turn["status"], said.get("stopped")),
            usage=sum((msgspec.convert(one, Usage, strict=False) for one in used), Usage()),
            estimated=any(one.get("estimated") is True for one in used),
            cost=(await self.client.get(f"/api/sessions/{session_id}")).json()["cost_usd"],
            ran=len(self.ran),
        )


@contextlib.asynccontextmanager
async def wired(kind: Wire, *, store: str = "memory:") -> AsyncIterator[Wired]:
    ran: list[int] = []

    @clew.tool
    async def note(n: int) -> str:
        """Note a number."""
        ran.append(n)
        return f"noted {n}"

    def answer(_: Arrived) -> Sequence[Step]:
        return [*ok(), *SHORT[kind]]

    async with WireServer(answer) as wire:
        base_url = wire.url if kind == "anthropic" else f"{wire.url}/v1"
        facts = {"m": ModelFacts(window=200_000, max_output=8_000, prices=PRICES)}
        config = ProviderConfig(kind=kind, base_url=base_url, api_key="k", models=facts)
        patience = Patience()
        registry = ProviderRegistry({"wired": config}, default_model="wired/m", environ={}, clock=patience)
        async with served(providers=registry, store=store, tools=[note]) as client:
            yield Wired(wire, client, patience, ran)
