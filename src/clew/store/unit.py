"""Units: the vocabulary of everything that is ever written.

A unit is a list of writes to one session that commits as one. It can be run again from scratch: nothing in it depends
on a value read before it was built, other than through its guards. Those are looked at first, in the same transaction;
when one does not hold, nothing is written and the caller gets a :class:`Refused`, an answer and no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from clew.store.copied_line import CopiedRun, CopiedTurn
from clew.transcript.chunk import Chunk
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.projection import Hidden
from clew.transcript.pruned import Pruned
from clew.transcript.session import Model, Session
from clew.transcript.turn import MoveReason, Step, Turn
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage
from clew.triggers.ledger import Direction, LedgerEvent
from clew.triggers.routing import RouteKind
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

Sync = Literal["process", "power"]
"""What a commit survives on return: the death of the process, or also a loss of power."""


STORE_WIDE: Final = ""
"""The ``session_id`` of a unit that belongs to no session: schedules and webhooks."""


class JournalEntry(NamedTuple):
    """One accepted chunk: its place in its message's stream, the part it landed in (None: no part), itself."""

    n: int
    part: int | None
    chunk: Chunk


# Guards


class Guard(msgspec.Struct, frozen=True, tag=True):
    """Something that must hold for the unit to be written."""


class EpochIs(Guard, frozen=True):
    """The session's newest run is this one. ``stale_epoch`` otherwise."""

    epoch: int


class HeadIs(Guard, frozen=True):
    """The head has not moved since it was read. ``head_moved`` otherwise."""

    turn_id: str | None


class NoOpenTurn(Guard, frozen=True):
    """Nothing is running, waiting, or left open. ``turn_open`` otherwise."""


class OpenTurnIs(Guard, frozen=True):
    """This turn is the open one. ``turn_not_open`` otherwise."""

    turn_id: str


class StillQueued(Guard, frozen=True):
    """The message waits in the queue. ``not_queued`` otherwise: it was fired or cancelled. Where ``place`` (whether it
    interrupts, and since when it waits) or ``seal`` is given, it has that still; else ``queue_changed``."""

    message_id: str
    place: tuple[bool, int] | None = None
    seal: str | None = None


class SentSoFar(Guard, frozen=True):
    """So many messages of the session have this id of the client's. ``sent_meanwhile`` otherwise: taken elsewhere."""

    client_message_id: str
    count: int


class EventIsNew(Guard, frozen=True):
    """No event of that direction, source, id and attempt is in the ledger. ``event_exists`` otherwise."""

    direction: Direction
    source: str
    source_id: str
    attempt: int = 1


class DigestIsNew(Guard, frozen=True):
    """No event that was taken from the source since then has this digest. ``event_exists`` otherwise."""

    source: str
    digest: str
    since: int


class RouteIsFree(Guard, frozen=True):
    """No session of the owner has this label or routing key, but one that is being deleted; else ``route_taken``."""

    kind: RouteKind
    name: str
    deleting: str | None = None
    owner: str | None = None


class AliasIsFree(Guard, frozen=True):
    """The owner has no session that this name means already. ``alias_taken`` otherwise."""

    alias: str
    owner: str | None


class NotRunElsewhere(Guard, frozen=True):
    """No other replica whose lease holds runs the session. ``runs_elsewhere`` otherwise."""

    replica_id: str


class LeaseHolds(Guard, frozen=True):
    """This replica's lease has not lapsed, by the store's clock. ``lease_lapsed`` otherwise, for ever."""

    replica_id: str


class ScheduleIs(Guard, frozen=True):
    """The schedule is as it was read, nobody has fired, changed or removed it. ``schedule_changed`` otherwise."""

    schedule: Schedule


class RulesAre(Guard, frozen=True):
    """The rules of this project, or of the unit's own session without one, are as they were read. ``rules_changed``
    otherwise."""

    project: str | None
    rules: tuple[dict[str, Any], ...]


# Writes


class Write(msgspec.Struct, frozen=True, tag=True):
    """One thing to write. Each store says of every kind what it does."""


class SharedWrite(Write, frozen=True):
    """A write that goes by more than its own session: by what sessions share, or by another one."""


