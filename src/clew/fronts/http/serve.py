"""The server: binds, says where it is, serves, and ends in order.

On the first signal it stops accepting, every run is aborted and settled with the reason that the host is shutting down,
streams end, and the process is gone within five seconds whatever a tool or a client does; on the second it is gone at
once. What was acknowledged is in the store either way, and a turn that could not be settled in time is settled as
interrupted when the store is opened again. The exit code says which it was: 0 once all is settled and the store closed,
whatever else kept the process, 1 where something was cut off or the store did not take how a turn ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib
import ipaddress
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Container, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

import uvicorn
from msgspec.structs import replace
from starlette.types import ASGIApp

from clew import opening
from clew.address_space import SERVER_BYTES, check_address_space
from clew.config import (
    ServerConfig,
    config_folder,
    data_folder,
    default_store_url,
    load_config,
    secret_values,
    unknown_settings,
)
from clew.engine import Engine
from clew.errors import Conflict, InvalidInput, NotFound, OwnedByAnotherProcess
from clew.fronts.http.acceptor import Acceptor, most_connections
from clew.fronts.http.app import make_app
from clew.fronts.http.auth import AnyAddress, BearerTokens, loopback_hosts
from clew.fronts.http.browser import open_browser
from clew.fronts.http.identity import Owner
from clew.fronts.http.log import LogForm, log_runs, logging_to, set_up
from clew.fronts.http.protocol import BoundedProtocol
from clew.fronts.http.sse import Streams
from clew.fronts.owner_tokens import OwnerTokens
from clew.fronts.token import Token, load_token, make_token
from clew.store.location import lock_of, parse_url
from clew.store.owner import read_owner
from clew.telemetry.export import exporting

__all__ = ["DEFAULT_PORT", "Server", "find_url", "serve", "serving_beside"]

log = logging.getLogger("clew.http")

DEFAULT_PORT: Final = 7717
CHAT_LOG: Final = "chat.log"
"""Below the data folder: what a chat that serves its store has to say, warnings and failures."""
Opens: TypeAlias = Callable[..., contextlib.AbstractAsyncContextManager[Engine]]
_DEADLINE_S: Final = 4.5
_ELSEWHERE_S: Final = 30.0
_LONGEST_DRAIN_S: Final = 86_400.0
_DRAIN_S: Final = 2
_AFTER_TURN_S: Final = 1.0
"""What is done after a turn gets that long: whoever ends a server waits for it."""
_SAYING_S: Final = 0.2
"""How long the last word of a server that is cut off may take to be written."""
_CUT_OFF: Final = "not all had ended in time and was cut off; what that left open is settled at the next start"
_MOST_FILES: Final = 65_536


async def serve(
    store: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    open_page: bool = False,
    live: str | None = None,
    drain_s: float | None = None,
    app: str | None = None,
) -> int:
    """Serve a store until a signal comes. The exit code.

    ``app`` names, as ``module:attr``, what opens it: a function that is called as :func:`clew.open` would be, and gives
    back what that gives.
    """
    opened = load_app(app) if app is not None else opening.open
    if drain_s is not None and not 0 <= drain_s <= _LONGEST_DRAIN_S:
        raise InvalidInput("--drain must be 0 to 86400 seconds")
    if not 0 <= port <= 65535:
        raise InvalidInput("--port must be 0 to 65535")
    form = os.environ.get("CLEW_LOG") or "text"
    if form not in get_args(LogForm):
        raise InvalidInput("CLEW_LOG is text or json")
    _refuse_served(store)
    _raise_limit()
    with _bound(host, port) as listener:
        address = listener.getsockname()[0]
        known = load_token()
        if not ipaddress.ip_address(address).is_loopback and (known is None or not known.chosen):
            raise InvalidInput(
                f"{host} can be reached from other machines; set CLEW_TOKEN to a secret of your own, or drop --host"
            )
        token = known or make_token()
        set_up(cast(LogForm, form), secret_values(load_config(), {**os.environ, "CLEW_TOKEN": token.value}))
        if unknown := unknown_settings():
            log.warning("the config file has keys that clew does not know, and ignores: %s", ", ".join(unknown))
        with _stop_signal() as stop:
            return await _serve(store, live, listener, token, stop, open_page, drain_s, opened)


def load_app(named: str) -> Opens:
    """What a host has named to open the store with."""
    module, _, attr = named.partition(":")
    if not module or not attr:
        raise InvalidInput("--app is module:attr, such as shop.app:open_engine")
    # As python -m does: a module of the folder that one is in.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for name in attr.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"--app {named} cannot be loaded: {error}") from error
    if not callable(found):
        raise InvalidInput(f"--app {named} is no function; it is called as clew.open would be")
    return cast(Opens, found)


class _Stop:
    """Set once the server is to end; what runs then has so long to end by itself."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.patience_s = 0.0
        self.unsettled: tuple[str, ...] = ()
        """The turns that have ended and that the store did not let settle."""
        self.is_settled = False
        """Every run has settled and the store is closed."""

    def settle(self, error: type[BaseException] | None, *_: object) -> None:
        self.is_settled = error is None and not self.unsettled

    def give_up(self) -> None:
        """The time is over. A thread or a task of somebody else's that does not let go costs nobody anything."""
        try:
            if not self.is_settled:
                # Whoever writes to a log that nobody reads waits for ever, and everybody behind them: this does not.
                saying = threading.Thread(target=log.error, args=(_CUT_OFF,), daemon=True)
                saying.start()
                saying.join(_SAYING_S)
        finally:
            os._exit(0 if self.is_settled else 1)


