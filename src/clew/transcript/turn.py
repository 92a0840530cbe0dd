"""Turns and the tree they form, their steps, and the moves of the head.

A turn is a user message and everything up to the next one. A turn stores its parent, its depth and the nearest
compaction at or above it, so that the end of a long session can be read without its beginning.
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
    "CHUNKS",
    "NOT_REPORTED",
    "SHOWN_ERROR_KEYS",
    "HeadMove",
    "MoveReason",
    "Step",
    "Tree",
    "Turn",
    "TurnKind",
    "ending_of",
    "finish_of",
    "id_end",
    "with_parent",
    "with_status",
]

CHUNKS: Final = "chunks"
"""In the data of a turn: the number of the last chunk of each message that a run ended, by the end of its id."""
NOT_REPORTED: Final = "not reported"
"""The ``usage`` in the data of a step whose provider did not report all counts."""
_CHUNKS_ALONE: Final = {CHUNKS}
TurnKind = Literal["normal", "compaction"]
MoveReason = Literal["turn", "rewind", "unrewind", "goto", "compaction", "branch"]


SHOWN_ERROR_KEYS: Final = ("cause", "provider_id", "key_name")
"""Error details stored besides code and message, if present; front ends build their texts from them."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node of the turn tree. ``data`` holds what its kind needs (errors, compaction metrics) as JSON."""

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
    """Which fields of its row could not be read, until a person accepts the damage."""

    stopped = TextKey("stopped", "data")
    """The reason it ended, where the status does not say enough."""

    @property
    def error(self) -> Mapping[str, Any]:
        """The code and message of the error it failed with; empty if it did not fail."""
        error = self.data.get("error")
        return error if isinstance(error, Mapping) else {}

    @property
    def max_steps(self) -> int | None:
        """The step limit at which it stopped."""
        limit = self.data.get("max_steps")
        return limit if isinstance(limit, int) else None

    @property
    def budget_from(self) -> int:
        """The number of steps made when a person last continued the turn; the step limit counts from there."""
        return int(self.data.get("budget_from") or 0)

    @property
    def warned(self) -> tuple[str, ...]:
        """The calls the model was warned not to repeat (:mod:`clew.transcript.repetition`)."""
        return tuple(self.data.get("warned") or ())

    @property
    def reminded(self) -> int:
        """The number of reminders that the answer must be structured output."""
        return int(self.data.get("reminded") or 0)

    @property
    def waiting(self) -> tuple[Any, ...]:
        """The pending requests to a person, as JSON (:mod:`clew.transcript.wait`)."""
        return tuple(self.data.get("waiting") or ())

    @property
    def unsent(self) -> dict[str, int]:
        """For each message that ends in an interrupted step, the index from which parts are shown but not sent."""
        stored = self.data.get("unsent")
        if not isinstance(stored, list | tuple):
            return {}
        cuts = [one for one in stored if isinstance(one, Mapping)]
        found = {str(one.get("message_id")): one.get("from_part") for one in cuts}
        return {id_: part for id_, part in found.items() if isinstance(part, int) and part >= 0}

    @property
    def is_bare(self) -> bool:
        """Return whether its data changes nothing in how it is read or copied."""
        return not self.data or self.data.keys() == _CHUNKS_ALONE

    @property
    def chunks(self) -> dict[str, int]:
        """For each message that a run ended, by the end of its id: the number of its last chunk."""
        stored = self.data.get(CHUNKS)
        return {} if not isinstance(stored, dict) else {end: n for end, n in stored.items() if isinstance(n, int)}

    def last_n(self, message_id: str) -> int | None:
        """Return the number of the last chunk of a message whose parts are exactly what its chunks fold to."""
        return self.chunks.get(id_end(message_id))

    @property
    def resumed(self) -> int:
        """The number of automatic resumes after an interruption."""
        return int(self.data.get("resumed") or 0)

    environment = TextKey("environment", "data")
    """The changes of the environment when it began, as the model was sent them before its message."""

    @property
    def swapped_from(self) -> Any:
        """The session's model when it began, as JSON, if the turn used another one."""
        return self.data.get("swapped_from")

    tail_start_id = TextKey("tail_start_id", "data")
    """For a compaction: the first message of its tail, in case its marker cannot be read."""

    carried_from = TextKey("carried_from", "data")
    """For a compaction copied when the head moved back: the turn it was created as."""


