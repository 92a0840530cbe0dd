"""One prompt that a client sends to two replicas, because the first was slow to answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import clew
from clew.store.unit import InsertMessage, Outcome, Unit

pytestmark = pytest.mark.service


@pytest.mark.rule("RP-1")
@pytest.mark.parametrize("busy", [False, True])
async def test_a_prompt_sent_to_two_replicas_is_one_prompt(
    postgres_store_url: str, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is held between its look at the store and its write; it then finds that the second was quicker."""
    async with (
        clew.open(postgres_store_url) as slow,
        clew.open(postgres_store_url) as quick,
    ):
        session = await quick.create_session(model="demo/tools", workspace_root="/")
        if busy:
            # It waits for a human, so that whatever comes next is queued.
            async for _ in quick.run(session.id, "!bash echo"):
                pass
        held, go_on = asyncio.Event(), asyncio.Event()
        commit = slow.store.commit

        async def late(unit: Unit) -> Outcome:
            if not held.is_set() and any(isinstance(write, InsertMessage) for write in unit.writes):
                held.set()
                await go_on.wait()
            return await commit(unit)

        monkeypatch.setattr(slow.store, "commit", late)
        sending: asyncio.Task[Any] = asyncio.create_task(slow.submit(session.id, "once", message_id="c1"))
        await held.wait()
        second = await quick.submit(session.id, "once", message_id="c1")
        go_on.set()
        first = await sending
        assert (first.message_id, first.queued) == (second.message_id, second.queued)
        rows = await quick.store.load_client_messages(session.id, "c1")
        assert [row.id for row in rows] == [second.message_id]
