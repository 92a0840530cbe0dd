"""Units: the vocabulary of everything that is ever written.

A unit is a list of writes to one session that commits as one. It can be run again from scratch: nothing in it depends
on a value read before it was built, except through its guards. The guards are checked first, in the same transaction;
when one fails, nothing is written and the caller gets a :class:`Refused`, a result, not an error.
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
from clew.transcript.workspace_snapshot import WorkspaceSnapshot
from clew.triggers.values.ledger import Direction, LedgerEvent
from clew.triggers.values.routing import RouteKind
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

Sync = Literal["process", "power"]
"""The durability of a commit on return: it survives the death of the process, or also a loss of power."""


STORE_WIDE: Final = ""
"""The ``session_id`` of a unit that belongs to no session: schedules and webhooks."""


class JournalEntry(NamedTuple):
    """One accepted chunk: its number in its message's stream, the index of its part (None: no part), and the chunk."""

    n: int
    part: int | None
    chunk: Chunk


class Guard(msgspec.Struct, frozen=True, tag=True):
    """A condition for the unit to be written."""


class EpochIs(Guard, frozen=True):
    """The session's newest run is this one. Otherwise ``stale_epoch``."""

    epoch: int


class HeadIs(Guard, frozen=True):
    """The head has not moved since it was read. Otherwise ``head_moved``."""

    turn_id: str | None


class NoOpenTurn(Guard, frozen=True):
    """Nothing is running, waiting, or left open. Otherwise ``turn_open``."""


class OpenTurnIs(Guard, frozen=True):
    """This turn is the open one. Otherwise ``turn_not_open``."""

    turn_id: str


class StillQueued(Guard, frozen=True):
    """The message is in the queue. Otherwise ``not_queued``: it was fired or cancelled. Where ``place`` (whether it
    interrupts, and when it was queued) or ``seal`` is given, it is unchanged; otherwise ``queue_changed``."""

    message_id: str
    place: tuple[bool, int] | None = None
    seal: str | None = None


class SentCountIs(Guard, frozen=True):
    """The session has this many messages with this client id. Otherwise ``sent_meanwhile``: it was accepted
    elsewhere."""

    client_message_id: str
    count: int


class EventIsNew(Guard, frozen=True):
    """The ledger has no event with this direction, source, id and attempt. Otherwise ``event_exists``."""

    direction: Direction
    source: str
    source_id: str
    attempt: int = 1


class DigestIsNew(Guard, frozen=True):
    """No event accepted from the source since then has this digest. Otherwise ``event_exists``."""

    source: str
    digest: str
    since: int


class RouteIsFree(Guard, frozen=True):
    """No session of the owner has this label or routing key, except one being deleted. Otherwise ``route_taken``."""

    kind: RouteKind
    name: str
    deleting: str | None = None
    owner: str | None = None


class AliasIsFree(Guard, frozen=True):
    """The owner has no session with this name as its id or alias. Otherwise ``alias_taken``."""

    alias: str
    owner: str | None


class NotRunElsewhere(Guard, frozen=True):
    """No other replica with a valid lease runs the session. Otherwise ``runs_elsewhere``."""

    replica_id: str


class LeaseHolds(Guard, frozen=True):
    """This replica's lease has not lapsed, by the store's clock. Otherwise ``lease_lapsed``, permanently."""

    replica_id: str


class ScheduleIs(Guard, frozen=True):
    """The schedule was not fired, changed or removed since it was read. Otherwise ``schedule_changed``."""

    schedule: Schedule


class RulesAre(Guard, frozen=True):
    """The rules of this project, or without one of the unit's session, have not changed since they were read. Otherwise
    ``rules_changed``."""

    project: str | None
    rules: tuple[dict[str, Any], ...]


class Write(msgspec.Struct, frozen=True, tag=True):
    """One change to write. Each store implements every kind."""


class SharedWrite(Write, frozen=True):
    """A write that depends on more than its own session: on shared data, or on another session."""


class InsertSession(Write, frozen=True):
    """Insert a session. ``unfinished``: no read returns it until :class:`FinishCopy`, and recovery deletes it."""

    session: Session
    unfinished: bool = False