class InsertSession(Write, frozen=True):
    session: Session


class PatchSession(Write, frozen=True):
    """Change what is given. ``metadata`` is merged key by key, a key in ``drop`` is removed."""

    metadata: dict[str, Any] = {}
    drop: tuple[str, ...] = ()
    model: Model | None = None
    permissions: tuple[dict[str, Any], ...] | None = None
    archived_at: int | msgspec.UnsetType | None = msgspec.UNSET
    updated_at: int | None = None


class NameSession(Write, frozen=True):
    """Give the session a title of clew's: where it has none, or has one from clew. A person's stays as it is.

    ``tries`` is how often a model was asked for one in vain.
    """

    title: str
    by: Literal["words", "model"]
    tries: int = 0


class DeleteSession(SharedWrite, frozen=True):
    """Remove the session and all that hangs on it, blobs that nobody else names included."""


class InsertMessage(Write, frozen=True):
    """Append a message with its parts. It belongs to no line until it is linked to a turn."""

    message: MessageRow


class PutParts(Write, frozen=True):
    """Insert parts or replace their data, by (message, index). A part keeps the id it was first given."""

    message_id: str
    parts: tuple[PartRow, ...]


class PatchMessage(Write, frozen=True):
    """Merge metadata keys into a message and remove those in ``drop``. Role, text and order are out of reach."""

    message_id: str
    updated_at: int
    metadata: dict[str, Any] = {}
    drop: tuple[str, ...] = ()
    created_at: int | None = None


class SetHidden(Write, frozen=True):
    """Write the projection of these messages; None takes it away."""

    hidden: dict[str, Hidden | None]


class SealMessage(Write, frozen=True):
    """Keep a digest of the message's parts: it is settled, and from now on any change to it can be seen."""

    message_id: str
    digest: str


class OpenTurn(Write, frozen=True):
    """Add a turn below its parent. Depth and nearest compaction are worked out where it is stored."""

    turn: Turn


class SetTurn(Write, frozen=True):
    """Move a turn to another status, by the table; None leaves it as it is. ``data`` is merged."""

    turn_id: str
    status: TurnStatus | None
    settled_at: int | None = None
    data: dict[str, Any] = {}


class MoveTurn(Write, frozen=True):
    """Hang the open turn below another parent, for a compaction that makes room for it. No other turn ever moves."""

    turn_id: str
    parent_turn_id: str | None


class LinkMessage(Write, frozen=True):
    """Append a message to a turn, after those it holds already."""

    turn_id: str
    message_id: str


class MoveHead(Write, frozen=True):
    """Point the session at another turn and note it in the reflog."""

    to_turn_id: str | None
    at: int
    why: MoveReason


class SetEpoch(Write, frozen=True):
    """Give the session to a new run; with :class:`EpochIs` as guard this is the one way to become it."""

    epoch: int


class SetRunner(Write, frozen=True):
    """Note which replica has the session, in the unit that takes it. It is nobody's any more once its open turn waits
    or has settled, or with None. Never written where a store has one owner."""

    replica_id: str | None


class BookStep(Write, frozen=True):
    """Book a step as its model call ends, before its tools run: its row, the message's usage, the session's sums and
    ``updated_at``, each once. Until it is finished, ``finished_at`` is when the call ended."""

    step: Step


class FinishStep(Write, frozen=True):
    """A booked step is over, its tools included; this also moves ``updated_at``."""

    turn_id: str
    index: int
    finished_at: int


class BookUsage(Write, frozen=True):
    """Book what a call used that broke off, and so came to no step: the message's usage and the session's sums.

    ``estimated`` marks the message's usage: the provider did not say all of it.
    """

    message_id: str
    usage: Usage
    cost_usd: float
    at: int
    estimated: bool = True


class PutCall(Write, frozen=True):
    """Keep the row of a model call, or bring it up to date; a closed one takes nothing but its ``tools_ms``.

    In a unit of a session the call is that session's; in one that is nobody's it is of a session that is gone.
    """

    call: ModelCall


class AddPruned(Write, frozen=True):
    """Record outputs the model is shown only a stub of. All get the session's next prune number as their ``seq``."""

    pruned: tuple[Pruned, ...]


