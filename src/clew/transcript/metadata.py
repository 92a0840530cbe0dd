"""The metadata keys of messages and sessions that clew knows, and their meaning.

The dict is stored verbatim: unknown keys pass through untouched. Only this module reads the known keys; values with
metadata inherit from its classes. A key with a value of the wrong type reads as missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec
import orjson

from clew.convert import convert
from clew.errors import InvalidInput, UnsupportedValue
from clew.transcript.damage import DAMAGED, UNREADABLE
from clew.transcript.part import TextKey
from clew.transcript.rule import Mode, read_mode
from clew.transcript.usage import Usage
from clew.transcript.value_check import check_value

__all__ = [
    "BROKEN_OFF_USD",
    "FALLBACK_KEY",
    "FILE_KEYS",
    "MAX_METADATA_BYTES",
    "MAX_STORED_METADATA_BYTES",
    "MAX_TITLE",
    "MODEL_WAS_KEY",
    "MODE_KEY",
    "NAMING_KEY",
    "OWN_MESSAGE_KEYS",
    "OWN_SESSION_KEYS",
    "PAUSED_KEY",
    "PICKED_KEY",
    "PINNED_KEY",
    "PLACE_KEYS",
    "SNAPSHOT_KEY",
    "STORE_KEYS",
    "VARIANT_KEY",
    "VIEW_KEYS",
    "MessageMetadata",
    "PausedBy",
    "SessionMetadata",
    "broken_off_usd",
    "cancelled",
    "check_metadata",
    "check_metadata_size",
    "check_names",
    "check_stored_metadata",
    "from_client",
    "from_stream",
    "hidden_if_cancelled",
    "is_estimated",
    "local_place",
    "merge",
    "named",
    "projection_of",
    "usage_of",
]

BROKEN_OFF_USD: Final = "broken_off_usd"
"""In a message's usage: the cost of its interrupted calls."""
VIEW_KEYS: Final = frozenset({"turn_id", "created_at", "user_message_id", "turn", "pruned", "unsent_from"})
"""Metadata a view adds, such as how it reached the message. Never stored with a message."""

STORE_KEYS: Final = frozenset({"usage", "hidden_at", "hidden_by", "queued_at", DAMAGED})
"""Metadata written only by the store itself, each key from one source; values in a stream are ignored."""

MAX_METADATA_BYTES: Final = 64 * 1024
"""The limit for the metadata a client sends for one message or one session, as JSON."""

MAX_STORED_METADATA_BYTES: Final = 4 * MAX_METADATA_BYTES
"""The limit including clew's own keys, such as an output schema, so that stored metadata can be imported."""

_VALUE_SIZE_FACTOR: Final = 8
"""The factor by which values may exceed their JSON size: a digit and a comma count as eight bytes."""

MAX_TITLE: Final = 500
"""The longest title or label of a session, in characters."""

SNAPSHOT_KEY: Final = "snapshot_id"
"""The id of the workspace snapshot taken before the prompt."""

FALLBACK_KEY: Final = "fallback_for"
"""Message metadata: the ``agent`` and ``model`` that were requested but are unknown here."""

OWN_MESSAGE_KEYS: Final = (
    VIEW_KEYS
    | STORE_KEYS
    | {"model", "agent", "client_message_id", "unattended", "output", "trigger", "synthetic", "summary", "compaction"}
    | {"cancelled_at", "cancelled_why", "clew", "came_from", SNAPSHOT_KEY, FALLBACK_KEY}
)
"""Message metadata that clew sets and reads. A client's values for these keys are not stored."""

PausedBy = Literal["person", "abort", "error", "restart"]
"""Why a queue is paused until a person resumes it."""

PAUSED_KEY: Final = "queue_paused"
"""Session metadata: why its queue is paused. Present only while a message is queued."""


NAMING_KEY: Final = "naming"
"""Session metadata: how clew generated the title. Removed when the session is given another title."""


MODE_KEY: Final = "permission_mode"
"""Session metadata: its permission mode. Absent in the default mode, ``ask``."""


PINNED_KEY: Final = "pinned"
"""Session metadata: a person pinned it to the top of the list. Absent otherwise."""


PICKED_KEY: Final = "model_picked_at"
"""Session metadata: when a person last chose its model, other than in a prompt."""


MODEL_WAS_KEY: Final = "model_was"
"""Session metadata: the original model of an imported session, if it was not available here."""


VARIANT_KEY: Final = "turn_variant"
"""Session metadata: the variant of the newest turn's model, which the stored model shows and the next turn ignores."""


FILE_KEYS: Final = "file_keys"
"""Session metadata of a copy: the keys of the original's file that only another program understands."""

OWN_SESSION_KEYS: Final = frozenset(
    {"title", "label", NAMING_KEY, MODE_KEY, PINNED_KEY, PICKED_KEY, PAUSED_KEY, MODEL_WAS_KEY, VARIANT_KEY, FILE_KEYS}
)
"""Session metadata that clew adds to what a client has given."""

