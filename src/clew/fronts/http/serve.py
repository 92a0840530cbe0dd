"""The server: binds, announces its address, serves, and shuts down in order.

On the first signal it stops accepting, every run is aborted and settled as ended by a shutdown, streams end, and the
process exits within five seconds whatever a tool or a client does; on the second signal it exits immediately. What was
acknowledged is in the store either way, and a turn that could not be settled in time is settled as interrupted when the
store is opened again. The exit code is 0 once all is settled and the store is closed, whatever else delayed the
process, and 1 if something was cut off or the store did not accept how a turn ended.
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

from clew import compose
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
from clew.errors import Conflict, InvalidInput, NotFound, OwnedByAnotherProcess
from clew.fronts.http.acceptor import Acceptor, connection_limit
from clew.fronts.http.app import make_app
from clew.fronts.http.auth import AnyAddress, BearerTokens, loopback_hosts
from clew.fronts.http.browser import open_browser
from clew.fronts.http.identity import Owner
from clew.fronts.http.log import LogForm, log_runs, logging_to, set_up
from clew.fronts.http.protocol import BoundedProtocol
from clew.fronts.http.sse import Streams
from clew.fronts.owner_tokens import OwnerTokens
from clew.fronts.token import Token, load_token, make_token
from clew.platform.processes import add_signal_handler, remove_signal_handler
from clew.session.api import Engine
from clew.store.location import lock_of, parse_url
from clew.store.owner import read_owner
from clew.telemetry.export import exporting

__all__ = ["DEFAULT_PORT", "Server", "find_url", "serve", "serving_alongside"]

log = logging.getLogger("clew.http")

DEFAULT_PORT: Final = 7717
CHAT_LOG: Final = "chat.log"
"""In the data folder: warnings and errors of a chat that serves its store."""
Opens: TypeAlias = Callable[..., contextlib.AbstractAsyncContextManager[Engine]]
_DEADLINE_S: Final = 4.5
_SHARED_DRAIN_S: Final = 30.0
_MAX_DRAIN_S: Final = 86_400.0
_UVICORN_GRACE_S: Final = 2
_AFTER_TURN_S: Final = 1.0
"""Time for work after a turn, such as titles, at shutdown."""
_SWITCH_S: Final = 0.0002
"""The interpreter's switch interval in this process; its default, 5 ms, delays each wakeup beside a busy thread."""
_LAST_LOG_S: Final = 0.2
"""Time to write the last log line when the server is cut off."""
_CUT_OFF: Final = "shutdown timed out and running work was cut off; open turns are settled at the next start"
_MAX_OPEN_FILES: Final = 65_536


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
    """Serve a store until a signal arrives; return the exit code.

    ``app`` names a function, as ``module:attr``, that opens the store: it is called like :func:`clew.open` and returns
    the same.
    """
    open_engine = load_app(app) if app is not None else compose.open
    if drain_s is not None and not 0 <= drain_s <= _MAX_DRAIN_S:
        raise InvalidInput("--drain must be 0 to 86400 seconds")
    if not 0 <= port <= 65535:
        raise InvalidInput("--port must be 0 to 65535")
    form = os.environ.get("CLEW_LOG") or "text"
    if form not in get_args(LogForm):
        raise InvalidInput("CLEW_LOG must be text or json")
    _check_not_served(store)
    _raise_limit()
    with _bound(host, port) as listener:
        address = listener.getsockname()[0]
        existing = load_token()
        if not ipaddress.ip_address(address).is_loopback and (existing is None or not existing.chosen):
            raise InvalidInput(
                f"{host} can be reached from other machines; set CLEW_TOKEN to a secret of your own, or omit --host"
            )
        token = existing or make_token()
        set_up(cast(LogForm, form), secret_values(load_config(), {**os.environ, "CLEW_TOKEN": token.value}))
        if unknown := unknown_settings():
            log.warning("ignoring unknown keys in the config file: %s", ", ".join(unknown))
        with _stop_signal() as stop:
            return await _serve(store, live, listener, token, stop, open_page, drain_s, open_engine)


