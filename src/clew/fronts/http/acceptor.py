"""The acceptor: takes connections in while there is room, and turns away the rest with a word.

Every connection is a descriptor, and so is what the store and the tools open. A server that has none left cannot
record, so the acceptor stops short of what the process may open. A connection without a token makes room for a new one:
first the oldest that has sent no whole request, however short a time it has been open, then the oldest that is being
answered. Where no connection can make room, the new one is refused immediately. The loop never spins:
when even sending away needs a descriptor that is not there, one that was kept back for that is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol, cast

from clew.config import ServerConfig
from clew.fronts.http.problem import ServerBusy, raw_problem

__all__ = ["SETTLED_S", "Acceptor", "Peer", "most_connections"]

log = logging.getLogger("clew.http")

_BACKLOG: Final = 2048
_BATCH: Final = 64
SETTLED_S: Final = 0.5
"""A request that is being answered need not make room for others in its first moment."""
_REST_S: Final = 1.0
_TELL_EVERY_S: Final = 10.0
_LEAST_KEPT: Final = 64
_MOST_KEPT: Final = 1024
_NOBODY: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Peer(Protocol):
    """The protocol of one connection, as the acceptor sees it."""

    def cut(self) -> None:
        """End it now, whatever it is doing."""
        ...


class Acceptor:
    """One listening socket. ``make`` makes the protocol of a connection."""

    def __init__(self, listener: socket.socket, make: Callable[[], Peer], limits: ServerConfig, most: int) -> None:
        self._listener = listener
        self._make = make
        self._most = most
        self._most_strangers = min(limits.max_strangers, most)
        self._inside: set[Peer] = set()
        self._waiting: dict[Peer, None] = {}
        """Connections without a token that have sent no whole head since their last answer, oldest first."""
        self._asking: dict[Peer, float] = {}
        """Connections without a token whose request is being answered, and since when."""
        self._spare: int | None = None
        self._beginning: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._away = self._cut = 0
        self._told_at = -_TELL_EVERY_S
        self._telling: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._keep_spare()
        self._loop.add_reader(self._listener, self._accept_waiting)

    def close(self) -> None:
        """Take nobody in any more. Those who are inside are not the acceptor's."""
        self._loop.remove_reader(self._listener)
        for timer in (self._resting, self._telling):
            if timer is not None:
                timer.cancel()
        self._free_spare()

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    # Told by connections

    def know(self, peer: Peer) -> None:
        """The token was shown on it."""
        self._waiting.pop(peer, None)
        self._asking.pop(peer, None)

    def ask(self, peer: Peer) -> None:
        """Note that the head of a request has arrived on the connection."""
        if peer in self._waiting:
            del self._waiting[peer]
            self._asking[peer] = self._loop.time()

    def answered(self, peer: Peer) -> None:
        """Note that its request has been answered."""
        if self._asking.pop(peer, None) is not None:
            self._waiting[peer] = None

    def leave(self, peer: Peer) -> None:
        """It is over."""
        self._inside.discard(peer)
        self.know(peer)

    # Inside

    def _accept_waiting(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, _ = self._listener.accept()
            except _NOBODY:
                return
            except OSError as error:
                if not self._send_away_by_spare(error):
                    return
            else:
                self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        strangers = len(self._beginning) + len(self._waiting) + len(self._asking)
        full = len(self._inside) >= self._most or strangers >= self._most_strangers
        if full and not self._make_room():
            self._send_away(connection)
            return
        connection.setblocking(False)
        peer = self._make()
        self._inside.add(peer)
        task = self._loop.create_task(self._begin(peer, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, peer: Peer, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: cast(asyncio.Protocol, peer), connection)
        except OSError:
            connection.close()
            self.leave(peer)
        else:
            # Not before it can be cut, and before anything of it is read.
            self._waiting[peer] = None

    def _make_room(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            oldest, since = next(iter(self._asking.items()), (None, 0.0))
            if oldest is None or self._loop.time() - since < SETTLED_S:
                return False
        self.leave(oldest)
        oldest.cut()
        self._cut += 1
        self._tell()
        return True

    def _send_away(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(raw_problem(ServerBusy("too many connections; try again in a moment")))
            connection.shutdown(socket.SHUT_WR)
            # What was sent and not read would make the system take the answer back.
            connection.recv(64 * 1024)
        connection.close()
        self._away += 1
        self._tell()

    def _send_away_by_spare(self, error: OSError) -> bool:
        """With no descriptor left, the one that was kept back takes the next connection for as long as an answer takes.

        Whether there may be more of them.
        """
        if error.errno not in _NO_ROOM or self._spare is None:
            self._rest(error)
            return False
        self._free_spare()
        try:
            connection, _ = self._listener.accept()
        except _NOBODY:
            return False
        except OSError:
            self._rest(error)
            return False
        else:
            self._send_away(connection)
            return True
        finally:
            self._keep_spare()

    def _rest(self, error: OSError) -> None:
        """Look again in a while; a socket that cannot be accepted from stays ready, and asking would not end."""
        self._loop.remove_reader(self._listener)
        log.warning("no connection can be taken just now: %s", error)

        def again() -> None:
            self._resting = None
            self._keep_spare()
            self._loop.add_reader(self._listener, self._accept_waiting)

        self._resting = self._loop.call_later(_REST_S, again)

    def _keep_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _free_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _tell(self) -> None:
        """One line for all that happened, at most every ten seconds."""
        if self._telling is not None:
            return
        wait = max(0.0, self._told_at + _TELL_EVERY_S - self._loop.time())
        self._telling = self._loop.call_later(wait, self._say)

    def _say(self) -> None:
        self._telling = None
        self._told_at = self._loop.time()
        log.warning(
            "too many connections: %d turned away, %d without a token cut off; %d are open, %d may be",
            self._away,
            self._cut,
            len(self._inside),
            self._most,
        )
        self._away = self._cut = 0


def most_connections(limits: ServerConfig) -> int:
    """How many connections leave the store and the tools the descriptors they need."""
    # A system without it has no protocol either, and no server comes this far on it.
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        allowed = 1_000_000
    kept = min(max(_LEAST_KEPT, allowed // 8), _MOST_KEPT, allowed // 2)
    return min(allowed - kept, limits.max_connections or allowed)
