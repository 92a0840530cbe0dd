"""``clew check``, ``backup``, ``ledger``, ``rebuild``, ``convert``, ``demo``: whole stores, judged, copied, filled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import clew
from clew.config import default_store_url
from clew.errors import InvalidInput, StoreUnavailable
from clew.fronts.cli.command import Json, Store, flag, moment, open_file, open_store, option, session_shapes, show
from clew.fronts.cli.safe_text import plain
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.samples import fill
from clew.session.history.check import Problem
from clew.session.history.check import check as judge
from clew.session.history.convert import convert as move
from clew.session.history.convert_shared import EVENT_LOG
from clew.session.history.repair import repair as mend
from clew.store.location import Memory, PostgresDatabase, parse_url

__all__ = ["COMMANDS"]

_AFTER_CHECK: Final = (
    "clew: `clew check --repair` mends what can be worked out anew, `clew check --accept ID` lets a damaged message or "
    "a loss stand as it is; the rest only a backup brings back"
)


async def check(
    *,
    repair: Annotated[bool, flag("Mend what can be worked out anew, after a backup beside the store.")] = False,
    accept: Annotated[
        list[str] | None, flag("Let a damaged message stand as it is, or a loss be: the id that check names.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Look at every session and say what is not as it must be. Changes nothing unless it is told to.

    Example: clew check --repair
    """
    mended: list[Problem] = []
    if repair:
        # The file itself is needed: beside a server this ends with whose it is.
        async with clew.open(store, config="user", triggers=False) as writer:
            location = parse_url(store or default_store_url())
            if isinstance(location, PostgresDatabase):
                print("nothing was copied first: a dump of the database is the way back", file=sys.stderr)
            elif not isinstance(location, Memory):
                kept = location.path.with_name(f"{location.path.name}.before-repair-{time.time_ns() // 1_000_000}")
                await writer.backup(kept)
                print(f"the store as it was is in {kept}", file=sys.stderr)
            mended = await mend(writer.store)
    for id_ in accept or ():
        await _accept(store, id_)
    async with open_file(store) as engine:
        problems = await judge(engine.store)
        count = len(await engine.store.session_ids())
    found = {"sessions": count, "problems": problems, **({"mended": mended} if repair else {})}
    told = [*(f"mended {done}" for done in mended), *map(str, problems)]
    show(json, found, [*told, f"{count} sessions, {len(problems)} problems"])
    if problems and not json:
        print(_AFTER_CHECK, file=sys.stderr)
    return 7 if problems else 0


async def _accept(store: str | None, id_: str) -> None:
    """Accept what check has named, in the store or through its server."""
    async with open_file(store) as reader:
        found = [problem for problem in await judge(reader.store) if problem.id == id_]
    session_id = next((problem.session_id for problem in found if problem.session_id is not None), None)
    async with open_store(store, write=True) as engine:
        if id_.startswith("loss-"):
            await engine.accept_loss(id_)
        elif session_id is not None:
            await engine.accept_message(session_id, id_)
        else:
            raise InvalidInput(f"check names no damage of {id_}; name a damaged message, or a loss")
    print(f"{plain(id_)} is accepted as it is", file=sys.stderr)


async def backup(file: Path, /, *, store: Store = None) -> None:
    """Copy the store to a new file while it is in use.

    Example: clew backup ~/clew-backup.db
    """
    async with open_file(store) as engine:
        await engine.backup(file)
    print(file)


async def ledger(file: Path, /, *, store: Store = None) -> None:
    """Write sessions, turns, messages, tool calls and events to a new SQLite file, as tables of those names.

    Example: clew ledger ~/ledger.db
    """
    async with open_file(store) as engine:
        await engine.write_ledger(file)
    print(file)


async def rebuild(target: Path, /, *, store: Store = None, json: Json = False) -> int:
    """Make a new store from the event log alone, and say whether it equals this one. Needs the setting event_log.

    Example: clew rebuild ~/clew-rebuilt.db
    """
    async with open_file(store) as engine:
        made = await engine.rebuild(target)
    told = [str(Problem(damage.what, damage.session_id, damage.id)) for damage in made.differences]
    verdict = f"{len(told)} differences" if told else "equal to the store"
    show(json, made, [*told, f"{made.facts} facts, {made.sessions} sessions, {verdict}: {target}"])
    return 7 if told else 0


