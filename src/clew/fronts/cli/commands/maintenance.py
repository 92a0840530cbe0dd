"""Commands for whole stores: ``clew check``, ``backup``, ``ledger``, ``rebuild``, ``convert``, ``demo``, …"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import clew
from clew.config import default_store_url
from clew.errors import InvalidInput, StoreUnavailable
from clew.fronts.cli.command import Json, Store, flag, moment, open_file, open_store, option, session_shapes, show
from clew.fronts.cli.commands.rules import rule_lines
from clew.fronts.cli.safe_text import plain
from clew.fronts.remote.engine import RemoteEngine
from clew.fronts.samples import fill
from clew.session.history.check import Problem
from clew.session.history.check import check as judge
from clew.session.history.check import repair as repair_store
from clew.session.history.convert import EVENT_LOG
from clew.session.history.convert import convert as move
from clew.store.location import Memory, PostgresDatabase, SqliteFile, parse_url
from clew.transcript.rule import KeptRule

__all__ = ["backup", "check", "convert", "demo", "ledger", "rebuild", "replicas"]

_AFTER_CHECK: Final = (
    "clew: `clew check --repair` repairs derived data; `clew check --accept ID` accepts a damaged message or a loss; "
    "restore anything else from a backup"
)


async def check(
    *,
    repair: Annotated[bool, flag("Repair derived data, after a backup next to the store.")] = False,
    accept: Annotated[
        list[str] | None, flag("Accept a damaged message or a loss, by the id that check reports.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> int:
    """Check all sessions, and report problems. Read-only without --repair and --accept.

    Example: clew check --repair
    """
    repaired: list[Problem] = []
    if repair:
        # Repairs need ownership of the file: while a server owns it, this raises.
        async with clew.open(store, config="user", triggers=False) as writer:
            location = parse_url(store or default_store_url())
            if isinstance(location, PostgresDatabase):
                print("no backup was made: use a dump of the database to undo a repair", file=sys.stderr)
            elif not isinstance(location, Memory):
                copy = location.path.with_name(f"{location.path.name}.before-repair-{time.time_ns() // 1_000_000}")
                await writer.backup(copy)
                print(f"backup: {copy}", file=sys.stderr)
            repaired = await repair_store(writer.store)
    for id_ in accept or ():
        await _accept(store, id_)
    async with open_file(store) as engine:
        problems = await judge(engine.store)
        count = len(await engine.store.session_ids())
        rules = await _unknown_rules(engine)
    found = {"sessions": count, "problems": problems, **({"mended": repaired} if repair else {})}
    found |= {"unknown_rules": rules} if rules else {}
    lines = [*(f"repaired {done}" for done in repaired), *map(str, problems), *rule_lines(rules)]
    show(json, found, [*lines, f"{count} sessions, {len(problems)} problems"])
    if problems and not json:
        print(_AFTER_CHECK, file=sys.stderr)
    return 7 if problems else 0


async def _unknown_rules(engine: clew.Engine) -> list[KeptRule]:
    """Return the rules of sessions and projects whose permission is unknown; they are no damage, but a person must
    settle them."""
    found = await engine.rules(scope="project")
    for session_id in await engine.store.session_ids():
        session = await engine.store.find_session(session_id)
        if session is not None and session.permissions:
            found += await engine.rules(scope="session", session_id=session_id)
    return [rule for rule in found if rule.unknown]


async def _accept(store: str | None, id_: str) -> None:
    """Accept a problem that check reported, in the store or through its server."""
    async with open_file(store) as reader:
        found = [problem for problem in await judge(reader.store) if problem.id == id_]
    session_id = next((problem.session_id for problem in found if problem.session_id is not None), None)
    async with open_store(store, write=True) as engine:
        if id_.startswith("loss-"):
            await engine.accept_loss(id_)
        elif session_id is not None:
            await engine.accept_message(session_id, id_)
        else:
            raise InvalidInput(f"check reports no damage with id {id_}; give the id of a damaged message or a loss")
    print(f"accepted {plain(id_)}", file=sys.stderr)


async def backup(file: Path, /, *, store: Store = None) -> None:
    """Copy the store to a new file, also while it is in use.

    Example: clew backup ~/clew-backup.db
    """
    async with open_file(store) as engine:
        await engine.backup(file)
    print(file)


async def ledger(file: Path, /, *, store: Store = None) -> None:
    """Export sessions, turns, messages, tool calls and events as tables of a new SQLite file.

    Example: clew ledger ~/ledger.db
    """
    async with open_file(store) as engine:
        if isinstance(parse_url(store or default_store_url()), SqliteFile):
            await engine.write_ledger(file)
        else:
            await _write_ledger_of_copy(engine, file)
    print(file)


async def _write_ledger_of_copy(engine: clew.Engine, file: Path) -> None:
    """Write the ledger of another kind of store, by a copy of it in SQLite."""
    with TemporaryDirectory(prefix="clew-ledger-") as folder:
        async with clew.open(f"sqlite:///{folder}/copy.db", triggers=False) as copy:
            done = await move(engine.store, copy.store, copy.mint, copy.clock.now_ms())
            await copy.write_ledger(file)
    for damage in done.damaged:
        print(f"clew: session {damage.session_id} is not in the ledger: {damage.what}", file=sys.stderr)


async def rebuild(target: Path, /, *, store: Store = None, json: Json = False) -> int:
    """Rebuild a store from the event log, and compare it with this one. Needs the setting event_log.

    Example: clew rebuild ~/clew-rebuilt.db
    """
    async with open_file(store) as engine:
        made = await engine.rebuild(target)
    lines = [str(Problem(damage.what, damage.session_id, damage.id)) for damage in made.differences]
    verdict = f"{len(lines)} differences" if lines else "equal to the store"
    show(json, made, [*lines, f"{made.facts} facts, {made.sessions} sessions, {verdict}: {target}"])
    return 7 if lines else 0


async def convert(
    source: Annotated[str, option("The store to read; it is not changed.", "FROM")],
    target: Annotated[str, option("The store to write; created if missing.", "TO")],
    /,
    *,
    json: Json = False,
) -> int:
    """Copy a store into another one of any kind, and compare the results.

    Sessions get ids of the target's kind and record their origin; sessions copied before are skipped. Data that could
    not be copied is listed, and the exit code is 1.

    Example: clew convert sqlite:///clew.db jsonl:sessions
    """
    old_place, new_place = parse_url(source), parse_url(target)
    if isinstance(old_place, Memory) or isinstance(new_place, Memory):
        raise InvalidInput("memory: stores cannot be converted; use two on-disk stores")
    old_file = None if isinstance(old_place, PostgresDatabase) else old_place.path.resolve()
    new_file = None if isinstance(new_place, PostgresDatabase) else new_place.path.resolve()
    if (source if old_file is None else old_file) == (target if new_file is None else new_file):
        raise InvalidInput("source and target are the same; give another target")
    if old_file is not None and not old_file.exists():
        raise StoreUnavailable(f"there is no store at {old_file}")
    # No triggers: their turns would be cut off when the command ends.
    async with open_file(source) as old, clew.open(target, config="user", triggers=False) as new:
        done = await move(old.store, new.store, new.mint, new.clock.now_ms(), old.host.spill)
    for damage in done.damaged:
        print(f"clew: session {damage.session_id} not copied: {damage.what}", file=sys.stderr)
    for left in done.left:
        named = f" ({', '.join(left.ids)})" if left.ids else ""
        print(plain(f"clew: not copied: {left.count} {left.kind}: {left.why}{named}"), file=sys.stderr)
    moved = [f"{copied.session_id}  {copied.as_id}" for copied in done.moved]
    kinds = {kind: (done.carried.get(kind, 0), done.there.get(kind, 0)) for kind in (*done.carried, *done.there)}
    shared = [f"{count} {kind} written, {there} already there" for kind, (count, there) in kinds.items()]
    sessions = f"{len(moved)} sessions written and compared, {len(done.known)} already there"
    show(json, done, [*moved, *shared, sessions])
    return 1 if done.damaged or any(left.kind != EVENT_LOG for left in done.left) else 0


async def demo(*, store: Store = None, json: Json = False) -> None:
    """Add sample sessions: branches, summaries, an approval, a queue, 2,000 turns. Existing samples stay.

    Example: clew demo --store sqlite:///demo.db
    """

    def progress(title: str) -> None:
        if sys.stderr.isatty():
            print(f"clew: creating: {title}", file=sys.stderr)

    async with open_store(store, write=True, make=True) as engine:
        if isinstance(engine, RemoteEngine):
            made = await engine.examples()
        else:
            made = await fill(engine, Path.cwd(), progress)
        sessions = await session_shapes(engine, made)
    show(json, {"sessions": sessions}, (f"{session.id}  {session.title}" for session in sessions))


async def replicas(*, store: Store = None, json: Json = False) -> None:
    """List the replicas that serve a shared store, with their active runs.

    Example: clew replicas --store postgresql://clew@db/clew
    """
    async with open_store(store) as engine:
        listed = await engine.replicas()
    lines = (
        f"{replica.id}  {'draining' if replica.draining else 'alive' if replica.alive else 'lapsed'}  "
        f"{len(replica.sessions)} running  "
        f"since {moment(replica.started_at)}  {replica.url or ''}".rstrip()
        for replica in listed
    )
    show(
        json,
        {"replicas": listed},
        lines if listed else ["no replicas: the store has a single owner, or is not being served"],
    )
