"""Tests of the desk with a scripted model: no key, no network."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import clew
from clew.testing.scripted import ScriptedModel, call, say
from desk import Order, Orders, open_desk


def sample_orders() -> Orders:
    return Orders(Order(7, "ann", "Blue lamp", 4900), Order(9, "ben", "Green chair", 12900))


def test_an_approval_survives_a_restart_and_pays_once(tmp_path: Path) -> None:
    """The desk is closed while the refund waits for a person, and opened again."""
    url, orders = f"sqlite:///{tmp_path}/desk.db", sample_orders()

    async def ask() -> str:
        model = ScriptedModel([call("refund", {"number": 7, "reason": "It is broken."})])
        async with open_desk(url, orders, providers={"test": model}) as engine:
            ann = engine.scoped("ann")
            session = await ann.create_session()
            async for _ in ann.run(session.id, "My lamp is broken, I want my money back."):
                pass
            return session.id

    async def approve(session_id: str) -> list[str]:
        model = ScriptedModel([say("You have your money back.")])
        async with open_desk(url, orders, providers={"test": model}) as engine:
            [waiting] = (await engine.get_status(session_id)).waiting
            assert (waiting.tool, waiting.approval_id is not None) == ("refund", True)
            await engine.answer(session_id, waiting.approval_id or "", "once")
            async for _ in engine.attach(session_id):
                pass
            with pytest.raises(clew.Conflict):  # each approval is used once
                await engine.answer(session_id, waiting.approval_id or "", "once")
            return (await engine.messages(session_id))[-1].texts

    session_id = asyncio.run(ask())
    assert orders.find(7, "ann").state == "on its way"
    assert asyncio.run(approve(session_id)) == ["You have your money back."]
    assert orders.find(7, "ann").state == "refunded: It is broken."


def test_a_refund_that_is_denied_changes_nothing(tmp_path: Path) -> None:
    """The model is told, with the reason, and answers the customer."""
    orders = sample_orders()
    model = ScriptedModel([call("refund", {"number": 7, "reason": "I changed my mind."}), say("I am sorry.")])

    async def talk() -> list[str]:
        async with open_desk(f"sqlite:///{tmp_path}/desk.db", orders, providers={"test": model}) as engine:
            ann = engine.scoped("ann")
            session = await ann.create_session()
            async for _ in ann.run(session.id, "I want my money back."):
                pass
            await engine.answer_all(session.id, "deny", "The lamp is older than 30 days.")
            async for _ in ann.attach(session.id):
                pass
            return (await ann.messages(session.id))[-1].texts

    assert asyncio.run(talk()) == ["I am sorry."]
    assert orders.find(7, "ann").state == "on its way"
    assert "older than 30 days" in repr(model.requests[-1].messages)


def test_customers_see_only_their_own(tmp_path: Path) -> None:
    """Sessions and orders of another customer do not exist for them."""
    model = ScriptedModel([call("find_order", {"number": 9}), say("You have no such order.")])

    async def talk() -> None:
        async with open_desk(f"sqlite:///{tmp_path}/desk.db", sample_orders(), providers={"test": model}) as engine:
            ann, ben = engine.scoped("ann"), engine.scoped("ben")
            session = await ann.create_session()
            async for _ in ann.run(session.id, "Where is order 9?"):
                pass
            assert [one.id for one in (await ann.list_sessions()).sessions] == [session.id]
            assert list((await ben.list_sessions()).sessions) == []
            with pytest.raises(clew.SessionNotFound):
                await ben.messages(session.id)

    asyncio.run(talk())
    assert "you have no order 9" in repr(model.requests[-1].messages)
    assert "Green chair" not in repr(model.requests[-1].messages)
