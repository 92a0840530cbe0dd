"""Every error clew raises, as one tree.

::

    ClewError
    ├── NotFound            SessionNotFound · MessageNotFound · TurnNotFound · ApprovalNotFound · TriggerNotFound
    │                       RuleNotFound · BlobNotFound
    ├── Conflict            SessionBusy · WaitingForHuman · NothingToContinue · AlreadyAnswered · DuplicateMessage
    │                       DuplicateEvent · TriggerPaused · RoutingConflict · NewerTurns · NothingToUndo ·
    │                       OwnedByAnotherProcess · AliasTaken
    ├── Invalid             InvalidId · InvalidInput · InvalidCursor · UnsupportedValue · UnknownVariant
    │                       MessageTooLarge · TooManyFiles · UnsupportedFile · RewindTargetInvalid · BranchPointInvalid
    │                       IllegalChunk · IllegalTransition
    ├── PermissionDenied    SignatureInvalid
    ├── RunError            ModelFailed · ToolFailed · RunAborted · ContextTooLarge · ViewerLagged
    ├── CompactionError
    ├── SnapshotFailed
    ├── StoreError          StoreClosed · StoreUnavailable · StoreGone · StoreBusy · StoreReadOnly
    │                       SchemaTooNew · StorageFull · RowUndecodable · StaleEpoch · NotSupported
    │                       ReplicaAway
    └── InternalError       a bug in clew itself

``code`` is stable and is what a front sends; the sentence may change. ``ids`` names what the error is about, so
that a log line or a problem document can carry it without parsing the sentence. How a code becomes an HTTP
status or an exit code is decided by the fronts, not here.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AliasTaken",
    "AlreadyAnswered",
    "ApprovalNotFound",
    "BlobNotFound",
    "BranchPointInvalid",
    "ClewError",
    "CompactionError",
    "Conflict",
    "ContextTooLarge",
    "DuplicateEvent",
    "DuplicateMessage",
    "IllegalChunk",
    "IllegalTransition",
    "InternalError",
    "Invalid",
    "InvalidCursor",
    "InvalidId",
    "InvalidInput",
    "MessageNotFound",
    "MessageTooLarge",
    "ModelFailed",
    "NewerTurns",
    "NotFound",
    "NotSupported",
    "NothingToContinue",
    "NothingToUndo",
    "OwnedByAnotherProcess",
    "PermissionDenied",
    "ReplicaAway",
    "RewindTargetInvalid",
    "RoutingConflict",
    "RowUndecodable",
    "RuleNotFound",
    "RunAborted",
    "RunError",
    "SchemaTooNew",
    "SessionBusy",
    "SessionNotFound",
    "SignatureInvalid",
    "SnapshotFailed",
    "StaleEpoch",
    "StorageFull",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreGone",
    "StoreReadOnly",
    "StoreUnavailable",
    "TooManyFiles",
    "ToolFailed",
    "TriggerNotFound",
    "TriggerPaused",
    "TurnNotFound",
    "UnknownVariant",
    "UnsupportedFile",
    "UnsupportedValue",
    "ViewerLagged",
    "WaitingForHuman",
]


class ClewError(Exception):
    """The root of the tree. ``ids`` holds what the error is about, by kind of id."""

    code: ClassVar[str] = "internal_error"

    def __init_subclass__(cls, code: str | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code

    def __init__(self, message: str, **ids: object) -> None:
        super().__init__(message)
        self.message = message
        self.ids: dict[str, object] = {name: value for name, value in ids.items() if value is not None}

    def __str__(self) -> str:
        return self.message


class NotFound(ClewError, code="not_found"):
    """An object that the caller named does not exist."""


class SessionNotFound(NotFound, code="session_not_found"):
    """No such session, or it was deleted meanwhile."""


class MessageNotFound(NotFound, code="message_not_found"):
    """No such message, in this view or at all; or the message marks no compaction."""


class TurnNotFound(NotFound, code="turn_not_found"):
    """No such turn, or not in this session."""


class ApprovalNotFound(NotFound, code="approval_not_found"):
    """No pending request with this id."""


class RuleNotFound(NotFound, code="rule_not_found"):
    """No rule with this id is in force there."""


class TriggerNotFound(NotFound, code="trigger_not_found"):
    """No such schedule, or no such webhook."""


class BlobNotFound(NotFound, code="blob_not_found"):
    """No file with this digest."""


class Conflict(ClewError, code="conflict"):
    """The request is valid, but the current state does not allow it."""


class SessionBusy(Conflict, code="run_in_flight"):
    """The session, or the requested object, is in use: wait, abort the run, or retry.

    Raised during a run and during a compaction, when the head moved or a run acquired the session between a read and a
    write, for a message that is already queued, and for a schedule whose last run has not ended.
    """


class WaitingForHuman(Conflict, code="waiting_for_human"):
    """A turn is open and waits for approvals or answers, so no other can start. No run is active meanwhile.

    Raised for a prompt that would not be queued, for going on, compacting and pruning, and for answers over the chat
    route that are none of those it waits for.
    """


class NothingToContinue(Conflict, code="nothing_to_continue"):
    """There is no turn or queue to resume: send a prompt."""


class AlreadyAnswered(Conflict, code="already_answered"):
    """The request was answered before."""


class DuplicateMessage(Conflict, code="duplicate_message"):
    """The client's message id was used before, with other content."""


