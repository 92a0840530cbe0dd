"""Losses: commits that somebody was told are durable, and that the store does not hold any more."""

from __future__ import annotations

import msgspec

from clew.store.base import Damage
from clew.store.sql import rows
from clew.store.sql.apply import Statements

__all__ = ["Loss", "keep_loss", "load_losses", "loss_id", "told"]


class Loss(msgspec.Struct, frozen=True):
    """The store held commits through ``held`` when it was opened, and had acknowledged them through ``acknowledged``.

    ``sessions`` are those that are known to have been written to by the commits between; there may be others.
    """

    held: int
    acknowledged: int
    sessions: tuple[str, ...] = ()
    found_at: int = 0
    accepted_at: int | None = None


def loss_id(loss: Loss) -> str:
    """By what a human accepts it: the first commit that is missing, which is the same whoever notices it first."""
    return f"loss-{loss.held + 1}"


def told(loss: Loss) -> Damage:
    """The loss in words."""
    count = loss.acknowledged - loss.held
    named = f"; sessions: {', '.join(loss.sessions)}" if loss.sessions else ""
    return Damage(
        f"{count} acknowledged commit{'' if count == 1 else 's'} ({loss.held + 1} to {loss.acknowledged}) "
        f"are not in the file any more: its write-ahead log was damaged or taken away, or an older copy was put "
        f"in its place{named}. Restore what you have, or accept it: clew check --accept {loss_id(loss)}",
        loss.sessions[0] if len(loss.sessions) == 1 else None,
        loss_id(loss),
    )


def keep_loss(sql: Statements, loss: Loss, now: int) -> None:
    """Note a loss in the store itself, and count on from what was acknowledged: no number is given out twice."""
    params = {"found_at": now, "held": loss.held, "acknowledged": loss.acknowledged}
    sql.run("add_loss", {**params, "sessions_json": rows.encode(loss.sessions)})
    sql.run("set_commits", {"commits": loss.acknowledged})


def load_losses(sql: Statements) -> tuple[Loss, ...]:
    return tuple(
        Loss(held, acknowledged, tuple(rows.decode(sessions, "sessions of a loss")), found_at, accepted_at)
        for found_at, held, acknowledged, sessions, accepted_at in sql.rows("load_losses", {})
    )