async def _serve(
    store: str | None,
    live: str | None,
    listener: socket.socket,
    token: Token,
    stop: _Stop,
    open_page: bool,
    drain_s: float | None = None,
    opened: Opens = opening.open,
) -> int:
    check_address_space(SERVER_BYTES, "a server")
    base, hosts = _addresses(listener)
    streams = Streams()
    async with contextlib.AsyncExitStack() as leaving:
        config = load_config()
        if config.replica.url is None:
            config = replace(config, replica=replace(config.replica, url=base))
        leaving.enter_context(exporting())
        leaving.push(stop.settle)
        engine = await leaving.enter_async_context(
            opened(
                store or default_store_url(),
                config=config,
                config_dir=config_folder(),
                data_dir=data_folder(),
                live=live,
            )
        )
        drain_s = config.replica.drain_s if drain_s is None else drain_s
        # Where others serve the store, what runs may end here while they take what comes.
        stop.patience_s = (
            drain_s if drain_s is not None else _ELSEWHERE_S if engine.store.capabilities.many_processes else 0.0
        )
        if not engine.store.capabilities.chunk_durable:
            log.warning("%s is saved at each %s, not at each chunk", engine.store.url, engine.config.save.save_on)
        root: Path | None = None
        with contextlib.suppress(OSError):
            root = Path.cwd()
        owners = OwnerTokens()
        if team := owners.list():
            log.info("%d owners have tokens of their own; whoever has the server's own sees all", len(team))

        who = BearerTokens(token.value, functools.partial(_find_owner, owners))
        app = make_app(engine, authenticate=who, hosts=hosts, streams=streams, workspace_root=root)

        def ready() -> None:
            # What is loaded by now stays. To go through it with every large collection would hold up all streams.
            gc.freeze()
            engine.store.announce(base)
            page = f"{base}/#token={token.value}"
            print(f"clew {page}", flush=True)
            if open_page:
                leaving.callback(open_browser(page, data_folder()))

        server = Server(app, listener, engine.config.server, ready)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        stopping = asyncio.get_running_loop().create_task(stop.asked.wait())
        telling = asyncio.get_running_loop().create_task(log_runs(engine))
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if stop.patience_s:
            await engine.drain(stop.patience_s)
        server.should_exit = True
        streams.close()
        # The engine ends first: its runs settle, and whoever watches one is shown how.
        stop.unsettled = await engine.close(_AFTER_TURN_S)
    telling.cancel()
    await serving
    return 0 if stop.is_settled else 1


