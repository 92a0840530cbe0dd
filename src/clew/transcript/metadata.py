"""Metadata: the keys clew knows in the free-form metadata of a message and of a session, and what they mean.

The dict is kept verbatim: keys nobody here knows pass through untouched. This module alone reads the known ones, for
whoever has a value that carries metadata: it is the base class of those. A key of the wrong type reads as one that is
not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from clew.fit import fit
from clew.transcript.damage import DAMAGED, UNREADABLE
from clew.transcript.part import TextKey
from clew.transcript.rule import Mode, read_mode
from clew.transcript.usage import Usage

__all__ = [
    "BROKEN_OFF_USD",
    "MODE_KEY",
    "NAMING_KEY",
    "PAUSED_KEY",
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

SNAPSHOT_KEY: Final = "snapshot_id"
"""Names the state of the workspace before the prompt."""

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
