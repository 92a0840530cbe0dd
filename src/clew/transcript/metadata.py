"""Metadata: the keys clew knows in the free-form metadata of a message and of a session, and what they mean.

The dict is kept verbatim: keys nobody here knows pass through untouched. This module alone reads the known ones, for
whoever has a value that carries metadata: it is the base class of those. A key of the wrong type reads as one that is
not there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec
import orjson

from clew.errors import InvalidInput, UnsupportedValue
from clew.fit import fit
from clew.transcript.damage import DAMAGED, UNREADABLE
from clew.transcript.gate import check_value
from clew.transcript.part import TextKey
from clew.transcript.rule import Mode, read_mode
from clew.transcript.usage import Usage

__all__ = [
    "BROKEN_OFF_USD",
    "FALLBACK_KEY",
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
"""In a message's usage: what its calls cost that broke off."""
VIEW_KEYS: Final = frozenset({"turn_id", "created_at", "user_message_id", "turn", "pruned", "unsent_from"})
"""Metadata a view adds: the way to a message, and what is known of it elsewhere. It is never stored with one."""

STORE_KEYS: Final = frozenset({"usage", "hidden_at", "hidden_by", "queued_at", DAMAGED})
"""Metadata that only the store's own writes set, each from one source; a stream that carries them is not believed."""

MAX_METADATA_BYTES: Final = 64 * 1024
"""The limit for the metadata a client sends for one message or one session, as JSON."""

MAX_STORED_METADATA_BYTES: Final = 4 * MAX_METADATA_BYTES
"""The limit with clew's own keys, such as the schema of an answer, so that all stored metadata can be imported."""

_MAX_VALUES: Final = 8
"""How many times as large values may count as their JSON is: a digit and a comma count for eight bytes."""

MAX_TITLE: Final = 500
"""The longest title or label of a session, in characters."""

SNAPSHOT_KEY: Final = "snapshot_id"
"""Names the state of the workspace before the prompt."""

FALLBACK_KEY: Final = "fallback_for"
"""Message metadata: the ``agent`` and the ``model`` that were to answer and are unknown here."""

OWN_MESSAGE_KEYS: Final = (
    VIEW_KEYS
    | STORE_KEYS
    | {"model", "agent", "client_message_id", "unattended", "output", "trigger", "synthetic", "summary", "compaction"}
    | {"cancelled_at", "cancelled_why", "clew", "came_from", SNAPSHOT_KEY, FALLBACK_KEY}
)
"""Message metadata that clew sets and reads. A client's own values for these keys are not stored."""

PausedBy = Literal["person", "abort", "error", "restart"]
"""Why a queue waits until a person speaks; what a ``person`` has paused, until one says go on."""

PAUSED_KEY: Final = "queue_paused"
"""Session metadata: why its queue is paused. It is there only while something waits in it."""


NAMING_KEY: Final = "naming"
"""Says that a session's title is clew's, and where from. Whoever gives it another takes this away."""


MODE_KEY: Final = "permission_mode"
"""Session metadata: how freely it works. It is not there while it asks."""


PINNED_KEY: Final = "pinned"
"""Session metadata: a person keeps it at the top of the list. It is not there otherwise."""


PICKED_KEY: Final = "model_picked_at"
"""Session metadata: when a person last chose its model, other than by a prompt that names one."""


MODEL_WAS_KEY: Final = "model_was"
"""Session metadata: the model of an imported session that could not be used here when it came."""


OWN_SESSION_KEYS: Final = frozenset(
    {"title", "label", NAMING_KEY, MODE_KEY, PINNED_KEY, PICKED_KEY, PAUSED_KEY, MODEL_WAS_KEY}
)
"""Session metadata that clew adds to what a client has given."""

PLACE_KEYS: Final = ("workerId", "workspaceId")
"""Session metadata: who works where, as other programs that share a folder of sessions call it."""


