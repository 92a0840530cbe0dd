"""Opening: a store, and everything around it, put together into an engine. The only place that composes things."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from clew import ids
from clew.clock import Clock, SystemClock
from clew.config import Config, config_folder, data_folder, default_store_url, load_config
from clew.engine import Engine
from clew.errors import InvalidInput, NotSupported
from clew.live.base import Live
from clew.live.location import LivePlace, parse_live
from clew.misfit import misfit
from clew.store.base import Store
from clew.store.location import Folder, Location, Memory, PostgresDatabase, parse_url

if TYPE_CHECKING:
    # What runs stand on is imported when an engine is opened: importing clew stays quick.
    from clew.history.snapshot import SnapshotLayer
    from clew.providers.base import Providers
    from clew.runtime.host import Host
    from clew.tools.base import Tool

__all__ = ["open"]


@contextlib.asynccontextmanager
async def open(
    url: str | None = None,
    *,
    config: Config | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    providers: Providers | None = None,
    tools: Iterable[Tool] = (),
    live: Live | str | None = None,
    snapshots: SnapshotLayer | None = None,
    triggers: bool = True,
) -> AsyncIterator[Engine]:
    """Open a store and everything around it.

    ``url`` is ``sqlite:///file.db``, ``jsonl:FOLDER``, ``json:FOLDER`` or ``memory:``; without one, ``CLEW_STORE`` or
    the user's data folder. What an earlier process left unfinished is recovered before the engine is handed out.
    ``read_only`` takes no lock and works beside a running owner. ``tools`` are added to the built-in ones;
    ``providers`` replace the configured ones. With ``snapshots``, which keeps the workspace's past, a rewind can
    bring files back too. ``live`` is ``local``, ``postgres`` or the address of a Valkey or Redis server; without it
    ``CLEW_LIVE``, the config file, or what suits the store. Schedules are fired while the store is open for writing;
    ``triggers=False`` is for whoever opens it for a moment.
    """
    from clew.compaction.policy import policy_for
    from clew.runtime.recovery import recover

    clock = clock or SystemClock()
    config = config or load_config()
    mint = ids.Mint(clock)
    location = parse_url(default_store_url() if url is None else url)
    store = await _open_store(location, config, read_only, clock, mint)
    try:
        able, replace = store.capabilities, msgspec.structs.replace
        save_on = config.save.save_on or able.save_on
        if save_on == "chunk" and not able.chunk_durable:
            raise NotSupported(f"{store.url} cannot keep every chunk; set save.save_on to step, or leave it out")
        # What the settings leave open is as the store has it.
        save = replace(config.save, save_on=save_on)
        compaction = replace(config.compaction, preset=config.compaction.preset or able.preset)
        by_store = config.tools.output_chars_by_store.get(_kind_of(location), config.tools.output_chars)
        set_up = replace(config.tools, output_chars=by_store)
        config = replace(config, save=save, compaction=compaction, tools=set_up)
        # What is wrong with them is said now, and not to every turn.
        policy_for(config.compaction, config.pruning, None)
        async with contextlib.AsyncExitStack() as leaving:
            spill = leaving.enter_context(_spill_folder(location))
            reached = await _find_live("local" if read_only and live is None else live, config, location, store)
            host = _compose(store, config, clock, mint, providers, tools, reached, spill)
            await leaving.enter_async_context(_opened(reached))
            left: tuple[str, ...] = ()
            if not read_only and not host.lease.shared:
                left = await recover(store, mint, clock.now_ms(), host.providers.cost)
            engine = Engine(host, snapshots)
            try:
                if not read_only:
                    await engine.join()
                    await engine.dispatcher.open(fire=triggers, left=left if config.resume == "safe" else ())
                yield engine
            finally:
                await engine.close()
    finally:
        await store.close()


async def _find_live(named: Live | str | None, config: Config, location: Location, store: Store) -> Live:
    """The live layer that was given or named; where nobody says anything, what suits the store."""
    from clew.live.local import LocalLive

    if named is not None and not isinstance(named, str):
        return named
    place = parse_live(named) or parse_live(config.live)
    if place is None:
        place = LivePlace("postgres" if isinstance(location, PostgresDatabase) else "local")
    if place.kind == "redis":
        from clew.live.redis import RedisLive

        return RedisLive(place.url, name=await store.store_id())
    if place.kind == "local":
        return LocalLive()
    if not isinstance(location, PostgresDatabase):
        raise InvalidInput("the live layer on PostgreSQL is for a store there; leave --live and CLEW_LIVE out")
    from clew.live.postgres import PostgresLive

    return PostgresLive(location.url)


@contextlib.asynccontextmanager
async def _opened(live: Live) -> AsyncIterator[None]:
    await live.open()
    try:
        yield
    finally:
        await live.close()


def _kind_of(location: Location) -> Literal["sqlite", "postgresql", "jsonl", "json", "memory"]:
    match location:
        case Folder(kind):
            return kind
        case Memory():
            return "memory"
        case PostgresDatabase():
            return "postgresql"
        case _:
            return "sqlite"


@contextlib.contextmanager
def _spill_folder(location: Location) -> Iterator[Path]:
    """Where long outputs of tools go: beside everything else of the user's, or, of a store that is nowhere, nowhere
    that stays."""
    if not isinstance(location, Memory):
        yield data_folder() / "spill"
        return
    with tempfile.TemporaryDirectory(prefix="clew-spill-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def _compose(
    store: Store,
    config: Config,
    clock: Clock,
    mint: ids.Mint,
    providers: Providers | None,
    tools: Iterable[Tool],
    live: Live,
    spill: Path,
) -> Host:
    """Put together what every run stands on."""
    from clew.agents.catalog import AgentCatalog
    from clew.permissions.rules import base_rules
    from clew.runtime.choices import Choices
    from clew.runtime.hooks import Hooks
    from clew.runtime.host import Host
    from clew.runtime.lease import Lease
    from clew.runtime.places import OwnPlaces
    from clew.tools.builtin import BUILTIN

    tools = tuple(tools)
    offered = {tool.name: tool for tool in (*BUILTIN, *tools)}
    folder = config_folder()
    path = getattr(store, "path", None)
    kept = [path] if isinstance(path, Path) else []
    folders = [one for one in kept if one.is_dir()]
    places = OwnPlaces((folder, data_folder(), *folders), [one for one in kept if one not in folders], spill)
    if config.tools.sandbox != "off":
        from clew.tools.builtin.bash import make_bash
        from clew.tools.process.sandbox import find_sandbox

        fenced = make_bash(find_sandbox(config.tools.sandbox), lambda: (*places.folders, *places.files))
        offered["bash"] = offered["bash"] if any(tool.name == "bash" for tool in tools) else fenced
    models = providers or _registry(config, clock)
    named = models.parse(config.default_model) if config.default_model is not None and providers is None else None
    return Host(
        store=store,
        live=live,
        providers=models,
        tools=offered,
        agents=lambda workspace: AgentCatalog.load(folder, workspace),
        base_rules=base_rules(),
        places=places,
        hooks=Hooks(),
        config=config,
        clock=clock,
        mint=mint,
        chance=random.random,
        spill=spill,
        config_folder=folder,
        choices=Choices(named, config.default_agent, config.max_steps),
        lease=Lease(shared=store.capabilities.many_processes),
    )


def _registry(config: Config, clock: Clock) -> Providers:
    from clew.providers.registry import ProviderConfig, ProviderRegistry

    try:
        configured = msgspec.convert(config.providers, dict[str, ProviderConfig])
    except msgspec.ValidationError as error:
        why = misfit(error, dict[str, ProviderConfig])
        raise InvalidInput(f"the providers in your configuration do not read: {why}") from error
    return ProviderRegistry(configured, default_model=config.default_model, clock=clock)


async def _open_store(location: Location, config: Config, read_only: bool, clock: Clock, mint: ids.Mint) -> Store:
    if isinstance(location, Memory):
        if read_only:
            raise InvalidInput("a memory store is new and empty: there is nothing to read in it")
        from clew.store.memory.store import MemoryStore

        return MemoryStore(event_log=config.event_log, clock=clock)
    if isinstance(location, Folder):
        from clew.store.files.opening import FilesOptions, open_files

        kept = FilesOptions(read_only=read_only, every_commit_full=config.durability == "power")
        return await open_files(location.kind, location.path, kept, clock=clock, mint=mint)
    if isinstance(location, PostgresDatabase):
        return await _open_postgres(location, config, read_only, clock, mint)
    from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite

    options = SqliteOptions(
        read_only=read_only,
        every_commit_full=config.durability == "power",
        window_ms=config.group_window_ms,
        gap_ms=config.group_gap_ms,
        lock_wait_ms=config.lock_wait_ms,
        event_log=config.event_log,
    )
    return await open_sqlite(location.path, options, clock=clock, mint=mint)


async def _open_postgres(
    location: PostgresDatabase, config: Config, read_only: bool, clock: Clock, mint: ids.Mint
) -> Store:
    if config.event_log:
        raise NotSupported("a store on PostgreSQL keeps no event log; leave event_log out")
    try:
        from clew.store.sql.postgres.opening import PostgresOptions, open_postgres
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise NotSupported("PostgreSQL needs an extra; install it: pip install 'clew[postgres]'") from error
    options = PostgresOptions(read_only=read_only, lossy=config.lossy_commits, gap_ms=config.group_gap_ms)
    return await open_postgres(location.url, options, clock=clock, mint=mint)
