"""A session: the durable unit of state, as one row without its turns and messages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from clew.convert import convert
from clew.errors import InvalidInput
from clew.transcript.metadata import SessionMetadata
from clew.transcript.usage import Usage

__all__ = ["Model", "Session", "SessionState", "Spend", "folder_of", "project_of", "read_model"]


class Model(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model: its provider, its id, and a variant that applies to one turn."""

    provider_id: str
    model_id: str
    variant: str | None = None

    def __str__(self) -> str:
        return f"{self.provider_id}/{self.model_id}"

    @property
    def plain(self) -> Model:
        """The model without a variant."""
        return self if self.variant is None else Model(self.provider_id, self.model_id)


def read_model(value: str | Model | dict[str, Any]) -> Model:
    """Return the model from ``"provider/model"``, a :class:`Model`, or its JSON form.

    A suffix after a colon stays in the id: only providers know whether it is a variant (:mod:`clew.providers.naming`).
    """
    if isinstance(value, Model):
        return value
    if isinstance(value, str):
        provider, slash, model = value.partition("/")
        if provider and slash and model:
            return Model(provider, model)
        raise InvalidInput(f"{value!r} is not a model; use provider/model, for example demo/echo")
    try:
        return convert(value, Model)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not a model: {error}") from error


def project_of(owner: str | None, folder: str) -> str:
    """Return the key under which a folder's rules are stored, per owner. A folder's name begins with a slash."""
    return folder if owner is None else f"{quote(owner, safe='')}:{folder}"


def folder_of(owner: str | None, project: str) -> str | None:
    """Return the folder of a project; None if the project belongs to another owner."""
    prefix = project_of(owner, "")
    is_own = project.startswith(prefix) if owner is not None else project.startswith("/")
    return project.removeprefix(prefix) if is_own else None


class Spend(msgspec.Struct, frozen=True):
    """The spend of a session and its ``subagents``. For a branch, only its own calls count."""

    calls: int
    tokens: int
    cost_usd: float
    subagents: int


class Session(SessionMetadata, msgspec.Struct, frozen=True, kw_only=True):
    """A session row. ``title``, ``label``, ``kind``, ``ephemeral``, ``mode`` and ``pinned`` are read from ``metadata``;
    ``usage`` is the token counts as one value."""

    id: str
    agent: str
    """The agent's name; it never changes."""
    model: Model
    """The newest model."""
    created_at: int
    updated_at: int
    """The time of the newest user message or step. Renaming and archiving leave it."""
    workspace_root: str | None = None
    parent_id: str | None = None
    """The session it is a branch or a subagent of."""
    parent_message_id: str | None = None
    head_turn_id: str | None = None
    """The turn at which the conversation ends."""
    permissions: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The session's own rules as stored, including unknown keys."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt_tokens: int = 0
    """The sum over its assistant messages, as all counts below; copied messages of a branch count too."""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost_usd: float = 0.0
    archived_at: int | None = None
    owner: str | None = None
    """The session's owner as the host named it, or None; it never changes."""
    alias: str | None = None
    """The owner's own name for the session, unique among the owner's sessions, or None."""
    spend: Spend = Spend(0, 0, 0.0, 0)
    """What all its model calls cost, with those of its subagents. Computed when read by the engine, never stored."""

    @property
    def project(self) -> str | None:
        """The key under which the rules of its project are stored; None without a workspace."""
        return None if self.workspace_root is None else project_of(self.owner, self.workspace_root)

    @property
    def usage(self) -> Usage:
        return Usage(
            self.prompt_tokens, self.completion_tokens, self.reasoning_tokens, self.cache_read, self.cache_write
        )


class SessionState(msgspec.Struct, frozen=True):
    """The changing state of a session: its head, its open turn, and the epoch of its newest run.

    ``runner`` is the replica that has acquired it, for a run or a summary, in a store shared by several processes.
    """

    head_turn_id: str | None = None
    open_turn_id: str | None = None
    epoch: int = 0
    runner: str | None = None