class MessageMetadata:
    """What the metadata of a message says."""

    __slots__ = ()
    role: Literal["user", "assistant", "system"]
    metadata: dict[str, Any]

    @property
    def is_prompt(self) -> bool:
        """Said by a person or a trigger: nothing that clew put in the user's place."""
        return self.role == "user" and not self.is_synthetic

    turn_id = TextKey("turn_id")
    """The turn through which a view reached it."""

    @property
    def shown_at(self) -> int:
        """When it came to be, as a view tells it."""
        at = self.metadata.get("created_at")
        return at if isinstance(at, int) else 0

    @property
    def is_synthetic(self) -> bool:
        """Put into the conversation by clew, and said by nobody."""
        return self.metadata.get("synthetic") is True

    @property
    def is_summary(self) -> bool:
        """The summary of a compaction."""
        return self.metadata.get("summary") is True

    @property
    def is_attended(self) -> bool:
        """Sent by somebody who is there to answer requests."""
        return self.metadata.get("unattended") is not True

    @property
    def is_triggered(self) -> bool:
        """Sent by an event, a schedule or a webhook, and by no person."""
        return "trigger" in self.metadata

    @property
    def fallback_for(self) -> Mapping[str, Any]:
        """The agent and the model that were to write it and are unknown here."""
        named = self.metadata.get(FALLBACK_KEY)
        return named if isinstance(named, dict) else {}

    client_message_id = TextKey("client_message_id")
    """The id its sender gave it, by which a prompt sent twice is known."""

    @property
    def asked_model(self) -> Any:
        """The model it was sent to or comes from, as JSON."""
        return self.metadata.get("model")

    asked_agent = TextKey("agent")
    """The agent it was sent to, where that is not the session's."""

    @property
    def asked_output(self) -> Mapping[str, Any] | None:
        """The JSON Schema that the answer is to be a value of."""
        schema = self.metadata.get("output")
        return schema if isinstance(schema, dict) else None

    @property
    def queued_at(self) -> int | None:
        """Since when it waits in the queue."""
        at = self.metadata.get("queued_at")
        return at if isinstance(at, int) else None

    @property
    def is_cancelled(self) -> bool:
        """Taken from the queue without being sent."""
        return "cancelled_at" in self.metadata

    cancelled_why = TextKey("cancelled_why")

    snapshot_id = TextKey(SNAPSHOT_KEY)

    damage = TextKey(DAMAGED)
    """Why its text is not, or may not be, what was stored; None where nothing is known against it."""

    @property
    def is_unreadable(self) -> bool:
        """Not even its row could be read; what there is of it was put in its place."""
        return self.metadata.get(DAMAGED) is UNREADABLE

    @property
    def usage(self) -> Usage:
        return usage_of(self.metadata)


class SessionMetadata:
    """What the metadata of a session says."""

    __slots__ = ()
    metadata: dict[str, Any]

    title = TextKey("title")

    @property
    def naming(self) -> dict[str, Any] | None:
        """How clew came by the title: ``by`` its first ``words`` or a ``model``, after how many vain ``tries``. None
        when a person gave it, or nobody did."""
        naming = self.metadata.get(NAMING_KEY)
        return naming if isinstance(naming, dict) else None

    label = TextKey("label")

    @property
    def kind(self) -> Literal["chat", "subagent"]:
        return "subagent" if self.metadata.get("kind") == "subagent" else "chat"

    @property
    def ephemeral(self) -> bool:
        """Left out of lists."""
        return self.metadata.get("ephemeral") is True

    @property
    def pinned(self) -> bool:
        """Kept at the top of lists by a person."""
        return self.metadata.get(PINNED_KEY) is True

    def model_picked_since(self, asked_at: int) -> bool:
        """Return whether its model was chosen after a prompt of that time was sent."""
        at = self.metadata.get(PICKED_KEY)
        return isinstance(at, int) and at >= asked_at

    @property
    def has_chosen_model(self) -> bool:
        """Return whether a person chose its model, other than by a prompt that names one."""
        return PICKED_KEY in self.metadata

    @property
    def paused_by(self) -> PausedBy | None:
        """Why its queue is paused; None while it is not."""
        why = self.metadata.get(PAUSED_KEY)
        return why if why in get_args(PausedBy) else None

    @property
    def mode(self) -> Mode:
        """How freely it works where no rule of a person's says otherwise."""
        return read_mode(self.metadata.get(MODE_KEY))

    system_prompt = TextKey("system_prompt")
    """Stands in the place of the agent's own prompt."""

    @property
    def compaction(self) -> Any:
        """Its own settings of compaction, as JSON; checked where they are used."""
        return self.metadata.get("compaction")


def local_place(workspace_root: str | None) -> dict[str, str]:
    """The place of a session that clew itself makes, for others to read."""
    return dict(zip(PLACE_KEYS, ("local", workspace_root or "local"), strict=True))


