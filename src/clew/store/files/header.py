"""Headers: what is remembered of a session that is not in memory, and which one has to stay there."""

from __future__ import annotations

from typing import NamedTuple

from clew.store.memory.session_value import SessionValue
from clew.transcript.session import Session
from clew.transcript.turn_state import OPEN

__all__ = ["Header", "header_of", "is_unsettled"]


class Header(NamedTuple):
    """What is asked of a session without reading it."""

    session: Session
    turns: frozenset[str]
    blobs: frozenset[str]
    prompts: frozenset[str]


def header_of(value: SessionValue) -> Header:
    return Header(value.session, frozenset(value.turns), frozenset(value.blobs), value.prompts())


def is_unsettled(value: SessionValue) -> bool:
    """Whether something of the session is still to be ended."""
    if value.journal or value.state["state"].open_turn_id is not None:
        return True
    if any(turn.status in OPEN for turn in value.turns.values()):
        return True
    return any(
        part.tool_state is not None and not part.tool_state.startswith("output-")
        for row in value.messages.values()
        for part in row.parts
    )