class CopyLine(SharedWrite, frozen=True):
    """Fill a session that was just inserted with a line of another: each turn below the one before it.

    Messages are copied with parts (new ids, data verbatim) and seals; of their metadata ``hidden_at``, ``hidden_by``
    and ``snapshot_id`` are left out. Steps of copied messages come along, and so do prunes of their parts, with
    their ``seq``. The session's sums become those of the copied steps. Blobs that copied parts name are linked.
    """

    source_session_id: str
    turns: tuple[CopiedTurn, ...]
    runs: tuple[CopiedRun, ...] = ()


class AppendChunks(Write, frozen=True):
    """Journal accepted chunks of one message's stream, in order."""

    message_id: str
    entries: tuple[JournalEntry, ...]


class MarkFolded(Write, frozen=True):
    """The parts hold everything of this stream through chunk ``through``; journal rows up to there may go."""

    message_id: str
    through: int


class Enqueue(Write, frozen=True):
    """Put a stored user message into the session's queue."""

    message_id: str
    queued_at: int
    interrupt: bool = False


class Dequeue(Write, frozen=True):
    """Take a message out of the queue; guard it with :class:`StillQueued` to know who won."""

    message_id: str


class PutPrompt(SharedWrite, frozen=True):
    """Keep what a model was told first under its digest, once: a system prompt, or a list of tools."""

    digest: str
    body: str
    created_at: int


class PutBlob(SharedWrite, frozen=True):
    """Keep bytes under their SHA-256, once, and name them from this session."""

    sha256: str
    media_type: str
    data: bytes
    created_at: int


class LinkBlob(SharedWrite, frozen=True):
    """Name a blob that is already kept from this session too."""

    sha256: str


class PutProjectRules(SharedWrite, frozen=True):
    """Replace the rules of a project (a resolved workspace root)."""

    project: str
    rules: tuple[dict[str, Any], ...]
    updated_at: int


class AddEvent(SharedWrite, frozen=True):
    """Append to the events ledger; guard it with :class:`EventIsNew`. The store numbers it.

    In a unit of a session the event is that session's; in one that is nobody's it is of a session that is gone.
    """

    event: LedgerEvent


class PutSchedule(SharedWrite, frozen=True):
    """Keep a schedule, or replace it. One that names a session goes when that is deleted."""

    schedule: Schedule


class DropSchedule(SharedWrite, frozen=True):
    schedule_id: str


class PutWebhook(SharedWrite, frozen=True):
    """Keep a webhook, or replace it. One that names a session goes when that is deleted."""

    webhook: Webhook


class DropWebhook(SharedWrite, frozen=True):
    key: str


class JoinReplica(SharedWrite, frozen=True):
    """Add a replica, with a lease from now on. Times are by the store's clock."""

    replica_id: str
    url: str | None
    version: str
    lease_ms: int


class BeatReplica(SharedWrite, frozen=True):
    """A heartbeat: the lease lasts so long from now. Guard it with :class:`LeaseHolds`."""

    replica_id: str
    lease_ms: int
    draining: bool = False


class LeaveReplica(SharedWrite, frozen=True):
    """Remove a replica. What it still runs is adrift at once."""

    replica_id: str


class Unit(msgspec.Struct, frozen=True):
    """Writes to one session, or to what is nobody's (``STORE_WIDE``), that commit as one, or not at all."""

    session_id: str
    writes: Sequence[Write]
    guards: tuple[Guard, ...] = ()
    sync: Sync = "process"


class Committed(msgspec.Struct, frozen=True):
    """The unit is durable as its ``sync`` says."""


class Refused(msgspec.Struct, frozen=True):
    """A guard did not hold; nothing was written. ``reason`` is the guard's word for it."""

    reason: Literal[
        "stale_epoch",
        "head_moved",
        "turn_open",
        "turn_not_open",
        "not_queued",
        "queue_changed",
        "sent_meanwhile",
        "session_not_found",
        "session_exists",
        "event_exists",
        "route_taken",
        "alias_taken",
        "runs_elsewhere",
        "lease_lapsed",
        "schedule_changed",
        "rules_changed",
    ]


Outcome = Committed | Refused
