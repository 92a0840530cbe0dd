"""The document: one session as one value, with all that hangs on it. Every form of export is made from it.

Only what cannot be worked out is in it: no depths, no part numbers, no seals. Neither are permissions, which count for
the host they were given on alone, nor snapshots, which name files of that host.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from clew._version import __version__
from clew.transcript.message import Role
from clew.transcript.pruned import Pruned
from clew.transcript.session import Model
from clew.transcript.turn import MoveReason, Step, TurnKind
from clew.transcript.turn_state import TurnStatus

__all__ = [
    "EXPORTER",
    "FORMAT",
    "VERSION",
    "BlobRecord",
    "MessageRecord",
    "MoveRecord",
    "PartRecord",
    "PromptRecord",
    "QueuedRecord",
    "SessionDocument",
    "SessionRecord",
    "Stamp",
    "TurnRecord",
]

FORMAT: Final = "clew-session"
VERSION: Final = 1
EXPORTER: Final = f"clew {__version__}"

Stamp = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""Epoch milliseconds."""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The session row. The counts are for those who read the file; an import adds them up again."""

    id: str
    agent: str
    model: Model
    created_at: Stamp
    updated_at: Stamp
    workspace_root: str | None = None
    parent_id: str | None = None
    parent_message_id: str | None = None
    head_turn_id: str | None = None
    archived_at: Stamp | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    total_tokens: int = 0
    cost_usd: float = 0.0


class PartRecord(msgspec.Struct, frozen=True):
    """A part. ``data`` is the AI SDK's own object, verbatim; ``id`` is None while the part is still being written."""

    id: str | None
    data: dict[str, Any]
    created_at: Stamp
    updated_at: Stamp


class MessageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its parts in order, whether the conversation still holds it or not."""

    id: str
    role: Role
    created_at: Stamp
    updated_at: Stamp
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    parts: tuple[PartRecord, ...] = ()


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A turn and the ids of the messages it holds, in order."""

    id: str
    parent_turn_id: str | None
    created_at: Stamp
    kind: TurnKind
    status: TurnStatus
    origin_turn_id: str | None = None
    settled_at: Stamp | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    messages: tuple[str, ...] = ()


class MoveRecord(msgspec.Struct, frozen=True):
    """One move of the head; where it came from is where the move before it went."""

    to_turn_id: str | None
    at: Stamp
    why: MoveReason


class PromptRecord(msgspec.Struct, frozen=True):
    """A text that steps name by the SHA-256 of it: a system prompt, or the tools of a request."""

    digest: str
    body: str


class BlobRecord(msgspec.Struct, frozen=True):
    """A file that messages name by the SHA-256 of it. In JSON ``data`` is base64."""

    sha256: str
    media_type: str
    data: bytes


class QueuedRecord(msgspec.Struct, frozen=True):
    """A message that waits for its turn."""

    message_id: str
    queued_at: Stamp
    interrupt: bool = False


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One session, whole. ``redacted`` says how many secrets were taken out of it.

    Messages are in the order of (created_at, id), turns after their parents, prunes numbered from 1 without a gap.
    """

    format: Literal["clew-session"] = FORMAT
    version: Literal[1] = VERSION
    exporter: str = EXPORTER
    exported_at: Stamp
    redacted: int = 0
    session: SessionRecord
    turns: tuple[TurnRecord, ...] = ()
    messages: tuple[MessageRecord, ...] = ()
    steps: tuple[Step, ...] = ()
    moves: tuple[MoveRecord, ...] = ()
    prunes: tuple[Pruned, ...] = ()
    prompts: tuple[PromptRecord, ...] = ()
    blobs: tuple[BlobRecord, ...] = ()
    queue: tuple[QueuedRecord, ...] = ()
