"""Copying a line: expanding a :class:`CopyLine` into turns and messages, once for every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from clew.errors import InternalError
from clew.store.copied_line import CopiedRun
from clew.store.paths import PathTurn
from clew.store.unit import CopyLine
from clew.transcript.turn import Turn, with_parent
from clew.transcript.turn_state import OPEN, check_transition

__all__ = ["NOT_COPIED", "Copied", "Copying", "PlacedRun", "below_run", "expand", "is_plain", "plan_copy"]

NOT_COPIED: Final = ("hidden_at", "hidden_by", "snapshot_id")
"""Metadata that is not copied with a message: it refers to the source's tree or workspace."""


class Copied(NamedTuple):
    """A message to copy and its position in the copy. ``inserted``: the same unit inserts the copy by another write."""

    source_id: str
    id: str
    inserted: bool
    turn_id: str
    position: int
    origin_turn_id: str | None


class PlacedRun(NamedTuple):
    """A run of turns to copy, and the turn of the copy that becomes the parent of its first turn."""

    run: CopiedRun
    parent: Turn | None

    @property
    def depth(self) -> int:
        return self.parent.depth + 1 if self.parent is not None else 0


class Copying(msgspec.Struct, frozen=True):
    """The turns as they are stored, root first, and the messages in the order of the line; runs are listed
    separately."""

    turns: tuple[Turn, ...]
    messages: tuple[Copied, ...]
    runs: tuple[PlacedRun, ...] = ()


def is_plain(turn: Turn) -> bool:
    """Return whether a turn can be part of a run: its copy differs from it only in its ids and its parent."""
    return turn.kind == "normal" and turn.status in ("completed", "aborted", "failed", "unanswered") and not turn.data


def plan_copy(session_id: str, write: CopyLine) -> Copying:
    """Check the write and link its turns to one another."""
    turns: list[Turn] = []
    messages: list[Copied] = []
    runs: list[PlacedRun] = []
    parent: Turn | None = None
    pending_runs = {run.above: run for run in write.runs}
    for entry in write.turns:
        turn = entry.turn
        run = pending_runs.pop(turn.id, None)
        if run is not None:
            runs.append(PlacedRun(run, parent))
            parent = below_run(runs[-1], session_id)
        check_transition(None, turn.status)
        if turn.status in OPEN or turn.session_id != session_id:
            raise InternalError("a copied turn is open, or of another session", turn_id=turn.id)
        parent = with_parent(turn, parent)
        turns.append(parent)
        for position, (source_id, id_, inserted) in enumerate(entry.messages):
            messages.append(Copied(source_id, id_, inserted, turn.id, position, turn.origin_turn_id))
    if pending_runs:
        raise InternalError(
            "a run is to be inserted above a turn that is not copied", session_id=write.source_session_id
        )
    if len({copied.source_id for copied in messages}) < len(messages):
        raise InternalError("a message would be copied twice", session_id=write.source_session_id)
    return Copying(tuple(turns), tuple(messages), tuple(runs))


def below_run(placed: PlacedRun, session_id: str) -> Turn:
    """Return the last copy of a run, which becomes the parent of the next turn."""
    run, parent = placed
    return Turn(
        id=_turn_id(run, run.count - 1),
        session_id=session_id,
        parent_turn_id=None,
        created_at=run.now,
        depth=placed.depth + run.count - 1,
        compaction_turn_id=parent.compaction_turn_id if parent is not None else None,
    )


def expand(placed: PlacedRun, path: Sequence[PathTurn], session_id: str) -> Copying:
    """Return the turns and messages of a run, given its path of turns."""
    run, parent = placed
    if len(path) != run.count or not all(is_plain(turn) for turn, _ in path):
        raise InternalError("these turns cannot be copied in bulk", turn_id=run.through)
    turns: list[Turn] = []
    messages: list[Copied] = []
    for n, (turn, held) in enumerate(path):
        ids = {"id": _turn_id(run, n), "session_id": session_id, "origin_turn_id": turn.id}
        copy = msgspec.structs.replace(turn, settled_at=turn.settled_at or run.now, **ids)
        parent = with_parent(copy, parent)
        turns.append(parent)
        for position, source_id in enumerate(held):
            messages.append(Copied(source_id, _message_id(run, n, position), False, parent.id, position, turn.id))
    return Copying(tuple(turns), tuple(messages))


# The SQL fragments copied_turn_id and copied_message_id build the same ids.


def _turn_id(run: CopiedRun, n: int) -> str:
    return f"{run.turn[:16]}{n:06x}{run.turn[22:]}"


def _message_id(run: CopiedRun, n: int, position: int) -> str:
    return f"{run.message[:16]}{n:06x}{position:04x}{run.message[26:]}"