def usage_of(metadata: Mapping[str, Any]) -> Usage:
    """The usage a message carries; none is zero, and so is one that is not readable."""
    try:
        return fit(metadata.get("usage", {}), Usage)
    except msgspec.ValidationError:
        return Usage()


def is_estimated(metadata: Mapping[str, Any]) -> bool:
    """Whether the usage a message carries has an estimate in it."""
    usage = metadata.get("usage")
    return isinstance(usage, Mapping) and usage.get("estimated") is True


def broken_off_usd(metadata: Mapping[str, Any]) -> float:
    """What the calls of a message cost that broke off, and so are no step of its turn."""
    usage = metadata.get("usage")
    cost = usage.get(BROKEN_OFF_USD) if isinstance(usage, Mapping) else None
    return float(cost) if isinstance(cost, int | float) else 0.0


def projection_of(metadata: Mapping[str, object]) -> tuple[object, object]:
    """When and by what a message was hidden from other readers, as it says (:mod:`clew.transcript.projection`)."""
    return metadata.get("hidden_at"), metadata.get("hidden_by")


def cancelled(at: int, why: str) -> dict[str, Any]:
    """What is noted on a message that was taken from the queue. It is in no turn, so for other readers it is hidden."""
    return {"cancelled_at": at, "cancelled_why": why, "hidden_at": at, "hidden_by": "cancelled"}


def hidden_if_cancelled(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a message as it is noted today: older versions did not hide what was cancelled."""
    at = metadata.get("cancelled_at")
    return {**metadata, "hidden_at": at, "hidden_by": "cancelled"} if isinstance(at, int) else metadata


def from_stream(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of a stream's message metadata is stored with the message."""
    return {key: value for key, value in (metadata or {}).items() if key not in VIEW_KEYS | STORE_KEYS}


def from_client(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what of a client's message metadata is stored: all but the keys that mean something to clew."""
    return {key: value for key, value in (metadata or {}).items() if key not in OWN_MESSAGE_KEYS}


def check_metadata(metadata: Mapping[str, Any] | None, where: str = "metadata", most: int = MAX_METADATA_BYTES) -> None:
    """Refuse metadata that a store could not keep, or that has more than ``most`` bytes as JSON."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInput(f"{where} is an object")
    given = dict(metadata or {})
    # Its size first, which takes no time: checking every value in megabytes would block all other requests.
    try:
        size = len(orjson.dumps(given))
    except (TypeError, ValueError, RecursionError):
        size = 0
    check_metadata_size(size, where, most)
    check_value(given, where, max_bytes=_MAX_VALUES * most)


def check_stored_metadata(metadata: Mapping[str, Any], own: Container[str], where: str) -> None:
    """Refuse metadata over ``MAX_STORED_METADATA_BYTES``, or, without clew's ``own`` keys, over the client's limit."""
    check_metadata(metadata, where, MAX_STORED_METADATA_BYTES)
    check_metadata({key: value for key, value in metadata.items() if key not in own}, where)


def check_metadata_size(size: int, where: str = "metadata", most: int = MAX_METADATA_BYTES) -> None:
    """Refuse metadata of so many bytes as JSON."""
    if size > most:
        raise UnsupportedValue(
            f"{where} has {size:,} bytes as JSON; at most {most:,} are stored. Store the rest elsewhere, "
            "and a reference to it here",
            where=where,
        )


def check_names(metadata: Mapping[str, Any]) -> None:
    """Refuse a title or a label of a session that is not text or is longer than ``MAX_TITLE``."""
    for key in ("title", "label"):
        value = metadata.get(key)
        if value is not None and not (isinstance(value, str) and len(value) <= MAX_TITLE):
            raise InvalidInput(f"a {key} is text of at most {MAX_TITLE} characters")


def named(old: Mapping[str, Any], title: str, by: str, tries: int) -> dict[str, Any]:
    """What changes of a session's metadata when clew names it: nothing where a person has."""
    if old.get("title") is not None and NAMING_KEY not in old:
        return {}
    return {"title": title, NAMING_KEY: {"by": by, "tries": tries} if tries else {"by": by}}


def merge(old: Mapping[str, Any], new: Mapping[str, Any], drop: Iterable[str] = ()) -> dict[str, Any]:
    """``old`` with the keys of ``new`` set and those of ``drop`` gone; all other keys as they were."""
    result = {**old, **new}
    for key in drop:
        result.pop(key, None)
    return result
