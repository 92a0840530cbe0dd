"""Damage on the command line: how it is told, and how a human accepts it."""

from __future__ import annotations

import sys

from clew.errors import InvalidInput
from clew.fronts.cli.command import opened, read_file
from clew.fronts.cli.plain import plain
from clew.history.check import check
from clew.transcript.message import Message
from clew.transcript.metadata import DAMAGED

__all__ = ["accept", "damage_of"]


def damage_of(message: Message) -> str | None:
    """What is the matter with a damaged message, and what to do."""
    reason = message.metadata.get(DAMAGED)
    if not reason:
        return None
    if not isinstance(reason, str):
        return "[damaged: not all of it is readable]"
    return f"[damaged: {plain(reason)}; to let it stand as it is: clew check --accept {plain(message.id)}]"


async def accept(store: str | None, id_: str) -> None:
    """Accept what check has named, in the store or through its server."""
    async with read_file(store) as reader:
        found = [problem for problem in await check(reader.store) if problem.id == id_]
    session_id = next((problem.session_id for problem in found if problem.session_id is not None), None)
    async with opened(store, write=True) as engine:
        if id_.startswith("loss-"):
            await engine.accept_loss(id_)
        elif session_id is not None:
            await engine.accept_message(session_id, id_)
        else:
            raise InvalidInput(f"check names no damage of {id_}; name a damaged message, or a loss")
    print(f"{plain(id_)} is accepted as it is", file=sys.stderr)
