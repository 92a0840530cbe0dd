"""Turns and the tree they form; steps inside them; the moves of the head over them.

A turn is a user message and all that follows until the next one. Turns know their parent and their depth, and the
nearest compaction at or above them, so that the end of a long session can be read without reading its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from clew.transcript.chunk import Abort, Chunk, Error, Finish, FinishReason
from clew.transcript.damage import DAMAGED
from clew.transcript.part import TextKey
from clew.transcript.session import Model
from clew.transcript.turn_state import OPEN, TurnStatus, check_transition
from clew.transcript.usage import Usage

__all__ = [
    "NOT_REPORTED",
    "TOLD_OF_ERRORS",
    "HeadMove",
    "MoveReason",
    "Step",
    "Tree",
    "Turn",
    "TurnKind",
    "ending_of",
    "finish_of",
    "place_below",
    "with_status",
]

NOT_REPORTED: Final = "not reported"
"""In the data of a step, as its ``usage``: the provider did not say all of what it used."""
TurnKind = Literal["normal", "compaction"]
MoveReason = Literal["turn", "rewind", "unrewind", "goto", "compaction", "branch"]


TOLD_OF_ERRORS: Final = ("cause", "provider_id", "key_name")
"""What is kept of an error beside its code and its message, where it has it: fronts have their words from these."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node of the turn tree. ``data`` holds what its kind needs (errors, compaction figures) as JSON."""

    id: str
    session_id: str
    parent_turn_id: str | None
    created_at: int
    kind: TurnKind = "normal"
    status: TurnStatus = "running"
    depth: int = 0
    compaction_turn_id: str | None = None
    origin_turn_id: str | None = None
    settled_at: int | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    damage = TextKey(DAMAGED, "data")
    """What of its row did not read; until a human lets it stand, as what is gone cannot be known."""

    stopped = TextKey("stopped", "data")
    """Why it ended, where there is more to say than that it did."""

    @property
    def error(self) -> Mapping[str, Any]:
        """The code and the message of what it failed with; empty where it did not."""
        error = self.data.get("error")
        return error if isinstance(error, Mapping) else {}

    @property
    def max_steps(self) -> int | None:
        """The limit it stopped at."""
        limit = self.data.get("max_steps")
        return limit if isinstance(limit, int) else None

    @property
    def budget_from(self) -> int:
        """The steps it had made when a human said go on: from there the limit counts anew."""
        return int(self.data.get("budget_from") or 0)

    @property
    def warned(self) -> tuple[str, ...]:
        """The calls its model was told not to repeat (:mod:`clew.transcript.doom`)."""
        return tuple(self.data.get("warned") or ())

    @property
    def reminded(self) -> int:
        """How often its model was told that the answer is to have a form."""
        return int(self.data.get("reminded") or 0)

    @property
    def waiting(self) -> tuple[Any, ...]:
        """What it asked a human, as JSON (:mod:`clew.transcript.wait`)."""
        return tuple(self.data.get("waiting") or ())

    @property
    def unsent(self) -> dict[str, int]:
        """Of its messages that end in a step that was cut: from which part on they are shown and not sent."""
        told = self.data.get("unsent")
        if not isinstance(told, list | tuple):
            return {}
        cuts = [one for one in told if isinstance(one, Mapping)]
        found = {str(one.get("message_id")): one.get("from_part") for one in cuts}
        return {id_: part for id_, part in found.items() if isinstance(part, int) and part >= 0}

    @property
    def resumed(self) -> int:
        """How often it went on by itself, where nobody was there to say so."""
        return int(self.data.get("resumed") or 0)

    environment = TextKey("environment", "data")
    """What had changed around the session when it began, as its model was told it in front of its message."""

    @property
    def swapped_from(self) -> Any:
        """The session's model when it began, as JSON, where it was asked of another."""
        return self.data.get("swapped_from")

    tail_start_id = TextKey("tail_start_id", "data")
    """Of a compaction: the first message it kept, should its marker no longer read."""

    carried_from = TextKey("carried_from", "data")
    """Of a compaction that stayed in force when the head went back: the turn it was made as."""


