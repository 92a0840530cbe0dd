"""How a program talks to a server, for type checkers alone: mypy and pyright, both strict. It is never run."""

from __future__ import annotations

import msgspec

import clew
from clew.client import AsyncClient, AsyncTurn, BadAnswer, Client, Gone, Sent, Turn, Unauthorized, attach_file, chunks


class City(msgspec.Struct):
    name: str


async def from_a_loop(url: str, token: str) -> str:
    async with AsyncClient(url, token=token, timeout=5, patience=30) as client:
        session: clew.Session = await client.create_session(model="demo/echo", alias="mine")
        turn: AsyncTurn[City] = await client.start(session.id, [attach_file("a.txt")], output=City)
        async for chunk in turn.chunks():
            if isinstance(chunk, chunks.TextDelta):
                print(chunk.delta)
        city: City = await turn.output()
        status: clew.Status = await client.get_status(session.id)
        hooks: tuple[clew.Webhook, ...] = await client.webhooks.list()
        return f"{city.name} {status.state} {len(hooks)}"


def without_one(url: str, token: str) -> str:
    with Client(url, token=token) as client:
        session: clew.Session = client.create_session(model="demo/echo")
        turn: Turn[City] = client.start(session.id, "hello", output=City)
        for chunk in turn:
            kind: str = chunk["type"]
            print(kind)
        for waiting in turn.waiting():
            left: int = turn.answer(waiting.approval_id or "", "once")
            print(left)
        sent: Sent = client.submit(session.id, "and then", on_busy="queue")
        outcome: clew.TurnOutcome = sent.wait()
        city: City = turn.output()
        page: clew.SessionList = client.list_sessions(limit=5, pinned=True)
        for status in client.watch_status(session.id):
            print(status.state)
        schedule: clew.Schedule = client.schedules.add("0 9 * * *", "go", timezone="Europe/Vienna")
        try:
            client.schedules.change(schedule.id, paused=True)
        except (Gone, BadAnswer, Unauthorized, clew.NotFound) as error:
            return error.code
        return f"{outcome.status} {city.name} {len(page.sessions)}"
