"""The states a turn can be in, as one table. A move that is not in it is refused.

A turn is *open* while something may still be added to it: by a run (``running``), by a run that waits before it
tries the model again (``retrying``), by a summariser that makes room first (``compacting``), or by nobody until a
human answers (``waiting``). Every other state is *settled*. A run is the live side of an open turn and has no
states of its own: the front end's status is read off this table too.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from clew.errors import IllegalTransition

__all__ = ["OPEN", "SETTLED", "START", "TRANSITIONS", "TurnStatus", "check_transition", "is_run"]

OpenStatus = Literal["running", "retrying", "compacting", "waiting"]
SettledStatus = Literal["completed", "aborted", "failed", "refused", "unanswered"]
TurnStatus = Literal[OpenStatus, SettledStatus]

OPEN: Final[frozenset[str]] = frozenset(get_args(OpenStatus))
SETTLED: Final[frozenset[str]] = frozenset(get_args(SettledStatus))

START: Final[frozenset[str]] = frozenset({"running", "unanswered", "completed", "aborted", "failed"})
"""How a turn may begin: by a prompt, by a resend that nobody ran, or settled (a compaction, a branch's copy)."""

TRANSITIONS: Final[dict[tuple[TurnStatus, TurnStatus], str]] = {
    ("running", "retrying"): "the model failed in passing",
    ("running", "compacting"): "the next request would not fit",
    ("running", "waiting"): "a tool call needs a human",
    ("running", "completed"): "no calls left, or the step limit",
    ("running", "aborted"): "abort",
    ("running", "failed"): "the model or the host gave up",
    ("running", "refused"): "refused before any model call",
    ("running", "unanswered"): "refused before any model call, as it was before",
    ("retrying", "running"): "next attempt",
    ("retrying", "aborted"): "abort",
    ("retrying", "failed"): "attempts used up",
    ("compacting", "running"): "room made",
    ("compacting", "aborted"): "abort",
    ("compacting", "failed"): "no room to be had",
    ("compacting", "refused"): "does not fit, nothing was called",
    ("compacting", "unanswered"): "does not fit, as it was before",
    ("waiting", "running"): "every request answered",
    ("waiting", "aborted"): "abort, or an interrupting prompt",
    ("waiting", "failed"): "the host gave up",
    ("unanswered", "running"): "continue",
    ("completed", "running"): "continue after the step limit",
    ("failed", "running"): "continue after its last complete step",
    ("aborted", "running"): "continue after its last complete step",
}


def check_transition(before: TurnStatus | None, after: TurnStatus) -> None:
    """Raise :class:`IllegalTransition` unless a turn may go from ``before`` (None: not there yet) to ``after``.

    To stay where it is is no move and is always allowed.
    """
    if before is None:
        allowed = after in START
    else:
        allowed = before == after or (before, after) in TRANSITIONS
    if not allowed:
        raise IllegalTransition(f"a turn cannot go from {before or 'nothing'} to {after}")


def is_run(status: TurnStatus) -> bool:
    """Whether a turn of that status has a run: it is open, and not for a human to answer."""
    return status in OPEN and status != "waiting"
