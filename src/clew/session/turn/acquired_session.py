"""A session that was acquired for a run, and the input of a resumed turn."""

from __future__ import annotations

import msgspec

from clew.session.context.context import MeasuredLine
from clew.session.prompt.turn_config import TurnConfig
from clew.session.turn.calls import Call
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from clew.transcript.turn import Turn

__all__ = ["AcquiredSession", "Resumption"]


class Resumption(msgspec.Struct, frozen=True):
    """The input of a resumed waiting turn: its message, the calls to run now, and those that were denied."""

    message: MessageRow
    last_n: int
    calls: tuple[Call, ...]
    denied: tuple[str, ...]
    outputs: tuple[c.Chunk, ...] = ()


class AcquiredSession(msgspec.Struct, frozen=True):
    """A session that was acquired for a run: turn config, turn, number of steps, and the epoch it may write with.

    ``counted`` is its line, if that was just read. ``newest_at`` is the time of the newest message, if that may be
    later than the turn.
    """

    config: TurnConfig
    turn: Turn
    epoch: int
    user_message_id: str
    resumption: Resumption | None = None
    steps: int = 0
    counted: MeasuredLine | None = None
    newest_at: int = 0
