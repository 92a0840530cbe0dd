"""The options that say where a trigger's turns go, and how that is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import cyclopts

from clew.fronts.cli.command import named_model
from clew.transcript.session import parse_model
from clew.triggers.routing import Routing

__all__ = ["Agent", "Key", "Label", "ModelOf", "SessionOf", "Workspace", "moment", "routing_of", "where"]

SessionOf = Annotated[str | None, cyclopts.Parameter(name="--session", help="In this session; it goes with that.")]
Label = Annotated[str | None, cyclopts.Parameter(help="In the session of this label, made when missing.")]
Key = Annotated[str | None, cyclopts.Parameter(help="In the session of this routing key, made when missing.")]
ModelOf = Annotated[str | None, cyclopts.Parameter(name="--model", help="provider/model that answers.")]
Agent = Annotated[str | None, cyclopts.Parameter(help="The agent that answers.")]
Workspace = Annotated[Path | None, cyclopts.Parameter(help="The folder of a session that is made.")]


def routing_of(
    session: str | None, label: str | None, key: str | None, model: str | None, agent: str | None, folder: Path | None
) -> Routing:
    named = named_model(model)
    return Routing(
        session_id=session,
        label=label,
        key=key,
        model=None if named is None else parse_model(named),
        agent=agent,
        # A relative folder is one of this process, not of the server's.
        workspace_root=None if folder is None else str(folder.expanduser().absolute()),
    )


def where(routing: Routing) -> str:
    """Which session, for a person."""
    chosen = routing.chosen()
    return " ".join(f"{name} {value}" for name, value in chosen.items()) or "a new session each time"


def moment(at: int | None, otherwise: str) -> str:
    """A time in UTC, for a person."""
    if at is None:
        return otherwise
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