def load_app(named: str) -> Opens:
    """Import the function that opens the store."""
    module, _, attr = named.partition(":")
    if not module or not attr:
        raise InvalidInput("--app must be module:attr, such as shop.app:open_engine")
    # Like python -m: modules of the current folder can be imported.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for name in attr.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"--app {named} cannot be loaded: {error}") from error
    if not callable(found):
        raise InvalidInput(f"--app {named} is not a function; it must accept the arguments of clew.open")
    return cast(Opens, found)


class _Stop:
    """The shutdown request, and how long active runs may take to finish."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.drain_s = 0.0
        self.unsettled: tuple[str, ...] = ()
        """Turns that have ended but could not be settled in the store."""
        self.is_settled = False
        """True once every run is settled and the store is closed."""

    def settle(self, error: type[BaseException] | None, *_: object) -> None:
        self.is_settled = error is None and not self.unsettled

    def force_exit(self) -> None:
        """Exit at the deadline, without waiting for threads or tasks of other code."""
        try:
            if not self.is_settled:
                # Log from a thread: writing to a log that is not read blocks forever.
                log_thread = threading.Thread(target=log.error, args=(_CUT_OFF,), daemon=True)
                log_thread.start()
                log_thread.join(_LAST_LOG_S)
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
    open_engine: Opens = compose.open,
) -> int:
    check_address_space(SERVER_BYTES, "a server")
    base, hosts = _addresses(listener)
    streams = Streams()
    async with contextlib.AsyncExitStack() as stack:
        config = load_config()
        if config.replica.url is None:
            config = replace(config, replica=replace(config.replica, url=base))
        stack.enter_context(exporting())
        stack.push(stop.settle)
        engine = await stack.enter_async_context(
            open_engine(
                store or default_store_url(),
                config=config,
                config_dir=config_folder(),
                data_dir=data_folder(),
                live=live,
                # An app decides itself, as every program that uses the library.
                **({"snapshots": config.snapshot_settings.mode} if open_engine is compose.open else {}),
            )
        )
        drain_s = config.replica.drain_s if drain_s is None else drain_s
        # Other processes that serve the store accept new work while runs finish here.
        stop.drain_s = (
            drain_s if drain_s is not None else _SHARED_DRAIN_S if engine.store.capabilities.many_processes else 0.0
        )
        if not engine.store.capabilities.chunk_durable:
            log.warning("%s is saved after each %s, not after each chunk", engine.store.url, engine.config.save.save_on)
        root: Path | None = None
        with contextlib.suppress(OSError):
            root = Path.cwd()
        owners = OwnerTokens()
        if owner_list := owners.list():
            log.info(
                "%d owners have their own tokens; the server's own token grants access to everything", len(owner_list)
            )

        authenticate = BearerTokens(token.value, functools.partial(_find_owner, owners))
        app = make_app(engine, authenticate=authenticate, hosts=hosts, streams=streams, workspace_root=root)

        loading: list[asyncio.Task[None]] = []

        def ready() -> None:
            # Settings of this process. Everything loaded so far stays in memory; scanning it in each full collection
            # would delay all streams. Beside an export or a search, a prompt needs the interpreter dozens of times.
            gc.freeze()
            sys.setswitchinterval(_SWITCH_S)
            engine.store.announce(base)
            page = f"{base}/#token={token.value}"
            print(f"clew {page}", flush=True)
            loading.append(asyncio.get_running_loop().create_task(engine.preload()))
            if open_page:
                stack.callback(open_browser(page, data_folder()))

        server = Server(app, listener, engine.config.server, ready)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        stopping = asyncio.get_running_loop().create_task(stop.requested.wait())
        run_log = asyncio.get_running_loop().create_task(log_runs(engine))
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if stop.drain_s:
            await engine.drain(stop.drain_s)
        server.should_exit = True
        streams.close()
        # Close the engine first: its runs settle, and their viewers see how they ended.
        stop.unsettled = await engine.close(_AFTER_TURN_S)
    for task in (run_log, *loading):
        task.cancel()
    await serving
    return 0 if stop.is_settled else 1


def _addresses(listener: socket.socket) -> tuple[str, Container[str]]:
    """Return the server's address on this machine, and the accepted Host headers."""
    address, port = listener.getsockname()[:2]
    configured = frozenset(filter(None, re.split(r"[,\s]+", os.environ.get("CLEW_HOSTS", "").lower())))
    ip, names = ipaddress.ip_address(address), loopback_hosts(port) | configured
    hosts: Container[str] = names
    if not ip.is_loopback:
        hosts = AnyAddress(port, names | {f"{socket.gethostname().lower()}:{port}"})
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return f"http://[{ip}]:{port}" if ip.version == 6 else f"http://{ip}:{port}", hosts


