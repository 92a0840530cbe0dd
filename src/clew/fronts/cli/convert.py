"""Converting: every session of one store written into another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import cyclopts

import clew
from clew.errors import InvalidInput, StoreUnavailable
from clew.fronts.cli.command import Json, end, print_json
from clew.history.convert import convert as move
from clew.store.location import Memory, parse_url

__all__ = ["COMMANDS"]


def convert(
    source: Annotated[str, cyclopts.Parameter(name="FROM", help="The store to read; nothing in it is changed.")],
    target: Annotated[str, cyclopts.Parameter(name="TO", help="The store to write, made when it is not there.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Write every session of a store into another, of any kind, and compare what the two then show.

    Sessions get ids of the target's kind and remember where they came from; what is there already stays as it is.

    Example: clew convert sqlite:///clew.db jsonl:sessions
    """

    async def run() -> int:
        old_place, new_place = parse_url(source), parse_url(target)
        if isinstance(old_place, Memory) or isinstance(new_place, Memory):
            raise InvalidInput("a memory store is gone with the command; name two stores on disk")
        if old_place.path.resolve() == new_place.path.resolve():
            raise InvalidInput("the two are the same place; name another one to write to")
        if not old_place.path.exists():
            raise StoreUnavailable(f"there is no store at {old_place.path}")
        async with clew.open(source, read_only=True) as old, clew.open(target) as new:
            done = await move(old.store, new.store, new.mint, new.clock.now_ms())
        for damage in done.damaged:
            print(f"clew: session {damage.session_id} was left: {damage.what}", file=sys.stderr)
        if json:
            print_json(done)
            return 1 if done.damaged else 0
        for one in done.moved:
            print(f"{one.session_id}  {one.as_id}")
        print(f"{len(done.moved)} sessions written and compared, {len(done.known)} were there already")
        return 1 if done.damaged else 0

    return end(run())


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {"convert": convert}
