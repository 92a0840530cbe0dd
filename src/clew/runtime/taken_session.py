"""A session that was taken for a run, and what a turn that waited goes on with."""

from __future__ import annotations

import msgspec

from clew.runtime.calls import Call
from clew.runtime.context import CountedLine
from clew.runtime.setting import Setting
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from clew.transcript.turn import Turn

__all__ = ["Resumption", "TakenSession"]


class Resumption(msgspec.Struct, frozen=True):
    """What a waiting turn goes on with: its message, the calls to run now, and those a human denied."""

    message: MessageRow
    last_n: int
    calls: tuple[Call, ...]
    denied: tuple[str, ...]
    outputs: tuple[c.Chunk, ...] = ()


class TakenSession(msgspec.Struct, frozen=True):
    """A session that was taken for a run: who answers, which turn with how many steps, the epoch it may write under.

    ``counted`` is its line, where that has just been read. ``newest_at`` is the time of the newest
    message, where that may be later than the turn.
    """

    setting: Setting
    turn: Turn
    epoch: int
    user_message_id: str
    resumption: Resumption | None = None
    steps: int = 0
    counted: CountedLine | None = None
    newest_at: int = 0