def _find_owner(owners: OwnerTokens, token: str) -> Owner | None:
    found = owners.find(token)
    return None if found is None else Owner(found.name, found.roots)


@contextlib.asynccontextmanager
async def serving_alongside(engine: Engine) -> AsyncIterator[None]:
    """Serve an engine that this process uses for something else, such as a chat: the page, commands and other chats can
    use it with the token. Listens on any free port of this machine while entered; logs to a file.
    """
    token, log_path = make_token().value, data_folder() / CHAT_LOG
    hidden = secret_values(engine.config, {**os.environ, "CLEW_TOKEN": token})
    with logging_to(log_path, hidden), _bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        streams, authenticate = Streams(), BearerTokens(token, functools.partial(_find_owner, OwnerTokens()))
        app = make_app(
            engine,
            authenticate=authenticate,
            hosts=loopback_hosts(port),
            streams=streams,
            workspace_root=Path.cwd(),
            log_name=str(log_path),
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
    """uvicorn behind clew's acceptor, with a callback when it is up and without its signal handling."""

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
                timeout_graceful_shutdown=_UVICORN_GRACE_S,
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

        acceptor = Acceptor(self._listener, connect, limits, connection_limit(limits))
        self.servers = [acceptor]  # type: ignore[list-item]  # uvicorn only closes it
        acceptor.open()
        self.started = True
        self._ready()


@contextlib.contextmanager
def _stop_signal() -> Iterator[_Stop]:
    """Handle signals: the first requests a stop and starts the deadline; the second, or the deadline, exits."""
    stop = _Stop()

    def on_signal(number: int) -> None:
        if stop.requested.is_set():
            os._exit(128 + number)
        stop.requested.set()
        # Before logging, which could block forever.
        clock = threading.Timer(stop.drain_s + _DEADLINE_S, stop.force_exit)
        clock.daemon = True
        clock.start()
        log.info("shutting down")

    for number in (signal.SIGINT, signal.SIGTERM):
        add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            remove_signal_handler(number)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"{host}:{port} is not an address of this machine: {error}") from error
    with socket.socket(family, kind, protocol) as listener:
        if sys.platform == "win32":
            # There the other option allows a second server on the same port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except (OSError, OverflowError) as error:
            raise Conflict(
                f"cannot listen on {host}:{port}: {error}; choose another --port, or 0 for any free one"
            ) from error
        yield listener


def _raise_limit() -> None:
    """Raise the limit of open files: every viewer needs a descriptor, and shells start with 1,024."""
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
                wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _check_not_served(store: str | None) -> None:
    """Report that the store is already served before a taken port is reported. The store's lock decides later."""
    owned = lock_of(parse_url(store or default_store_url()))
    owner = read_owner(owned) if owned is not None else None
    if owner is not None and owner.url is not None:
        raise OwnedByAnotherProcess(
            f"this store is already served at {owner.url} (process {owner.pid}); `clew url` prints its address",
            pid=owner.pid,
            url=owner.url,
        )


def find_url(base: str | None) -> str:
    """Return the URL, with the token, of the announced server; raise :class:`NotFound` if there is none."""
    token = load_token()
    if base is None or token is None:
        raise NotFound("no server is running for this store; start one with `clew serve`")
    return f"{base}/#token={token.value}"
