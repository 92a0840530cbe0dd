"""``clew.open``: builds an engine from a store and everything around it. The only module that composes them."""

from __future__ import annotations

import contextlib
import logging
import random
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from clew import ids
from clew.address_space import STORE_BYTES, check_address_space
from clew.clock import Clock, SystemClock
from clew.config import Config, SnapshotsConfig, config_folder, data_folder, default_store_url, load_config
from clew.convert import convert, explain_type_error
from clew.errors import InvalidInput, NotSupported
from clew.live.base import Live, LivePlace, parse_live
from clew.mcp_server import McpServer, read_server
from clew.platform import NO_FILE_TOOLS, NO_PROGRAMS, WINDOWS
from clew.session.api import Engine
from clew.store.base import Store
from clew.store.location import Folder, Location, Memory, PostgresDatabase, lock_of, parse_url
from clew.transcript.rule import Rule

if TYPE_CHECKING:
    # Imported when an engine is opened: importing clew stays fast.
    from clew.agents.manifest import Agent
    from clew.providers.base import Provider, Providers
    from clew.session.cluster.lease import Lease
    from clew.session.hook_map import HookMap
    from clew.session.hooks import Hook, HookName
    from clew.session.host import Host
    from clew.session.turn.protected_paths import ProtectedPaths
    from clew.snapshots.base import SnapshotLayer
    from clew.store.sql.sqlite.memory import MemoryStore  # a Store, which not every type checker sees
    from clew.tools.base import Tool

__all__ = ["open"]

log = logging.getLogger("clew.compose")


@contextlib.asynccontextmanager
async def open(
    url: str | Store | MemoryStore | None = None,
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
    snapshots: SnapshotLayer | Literal["on", "off"] | None = None,
    triggers: bool = True,
) -> AsyncIterator[Engine]:
    """Open a store and everything around it.

    ``url`` is ``sqlite:///file.db``, ``jsonl:FOLDER``, ``json:FOLDER``, ``postgresql://user@host/database`` or
    ``memory:``; the default is ``clew.db`` in ``data_dir``. A store object is used directly, and closed with the
    engine. Unfinished turns of an earlier process are recovered before the engine is returned. ``read_only`` takes no
    lock and works alongside a running owner.

    No files of the user are read by default. ``config="user"`` uses the store, config, agents, skills and data folder
    of the command line, and the ``CLEW_…`` variables. ``agents`` replace all others, and the first one is the default
    of a new session; ``rules`` apply to each of them. ``tools`` are added to the built-in ones, which ``builtin_tools``
    selects, and to those of ``mcp_servers``. ``providers`` replace the configured ones; a mapping has them by their
    ids. ``deps`` is passed to tools and hooks. ``config_dir`` has the folders ``agents`` and ``skills``. Long outputs
    are stored in ``data_dir``, by default next to the store.

    With ``snapshots="on"`` the workspaces of sessions are saved, so that a rewind can restore files, too: in
    ``data_dir``, by default next to the store. A layer of your own is used instead. By default they are off, since a
    library that copies a workspace unasked would surprise; with ``config="user"`` the config decides, where they are on
    by default. ``live`` is ``local``,
    ``postgres`` or the address of a Valkey or Redis server; the default comes from the config or the store. While the
    store is open for writing, schedules are fired and the sessions of dead replicas are resumed; with
    ``triggers=False`` neither happens, for a short use of the store.
    """
    from clew.compaction.policy import policy_for
    from clew.providers.host_providers import ProviderSet
    from clew.session.cluster.lease import Lease
    from clew.store.owner import read_owner

    check_address_space(STORE_BYTES, "an engine")
    clock = clock or SystemClock()
    is_user = config == "user"
    if config == "user":
        config, url = load_config(), default_store_url() if url is None else url
        config_dir, data_dir = config_dir or config_folder(), data_dir or data_folder()
    options = _HostOptions(
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
        snapshots=None if isinstance(snapshots, str) else snapshots,
        deps=deps,
    )
    mint = ids.Mint(clock)
    if url is None and options.data_dir is None:
        raise InvalidInput('name a store, such as sqlite:///clew.db, or a data_dir; config="user" has the user\'s own')
    location: Location | None = None
    if url is None or isinstance(url, str):
        location = parse_url(f"sqlite:///{options.data_dir}/clew.db" if url is None else url)
        store = await _open_store(location, options.config, read_only, clock, mint)
    else:
        store = url
    try:
        options = msgspec.structs.replace(options, config=_with_store_defaults(options.config, store, location))
        # Report invalid settings now, not in every turn.
        policy_for(options.config.compaction, options.config.pruning, None)
        async with contextlib.AsyncExitStack() as leaving:
            spill = leaving.enter_context(_spill_folder(location, options.data_dir))
            live_name = "local" if read_only and live is None else live
            live_layer = await _find_live(live_name, options.config, location, store)
            settings = options.config.snapshot_settings
            if snapshots == "on" or (snapshots is None and is_user and settings.mode == "on"):
                folder = leaving.enter_context(_snapshots_folder(location, options.data_dir))
                options = msgspec.structs.replace(options, snapshots_folder=folder / await store.store_id())
            lock = lock_of(location) if read_only and location is not None else None
            lease = Lease(
                shared=store.capabilities.many_processes,
                has_other_owner=lambda: lock is not None and read_owner(lock) is not None,
            )

            def compose() -> Host:
                return _compose(store, options, clock, mint, live_layer, lease, spill)

            engine = Engine(store, live_layer, lease, compose)
            if not read_only:
                engine.host  # noqa: B018 - composed now, to report what is wrong with it
            await leaving.enter_async_context(_opened(live_layer))
            yield await leaving.enter_async_context(_started(engine, read_only=read_only, triggers=triggers))
    finally:
        await store.close()