def with_status(turn: Turn, status: TurnStatus, settled_at: int | None, data: Mapping[str, Any]) -> Turn:
    """The turn in another status, by the table; ``data`` is merged."""
    check_transition(turn.status, status)
    ended = None if status in OPEN else settled_at or turn.settled_at
    return msgspec.structs.replace(turn, status=status, settled_at=ended, data={**turn.data, **data})


def place_below(turn: Turn, parent: Turn | None) -> Turn:
    """The turn with its depth and nearest compaction as its place under ``parent`` gives them."""
    above = parent.compaction_turn_id if parent else None
    return msgspec.structs.replace(
        turn,
        parent_turn_id=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
        compaction_turn_id=turn.id if turn.kind == "compaction" else above,
    )


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One model call with its tool results: what it used, when, and which prompt it was given."""

    turn_id: str
    index: int
    message_id: str
    usage: Usage
    model: Model
    started_at: int
    finished_at: int
    finish_reason: str | None = None
    prompt_digest: str | None = None
    cost_usd: float = 0.0
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    tools_digest = TextKey("tools", "data")
    """Under which the tools it was given are kept."""

    request_digest = TextKey("request", "data")
    """Of the whole request, to show that it can be made again."""

    @property
    def is_estimated(self) -> bool:
        """Some of its usage was estimated: the provider did not say it."""
        return self.data.get("usage") == NOT_REPORTED

    @property
    def prompts(self) -> tuple[str, ...]:
        """The digests under which its prompt and its tools are kept."""
        return tuple(digest for digest in (self.prompt_digest, self.tools_digest) if digest is not None)

    @property
    def view(self) -> tuple[Any, ...]:
        """What it was sent: depth of the compaction in force, newest prune, messages before; empty if not noted."""
        view = self.data.get("view")
        return tuple(view) if isinstance(view, list | tuple) else ()

    @property
    def sized(self) -> tuple[int, ...]:
        """Characters it was sent, and an estimate of what else in tokens; empty if not noted."""
        return tuple(self.data.get("sized") or ())

    @property
    def limits(self) -> tuple[Any, ...]:
        """The largest output and the temperature it was asked with; empty if not noted."""
        return tuple(self.data.get("limits") or ())

    @property
    def sections(self) -> tuple[Any, ...]:
        """The sections of its prompt, as JSON; empty if not noted."""
        return tuple(self.data.get("prompt") or ())


class HeadMove(msgspec.Struct, frozen=True, gc=False):
    """One entry of the reflog: the head left ``from_turn_id`` for ``to_turn_id``."""

    seq: int
    session_id: str
    from_turn_id: str | None
    to_turn_id: str | None
    at: int
    why: MoveReason


class Tree(msgspec.Struct, frozen=True):
    """All turns of one session, which messages each holds in order, and every head move, oldest first."""

    head_turn_id: str | None
    open_turn_id: str | None
    turns: Mapping[str, Turn]
    links: Mapping[str, tuple[str, ...]]
    moves: tuple[HeadMove, ...]


def finish_of(stopped: str | None) -> FinishReason:
    """How the stream of a turn that completed says that it ended."""
    said: dict[str | None, FinishReason] = {
        None: "stop",
        "length": "length",
        "content_filter": "content-filter",
        "error": "error",
    }
    return said.get(stopped, "other")


def ending_of(turn: Turn) -> list[Chunk]:
    """How the stream of a turn ends that does not run any more."""
    if turn.status == "aborted":
        return [Abort(reason=turn.stopped or "aborted")]
    if turn.status == "waiting":
        return [Finish(finish_reason="tool-calls")]
    if turn.status == "completed":
        return [Finish(finish_reason=finish_of(turn.stopped))]
    text = str(turn.error.get("message") or "this turn ended before it was answered")
    return [Error(error_text=text), Finish(finish_reason="error")]