class DuplicateEvent(Conflict, code="duplicate_event"):
    """An event of this source and id was received before, with other content."""


class TriggerPaused(Conflict, code="trigger_paused"):
    """The webhook is paused and accepts no deliveries."""


class AliasTaken(Conflict, code="alias_taken"):
    """The owner already has a session with this alias."""


class RoutingConflict(Conflict, code="routing_conflict"):
    """Several sessions have the label or routing key of the target; ``session_ids`` names them."""


class NewerTurns(Conflict, code="newer_turns"):
    """The conversation continued after the rewind that was to be undone."""


class NothingToUndo(Conflict, code="nothing_to_undo"):
    """There is no rewind that is not undone yet."""


class OwnedByAnotherProcess(Conflict, code="store_owned"):
    """Another process has the store open for writing."""


class Invalid(ClewError, code="invalid_input"):
    """The request itself is invalid; nothing was changed."""


class InvalidId(Invalid, code="invalid_id"):
    """An id of the wrong form."""


class InvalidInput(Invalid, code="invalid_input"):
    """A wrong argument, prompt, setting, cursor, URL, model or agent, or a target file that exists already."""


class InvalidCursor(Invalid, code="invalid_cursor"):
    """A position in a stream of the wrong form."""


class UnsupportedValue(Invalid, code="unsupported_value"):
    """U+0000, a lone surrogate, NaN, infinity, an integer beyond 64 bits, over 200 levels, or too large."""


class UnknownVariant(Invalid, code="unknown_variant"):
    """The model has no such variant; the message names those it has."""


class MessageTooLarge(Invalid, code="message_too_large"):
    """A prompt that would not fit an empty context window, or files that are too large."""


class TooManyFiles(Invalid, code="too_many_files"):
    """More than 10 files in one prompt."""


class UnsupportedFile(Invalid, code="unsupported_file"):
    """A file that the model does not support, or that is truncated."""


class RewindTargetInvalid(Invalid, code="rewind_target_invalid"):
    """Not a user message of the line, or of a refused turn; the message says what to name instead."""


class BranchPointInvalid(Invalid, code="branch_point_invalid"):
    """A message that was never sent, a refused turn, or a start that begins no turn."""


class IllegalChunk(Invalid, code="illegal_chunk"):
    """A chunk that is unknown, or not allowed in the state of its message. The message is unchanged."""


class IllegalTransition(Invalid, code="illegal_transition"):
    """A transition between states that the table does not contain."""


class PermissionDenied(ClewError, code="permission_denied"):
    """A tool touched something it may not touch. The model is told the reason."""


class SignatureInvalid(PermissionDenied, code="signature_invalid"):
    """A delivery whose signature is invalid or too old."""


class RunError(ClewError, code="run_failed"):
    """A run ended without finishing its turn."""


class ModelFailed(RunError, code="model_failed"):
    """A model call failed, as the error of the turn; or its provider has no key, before the run."""


class ToolFailed(RunError, code="tool_failed"):
    """A tool could not do its work. The model is told the reason."""


class RunAborted(RunError, code="run_aborted"):
    """A compaction by hand was aborted."""


class ContextTooLarge(RunError, code="context_too_large"):
    """The next request fits the context window in no way. As the error of a turn it has ``branch``."""


class ViewerLagged(RunError, code="viewer_lagged"):
    """A viewer read too slowly and was dropped from the stream. The run is not affected."""


class CompactionError(ClewError, code="compaction_failed"):
    """No summary could be made; nothing was changed."""


class SnapshotFailed(ClewError, code="snapshot_failed"):
    """The snapshot layer could not restore the workspace; the conversation is unchanged."""


class StoreError(ClewError, code="store_error"):
    """An operation of the store failed; everything acknowledged before is still stored."""


class StoreClosed(StoreError, code="store_closed"):
    """A read on a closed store, or a server that is shutting down."""


class ReplicaAway(StoreError, code="replica_away"):
    """This process accepts no work: it is shutting down, or has lost its lease. Another replica does."""


class StoreUnavailable(StoreError, code="store_unavailable"):
    """No store can be opened at this location: a network file system, no WAL, or not a database."""


class StoreGone(StoreError, code="store_gone"):
    """The file or folder of the open store was removed or replaced. Acknowledged data is in the original one."""


class StoreBusy(StoreError, code="store_busy"):
    """Another process held the write lock for longer than the configured wait."""


class StoreReadOnly(StoreError, code="store_read_only"):
    """This handle was opened for reading."""


class SchemaTooNew(StoreError, code="schema_too_new"):
    """The version of the store is newer than this program."""


class StorageFull(StoreError, code="storage_full"):
    """The disk, or the allowed file size, is used up; nothing of the unit was written."""


class RowUndecodable(StoreError, code="row_undecodable"):
    """A stored row is not what clew wrote; other rows are not affected."""


class StaleEpoch(StoreError, code="stale_epoch"):
    """The run that wrote was superseded by a newer one; its write was rejected as a whole."""


class NotSupported(StoreError, code="not_supported"):
    """This store, or this setup, cannot do that."""


class InternalError(ClewError, code="internal_error"):
    """A broken assumption inside clew. Please report it."""