class _HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of ``open``, normalised."""

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
    snapshots: SnapshotLayer | None
    deps: Any
    snapshots_folder: Path | None = None


def _with_store_defaults(config: Config, store: Store, location: Location | None) -> Config:
    """Return the config with defaults from the store."""
    capabilities, replace = store.capabilities, msgspec.structs.replace
    save_on = config.save.save_on or capabilities.save_on
    if save_on == "chunk" and not capabilities.chunk_durable:
        raise NotSupported(f"{store.url} cannot store every chunk; set save.save_on to step, or leave it out")
    chars = config.tools.output_chars
    if location is not None:
        chars = config.tools.output_chars_by_store.get(_kind_of(location), chars)
    return replace(
        config,
        save=replace(config.save, save_on=save_on),
        compaction=replace(config.compaction, preset=config.compaction.preset or capabilities.preset),
        tools=replace(config.tools, output_chars=chars),
    )


async def _find_live(given: Live | str | None, config: Config, location: Location | None, store: Store) -> Live:
    """Return the live layer that was given or named; by default the one for the store."""
    from clew.live.local import LocalLive

    if given is not None and not isinstance(given, str):
        return given
    live_place = parse_live(given) or parse_live(config.live)
    if live_place is None:
        live_place = LivePlace("postgres" if isinstance(location, PostgresDatabase) else "local")
    if live_place.kind == "redis":
        from clew.live.redis import RedisLive

        return RedisLive(live_place.url, name=await store.store_id())
    if live_place.kind == "local":
        return LocalLive()
    if not isinstance(location, PostgresDatabase):
        raise InvalidInput("the live layer on PostgreSQL is for a store there; leave --live and CLEW_LIVE out")
    from clew.live.postgres import PostgresLive

    return PostgresLive(location.url)


@contextlib.asynccontextmanager
async def _started(engine: Engine, *, read_only: bool, triggers: bool) -> AsyncIterator[Engine]:
    """Yield the engine; unless it is read-only, after it has recovered what an earlier process left and started the
    triggers."""
    try:
        if not read_only:
            from clew.session.acquire.recovery import recover

            host = engine.host
            interrupted: tuple[str, ...] = ()
            if not host.lease.shared:
                interrupted = await recover(host.store, host.mint, host.clock.now_ms(), host.providers.cost)
            await engine.join(stays=triggers)
            await engine.dispatcher.open(fire=triggers, left=interrupted if host.config.resume == "safe" else ())
        yield engine
    finally:
        await engine.close()


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
    """Yield the folder for long outputs of tools: in the data folder, else next to the store; for a store that is not
    on this machine a temporary one."""
    if data_dir is not None and not isinstance(location, Memory):
        yield data_dir.absolute() / "spill"
        return
    if location is not None and not isinstance(location, Memory | PostgresDatabase):
        # The name must not start with the store's: tools cannot access such paths.
        yield location.path.absolute().with_name(f"spill-{location.path.name}")
        return
    with tempfile.TemporaryDirectory(prefix="clew-spill-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@contextlib.contextmanager
def _snapshots_folder(location: Location | None, data_dir: Path | None) -> Iterator[Path]:
    """Yield the folder of saved workspaces: in the data folder, else next to the store; for a store in memory a
    temporary one."""
    if isinstance(location, Memory):
        with tempfile.TemporaryDirectory(prefix="clew-snapshots-", ignore_cleanup_errors=True) as folder:
            yield Path(folder).resolve()
    elif data_dir is not None:
        yield data_dir.absolute() / "snapshots"
    elif location is None or isinstance(location, PostgresDatabase):
        raise InvalidInput("snapshots need a folder for the saved workspaces: name a data_dir")
    else:
        yield location.path.absolute().with_name(f"snapshots-{location.path.name}")


def _open_snapshots(folder: Path, settings: SnapshotsConfig, own: tuple[str, ...]) -> SnapshotLayer:
    """Return the shipped snapshot layer, which leaves out clew's own data."""
    from clew.snapshots.layer import GitSnapshots

    return GitSnapshots(
        folder,
        max_files=settings.max_files,
        max_bytes=settings.max_bytes,
        max_file_bytes=settings.max_file_bytes,
        include=settings.include,
        own=own,
    )


