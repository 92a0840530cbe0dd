"""Opening: a store, and everything around it, put together into an engine. The only place that composes things."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from clew import ids
from clew.address_space import STORE_BYTES, check_address_space
from clew.clock import Clock, SystemClock
from clew.config import Config, config_folder, data_folder, default_store_url, load_config
from clew.convert import fit
from clew.errors import InvalidInput, NotSupported
from clew.live.base import Live
from clew.live.location import LivePlace, parse_live
from clew.mcp_server import McpServer, read_server
from clew.session.api import Engine
from clew.store.base import Store
from clew.store.location import Folder, Location, Memory, PostgresDatabase, parse_url
from clew.transcript.rule import Rule
from clew.type_error import explain_type_error

if TYPE_CHECKING:
    # What runs stand on is imported when an engine is opened: importing clew stays quick.
    from clew.agents.manifest import Agent
    from clew.providers.base import Provider, Providers
    from clew.session.history.snapshot import SnapshotLayer
    from clew.session.hook_map import HookMap
    from clew.session.hooks import Hook, HookName
    from clew.session.host import Host
    from clew.session.turn.protected_paths import ProtectedPaths
    from clew.tools.base import Tool

__all__ = ["open"]


@contextlib.asynccontextmanager
async def open(
    url: str | Store | None = None,
    *,
    agents: Iterable[Agent] | None = None,
    rules: Iterable[Rule] = (),
    tools: Iterable[Tool] = (),
    mcp_servers: Mapping[str, McpServer | Mapping[str, Any]] | None = None,
    builtin_tools: bool | Iterable[str] = True,
    providers: Providers | Mapping[str, Provider] | None = None,
    hooks: HookMap | None = None,
    deps: Any = None,
    config: Config | Literal["user"] | None = None,
    config_dir: str | Path | None = None,
    data_dir: str | Path | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    live: Live | str | None = None,
    snapshots: SnapshotLayer | None = None,
    triggers: bool = True,
) -> AsyncIterator[Engine]:
    """Open a store and everything around it.

    ``url`` is ``sqlite:///file.db``, ``jsonl:FOLDER``, ``json:FOLDER`` or ``memory:``; without one, ``clew.db`` in
    ``data_dir``. A store of your own is given as it is, and closed with the engine. What an earlier process left
    unfinished is recovered before the engine is handed out.
    ``read_only`` takes no lock and works beside a running owner.

    Nothing of the user's is read unless it is asked for: ``config="user"`` has the store, the settings, the agents,
    the skills and the data folder that the command line has, and its ``CLEW_…`` variables. ``agents`` are then all
    there are, the first one is a new session's; ``rules`` hold for each of them. ``tools`` are added to the built-in
    ones, of which ``builtin_tools`` says which there are, and so are those that ``mcp_servers`` give.
    ``providers`` replace the configured ones; a mapping names them by their ids. ``deps`` is the
    host's own, handed to tools and hooks. ``config_dir`` has a folder ``agents`` and one ``skills``; in ``data_dir``
    long outputs are put aside, else beside the store.

    With ``snapshots``, which keeps the workspace's past, a rewind can bring files back too. ``live`` is ``local``,
    ``postgres`` or the address of a Valkey or Redis server; without it, what the config says or suits the store.
    Schedules are fired while the store is open for writing, and what dead replicas left is gone on with;
    ``triggers=False`` is for whoever opens it for a moment.
    """
    from clew.compaction.policy import policy_for
    from clew.providers.host_providers import ProviderSet
    from clew.session.acquire.recovery import recover

    check_address_space(STORE_BYTES, "an engine")
    clock = clock or SystemClock()
    if config == "user":
        config, url = load_config(), default_store_url() if url is None else url
        config_dir, data_dir = config_dir or config_folder(), data_dir or data_folder()
    given = _Given(
        config=config or Config(),
        config_dir=None if config_dir is None else Path(config_dir),
        data_dir=None if data_dir is None else Path(data_dir),
        agents=None if agents is None else tuple(agents),
        rules=tuple(rules),
        tools=tuple(tools),
        mcp_servers={name: read_server(server, name) for name, server in (mcp_servers or {}).items()},
        builtin_tools=builtin_tools if isinstance(builtin_tools, bool) else tuple(builtin_tools),
        providers=ProviderSet(providers) if isinstance(providers, Mapping) else providers,
        hooks=hooks or {},
        deps=deps,
    )
    mint = ids.Mint(clock)
    if url is None and given.data_dir is None:
        raise InvalidInput('name a store, such as sqlite:///clew.db, or a data_dir; config="user" has the user\'s own')
    location: Location | None = None
    if url is None or isinstance(url, str):
        location = parse_url(f"sqlite:///{given.data_dir}/clew.db" if url is None else url)
        store = await _open_store(location, given.config, read_only, clock, mint)
    else:
        store = url
    try:
        given = msgspec.structs.replace(given, config=_suited(given.config, store, location))
        # What is wrong with them is said now, and not to every turn.
        policy_for(given.config.compaction, given.config.pruning, None)
        async with contextlib.AsyncExitStack() as leaving:
            spill = leaving.enter_context(_spill_folder(location, given.data_dir))
            reached = await _find_live("local" if read_only and live is None else live, given.config, location, store)
            host = _compose(store, given, clock, mint, reached, spill)
            await leaving.enter_async_context(_opened(reached))
            left: tuple[str, ...] = ()
            if not read_only and not host.lease.shared:
                left = await recover(store, mint, clock.now_ms(), host.providers.cost)
            engine = Engine(host, snapshots)
            try:
                if not read_only:
                    await engine.join(stays=triggers)
                    await engine.dispatcher.open(fire=triggers, left=left if given.config.resume == "safe" else ())
                yield engine
            finally:
                await engine.close()
    finally:
        await store.close()


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the host gave, and what it asked for."""

    config: Config
    config_dir: Path | None
    data_dir: Path | None
    agents: tuple[Agent, ...] | None
    rules: tuple[Rule, ...]
    tools: tuple[Tool, ...]
    mcp_servers: Mapping[str, McpServer]
    builtin_tools: bool | tuple[str, ...]
    providers: Providers | None
    hooks: HookMap
    deps: Any