async def convert(
    source: Annotated[str, option("The store to read; nothing in it is changed.", "FROM")],
    target: Annotated[str, option("The store to write, made when it is not there.", "TO")],
    /,
    *,
    json: Json = False,
) -> int:
    """Write everything of a store into another, of any kind, and compare what the two then show.

    Sessions get ids of the target's kind and remember where they came from; what is there already stays as it is. What
    did not come along is named, and makes the command end with 1.

    Example: clew convert sqlite:///clew.db jsonl:sessions
    """
    old_place, new_place = parse_url(source), parse_url(target)
    if isinstance(old_place, Memory) or isinstance(new_place, Memory):
        raise InvalidInput("a memory store is gone with the command; name two stores on disk")
    old_file = None if isinstance(old_place, PostgresDatabase) else old_place.path.resolve()
    new_file = None if isinstance(new_place, PostgresDatabase) else new_place.path.resolve()
    if (source if old_file is None else old_file) == (target if new_file is None else new_file):
        raise InvalidInput("the two are the same place; name another one to write to")
    if old_file is not None and not old_file.exists():
        raise StoreUnavailable(f"there is no store at {old_file}")
    # Nothing is fired here: it would be cut off when the command ends.
    async with open_file(source) as old, clew.open(target, config="user", triggers=False) as new:
        done = await move(old.store, new.store, new.mint, new.clock.now_ms(), old.host.spill)
    for damage in done.damaged:
        print(f"clew: session {damage.session_id} was left: {damage.what}", file=sys.stderr)
    for left in done.left:
        named = f" ({', '.join(left.ids)})" if left.ids else ""
        print(plain(f"clew: left: {left.count} {left.kind}: {left.why}{named}"), file=sys.stderr)
    moved = [f"{one.session_id}  {one.as_id}" for one in done.moved]
    kinds = {kind: (done.carried.get(kind, 0), done.there.get(kind, 0)) for kind in (*done.carried, *done.there)}
    shared = [f"{count} {kind} written, {there} were there already" for kind, (count, there) in kinds.items()]
    sessions = f"{len(moved)} sessions written and compared, {len(done.known)} were there already"
    show(json, done, [*moved, *shared, sessions])
    return 1 if done.damaged or any(left.kind != EVENT_LOG for left in done.left) else 0


async def demo(*, store: Store = None, json: Json = False) -> None:
    """Fill a store with sample sessions: branches, summaries, an approval, a queue, 2,000 turns. Twice changes nothing.

    Example: clew demo --store sqlite:///demo.db
    """

    def progress(title: str) -> None:
        if sys.stderr.isatty():
            print(f"clew: making: {title}", file=sys.stderr)

    async with open_store(store, write=True, make=True) as engine:
        if isinstance(engine, RemoteEngine):
            made = await engine.examples()
        else:
            made = await fill(engine, Path.cwd(), progress)
        sessions = await session_shapes(engine, made)
    show(json, {"sessions": sessions}, (f"{session.id}  {session.title}" for session in sessions))


async def replicas(*, store: Store = None, json: Json = False) -> None:
    """List who serves the store, where several processes do, and how much each runs.

    Example: clew replicas --store postgresql://clew@db/clew
    """
    async with open_store(store) as engine:
        listed = await engine.replicas()
    lines = (
        f"{one.id}  {'draining' if one.draining else 'alive' if one.alive else 'lapsed'}  {len(one.sessions)} running  "
        f"since {moment(one.started_at)}  {one.url or ''}".rstrip()
        for one in listed
    )
    show(json, {"replicas": listed}, lines if listed else ["this store has one owner, or nobody serves it"])


COMMANDS: Final[tuple[Callable[..., Any], ...]] = (check, backup, ledger, rebuild, convert, replicas, demo)