def _compose(
    store: Store, options: _HostOptions, clock: Clock, mint: ids.Mint, live: Live, lease: Lease, spill: Path
) -> Host:
    """Build the host, which every run uses."""
    from clew.agents.catalog import AgentCatalog
    from clew.permissions.rules import base_rules, host_rules
    from clew.safe_read import confined
    from clew.session.hooks import Hooks
    from clew.session.host import Choices, Host
    from clew.tools.builtin import BUILTIN
    from clew.tools.mcp.servers import McpServers

    config, snapshots = options.config, options.snapshots
    protected = _protected_paths(store, options, spill)
    if options.snapshots_folder is not None:
        own = (*protected.folders, *protected.files)
        snapshots = _open_snapshots(options.snapshots_folder, config.snapshot_settings, own)
    tools_by_name = _select_tools(options, protected)
    names = frozenset((*(tool.name for tool in BUILTIN), *tools_by_name))
    if options.agents is None:
        config_dir = options.config_dir

        def agents(workspace: Path | None, owner: str | None) -> AgentCatalog:
            with confined(None if owner is None else workspace):
                return AgentCatalog.load(config_dir, workspace, names)
    else:
        catalog = AgentCatalog.of(options.agents, tools_by_name, names)
        agent_names = [agent.name for agent in sorted(options.agents, key=lambda agent: agent.mode != "primary")]
        if config.default_agent not in agent_names:
            config = msgspec.structs.replace(config, default_agent=agent_names[0])

        def agents(workspace: Path | None, owner: str | None) -> AgentCatalog:
            return catalog

    hooks = Hooks(options.deps)
    for name, hook in options.hooks.items():
        hooks.add(cast("HookName", name), cast("Hook", hook))
    models = options.providers or _registry(config, clock)
    default_model = None
    if config.default_model is not None and options.providers is None:
        default_model = models.parse(config.default_model)
    return Host(
        store=store,
        live=live,
        providers=models,
        tools=tools_by_name,
        builtin_tools=BUILTIN,
        agents=agents,
        base_rules=(*base_rules(), *host_rules(options.rules, names)),
        protected_paths=protected,
        hooks=hooks,
        deps=options.deps,
        config=config,
        clock=clock,
        mint=mint,
        chance=random.random,
        spill=spill,
        config_folder=options.config_dir,
        choices=Choices(default_model, config.default_agent, config.max_steps),
        servers=McpServers({**config.mcp_servers, **options.mcp_servers}, clock),
        lease=lease,
        snapshots=snapshots,
    )