class PatchSession(Write, frozen=True):
    """Change the given fields. ``metadata`` is merged key by key, a key in ``drop`` is removed."""

    metadata: dict[str, Any] = {}
    drop: tuple[str, ...] = ()
    model: Model | None = None
    permissions: tuple[dict[str, Any], ...] | None = None
    archived_at: int | msgspec.UnsetType | None = msgspec.UNSET
    updated_at: int | None = None


class SetTitle(Write, frozen=True):
    """Set a generated title, unless the user has set one. ``tries``: how often a model was asked for one in vain."""

    title: str
    by: Literal["words", "model"]
    tries: int = 0


class DeleteSession(SharedWrite, frozen=True):
    """Remove the session and everything that belongs to it, including blobs that no other session names."""


class BeginDeletion(SharedWrite, frozen=True):
    """Make the session disappear from every read; its rows stay until :class:`DeletePortion` has removed them all."""


class DeletePortion(SharedWrite, frozen=True):
    """Remove some rows of a session that is being deleted, so few that other writes do not wait long; with the last of
    them, the session. Does nothing to any other session."""


class InsertMessage(Write, frozen=True):
    """Append a message with its parts. It is on no line until it is linked to a turn."""

    message: MessageRow


class PutParts(Write, frozen=True):
    """Insert parts or replace their data, by (message, index). A part keeps its first id."""

    message_id: str
    parts: tuple[PartRow, ...]


class PatchMessage(Write, frozen=True):
    """Merge metadata keys into a message and remove those in ``drop``. Role, text and order cannot be changed."""

    message_id: str
    updated_at: int
    metadata: dict[str, Any] = {}
    drop: tuple[str, ...] = ()
    created_at: int | None = None


class SetHidden(Write, frozen=True):
    """Store whether these messages are hidden; None removes it."""

    hidden: dict[str, Hidden | None]


class SealMessage(Write, frozen=True):
    """Store a digest of the message's parts: it is settled, and any later change to it can be detected."""

    message_id: str
    digest: str


class OpenTurn(Write, frozen=True):
    """Add a turn below its parent. The store computes its depth and nearest compaction."""

    turn: Turn


class SetTurn(Write, frozen=True):
    """Move a turn to another status, if the state table allows it; None leaves it unchanged. ``data`` is merged."""

    turn_id: str
    status: TurnStatus | None
    settled_at: int | None = None
    data: dict[str, Any] = {}


class MoveTurn(Write, frozen=True):
    """Move the open turn below another parent, for a compaction that makes room for it. No other turn ever moves."""

    turn_id: str
    parent_turn_id: str | None


class LinkMessage(Write, frozen=True):
    """Append a message to a turn, after those it already holds."""

    turn_id: str
    message_id: str


class MoveHead(Write, frozen=True):
    """Point the session at another turn and record it in the reflog."""

    to_turn_id: str | None
    at: int
    why: MoveReason


class SetEpoch(Write, frozen=True):
    """Give the session to a new run; only valid with :class:`EpochIs` as guard."""

    epoch: int


class SetRunner(Write, frozen=True):
    """Record which replica runs the session, in the unit that acquires it. It is cleared by None, and when the open
    turn waits or settles. Never written where a store has one owner."""

    replica_id: str | None


class RecordStep(Write, frozen=True):
    """Record a step when its model call ends, before its tools run: its row, the message's usage, the session's sums
    and ``updated_at``, each once. Until it is finished, ``finished_at`` is when the call ended."""

    step: Step


class FinishStep(Write, frozen=True):
    """End a recorded step, its tools included; this also updates ``updated_at``."""

    turn_id: str
    index: int
    finished_at: int


class RecordUsage(Write, frozen=True):
    """Record the usage of a call that broke off before its step was recorded: the message's usage and the session's
    sums.

    ``estimated`` marks the message's usage: the provider did not report all of it.
    """

    message_id: str
    usage: Usage
    cost_usd: float
    at: int
    estimated: bool = True