def with_status(turn: Turn, status: TurnStatus, settled_at: int | None, data: Mapping[str, Any]) -> Turn:
    """Return the turn in another status, if the table allows it; ``data`` is merged."""
    check_transition(turn.status, status)
    ended_at = None if status in OPEN else settled_at or turn.settled_at
    return msgspec.structs.replace(turn, status=status, settled_at=ended_at, data={**turn.data, **data})


def with_parent(turn: Turn, parent: Turn | None) -> Turn:
    """Return the turn with the parent, depth and nearest compaction it has under ``parent``."""
    above = parent.compaction_turn_id if parent else None
    return msgspec.structs.replace(
        turn,
        parent_turn_id=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
        compaction_turn_id=turn.id if turn.kind == "compaction" else above,
    )


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One model call with its tool results: its usage, its times and its prompt."""

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
    """The digest under which its tools are stored."""

    request_digest = TextKey("request", "data")
    """The digest of the whole request, to check that it can be rebuilt."""

    @property
    def is_estimated(self) -> bool:
        """True if some of its usage was estimated because the provider did not report it."""
        return self.data.get("usage") == NOT_REPORTED

    @property
    def prompts(self) -> tuple[str, ...]:
        """The digests under which its prompt and its tools are stored."""
        return tuple(digest for digest in (self.prompt_digest, self.tools_digest) if digest is not None)

    @property
    def view(self) -> tuple[Any, ...]:
        """The view it was sent: compaction depth, newest prune, number of messages before; empty if not recorded."""
        view = self.data.get("view")
        return tuple(view) if isinstance(view, list | tuple) else ()

    @property
    def sized(self) -> tuple[int, ...]:
        """The characters it was sent, and the estimated tokens of everything else; empty if not recorded."""
        return tuple(self.data.get("sized") or ())

    @property
    def limits(self) -> tuple[Any, ...]:
        """The maximum output and the temperature of the request; empty if not recorded."""
        return tuple(self.data.get("limits") or ())

    @property
    def sections(self) -> tuple[Any, ...]:
        """The sections of its prompt, as JSON; empty if not recorded."""
        return tuple(self.data.get("prompt") or ())


def id_end(message_id: str) -> str:
    """Return the random end of an id. It identifies a message in its turn, and none in a copy of that turn."""
    return message_id[-8:]


class HeadMove(msgspec.Struct, frozen=True, gc=False):
    """One entry of the reflog: the head moved from ``from_turn_id`` to ``to_turn_id``."""

    seq: int
    session_id: str
    from_turn_id: str | None
    to_turn_id: str | None
    at: int
    why: MoveReason


class Tree(msgspec.Struct, frozen=True):
    """All turns of a session, the ordered messages of each, and every head move, oldest first."""

    head_turn_id: str | None
    open_turn_id: str | None
    turns: Mapping[str, Turn]
    links: Mapping[str, tuple[str, ...]]
    moves: tuple[HeadMove, ...]


def finish_of(stopped: str | None) -> FinishReason:
    """Return the finish reason in the stream of a completed turn."""
    reasons: dict[str | None, FinishReason] = {
        None: "stop",
        "length": "length",
        "content_filter": "content-filter",
        "error": "error",
    }
    return reasons.get(stopped, "other")


def ending_of(turn: Turn) -> list[Chunk]:
    """Return the chunks that end the stream of a turn that is no longer running."""
    if turn.status == "aborted":
        return [Abort(reason=turn.stopped or "aborted")]
    if turn.status == "waiting":
        return [Finish(finish_reason="tool-calls")]
    if turn.status == "completed":
        return [Finish(finish_reason=finish_of(turn.stopped))]
    text = str(turn.error.get("message") or "this turn ended before it was answered")
    return [Error(error_text=text), Finish(finish_reason="error")]
