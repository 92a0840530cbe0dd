"""A session: the durable unit of state, as one row, without what hangs on it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from clew.errors import InvalidInput
from clew.fit import fit
from clew.transcript.metadata import SessionMetadata
from clew.transcript.usage import Usage

__all__ = ["Model", "Session", "SessionState", "Spend", "folder_of", "project_of", "read_model"]


class Model(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which model answers: a provider, a model of it, and a variant that lasts for one turn."""

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
    """Accept ``"provider/model"``, a :class:`Model`, or its JSON form. What is behind a colon stays in the id:
    whether that is a variant only the providers know (:mod:`clew.providers.naming`)."""
    if isinstance(value, Model):
        return value
    if isinstance(value, str):
        provider, slash, model = value.partition("/")
        if provider and slash and model:
            return Model(provider, model)
        raise InvalidInput(f"{value!r} is not a model; write provider/model, for example demo/echo")
    try:
        return fit(value, Model)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not a model: {error}") from error


def project_of(owner: str | None, folder: str) -> str:
    """What a folder's rules are kept under: an owner's own are nobody else's. A folder's name begins with a slash."""
    return folder if owner is None else f"{quote(owner, safe='')}:{folder}"


def folder_of(owner: str | None, project: str) -> str | None:
    """The folder of a project of this owner; None where it is another's."""
    of = project_of(owner, "")
    is_own = project.startswith(of) if owner is not None else project.startswith("/")
    return project.removeprefix(of) if is_own else None


class Spend(msgspec.Struct, frozen=True):
    """What a session has spent, with its subagents, of which ``subagents`` there are. A branch's is its own alone."""

    calls: int
    tokens: int
    cost_usd: float
    subagents: int


class Session(SessionMetadata, msgspec.Struct, frozen=True, kw_only=True):
    """A session row. ``title``, ``label`` and ``kind`` live in ``metadata`` and are only read through it.

    ``agent`` never changes. ``permissions`` holds the session's own rules as they were stored, unknown keys
    included. The token counts are the sums over the session's assistant messages. ``spend`` is over all its model
    calls; the facade adds it up for whoever looks at a session, and it is never stored. ``owner``, opaque text, never
    changes; ``alias`` is the owner's own name for it.
    """

    id: str
    agent: str
    model: Model
    created_at: int
    updated_at: int
    workspace_root: str | None = None
    parent_id: str | None = None
    parent_message_id: str | None = None
    head_turn_id: str | None = None
    permissions: list[dict[str, Any]] = msgspec.field(default_factory=list)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost_usd: float = 0.0
    archived_at: int | None = None
    owner: str | None = None
    alias: str | None = None
    spend: Spend = Spend(0, 0, 0.0, 0)

    @property
    def project(self) -> str | None:
        """What the rules of its project are kept under; None where it works in no folder."""
        return None if self.workspace_root is None else project_of(self.owner, self.workspace_root)

    @property
    def usage(self) -> Usage:
        return Usage(
            self.prompt_tokens, self.completion_tokens, self.reasoning_tokens, self.cache_read, self.cache_write
        )


class SessionState(msgspec.Struct, frozen=True):
    """What moves while a session lives: its head, its open turn, and the epoch of its newest run.

    ``runner`` is the replica that has it, for a run or a summary, on a store that several processes serve.
    """

    head_turn_id: str | None = None
    open_turn_id: str | None = None
    epoch: int = 0
    runner: str | None = None