class PutCall(Write, frozen=True):
    """Store or update the row of a model call; only the ``tools_ms`` of a closed one can change.

    In a unit of a session the call belongs to that session; in a store-wide unit it belongs to a deleted one.
    """

    call: ModelCall


class PutSnapshot(Write, frozen=True):
    """Store or replace the row of a saved state of the session's workspace."""

    snapshot: WorkspaceSnapshot


class AddPruned(Write, frozen=True):
    """Record outputs that the model sees only as a stub. All get the session's next prune number as their ``seq``."""

    pruned: tuple[Pruned, ...]


class CopyLine(SharedWrite, frozen=True):
    """Fill a session that was just inserted with a line of another: each turn below the one before it.

    Messages are copied with parts (new ids, data verbatim) and seals; their metadata ``hidden_at``, ``hidden_by`` and
    ``snapshot_id`` is left out. Steps of copied messages are copied, and so are prunes of their parts, with their
    ``seq``. The session's sums become those of the copied steps. Blobs that copied parts name are linked.

    ``is_portion``: the session is unfinished, and this is a portion of the line, below the turn ``below``.
    """

    source_session_id: str
    turns: tuple[CopiedTurn, ...]
    runs: tuple[CopiedRun, ...] = ()
    below: Turn | None = None
    is_portion: bool = False


class FinishCopy(SharedWrite, frozen=True):
    """Show a session whose line was copied in portions; its sums become those of the copied steps."""


class AppendChunks(Write, frozen=True):
    """Journal accepted chunks of one message's stream, in order."""

    message_id: str
    entries: tuple[JournalEntry, ...]


class MarkFolded(Write, frozen=True):
    """Record that the parts hold this stream through chunk ``through``; journal rows up to there may be removed."""

    message_id: str
    through: int


class Enqueue(Write, frozen=True):
    """Put a stored user message into the session's queue."""

    message_id: str
    queued_at: int
    interrupt: bool = False


class Dequeue(Write, frozen=True):
    """Remove a message from the queue; guard it with :class:`StillQueued` to know which writer won."""

    message_id: str


class PutPrompt(SharedWrite, frozen=True):
    """Store a system prompt or a list of tools by its digest, once."""

    digest: str
    body: str
    created_at: int


class PutBlob(SharedWrite, frozen=True):
    """Store bytes by their SHA-256, once, and link them to this session."""

    sha256: str
    media_type: str
    data: bytes
    created_at: int


class LinkBlob(SharedWrite, frozen=True):
    """Link an existing blob to this session, too."""

    sha256: str


class PutProjectRules(SharedWrite, frozen=True):
    """Replace the rules of a project (a resolved workspace root)."""

    project: str
    rules: tuple[dict[str, Any], ...]
    updated_at: int


class AddEvent(SharedWrite, frozen=True):
    """Append to the events ledger; guard it with :class:`EventIsNew`. The store numbers it.

    In a unit of a session the event belongs to that session; in a store-wide unit it belongs to a deleted one.
    """

    event: LedgerEvent


class PutSchedule(SharedWrite, frozen=True):
    """Insert or replace a schedule. One that names a session is deleted with it."""

    schedule: Schedule


class DropSchedule(SharedWrite, frozen=True):
    schedule_id: str


class PutWebhook(SharedWrite, frozen=True):
    """Insert or replace a webhook. One that names a session is deleted with it."""

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
    """Record a heartbeat: extend the lease from now. Guard it with :class:`LeaseHolds`."""

    replica_id: str
    lease_ms: int
    draining: bool = False


class LeaveReplica(SharedWrite, frozen=True):
    """Remove a replica. The sessions it still runs are orphaned immediately."""

    replica_id: str


class Unit(msgspec.Struct, frozen=True):
    """Writes to one session, or to store-wide data (``STORE_WIDE``), that commit as one or not at all."""

    session_id: str
    writes: Sequence[Write]
    guards: tuple[Guard, ...] = ()
    sync: Sync = "process"


class Committed(msgspec.Struct, frozen=True):
    """The unit is durable as its ``sync`` says."""


class Refused(msgspec.Struct, frozen=True):
    """The result when a guard fails; nothing was written. ``reason`` names the failed guard."""

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
