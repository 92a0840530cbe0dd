"""Clients of a clew server: ``AsyncClient``, and ``Client`` for programs without an event loop.

Both are typed, need only the base package, and have the methods, values and errors of an engine in the same process.
They reconnect and resume after a dropped connection.
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
