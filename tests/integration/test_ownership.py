"""Whose a session is, is decided in one place, and nobody gets past it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import clew
from clew.errors import SessionNotFound
from clew.triggers.values.routing import Routing

VALUES: dict[str, Any] = {
    "prompt": "x",
    "text": "x",
    "title": "x",
    "message_id": "msg_x",
    "from_message_id": "msg_x",
    "approval_id": "apr_x",
    "decision": "once",
    "tool_call_id": "call",
    "output": "x",
    "rules": [],
    "tool": "read",
    "target": "x",
    "q": "x",
}


def reaching(kind: str) -> list[str]:
    """The methods of the engine that take the id of a session, or of a turn."""
    methods = inspect.getmembers(clew.Engine, inspect.isfunction)
    return [n for n, method in methods if not n.startswith("_") and kind in inspect.signature(method).parameters]


async def called(engine: clew.Engine, name: str, **known: str) -> None:
    """Call a method with what it needs, and go through what it yields."""
    method = getattr(engine, name)
    given = {
        parameter.name: known.get(parameter.name, VALUES.get(parameter.name))
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is inspect.Parameter.empty or parameter.name in known
    }
    result = method(**given)
    if hasattr(result, "__aiter__"):
        async for _ in result:
            break
    else:
        await result


@pytest.mark.parametrize("name", sorted(set(reaching("session_id")) - {"is_idle", "set_head"}))
async def test_no_method_that_takes_a_session_gets_past_its_owner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's session is not there, for reading, running, watching, going back, or removing."""
    async with clew.open("memory:", config=clew.Config()) as engine:
        session = await engine.create_session(model="demo/echo")

        async def refuse(self: clew.Engine, session_id: str) -> str:
            raise SessionNotFound("not yours", session_id=session_id)

        monkeypatch.setattr(clew.Engine, "_resolve_session", refuse)
        with pytest.raises(SessionNotFound, match="not yours"):
            await called(engine, name, session_id=session.id)


@pytest.mark.parametrize("name", sorted({*reaching("turn_id"), "set_head"}))
async def test_no_method_that_takes_a_turn_gets_past_its_owner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is as much somebody's as its session."""
    async with clew.open("memory:", config=clew.Config()) as engine:
        session = await engine.create_session(model="demo/echo")
        await (await engine.submit(session.id, "hello")).wait()
        head = (await engine.get_session(session.id)).head_turn_id
        assert head is not None

        async def refuse(self: clew.Engine, session_id: str) -> str:
            raise SessionNotFound("not yours", session_id=session_id)

        monkeypatch.setattr(clew.Engine, "_resolve_session", refuse)
        with pytest.raises(SessionNotFound, match="not yours"):
            await called(engine, name, session_id=session.id, turn_id=head)


@pytest.mark.parametrize(
    "call",
    [
        lambda engine, id_, turn: engine.events.receive("test", "1", Routing(session_id=id_), text="x"),
        lambda engine, id_, turn: engine.events.list(session_id=id_),
        lambda engine, id_, turn: engine.events.list(turn_id=turn),
        lambda engine, id_, turn: engine.schedules.add("* * * * *", "x", routing=Routing(session_id=id_)),
        lambda engine, id_, turn: engine.webhooks.add("door", routing=Routing(session_id=id_)),
    ],
)
async def test_no_trigger_gets_past_the_owner_of_a_session(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an event, a schedule and a webhook for it, nor a look at what came in."""
    own, refused = clew.Engine._resolve_session, False

    async def gate(self: clew.Engine, session_id: str) -> str:
        if refused:
            raise SessionNotFound("not yours", session_id=session_id)
        return await own(self, session_id)

    monkeypatch.setattr(clew.Engine, "_resolve_session", gate)
    async with clew.open("memory:", config=clew.Config()) as engine:
        session = await engine.create_session(model="demo/echo")
        await (await engine.submit(session.id, "hello")).wait()
        head = (await engine.get_session(session.id)).head_turn_id
        refused = True
        with pytest.raises(SessionNotFound, match="not yours"):
            await call(engine, session.id, head)
