"""The live layer on PostgreSQL alone: other processes are told that there is something to read, and read the journal.

Everything travels as notifications of one channel, which the database keeps apart from those of others. They are sent
together and at a pace, however many chunks a stream has: a notification costs every commit of the server a little, and
says no more than how far to read. One that is lost costs time: the store is looked at now and then anyway.

A process has two connections: one that tells, through a pooler if there is one, and one that listens, which no pooler
may stand before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from clew.errors import NotSupported
from clew.live.shared import SharedLive

__all__ = ["PostgresLive", "payloads"]

_CHANNEL: Final = "clew_live"
_PACE_S: Final = 0.025
_QUIET_S: Final = 10.0
_MOST_BYTES: Final = 7_800
"""A notification of the server's has less than 8,000."""
_MOST_VALUE: Final = 1_000
_CONNECT: Final = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
_encode: Final = msgspec.json.Encoder().encode
_heard: Final = msgspec.json.Decoder(tuple[str, list[Any]]).decode


def payloads(origin: str, notes: Iterable[Any]) -> Iterator[str]:
    """The notes in as few notifications as they fit into; of one that is too long only what is short."""
    head = _encode(origin)
    held: list[bytes] = []
    size = len(head) + 4
    for note in notes:
        data = _encode(note)
        if len(data) + len(head) + 4 > _MOST_BYTES:
            kind, first, second = note
            kept = msgspec.to_builtins(second)
            if isinstance(kept, Mapping):
                kept = {key: value for key, value in kept.items() if len(_encode(value)) <= _MOST_VALUE}
            data = _encode((kind, first, kept))
            if len(data) + len(head) + 4 > _MOST_BYTES:
                continue
        if size + len(data) + 1 > _MOST_BYTES:
            yield (b"[%b,[%b]]" % (head, b",".join(held))).decode()
            held, size = [], len(head) + 4
        held.append(data)
        size += len(data) + 1
    if held:
        yield (b"[%b,[%b]]" % (head, b",".join(held))).decode()


class PostgresLive(SharedLive):
    """Streams, status, events and signals by LISTEN and NOTIFY."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise NotSupported("PostgreSQL needs an extra; install it: pip install 'clew[postgres]'") from None

    async def _connect(self) -> Any:
        from psycopg import AsyncConnection
        from psycopg.conninfo import conninfo_to_dict

        given: dict[str, Any] = {**_CONNECT, **conninfo_to_dict(self._url)}
        return await AsyncConnection.connect(**given, autocommit=True, prepare_threshold=None)

    async def _carry(self) -> None:
        connection = await self._connect()
        try:
            while True:
                mail = await self.next_mail()
                words = (("word", session_id, word) for session_id, word in mail.words.items())
                for payload in payloads(self.origin, (*words, *mail.notes())):
                    await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, payload))
                await asyncio.sleep(_PACE_S)
        finally:
            await connection.close()

    async def _hear(self) -> None:
        connection = await self._connect()
        try:
            await connection.execute(f"LISTEN {_CHANNEL}")
            self.set_connected(True)
            while True:
                async for told in connection.notifies(timeout=_QUIET_S):
                    self._take(told.payload)
                # Nobody said anything for a while: whether the server is there at all shows when it is asked.
                async with asyncio.timeout(_QUIET_S):
                    await connection.execute("SELECT 1")
        finally:
            self.set_connected(False)
            await connection.close()

    def _take(self, payload: str) -> None:
        try:
            origin, notes = _heard(payload)
        except msgspec.DecodeError:
            return  # of a version that says it otherwise: the store is looked at now and then
        for note in notes if origin != self.origin else ():
            self.hear_note(note)
