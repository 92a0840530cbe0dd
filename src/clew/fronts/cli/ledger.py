"""``clew events``: what came in from outside, and what went out for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import cyclopts

from clew.fronts.cli.command import Json, Store, end, opened, print_json
from clew.fronts.cli.plain import plain
from clew.fronts.cli.routing import moment

__all__ = ["COMMANDS"]


def events(
    *,
    session: Annotated[str | None, cyclopts.Parameter(help="Of this session alone.")] = None,
    source: Annotated[str | None, cyclopts.Parameter(help="Of this source alone.")] = None,
    turn: Annotated[str | None, cyclopts.Parameter(help="Of this turn alone.")] = None,
    limit: int = 50,
    cursor: Annotated[str | None, cyclopts.Parameter(help="Go on where a page ended.")] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """List the events ledger, newest first: time, in or out, source and id, session, status.

    Example: clew events --source github
    """

    async def run() -> int:
        async with opened(store) as engine:
            page = await engine.events.list(limit=limit, cursor=cursor, session_id=session, source=source, turn_id=turn)
        if json:
            print_json(page)
        for one in () if json else page.events:
            status = one.status or one.type or ""
            line = f"{moment(one.at, '')}  {one.direction:<3}  {one.source} {one.source_id}  {one.session_id}  {status}"
            print(plain(line).rstrip())
        return 0

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {"events": events}
