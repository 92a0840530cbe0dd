"""Closing an engine whose store does not answer: it ends in its time, and what is not known is not called settled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import clew
from clew.session.acquire import live_sessions


async def test_a_turn_that_a_silent_store_does_not_tell_of_is_not_called_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are asked about together, for a moment, however many there are."""
    monkeypatch.setattr(live_sessions, "_CANCEL_WAIT_S", 0.01)
    async with clew.open("memory:") as engine:
        asked: list[str] = []

        async def silent(session_id: str) -> Any:
            asked.append(session_id)
            await asyncio.Event().wait()

        monkeypatch.setattr(engine.store, "load_state", silent)
        sessions = engine._runtime.sessions
        sessions._unsettled = {f"ses_{n}": f"trn_{n}" for n in range(3)}
        assert await sessions._pop_unsettled() == ("trn_0", "trn_1", "trn_2")
        assert asked == ["ses_0", "ses_1", "ses_2"]
        monkeypatch.undo()
