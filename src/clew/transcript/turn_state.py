"""The states of a turn and the allowed transitions, as one table. Any other transition is refused.

A turn is *open* while something may still be added to it: by a run (``running``), by a run that waits before it retries
the model (``retrying``), by a summariser that frees context first (``compacting``), or after a person answers
(``waiting``). Every other state is *settled*. A run is the live side of an open turn and has no states of its own: the
status shown by front ends is derived from this table too.
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
"""The states a turn may begin in: running, unanswered (a resend that did not run), or settled (a copy)."""

TRANSITIONS: Final[dict[tuple[TurnStatus, TurnStatus], str]] = {
    ("running", "retrying"): "transient model error",
    ("running", "compacting"): "the next request would not fit",
    ("running", "waiting"): "a tool call needs a person",
    ("running", "completed"): "no calls left, or the step limit",
    ("running", "aborted"): "abort",
    ("running", "failed"): "the model or the host gave up",
    ("running", "refused"): "refused before any model call",
    ("running", "unanswered"): "refused before any model call, as it was before",
    ("retrying", "running"): "next attempt",
    ("retrying", "aborted"): "abort",
    ("retrying", "failed"): "no attempts left",
    ("compacting", "running"): "context freed",
    ("compacting", "aborted"): "abort",
    ("compacting", "failed"): "context cannot be freed",
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
    """Raise :class:`IllegalTransition` unless a turn may change from ``before`` (None: a new turn) to ``after``.

    Staying in the same state is always allowed.
    """
    if before is None:
        allowed = after in START
    else:
        allowed = before == after or (before, after) in TRANSITIONS
    if not allowed:
        raise IllegalTransition(f"a turn cannot change from {before or 'nothing'} to {after}")


def is_run(status: TurnStatus) -> bool:
    """Return whether a turn in this state has a run: it is open and not waiting for a person."""
    return status in OPEN and status != "waiting"