def _addresses(listener: socket.socket) -> tuple[str, Container[str]]:
    """Where this machine reaches the server, and the names that it answers to."""
    address, port = listener.getsockname()[:2]
    given = frozenset(filter(None, re.split(r"[,\s]+", os.environ.get("CLEW_HOSTS", "").lower())))
    ip, names = ipaddress.ip_address(address), loopback_hosts(port) | given
    hosts: Container[str] = names
    if not ip.is_loopback:
        hosts = AnyAddress(port, names | {f"{socket.gethostname().lower()}:{port}"})
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return f"http://[{ip}]:{port}" if ip.version == 6 else f"http://{ip}:{port}", hosts


def _find_owner(owners: OwnerTokens, given: str) -> Owner | None:
    found = owners.find(given)
    return None if found is None else Owner(found.name, found.roots)


@contextlib.asynccontextmanager
async def serving_beside(engine: Engine) -> AsyncIterator[None]:
    """Serve what this process has open for something else, a chat, to whoever has the token: the page, commands, other
    chats. At any free port of this machine, for as long as this is entered; what there is to say goes into a file."""
    token, kept = make_token().value, data_folder() / CHAT_LOG
    hidden = secret_values(engine.config, {**os.environ, "CLEW_TOKEN": token})
    with logging_to(kept, hidden), _bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        streams, who = Streams(), BearerTokens(token, functools.partial(_find_owner, OwnerTokens()))
        app = make_app(
            engine,
            authenticate=who,
            hosts=loopback_hosts(port),
            streams=streams,
            workspace_root=Path.cwd(),
            log_name=str(kept),
        )
        base = f"http://127.0.0.1:{port}"
        server = Server(app, listener, engine.config.server, lambda: engine.store.announce(base))
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            server.should_exit = True
            streams.close()
            await serving
            engine.store.announce(None)


class Server(uvicorn.Server):
    """uvicorn, behind our own acceptor, with our word for when it is up, and signals left to us."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, limits: ServerConfig, ready: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_S,
            )
        )
        self._listener = listener
        self._limits = limits
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        limits = self._limits

        def connect() -> BoundedProtocol:
            return BoundedProtocol(self.config, self.server_state, limits, acceptor)

        acceptor = Acceptor(self._listener, connect, limits, most_connections(limits))
        self.servers = [acceptor]  # type: ignore[list-item]  # all that is asked of one is to be closed
        acceptor.open()
        self.started = True
        self._ready()


@contextlib.contextmanager
def _stop_signal() -> Iterator[_Stop]:
    """Set by the first signal, which also starts the clock; the second, or the clock, is the end."""
    stop = _Stop()

    def on_signal(number: int) -> None:
        if stop.asked.is_set():
            os._exit(128 + number)
        stop.asked.set()
        # Before a word is said: one that nobody takes would hold it up for ever.
        clock = threading.Timer(stop.patience_s + _DEADLINE_S, stop.give_up)
        clock.daemon = True
        clock.start()
        log.info("ending")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"{host}:{port} is no address of this machine: {error}") from error
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except (OSError, OverflowError) as error:
            raise Conflict(f"{host}:{port} cannot be listened on: {error}; choose another --port, 0 for any") from error
        yield listener


def _raise_limit() -> None:
    """Every viewer is a file descriptor; what the system allows is taken, not the 1,024 a shell begins with."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
            wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _refuse_served(store: str | None) -> None:
    """Say where the store is served, before a port that is taken is complained about. The lock decides later."""
    owned = lock_of(parse_url(store or default_store_url()))
    owner = read_owner(owned) if owned is not None else None
    if owner is not None and owner.url is not None:
        raise OwnedByAnotherProcess(
            f"this store is already served at {owner.url} (process {owner.pid}); `clew url` prints its address",
            pid=owner.pid,
            url=owner.url,
        )


def find_url(base: str | None) -> str:
    """The address, with the token, of the server that has announced it; :class:`NotFound` when none has."""
    token = load_token()
    if base is None or token is None:
        raise NotFound("no server has this store open; start one with `clew serve`")
    return f"{base}/#token={token.value}"