def _suited(config: Config, store: Store, location: Location | None) -> Config:
    """The settings with what they leave open as the store has it."""
    able, replace = store.capabilities, msgspec.structs.replace
    save_on = config.save.save_on or able.save_on
    if save_on == "chunk" and not able.chunk_durable:
        raise NotSupported(f"{store.url} cannot keep every chunk; set save.save_on to step, or leave it out")
    chars = config.tools.output_chars
    if location is not None:
        chars = config.tools.output_chars_by_store.get(_kind_of(location), chars)
    return replace(
        config,
        save=replace(config.save, save_on=save_on),
        compaction=replace(config.compaction, preset=config.compaction.preset or able.preset),
        tools=replace(config.tools, output_chars=chars),
    )


async def _find_live(named: Live | str | None, config: Config, location: Location | None, store: Store) -> Live:
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
def _spill_folder(location: Location | None, data_dir: Path | None) -> Iterator[Path]:
    """Where long outputs of tools go: into the data folder, else beside the store, or, of a store that is nowhere on
    this machine, nowhere that stays."""
    if data_dir is not None and not isinstance(location, Memory):
        yield data_dir.absolute() / "spill"
        return
    if location is not None and not isinstance(location, Memory | PostgresDatabase):
        # Not a name with the store's before it: tools are kept out of all of those.
        yield location.path.absolute().with_name(f"spill-{location.path.name}")
        return
    with tempfile.TemporaryDirectory(prefix="clew-spill-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def _compose(store: Store, given: _Given, clock: Clock, mint: ids.Mint, live: Live, spill: Path) -> Host:
    """Put together what every run stands on."""
    from clew.agents.catalog import AgentCatalog
    from clew.permissions.rules import base_rules, host_rules
    from clew.safe_read import confined
    from clew.session.cluster.lease import Lease
    from clew.session.hooks import Hooks
    from clew.session.host import Choices, Host
    from clew.session.turn.protected_paths import ProtectedPaths
    from clew.tools.builtin import NAMES
    from clew.tools.mcp.servers import McpServers

    config = given.config
    path = getattr(store, "path", None)
    kept = [path] if isinstance(path, Path) else []
    folders = [one for one in kept if one.is_dir()]
    # The user's own stay closed to tools whoever opened the store: their token and their sessions are in them.
    folders += [one for one in (given.config_dir, given.data_dir, config_folder(), data_folder()) if one is not None]
    places = ProtectedPaths(folders, [one for one in kept if one not in folders], spill)
    offered = _offered(given, places)
    names = frozenset((*NAMES, *offered))
    if given.agents is None:
        config_dir = given.config_dir

        def agents(workspace: Path | None, owner: str | None) -> AgentCatalog:
            with confined(None if owner is None else workspace):
                return AgentCatalog.load(config_dir, workspace, names)
    else:
        catalog = AgentCatalog.of(given.agents, offered, names)
        usual = [agent.name for agent in sorted(given.agents, key=lambda one: one.mode != "primary")]
        if config.default_agent not in usual:
            config = msgspec.structs.replace(config, default_agent=usual[0])

        def agents(workspace: Path | None, owner: str | None) -> AgentCatalog:
            return catalog

    hooks = Hooks(given.deps)
    for name, hook in given.hooks.items():
        hooks.add(cast("HookName", name), cast("Hook", hook))
    models = given.providers or _registry(config, clock)
    own = given.providers is not None
    named = models.parse(config.default_model) if config.default_model is not None and not own else None
    return Host(
        store=store,
        live=live,
        providers=models,
        tools=offered,
        builtin_names=NAMES,
        agents=agents,
        base_rules=(*base_rules(), *host_rules(given.rules, names)),
        places=places,
        hooks=hooks,
        deps=given.deps,
        config=config,
        clock=clock,
        mint=mint,
        chance=random.random,
        spill=spill,
        config_folder=given.config_dir,
        choices=Choices(named, config.default_agent, config.max_steps),
        servers=McpServers({**config.mcp_servers, **given.mcp_servers}, clock),
        lease=Lease(shared=store.capabilities.many_processes),
    )


def _offered(given: _Given, places: ProtectedPaths) -> dict[str, Tool]:
    """The tools by name: those of the built-in ones that are wanted, and the host's own, which go before them."""
    from clew.tools.builtin import BUILTIN

    offered: dict[str, Tool] = {tool.name: tool for tool in BUILTIN}
    wanted = given.builtin_tools if isinstance(given.builtin_tools, tuple) else offered if given.builtin_tools else ()
    if unknown := sorted(set(wanted) - offered.keys()):
        raise InvalidInput(f"there is no built-in tool {', '.join(unknown)}; there are: {', '.join(sorted(offered))}")
    if "bash" in wanted:
        from clew.tools.builtin.bash import make_bash
        from clew.tools.process.sandbox import find_sandbox

        asked = given.config.tools.sandbox
        sandbox = find_sandbox(asked) if asked != "off" else None
        offered["bash"] = make_bash(sandbox, lambda: (*places.folders, *places.files))
    return {**{name: offered[name] for name in wanted}, **{tool.name: tool for tool in given.tools}}


def _registry(config: Config, clock: Clock) -> Providers:
    from clew.providers.registry import ProviderConfig, ProviderRegistry

    try:
        configured = fit(config.providers, dict[str, ProviderConfig])
    except msgspec.ValidationError as error:
        why = explain_type_error(error, dict[str, ProviderConfig])
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