PLACE_KEYS: Final = ("workerId", "workspaceId")
"""Session metadata: the worker and the workspace, under the keys of other programs that share sessions."""


class MessageMetadata:
    """Typed access to the metadata of a message."""

    __slots__ = ()
    role: Literal["user", "assistant", "system"]
    metadata: dict[str, Any]

    @property
    def is_prompt(self) -> bool:
        """True if a person or a trigger wrote it; False for user messages that clew inserted."""
        return self.role == "user" and not self.is_synthetic

    turn_id = TextKey("turn_id")
    """The turn through which a view reached it."""

    @property
    def shown_at(self) -> int:
        """The creation time as a view reports it."""
        at = self.metadata.get("created_at")
        return at if isinstance(at, int) else 0

    @property
    def is_synthetic(self) -> bool:
        """True if clew inserted it into the conversation."""
        return self.metadata.get("synthetic") is True

    @property
    def is_summary(self) -> bool:
        """True for the summary of a compaction."""
        return self.metadata.get("summary") is True

    @property
    def is_attended(self) -> bool:
        """True if its sender is present to answer requests."""
        return self.metadata.get("unattended") is not True

    @property
    def is_triggered(self) -> bool:
        """True if an event, a schedule or a webhook sent it, not a person."""
        return "trigger" in self.metadata

    @property
    def fallback_for(self) -> Mapping[str, Any]:
        """The requested agent and model, if they are unknown here."""
        requested = self.metadata.get(FALLBACK_KEY)
        return requested if isinstance(requested, dict) else {}

    client_message_id = TextKey("client_message_id")
    """The sender's id for it, by which a repeated prompt is recognised."""

    @property
    def asked_model(self) -> Any:
        """The model it was sent to or comes from, as JSON."""
        return self.metadata.get("model")

    asked_agent = TextKey("agent")
    """The agent it was sent to, if not the session's."""

    @property
    def asked_output(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the requested structured output."""
        schema = self.metadata.get("output")
        return schema if isinstance(schema, dict) else None

    @property
    def queued_at(self) -> int | None:
        """When it was queued; None if it is not in the queue."""
        at = self.metadata.get("queued_at")
        return at if isinstance(at, int) else None

    @property
    def is_cancelled(self) -> bool:
        """True if it was removed from the queue without being sent."""
        return "cancelled_at" in self.metadata

    cancelled_why = TextKey("cancelled_why")

    snapshot_id = TextKey(SNAPSHOT_KEY)

    damage = TextKey(DAMAGED)
    """Why its content is not, or may not be, what was stored; None if there is no known damage."""

    @property
    def is_unreadable(self) -> bool:
        """True if not even its row could be read; a placeholder replaces it."""
        return self.metadata.get(DAMAGED) is UNREADABLE

    @property
    def usage(self) -> Usage:
        return usage_of(self.metadata)


class SessionMetadata:
    """Typed access to the metadata of a session."""

    __slots__ = ()
    metadata: dict[str, Any]

    title = TextKey("title")

    @property
    def naming(self) -> dict[str, Any] | None:
        """The source of a title clew generated: ``by`` the first ``words`` or a ``model``, and after how many failed
        ``tries``.

        None if a person set the title, or there is none.
        """
        naming = self.metadata.get(NAMING_KEY)
        return naming if isinstance(naming, dict) else None

    label = TextKey("label")

    @property
    def kind(self) -> Literal["chat", "subagent"]:
        return "subagent" if self.metadata.get("kind") == "subagent" else "chat"

    @property
    def ephemeral(self) -> bool:
        """True if it is left out of lists."""
        return self.metadata.get("ephemeral") is True

    @property
    def pinned(self) -> bool:
        """True if a person pinned it to the top of lists."""
        return self.metadata.get(PINNED_KEY) is True

    def model_picked_since(self, asked_at: int) -> bool:
        """Return whether a person chose its model at or after ``asked_at``, the time a prompt was sent."""
        at = self.metadata.get(PICKED_KEY)
        return isinstance(at, int) and at >= asked_at

    @property
    def has_chosen_model(self) -> bool:
        """True if a person chose its model, other than in a prompt."""
        return PICKED_KEY in self.metadata

    @property
    def paused_by(self) -> PausedBy | None:
        """Why its queue is paused; None if it is not."""
        why = self.metadata.get(PAUSED_KEY)
        return why if why in get_args(PausedBy) else None

    @property
    def mode(self) -> Mode:
        """Its permission mode, applied where none of the user's rules decides."""
        return read_mode(self.metadata.get(MODE_KEY))

    system_prompt = TextKey("system_prompt")
    """Replaces the agent's own prompt."""

    @property
    def compaction(self) -> Any:
        """Its own compaction settings, as JSON; validated where they are used."""
        return self.metadata.get("compaction")


def local_place(workspace_root: str | None) -> dict[str, str]:
    """Return the worker and workspace keys of a session created by clew, for other programs."""
    return dict(zip(PLACE_KEYS, ("local", workspace_root or "local"), strict=True))


def usage_of(metadata: Mapping[str, Any]) -> Usage:
    """Return the usage in the metadata of a message; zero if it is missing or unreadable."""
    try:
        return convert(metadata.get("usage", {}), Usage)
    except msgspec.ValidationError:
        return Usage()


def is_estimated(metadata: Mapping[str, Any]) -> bool:
    """Return whether the usage in the metadata of a message includes an estimate."""
    usage = metadata.get("usage")
    return isinstance(usage, Mapping) and usage.get("estimated") is True


def broken_off_usd(metadata: Mapping[str, Any]) -> float:
    """Return the cost of a message's interrupted calls, which belong to no step of its turn."""
    usage = metadata.get("usage")
    cost = usage.get(BROKEN_OFF_USD) if isinstance(usage, Mapping) else None
    return float(cost) if isinstance(cost, int | float) else 0.0


def projection_of(metadata: Mapping[str, object]) -> tuple[object, object]:
    """Return when and why a message was hidden from other readers (:mod:`clew.transcript.projection`)."""
    return metadata.get("hidden_at"), metadata.get("hidden_by")


def cancelled(at: int, why: str) -> dict[str, Any]:
    """Return the metadata of a cancelled queued message. It belongs to no turn, so other readers see it as hidden."""
    return {"cancelled_at": at, "cancelled_why": why, "hidden_at": at, "hidden_by": "cancelled"}


def hidden_if_cancelled(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata with a cancelled message hidden, which older versions did not do."""
    at = metadata.get("cancelled_at")
    return {**metadata, "hidden_at": at, "hidden_by": "cancelled"} if isinstance(at, int) else metadata


def from_stream(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata from a stream that is stored with the message."""
    return {key: value for key, value in (metadata or {}).items() if key not in VIEW_KEYS | STORE_KEYS}


def from_client(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata from a client that is stored: all but the keys clew uses itself."""
    return {key: value for key, value in (metadata or {}).items() if key not in OWN_MESSAGE_KEYS}


def check_metadata(
    metadata: Mapping[str, Any] | None, where: str = "metadata", max_bytes: int = MAX_METADATA_BYTES
) -> None:
    """Raise for metadata that no store can hold or that exceeds ``max_bytes`` bytes as JSON."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInput(f"{where} must be an object")
    plain = dict(metadata or {})
    # Check the size first, which is fast: checking every value of megabytes would block all other requests.
    try:
        size = len(orjson.dumps(plain))
    except (TypeError, ValueError, RecursionError):
        size = 0
    check_metadata_size(size, where, max_bytes)
    check_value(plain, where, max_bytes=_VALUE_SIZE_FACTOR * max_bytes)


def check_stored_metadata(metadata: Mapping[str, Any], own: Container[str], where: str) -> None:
    """Raise for metadata over ``MAX_STORED_METADATA_BYTES``, or over the client's limit without clew's ``own`` keys."""
    check_metadata(metadata, where, MAX_STORED_METADATA_BYTES)
    check_metadata({key: value for key, value in metadata.items() if key not in own}, where)


def check_metadata_size(size: int, where: str = "metadata", max_bytes: int = MAX_METADATA_BYTES) -> None:
    """Raise for metadata of more than ``max_bytes`` bytes as JSON."""
    if size > max_bytes:
        raise UnsupportedValue(
            f"{where} has {size:,} bytes as JSON; the limit is {max_bytes:,}. Store the data elsewhere "
            "and a reference to it here",
            where=where,
        )


def check_names(metadata: Mapping[str, Any]) -> None:
    """Raise for a title or a label that is not text or is longer than ``MAX_TITLE``."""
    for key in ("title", "label"):
        value = metadata.get(key)
        if value is not None and not (isinstance(value, str) and len(value) <= MAX_TITLE):
            raise InvalidInput(f"{key} must be text of at most {MAX_TITLE} characters")


def named(old: Mapping[str, Any], title: str, by: str, tries: int) -> dict[str, Any]:
    """Return the metadata changes for a title generated by clew; empty if a person has set one."""
    if old.get("title") is not None and NAMING_KEY not in old:
        return {}
    return {"title": title, NAMING_KEY: {"by": by, "tries": tries} if tries else {"by": by}}


def merge(old: Mapping[str, Any], new: Mapping[str, Any], drop: Iterable[str] = ()) -> dict[str, Any]:
    """Return ``old`` with the keys of ``new`` set and those of ``drop`` removed."""
    result = {**old, **new}
    for key in drop:
        result.pop(key, None)
    return result
