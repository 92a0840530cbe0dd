"""Losses: commits that somebody was told are durable, and that the store does not hold any more."""

from __future__ import annotations

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Damage
from clew.store.sql import rows
from clew.store.sql.statements import Statements

__all__ = ["Loss", "damage_of", "keep_loss", "newest_commit", "open_losses"]


class Loss(msgspec.Struct, frozen=True):
    """The store held commits through ``held`` when it was opened, and had acknowledged them through ``acknowledged``.

    ``sessions`` are those that are known to have been written to by the commits between; there may be others.
    """

    held: int
    acknowledged: int
    sessions: tuple[str, ...] = ()


def damage_of(loss: Loss, cause: str) -> Damage:
    """The loss in words; ``cause`` is what an engine can lose commits by."""
    # By what a human accepts it: the first commit that is missing, which is the same whoever notices it first.
    loss_id = f"loss-{loss.held + 1}"
    count = loss.acknowledged - loss.held
    named = f"; sessions: {', '.join(loss.sessions)}" if loss.sessions else ""
    return Damage(
        f"{count} acknowledged commit{'' if count == 1 else 's'} ({loss.held + 1} to {loss.acknowledged}) "
        f"are not in the file any more: {cause}{named}. "
        f"Restore what you have, or accept it: clew check --accept {loss_id}",
        loss.sessions[0] if len(loss.sessions) == 1 else None,
        loss_id,
    )


def keep_loss(sql: Statements, loss: Loss, now: int) -> None:
    """Note a loss in the store itself, and count on from what was acknowledged: no number is given out twice."""
    params = {"found_at": now, "held": loss.held, "acknowledged": loss.acknowledged}
    sql.run("add_loss", {**params, "sessions_json": rows.encode(loss.sessions)})
    sql.run("set_commits", {"commits": loss.acknowledged})


def open_losses(sql: Statements, cause: str) -> tuple[Damage, ...]:
    """The losses that nobody has accepted, in words."""
    return tuple(
        damage_of(Loss(held, acknowledged, tuple(rows.decode(sessions, "sessions of a loss"))), cause)
        for held, acknowledged, sessions in sql.rows("open_losses", {})
    )


def newest_commit(sql: Statements) -> tuple[str, int]:
    """The store's own id, and the number of its newest commit."""
    mark, commits = sql.first("get_store_mark", {}), sql.first("get_commits", {})
    if mark is None or commits is None:
        raise RowUndecodable("the row that counts the commits of the store is not there")
    return mark[0], commits[0]
