"""Losses: commits that were acknowledged as durable but are missing from the store."""

from __future__ import annotations

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Damage
from clew.store.sql import rows
from clew.store.sql.statements import Statements

__all__ = ["Loss", "damage_of", "newest_commit", "open_losses", "record_loss"]


class Loss(msgspec.Struct, frozen=True):
    """The store held commits through ``held`` when it was opened, and had acknowledged them through ``acknowledged``.

    ``sessions`` are those known to be written to by the missing commits; there may be others.
    """

    held: int
    acknowledged: int
    sessions: tuple[str, ...] = ()


def damage_of(loss: Loss, cause: str) -> Damage:
    """Describe the loss; ``cause`` is how an engine can lose commits."""
    # The id to accept it by: the first missing commit, the same whichever process finds the loss.
    loss_id = f"loss-{loss.held + 1}"
    count = loss.acknowledged - loss.held
    named = f"; sessions: {', '.join(loss.sessions)}" if loss.sessions else ""
    return Damage(
        f"{count} acknowledged commit{'' if count == 1 else 's'} ({loss.held + 1} to {loss.acknowledged}) "
        f"are missing from the file: {cause}{named}. "
        f"Restore what you have, or accept it: clew check --accept {loss_id}",
        loss.sessions[0] if len(loss.sessions) == 1 else None,
        loss_id,
    )


def record_loss(sql: Statements, loss: Loss, now: int) -> None:
    """Record a loss in the store, and continue counting from what was acknowledged: no number is assigned twice."""
    params = {"found_at": now, "held": loss.held, "acknowledged": loss.acknowledged}
    sql.run("add_loss", {**params, "sessions_json": rows.encode(loss.sessions)})
    sql.run("set_commits", {"commits": loss.acknowledged})


def open_losses(sql: Statements, cause: str) -> tuple[Damage, ...]:
    """Return the losses that were not accepted."""
    return tuple(
        damage_of(Loss(held, acknowledged, tuple(rows.decode(sessions, "sessions of a loss"))), cause)
        for held, acknowledged, sessions in sql.rows("open_losses", {})
    )


def newest_commit(sql: Statements) -> tuple[str, int]:
    """Return the store's id, and the number of its newest commit."""
    mark, commits = sql.first("get_store_mark", {}), sql.first("get_commits", {})
    if mark is None or commits is None:
        raise RowUndecodable("the row that counts the commits of the store is missing")
    return mark[0], commits[0]
