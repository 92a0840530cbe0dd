"""For a program that talks to a clew server: ``AsyncClient``, and ``Client`` for one without a loop.

Both are typed, need nothing but the base package, and have what an engine in the same process has, by the same names
and with the same values; what is refused is raised as the same errors. They go on where a connection was cut.
"""

from __future__ import annotations

from clew.fronts.remote.attachment import attach_bytes, attach_file
from clew.fronts.remote.blocking import Client, Moved, Sent, Turn
from clew.fronts.remote.client import AsyncClient, AsyncTurn
from clew.fronts.remote.wire import BadAnswer, Gone, Unauthorized
from clew.transcript import chunk as chunks

__all__ = [
    "AsyncClient",
    "AsyncTurn",
    "BadAnswer",
    "Client",
    "Gone",
    "Moved",
    "Sent",
    "Turn",
    "Unauthorized",
    "attach_bytes",
    "attach_file",
    "chunks",
]