def _protected_paths(store: Store, options: _HostOptions, spill: Path) -> ProtectedPaths:
    """Return the paths that are closed to tools: the store, saved workspaces, and the user's own folders, in which are
    the token and the sessions."""
    from clew.session.turn.protected_paths import ProtectedPaths

    path = getattr(store, "path", None)
    folders = [options.config_dir, options.data_dir, config_folder(), data_folder(), options.snapshots_folder]
    files: list[Path] = []
    if isinstance(path, Path):
        (folders if path.is_dir() else files).insert(0, path)
    return ProtectedPaths([folder for folder in folders if folder is not None], files, spill)


def _select_tools(options: _HostOptions, protected: ProtectedPaths) -> dict[str, Tool]:
    """Return the tools by name: the selected built-in ones, and the host's own, which take precedence."""
    from clew.tools.base import declared_capabilities
    from clew.tools.builtin import BUILTIN, POSIX_ONLY

    tools_by_name: dict[str, Tool] = {tool.name: tool for tool in BUILTIN}
    selected = (
        options.builtin_tools
        if isinstance(options.builtin_tools, tuple)
        else tools_by_name
        if options.builtin_tools
        else ()
    )
    if unknown := sorted(set(selected) - tools_by_name.keys()):
        raise InvalidInput(
            f"there is no built-in tool {', '.join(unknown)}; there are: {', '.join(sorted(tools_by_name))}"
        )
    if WINDOWS:
        # Selected by name it is an error; as one of all tools it is left out.
        if named := POSIX_ONLY & set(options.builtin_tools if isinstance(options.builtin_tools, tuple) else ()):
            raise NotSupported(f"{', '.join(sorted(named))}: {NO_PROGRAMS if named == {'bash'} else NO_FILE_TOOLS}")
        if left_out := [name for name in selected if name in POSIX_ONLY]:
            log.info("off on Windows: %s", ", ".join(left_out))
        selected = tuple(name for name in selected if name not in POSIX_ONLY)
    if "bash" in selected:
        from clew.tools.builtin.bash import make_bash
        from clew.tools.process.sandbox import find_sandbox

        mode = options.config.tools.sandbox
        sandbox = find_sandbox(mode) if mode != "off" else None
        tools_by_name["bash"] = make_bash(sandbox, lambda: (*protected.folders, *protected.files))
    for tool in options.tools:
        declared_capabilities(tool)
    return {**{name: tools_by_name[name] for name in selected}, **{tool.name: tool for tool in options.tools}}


def _registry(config: Config, clock: Clock) -> Providers:
    from clew.providers.registry import ProviderConfig, ProviderRegistry

    try:
        configured = convert(config.providers, dict[str, ProviderConfig])
    except msgspec.ValidationError as error:
        why = explain_type_error(error, dict[str, ProviderConfig])
        raise InvalidInput(f"the providers in your configuration do not read: {why}") from error
    return ProviderRegistry(configured, default_model=config.default_model, clock=clock)


async def _open_store(location: Location, config: Config, read_only: bool, clock: Clock, mint: ids.Mint) -> Store:
    if isinstance(location, Memory):
        if read_only:
            raise InvalidInput("a memory store is new and empty: there is nothing to read in it")
        from clew.store.sql.sqlite.memory import MemoryStore

        return MemoryStore(event_log=config.event_log, clock=clock, mint=mint)
    if isinstance(location, Folder):
        if WINDOWS:
            raise NotSupported("jsonl: and json: are off on Windows, which cannot lock a folder; use sqlite:")
        from clew.store.files.opening import FilesOptions, open_files

        files_options = FilesOptions(read_only=read_only, every_commit_full=config.durability == "power")
        return await open_files(location.kind, location.path, files_options, clock=clock, mint=mint)
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
        raise NotSupported("PostgreSQL needs an extra; install it: pip install 'clew-sessions[postgres]'") from error
    options = PostgresOptions(read_only=read_only, lossy=config.lossy_commits, gap_ms=config.group_gap_ms)
    return await open_postgres(location.url, options, clock=clock, mint=mint)
