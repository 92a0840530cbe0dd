"""The acceptor: accepts connections up to a limit, and refuses the rest with a problem document.

Each connection needs a file descriptor, and so do the store and the tools. A server without free descriptors cannot
record, so the acceptor stays below the limit of the process. A connection without a token makes room for a new one:
first the oldest that has not sent a complete request head, however recent, then the oldest whose request is being
answered. If no connection can make room, the new one is refused immediately. The loop never spins: when even refusing
needs a descriptor and none is free, the acceptor uses one it has reserved.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Final, Protocol, cast

from clew.config import ServerConfig
from clew.fronts.http.problem import ServerBusy, raw_problem
from clew.platform.files import CLOEXEC

__all__ = ["SETTLED_S", "Acceptor", "Peer", "connection_limit"]

log = logging.getLogger("clew.http")

_BACKLOG: Final = 2048
_BATCH: Final = 64
SETTLED_S: Final = 0.5
"""A request must have been in progress for this long before it can be dropped for another."""
_RETRY_S: Final = 1.0
_LOG_INTERVAL_S: Final = 10.0
_MIN_RESERVED: Final = 64
_MAX_RESERVED: Final = 1024
_MAX_WATCHED: Final = 512
"""How many sockets an event loop can watch on Windows."""
_NO_CONNECTION: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Peer(Protocol):
    """The protocol of one connection, as the acceptor uses it."""

    def cut(self) -> None:
        """Close the connection immediately."""
        ...


class Acceptor:
    """One listening socket. ``make`` creates the protocol of a connection."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Peer], limits: ServerConfig, max_connections: int
    ) -> None:
        self._listener = listener
        self._make = make
        self._max_connections = max_connections
        self._max_strangers = min(limits.max_strangers, max_connections)
        self._connections: set[Peer] = set()
        self._waiting: dict[Peer, None] = {}
        """Connections without a token that have sent no complete head since their last response, oldest first."""
        self._active: dict[Peer, float] = {}
        """Connections without a token whose request is being answered, with its start time."""
        self._spare: int | None = None
        self._starting: set[asyncio.Task[None]] = set()
        self._retry_timer: asyncio.TimerHandle | None = None
        self._refused = self._dropped = 0
        self._logged_at = -_LOG_INTERVAL_S
        self._log_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._reserve_spare()
        self._loop.add_reader(self._listener, self._accept_waiting)

    def close(self) -> None:
        """Stop accepting. Open connections are not closed."""
        self._loop.remove_reader(self._listener)
        for timer in (self._retry_timer, self._log_timer):
            if timer is not None:
                timer.cancel()
        self._free_spare()

    async def wait_closed(self) -> None:
        """Return immediately: there is nothing to wait for."""

    # Called by connections

    def authenticated(self, peer: Peer) -> None:
        """Note that the connection has sent a valid token."""
        self._waiting.pop(peer, None)
        self._active.pop(peer, None)

    def request_started(self, peer: Peer) -> None:
        """Note that the head of a request has arrived."""
        if peer in self._waiting:
            del self._waiting[peer]
            self._active[peer] = self._loop.time()

    def request_finished(self, peer: Peer) -> None:
        """Note that the request has been answered."""
        if self._active.pop(peer, None) is not None:
            self._waiting[peer] = None

    def closed(self, peer: Peer) -> None:
        """Note that the connection is closed."""
        self._connections.discard(peer)
        self.authenticated(peer)

    def _accept_waiting(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, _ = self._listener.accept()
            except _NO_CONNECTION:
                return
            except OSError as error:
                if not self._refuse_with_spare(error):
                    return
            else:
                self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        strangers = len(self._starting) + len(self._waiting) + len(self._active)
        full = len(self._connections) >= self._max_connections or strangers >= self._max_strangers
        if full and not self._make_room():
            self._refuse(connection)
            return
        connection.setblocking(False)
        peer = self._make()
        self._connections.add(peer)
        task = self._loop.create_task(self._start(peer, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, peer: Peer, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: cast(asyncio.Protocol, peer), connection)
        except OSError:
            connection.close()
            self.closed(peer)
        else:
            # Registered only once it can be cut, and before any of its data is read.
            self._waiting[peer] = None

    def _make_room(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            oldest, since = next(iter(self._active.items()), (None, 0.0))
            if oldest is None or self._loop.time() - since < SETTLED_S:
                return False
        self.closed(oldest)
        oldest.cut()
        self._dropped += 1
        self._log_soon()
        return True

    def _refuse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(raw_problem(ServerBusy("too many connections; try again in a moment")))
            connection.shutdown(socket.SHUT_WR)
            # With unread input, closing would reset the connection and discard the response.
            connection.recv(64 * 1024)
        connection.close()
        self._refused += 1
        self._log_soon()

    def _refuse_with_spare(self, error: OSError) -> bool:
        """Without a free descriptor, accept and refuse the next connection with the reserved one.

        Return whether more connections may be pending.
        """
        if error.errno not in _OUT_OF_RESOURCES or self._spare is None:
            self._pause_accepting(error)
            return False
        self._free_spare()
        try:
            connection, _ = self._listener.accept()
        except _NO_CONNECTION:
            return False
        except OSError:
            self._pause_accepting(error)
            return False
        else:
            self._refuse(connection)
            return True
        finally:
            self._reserve_spare()

    def _pause_accepting(self, error: OSError) -> None:
        """Stop reading the socket for a moment: it stays readable while accepting fails, so the loop would spin."""
        self._loop.remove_reader(self._listener)
        log.warning("cannot accept connections right now: %s", error)

        def resume() -> None:
            self._retry_timer = None
            self._reserve_spare()
            self._loop.add_reader(self._listener, self._accept_waiting)

        self._retry_timer = self._loop.call_later(_RETRY_S, resume)

    def _reserve_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | CLOEXEC)

    def _free_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _log_soon(self) -> None:
        """Schedule one log line for all refusals, at most every ten seconds."""
        if self._log_timer is not None:
            return
        wait = max(0.0, self._logged_at + _LOG_INTERVAL_S - self._loop.time())
        self._log_timer = self._loop.call_later(wait, self._log_counts)

    def _log_counts(self) -> None:
        self._log_timer = None
        self._logged_at = self._loop.time()
        log.warning(
            "too many connections: %d refused, %d without a token dropped; %d open, limit %d",
            self._refused,
            self._dropped,
            len(self._connections),
            self._max_connections,
        )
        self._refused = self._dropped = 0


def connection_limit(limits: ServerConfig) -> int:
    """Return how many connections leave enough descriptors for the store and the tools."""
    allowed = _MAX_WATCHED
    if sys.platform != "win32":
        import resource

        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed == resource.RLIM_INFINITY:
            allowed = 1_000_000
    reserved = min(max(_MIN_RESERVED, allowed // 8), _MAX_RESERVED, allowed // 2)
    return min(allowed - reserved, limits.max_connections or allowed)
